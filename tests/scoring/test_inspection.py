"""The error analysis as a job: the first seed's answers are read, and the texts of the chosen rows are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.scoring.error_analysis import inspect_answers
from tasks.scoring.predictions import Predictions, write_predictions


def card(folder: Path, logits: list[list[float]], ids: list[int]) -> Path:
    """Write a scorecard's answers: a second seed that says the contrary, in another order, must not be read."""
    folder.mkdir()
    logits_NC = np.asarray(logits, dtype=np.float32)
    given = [
        ("validation", 0, ids[::-1], logits_NC[::-1]),
        ("validation", 1, ids, -logits_NC),
        ("holdout", 0, [9], 0 * logits_NC[:1]),
    ]
    write_predictions(
        folder, [Predictions(split, seed, rows, said.argmax(-1), {"logits": said}) for split, seed, rows, said in given]
    )
    return folder


def job(place: Path, rows: Path, **cards: Path) -> Job:
    inputs = {name: str(folder) for name, folder in {"rows": rows, **cards}.items()}
    knobs = {"task_type": "classification", "split": "validation", "bins": 10, "examples": 2}
    place.mkdir(exist_ok=True)
    return Job({"job": "inspect", "knobs": knobs, "inputs": inputs, "output": str(place)}, silent=True)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    columns = {
        "id": [4, 5, 6],
        "text": ["one", "<b>two</b>", "three"],
        "pair": pa.nulls(3, pa.string()),
        "label": [0, 1, 1],
    }
    pq.write_table(pa.table(columns), folder / "validation.parquet")
    return folder


def test_the_job_reads_the_first_seed_and_keeps_the_texts_that_are_shown(tmp_path: Path, rows: Path) -> None:
    teacher, student = (
        card(tmp_path / "t", [[1.0, 0], [0, 1], [0, 1]], [4, 5, 6]),
        card(tmp_path / "s", [[1.0, 0], [1, 0], [0, 1]], [4, 5, 6]),
    )
    facts = inspect_answers(job(tmp_path / "out", rows, card=student, teacher=teacher))
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (facts["rows"], facts["shown"], facts["ece"]) == (3, 1, found["ece"]) and found["confusion"] == [
        [1, 0],
        [1, 1],
    ]
    assert found["apart"]["examples"]["surest"][0]["id"] == 5
    assert json.loads((tmp_path / "out" / "texts.json").read_text()) == {"5": ["<b>two</b>", None]}
    assert "two" not in json.dumps(found) + json.dumps(facts), "texts are in one file alone"


def test_the_teacher_parts_from_nobody(tmp_path: Path, rows: Path) -> None:
    inspect_answers(job(tmp_path / "out", rows, card=card(tmp_path / "t", [[1.0, 0], [0, 1], [0, 1]], [4, 5, 6])))
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (
        found["confusion"] == [[1, 0], [0, 2]]
        and "apart" not in found
        and json.loads((tmp_path / "out" / "texts.json").read_text()) == {}
    )


def test_the_same_answers_leave_the_same_bytes(tmp_path: Path, rows: Path) -> None:
    cards = [card(tmp_path / name, [[1.0, 0], [0, 1], [0.2, 1]], [4, 5, 6]) for name in ("t", "s")]
    for name in ("first", "second"):
        inspect_answers(job(tmp_path / name, rows, card=cards[1], teacher=cards[0]))
    for file in ("inspection.json", "texts.json"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_other_rows_are_refused(tmp_path: Path, rows: Path) -> None:
    with pytest.raises(DataError, match="predictions for other rows"):
        inspect_answers(job(tmp_path / "out", rows, card=card(tmp_path / "t", [[1.0, 0]], [4])))
