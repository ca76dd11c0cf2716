"""The engine's two jobs as the stage tasks start them: a JSON file in, a folder and facts out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.engine.job import Job
from tests.forked import ForkedJob
from tests.scoring.small import sentences, write_classifier

SCORE = {"max_length": 32, "resamples": 200, "confidence": 0.95, "flops_length": 16}
FIGURES = {"metrics": ["accuracy", "f1"], "headline": "accuracy"}
TASK = {"name": "tiny", "kind": "classification", **FIGURES}
CLASSES = SCORE | {"task": TASK}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classifiers, a regressor, and rows of both kinds."""
    place = tmp_path_factory.mktemp("scales")
    for seed, name in enumerate(("teacher", "first", "second")):
        write_classifier(place / name, seed=seed)
    write_classifier(place / "regressor", num_labels=1)
    for name, labels in (("rows", [number % 2 for number in range(90)]), ("values", np.linspace(0, 5, 90).tolist())):
        (place / name).mkdir()
        for split, part in (("validation", slice(0, 60)), ("holdout", slice(60, 90))):
            count = len(labels[part])
            columns = {
                "id": range(part.start, part.stop),
                "text": sentences(90)[part],
                "pair": pa.nulls(count, pa.string()),
                "label": labels[part],
            }
            pq.write_table(
                pa.table({key: pa.array(column) for key, column in columns.items()}), place / name / f"{split}.parquet"
            )
    return place


def run_job(
    place: Path, output: Path, job: str, knobs: dict[str, Any], models: tuple[str, ...] = (), **inputs: Path
) -> list[dict[str, Any]]:
    """Run the engine in a process of its own; return its events."""
    order = {
        "job": job,
        "knobs": knobs,
        "inputs": {name: str(folder) for name, folder in inputs.items()},
        "output": str(output),
        "lists": {"models": [str(place / name) for name in models]},
        "threads": 1,
    }
    engine = ForkedJob(order, output.with_name(f"{output.name}-job"), "tasks.scoring")
    events = engine.events()
    assert events, engine.errors
    return events


def test_a_teacher_and_its_student_are_scored(place: Path, tmp_path: Path) -> None:
    rows, teacher = place / "rows", place / "teacher"
    own = run_job(place, tmp_path / "own", "score", CLASSES, ("teacher",), rows=rows, teacher=teacher)[-1]["facts"]
    assert own["retained"]["validation"] == {"value": 1.0, "low": 1.0, "high": 1.0} and own["agreement"] == {
        "validation": 1.0,
        "holdout": 1.0,
    }
    stored = {"rows": rows, "teacher": teacher, "teacher_predictions": tmp_path / "own"}
    events = run_job(place, tmp_path / "card", "score", CLASSES, ("first", "second"), **stored)
    card = events[-1]["facts"]
    assert json.loads((tmp_path / "card" / "scorecard.json").read_text()) == card
    assert card["rows"] == {"validation": 60, "holdout": 30} and len(card["per_seed"]["holdout"]["f1"]) == 2
    score = card["metrics"]["validation"]["accuracy"]
    assert (
        score["value"] == card["per_seed"]["validation"]["accuracy"][0]
        and score["low"] <= score["value"] <= score["high"]
    ), "of the first, the model"
    means = card["means"]["validation"]
    assert means["metrics"]["accuracy"]["value"] == pytest.approx(
        np.mean(card["per_seed"]["validation"]["accuracy"])
    ) and set(means) <= set(card)
    assert own["means"]["validation"]["metrics"] == own["metrics"]["validation"]
    assert card["difference"]["holdout"]["value"] == pytest.approx(
        card["metrics"]["holdout"]["accuracy"]["value"] - own["metrics"]["holdout"]["accuracy"]["value"]
    )
    assert [event["done"] for event in events if event["event"] == "progress"][-1] == 180
    assert {*card["provenance"].values()} == {"measured", "computed"}


def test_a_judging_set_is_scored_with_its_merged_classes_as_one(place: Path, tmp_path: Path) -> None:
    """Against the answers themselves: chosen among three classes first, then two of them counted as one."""
    from tasks.scoring.jobs import score_judging_set
    from tests.scoring.small import logits_of

    texts, labels, folder = sentences(40), np.asarray([number % 2 for number in range(40)]), tmp_path / "set"
    folder.mkdir()
    (folder / "task.json").write_text('{"merged": [0, 1, 1]}')
    columns = {"id": range(40), "text": texts, "pair": pa.nulls(40, pa.string()), "label": labels, "group": range(40)}
    pq.write_table(pa.table({key: pa.array(column) for key, column in columns.items()}), folder / "validation.parquet")
    models = {
        name: write_classifier(tmp_path / name, seed=seed, num_labels=3)
        for seed, name in enumerate(("teacher", "first", "second"))
    }
    knobs = {name: value for name, value in SCORE.items() if name != "flops_length"} | FIGURES
    knobs |= {"task_type": "classification", "metrics": ["accuracy"]}

    def judged(output: str, *names: str, **inputs: Path) -> dict[str, Any]:
        order = {
            "job": "judge",
            "knobs": knobs,
            "inputs": {"rows": folder, "teacher": models["teacher"], **inputs},
            "output": tmp_path / output,
        }
        (tmp_path / output).mkdir()
        return score_judging_set(Job(order | {"lists": {"models": [models[name] for name in names]}}, silent=True))

    own = judged("own", "teacher")
    card = judged("card", "first", "second", teacher_predictions=tmp_path / "own")
    answers = {name: logits_of(folder, texts, None, 32).argmax(-1) for name, folder in models.items()}
    right = {name: float((np.minimum(found, 1) == labels).mean()) for name, found in answers.items()}
    assert any((found == 2).any() for found in answers.values()), "else nothing was merged"
    assert (
        card["per_seed"]["accuracy"] == [right["first"], right["second"]]
        and own["metrics"]["accuracy"]["value"] == right["teacher"]
    )
    assert card["metrics"]["accuracy"]["value"] == right["first"] != right["second"], (
        "the first is the model, and its figures are its own"
    )
    assert (
        card["means"]["metrics"]["accuracy"]["value"] == pytest.approx((right["first"] + right["second"]) / 2)
        and own["means"]["agreement"] == 1
    )
    assert (
        card["difference"]["value"] == pytest.approx(card["metrics"]["accuracy"]["value"] - right["teacher"])
        and card["rows"] == 40
    )
    table = pq.ParquetFile(tmp_path / "card" / "predictions.parquet").read().to_pydict()
    assert table["prediction"][:40] == np.minimum(answers["first"], 1).tolist() and {*table["split"]} == {"validation"}


def test_stored_answers_replace_the_teacher(place: Path, tmp_path: Path) -> None:
    """The same figures as from asking it again."""
    common = {"rows": place / "rows", "teacher": place / "teacher"}
    run_job(place, tmp_path / "own", "score", CLASSES, ("teacher",), **common)
    asked, stored = (
        run_job(place, tmp_path / name, "score", CLASSES, ("first",), **common, **more)[-1]["facts"]
        for name, more in (("asked", {}), ("stored", {"teacher_predictions": tmp_path / "own"}))
    )
    assert asked == stored


def test_predictions_are_kept_row_by_row(place: Path, tmp_path: Path) -> None:
    run_job(
        place, tmp_path / "card", "score", CLASSES, ("first", "second"), rows=place / "rows", teacher=place / "teacher"
    )
    table = pq.read_table(tmp_path / "card" / "predictions.parquet").to_pydict()
    assert len(table["id"]) == 2 * 90 and table["id"][:60] == list(range(60)) and set(table["seed"]) == {0, 1}
    assert table["prediction"] == [float(np.argmax(row)) for row in table["logits"]]


def test_regression_is_scored(place: Path, tmp_path: Path) -> None:
    figures = {"kind": "regression", "metrics": ["pearson_spearman", "mse"], "headline": "pearson_spearman"}
    knobs = SCORE | {"task": {"name": "tiny", **figures}}
    card = run_job(
        place, tmp_path / "card", "score", knobs, ("regressor",), rows=place / "values", teacher=place / "regressor"
    )[-1]["facts"]
    assert (
        card["agreement"]["validation"] == pytest.approx(1)
        and -1 <= card["metrics"]["validation"]["pearson_spearman"]["value"] <= 1
    )


def test_an_unknown_metric_is_one_sentence(place: Path, tmp_path: Path) -> None:
    last = run_job(
        place,
        tmp_path / "card",
        "score",
        SCORE | {"task": TASK | {"metrics": ["meteor"]}},
        ("first",),
        rows=place / "rows",
        teacher=place / "teacher",
    )[-1]
    assert last["event"] == "error" and "unknown metric 'meteor'; choose one of accuracy" in last["message"]


def test_speed_is_measured_beside_the_teacher(place: Path, tmp_path: Path) -> None:
    knobs = {"batch": 2, "length": 16, "threads": 1, "repeats": 5, "warmup": 1, "seconds": 0.2} | {
        "task_type": "classification"
    }
    facts = run_job(place, tmp_path / "speed", "measure", knobs, model=place / "first", teacher=place / "teacher")[-1][
        "facts"
    ]
    assert json.loads((tmp_path / "speed" / "speed.json").read_text()) == facts
    assert facts["speedup"] == facts["teacher"]["p50_ms"] / facts["model"]["p50_ms"] and facts["memory_bytes"] > 0


def test_two_scorecards_are_compared_row_by_row(place: Path, tmp_path: Path) -> None:
    rows, knobs = place / "rows", {"metric": "accuracy", "resamples": 500, "confidence": 0.95}
    cards = {}
    for name, models in (("candidate", ("first", "second")), ("baseline", ("teacher",))):
        cards[name] = run_job(place, tmp_path / name, "score", CLASSES, models, rows=rows, teacher=place / "teacher")[
            -1
        ]["facts"]
    facts = run_job(
        place,
        tmp_path / "apart",
        "contrast",
        knobs,
        rows=rows,
        candidate=tmp_path / "candidate",
        baseline=tmp_path / "baseline",
    )[-1]["facts"]
    assert json.loads((tmp_path / "apart" / "comparison.json").read_text()) == facts
    assert (
        facts["seeds"] == [2, 1]
        and facts["lower_is_better"] is False
        and set(facts["splits"]) == {"validation", "holdout"}
    )
    for split, found in facts["splits"].items():
        mean = cards["candidate"]["means"][split]["metrics"]["accuracy"][
            "value"
        ]  # methods are compared over their seeds
        expected = mean - cards["baseline"]["metrics"][split]["accuracy"]["value"]
        assert (
            found["value"] == pytest.approx(expected)
            and found["low"] <= found["value"] <= found["high"]
            and 0 < found["p"] <= 1
        )


def test_other_rows_cannot_be_compared(place: Path, tmp_path: Path) -> None:
    run_job(place, tmp_path / "card", "score", CLASSES, ("first",), rows=place / "rows", teacher=place / "teacher")
    other = tmp_path / "other"
    other.mkdir()
    for split in ("validation", "holdout"):
        table = pq.ParquetFile(place / "rows" / f"{split}.parquet").read()
        pq.write_table(table.slice(1), other / f"{split}.parquet")
    knobs = {"metric": "accuracy", "resamples": 100, "confidence": 0.95}
    last = run_job(
        place,
        tmp_path / "apart",
        "contrast",
        knobs,
        rows=other,
        candidate=tmp_path / "card",
        baseline=tmp_path / "card",
    )[-1]
    assert (
        last["event"] == "error"
        and "contains predictions for other rows of holdout than the recipe's" in last["message"]
    )
