"""Which of several seeds is the model, and that whoever pulls it gets the figures of its card."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.branches.candidate import Candidate
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.contracts import Artifact
from tasks.ports.tracking.tracker import Tracker
from tests.flows.test_compress import FAST, recipe_for


def candidate(*scores: float | None, facts: bool = True) -> Candidate:
    """Return a candidate of as many seeds as scores; without ``facts`` its last seed is only planned."""
    told = [{"train_seconds": 1.0} | ({} if score is None else {"selection_score": score}) for score in scores]
    models = [Artifact("checkpoint", f"{number:x}" * 64, "", 1, one) for number, one in enumerate(told, start=1)]
    if not facts:
        models[-1] = Artifact("checkpoint", "0" * 64, "", 0)
    return Candidate("small", "student", models, tuple(range(10, 10 + len(scores))))


def test_the_best_on_the_selection_rows_is_the_model_and_of_equals_the_first() -> None:
    found = candidate(0.8, 0.9, 0.9)
    assert found.chosen == 1 and found.model is found.models[1] and found.seeds[found.chosen] == 11
    assert found.chosen_first == [found.models[1], found.models[0], found.models[2]]
    assert found.as_in_recipe([0.2, 0.1, 0.3]) == [0.1, 0.2, 0.3] and found.as_in_recipe([]) == []
    for scores in ((0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.1), (0.2, 0.1, 0.4, 0.3)):
        one = candidate(*scores)
        assert one.as_in_recipe([model.facts["selection_score"] for model in one.chosen_first]) == list(scores)


def test_where_seeds_have_no_scores_it_is_the_first() -> None:
    assert candidate(None, None).chosen == candidate(0.1, None).chosen == candidate(0.5).chosen == 0


def test_a_plan_that_cannot_know_which_seed_it_will_be_calls_nothing_cached() -> None:
    assert candidate(0.8, 0.9, 0.9, facts=False).model.sha256 == "0" * 64


PULLED = """
import json, sys
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, rows = sys.argv[1], json.load(sys.stdin)
model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
with torch.inference_mode():
    found = [int(model(**tokenizer(text, truncation=True, max_length=16, return_tensors="pt")).logits.argmax()) for text in rows["text"]]
assert "tasks" not in sys.modules
print(repr(sum(one == label for one, label in zip(found, rows["label"])) / len(found)))
"""  # noqa: E501
"""What a user does who has none of our code."""


@pytest.mark.slow
def test_a_pulled_model_scores_in_a_clean_process_what_its_card_says(
    prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path, tmp_path: Path
) -> None:
    """Every version of a run with three seeds, to the last digit; by the mean over seeds none of them would."""
    import pyarrow.parquet as pq

    longer = {**FAST, "steps": 60, "learning_rate": 3e-3, "evaluations": 2}
    tiny = {"layers": 1, "hidden": 8, "heads": 2, "feed_forward": 16, "start": "random"}
    changes: dict[str, Any] = {
        "general_distillation": None,
        "corpus": None,
        "augmentation": None,
        "task_distillation": {"prediction": longer},
        "students": [
            {"name": "half", "layers": 2, "seeds": [3, 1, 2]},
            {"name": "labels", **tiny, "signal": "labels", "seeds": [0, 1, 2]},
        ],
        "layer_dropping": {**longer, "strategies": ["top"], "drop": [2], "seeds": [0, 1, 2]},
        "teacher": {"model": str(tiny_bert), "floor": 0.0, **longer},
    }
    result = run_recipe(recipe_for(tiny_bert, tiny_rows, **changes), home=home)
    tracker, models, spread = (
        Tracker(home.own_tracking_uri, home.artifacts),
        {model["name"]: model for model in result["models"]},
        0.0,
    )
    rows = next(
        path
        for path in Path(home.store).rglob("validation.parquet")
        if len(pq.read_table(path)) == result["rows"]["validation"]
    )
    given = json.dumps(
        {name: column for name, column in pq.read_table(rows).to_pydict().items() if name in ("text", "label")}
    )
    for entry in result["registered"]:
        folder, model = tmp_path / entry["version"], models[entry["candidate"]]
        tracker.download(entry["name"], entry["version"], folder)
        done = subprocess.run(
            [sys.executable, "-P", "-c", PULLED, str(folder)], input=given, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        value = float(done.stdout)
        assert value == model["metrics"]["validation"]["accuracy"]["value"]
        assert f"| accuracy, validation | {value:.4f} [" in (folder / "README.md").read_text()
        spread = max(spread, model["deviation"]["validation"]["accuracy"])
    assert {entry["candidate"] for entry in result["registered"]} == {"half", "labels", "top-2"}
    assert spread > 0, "seeds that are all alike prove nothing"
