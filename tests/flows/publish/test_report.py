"""A tiny real run leaves its page, and a past run's page can be made again from what MLflow and the store keep."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flows.cli.app import app
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.publish import report
from flows.run.history import find_run
from tasks.errors import LimbeckError
from tasks.ports.tracking.tracker import Tracker
from tests.flows.test_compress import FAST, recipe_for

SECRET = "was good"
"""Words of the rows: every other row has them."""


def small(bert: Path, rows: Path, **changes: Any) -> Any:
    """Return a recipe with little in it: a student that learns from the labels beside a teacher that hardly did, so
    that they part somewhere."""
    training = {
        "steps": 120,
        "batch_size": 16,
        "max_length": 16,
        "evaluations": 2,
        "precision": "fp32",
        "learning_rate": 3e-3,
    }
    lean = {
        "corpus": None,
        "general_distillation": None,
        "augmentation": None,
        "layer_dropping": None,
        "task_distillation": {"prediction": training},
        "students": [{"name": "half", "layers": 2, "signal": "labels", "seeds": [0, 1]}],
        "resources": {"threads_alone": 1},
    }
    return recipe_for(bert, rows, **lean | changes)


@pytest.fixture(scope="module")
def first(prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path) -> dict[str, Any]:
    return run_recipe(small(tiny_bert, tiny_rows), home=home, command="limbeck run tiny")


def tracker(home: Home) -> Tracker:
    return Tracker(home.own_tracking_uri, home.artifacts)


def newest(home: Home) -> dict[str, Any]:
    return find_run(tracker(home), None)


def kept(home: Home, run: str, path: str) -> str:
    import mlflow.artifacts

    return str(mlflow.artifacts.load_text(f"{tracker(home).client.get_run(run).info.artifact_uri}/{path}"))


def not_again(*_: Any) -> Any:
    raise AssertionError("this was found out before")


def past(home: Home, run: str, *, texts: bool = True) -> str:
    found = find_run(tracker(home), run)
    return report.past_report(tracker(home), found, home=home, texts=texts)


def test_a_run_leaves_its_page_its_picture_and_its_result(first: dict[str, Any], home: Home) -> None:
    files = {found.path for found in tracker(home).client.list_artifacts(first["run"], "report")}
    assert files == {"report/report.html", "report/pareto.svg"} and first["report"]["artifact"] == "report/report.html"
    page = kept(home, first["run"], "report/report.html")
    # Whether the gate believes so small a student is its own affair: with one candidate, the page is about it.
    for words in (
        "Lineage of half",
        "limbeck run tiny",
        'class="thread"',
        'aria-label="distill-predictions half: loss over steps',
    ):
        assert words in page, words


def test_every_candidate_was_looked_into(first: dict[str, Any]) -> None:
    for model in first["models"]:
        look, rows = model["inspection"], first["rows"]["validation"]
        assert sum(map(sum, look["confusion"])) == rows
        right = sum(row[place] for place, row in enumerate(look["confusion"])) / rows
        assert right == pytest.approx(model["metrics"]["validation"]["accuracy"]["value"]), "of the chosen seed"
        assert ("apart" in look) == (model["role"] != "teacher")
    assert first["labels"] == ["negative", "positive"]


def test_the_page_of_a_past_run_is_the_page_that_it_left(first: dict[str, Any], home: Home) -> None:
    assert past(home, first["run"]) == kept(home, first["run"], "report/report.html")


def test_a_cached_run_shows_the_curves_of_the_run_that_made_them(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not ask for them again, which takes seconds."""
    monkeypatch.setattr("tasks.ports.tracking.run_files.curves_of", not_again)
    again = run_recipe(small(tiny_bert, tiny_rows), home=home)
    assert {stage["cache"] for stage in again["stages"]} == {"hit"}
    page = kept(home, again["run"], "report/report.html")
    assert kept(home, again["run"], "report/pareto.svg") == kept(home, first["run"], "report/pareto.svg")
    assert "from the run that computed it: cached here" in page and 'aria-label="distill-predictions half: loss' in page


def test_texts_are_nowhere_but_in_the_page_and_only_where_they_may_be(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    client = tracker(home).client
    assert SECRET in kept(home, first["run"], "report/report.html"), "else this test would prove nothing"
    assert SECRET not in past(home, first["run"], texts=False) and SECRET not in kept(
        home, first["run"], "run/result.json"
    )
    without = run_recipe(small(tiny_bert, tiny_rows, report={"texts": False}), home=home)
    assert {stage["cache"] for stage in without["stages"]} == {"hit"}, "the switch is in no key"
    assert SECRET not in kept(home, without["run"], "report/report.html") and SECRET not in past(home, without["run"])
    rows = texts_of(tiny_rows)
    found = [path for path in sorted(home.artifacts.rglob("*")) if path.is_file() and path.name != "report.html"]
    assert {"input_example.json", "serving_input_example.json", "predictions.parquet"} <= {
        path.name for path in found
    }, "else this test would miss the models"
    assert [path for path in (*found, home.root / "mlflow.db") if any(text in content(path) for text in rows)] == []
    runs = client.search_runs(
        [experiment.experiment_id for experiment in client.search_experiments()], max_results=1000
    )
    assert runs and not any(SECRET in str(run.data.params | run.data.tags) for run in runs)


def texts_of(table: Path) -> list[str]:
    """Return the texts of a table's rows: each of them is somebody's."""
    return [line.rpartition(",")[0] for line in table.read_text().splitlines()[1:]]


def content(path: Path) -> str:
    """Return what a file says; the values of a compressed table stand in none of its bytes."""
    import pyarrow.parquet as pq

    return (
        str(pq.read_table(path).to_pydict())
        if path.suffix == ".parquet"
        else path.read_bytes().decode(errors="replace")
    )


def test_a_report_that_fails_takes_nothing_with_it(
    first: dict[str, Any],
    home: Home,
    tiny_bert: Path,
    tiny_rows: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*given: Any, **named: Any) -> str:
        raise ValueError("a chart broke")

    monkeypatch.setattr(report, "run_page", broken)
    caplog.set_level(logging.WARNING)
    again = run_recipe(small(tiny_bert, tiny_rows), home=home)
    assert again["registered"] and again["report"] == {} and newest(home)["status"] == "FINISHED"
    monkeypatch.undo()
    assert "Lineage of half" in past(home, again["run"]), "what it found was kept before the page broke"


def test_a_run_without_a_result_says_why_it_has_no_page(
    first: dict[str, Any], home: Home, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(LimbeckError):
        run_recipe(small(tiny_bert, tiny_rows, teacher={"model": str(tiny_bert), "floor": 1.0, **FAST}), home=home)
    with pytest.raises(LimbeckError, match=r"\(failed\) has no stored result for a report: it did not finish"):
        past(home, newest(home)["run"])


def test_the_command_writes_where_it_is_asked(
    first: dict[str, Any], home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    opened: list[Path] = []
    monkeypatch.setattr(report, "open_page", lambda path: opened.append(path) or True)
    done = CliRunner().invoke(
        app, ["report", first["run"][:8], "--open", "--no-texts", "--output", str(tmp_path / "mine.html")]
    )
    assert done.exit_code == 0 and opened == [tmp_path / "mine.html"]
    page = (tmp_path / "mine.html").read_text()
    assert "Lineage of half" in page and SECRET not in page
    assert CliRunner().invoke(app, ["report", first["run"][:8]]).exit_code == 0
    assert SECRET in (home.root / "reports" / f"{first['run'][:8]}.html").read_text()
    lost = CliRunner().invoke(app, ["report", "--output", str(tmp_path / "no" / "mine.html")])
    assert (
        isinstance(lost.exception, LimbeckError)
        and "does not exist; create it" in str(lost.exception)
        and not (tmp_path / "no").exists()
    )


def test_a_run_is_found_and_compared_by_its_knobs_and_its_data(first: dict[str, Any], home: Home) -> None:
    """MLflow's list of runs showed no parameters, no data, no user and no source, and candidates among their stages."""
    found = tracker(home)
    parent = found.client.get_run(first["run"])
    assert (
        parent.data.params["students.half.layers"] == "2"
        and parent.data.tags["mlflow.source.name"] == "limbeck run tiny"
    )
    assert parent.data.tags["teacher"] and {"accuracy", "f1"} <= set(parent.data.metrics)
    [half] = [one for one in found.candidates_of("tiny") if one["tags"]["candidate"] == "half"]
    child = found.client.search_runs(
        [parent.info.experiment_id], "tags.limbeck = 'candidate' and tags.candidate = 'half'", max_results=1
    )[0]
    assert child.data.params["shape.layers"] == "2"
    assert child.data.params["prediction.steps"] == "120" and "intermediate.epochs" not in child.data.params
    assert half["data"] == parent.inputs.dataset_inputs[0].dataset.digest != ""


def test_runs_are_compared_and_ranked_by_commands(
    first: dict[str, Any], home: Home, tmp_path: Path, tiny_bert: Path, tiny_rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    again = run_recipe(small(tiny_bert, tiny_rows, name="again"), home=home)
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    two = [first["run"][:8], again["run"][:8]]
    done = CliRunner().invoke(app, ["compare", *two, "--output", str(tmp_path / "two.html")])
    assert done.exit_code == 0 and "Knobs that differ" in done.output and "again" in done.output, done.output
    assert "2 runs side by side" in (tmp_path / "two.html").read_text()
    board = CliRunner().invoke(app, ["leaderboard", "tiny"])
    assert board.exit_code == 0 and "half" in board.output and "accuracy on validation" in board.output, board.output
    for words, sentence in (
        (["compare", two[0], two[0]], "is one run"),
        (["compare", two[0], "zzzz"], "no run 'zzzz'"),
        (["leaderboard", "tini"], "known tasks are tiny"),
    ):
        lost = CliRunner().invoke(app, words)
        assert isinstance(lost.exception, LimbeckError) and sentence in str(lost.exception), words


def test_a_store_that_lost_the_texts_still_has_a_page(first: dict[str, Any], home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other").create()
    found = find_run(tracker(home), first["run"])
    page = report.past_report(tracker(home), found, home=other, texts=True)
    assert "This page contains no texts" in page and SECRET not in page


def test_the_result_file_holds_no_text_and_is_plain_json(first: dict[str, Any], home: Home) -> None:
    result = json.loads(kept(home, first["run"], "run/result.json"))
    assert result["models"] == json.loads(json.dumps(first["models"])) and SECRET not in json.dumps(result)
