"""The demo's last sentence is true of the table above it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli import runner
from flows.home import Home
from flows.run.demo import last_words, margins
from tasks.results.run import RunResult
from tests.report.figures import row


def demo(distilled: float, alone: float, longer: float, **verdicts: str) -> RunResult:
    def of(name: str, value: float, **more: Any) -> dict[str, Any]:
        return row(
            name,
            metrics={"validation": {"accuracy": {"value": value, "low": value - 0.01, "high": value + 0.01}}},
            **more,
        )

    words = {"without_teacher": "better", "without_longer": "inside the noise"} | verdicts
    against = {
        baseline.replace("_", "-"): {
            "validation": {
                "value": distilled - theirs,
                "low": distilled - theirs - 0.01,
                "high": distilled - theirs + 0.01,
                "p": 0.01,
                "seeds": [1, 1],
                "verdict": words[baseline],
            }
        }
        for baseline, theirs in (("without_teacher", alone), ("without_longer", longer))
    }
    models = [
        of("teacher", 0.99),
        of("distilled", distilled, against=against),
        of("without-teacher", alone),
        of("without-longer", longer),
    ]
    about = {"recipe": "demo", "task": "demo", "headline": "accuracy", "split": "validation"}
    return RunResult.model_validate({**about, "models": models, "rows": {"validation": 2000}})


def test_one_language_is_told_with_the_figures_and_the_words_of_its_table() -> None:
    assert last_words([demo(0.986, 0.898, 0.975)]) == (
        "On 2,000 validation rows of a generated language distilled has 0.986. The same student without its teacher "
        "has 0.898 after the same last phase "
        "(distilled +8.8 points [+7.8, +9.8], better); 0.975 after as many steps as all phases together (distilled "
        "+1.1 points [+0.1, +2.1], inside the "
        "noise). This is one language and one seed; use --seeds 5 for an interval."
    )
    behind = last_words([demo(0.898, 0.934, 0.975, without_teacher="worse", without_longer="worse")])
    assert "-3.6 points [-4.6, -2.6], worse" in behind and "lifts" not in behind and "ahead" not in behind


def test_over_several_languages_ahead_is_said_only_where_the_interval_says_it() -> None:
    found = [demo(0.98, 0.90, 0.981), demo(0.97, 0.88, 0.96), demo(0.985, 0.91, 0.985)]
    said = last_words(found)
    assert said.startswith(
        "Over 3 generated languages, compared with the same student without its teacher, distilled is ahead by +8.2 "
        "points ["
    )
    assert (
        "not distinguishable, by +0.3 points [-1.2, +1.8] after as many steps as all phases together" in said
        and said.endswith("shows the last one.")
    )
    assert [round(point, 6) for point in margins(found)["without-longer"]["points"]] == [-0.1, 1.0, 0.0]
    assert "behind by -8.0 points" in last_words([demo(0.90, 0.98, 0.9)] * 3)


def test_the_report_of_each_language_has_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs themselves are the whole demo, and left out here."""
    commands: list[str] = []

    def watched(recipe: Any, *, command: str = "", **rest: Any) -> dict[str, Any]:
        commands.append(command)
        return demo(0.98, 0.9, 0.97).model_dump(mode="json")

    monkeypatch.setattr(runner, "watched_run", watched)
    monkeypatch.setattr(runner, "demo_recipe", lambda home, seed: None)
    runner.run_demo(seed=3, seeds=2, home=Home(tmp_path), console=None, ready=lambda: None)
    assert commands == ["limbeck demo --seed 3", "limbeck demo --seed 4"]
