"""A student with other attentions goes from teacher through both phases and a score to graphs in fp32 and int8."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.catalog import TaskSpec
from tasks.exports.jobs import JOBS as EXPORTING
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import AnswerSlice, IntermediateSlice, PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.scoring.jobs import JOBS as SCORING
from tasks.scoring.predict import outputs_of
from tasks.training.jobs import JOBS as TRAINING
from tests.architectures.test_a_further_architecture import done
from tests.exports.test_exports import EXPORT
from tests.scoring.test_jobs import CLASSES
from tests.tiny import write_tiny_bert
from tests.training.test_families import FAST, same_after_reload

MIXERS = ("lsra", "light", "dynamic", "synth-random+softmax")


@pytest.mark.slow
def test_from_teacher_to_graphs(tiny_rows: Path, tmp_path: Path) -> None:
    rows, base, teacher, student = (tmp_path / name for name in ("rows", "base", "teacher", "student"))
    prepare_rows(tiny_rows, RowsSlice(task=TaskSpec(name="tiny"), selection_rows=20), rows)
    write_tiny_bert(base)
    done(TRAINING, "finetune", TeacherSlice(task_type="classification", **FAST), teacher, rows=rows, base=base)
    shape = Shape(layers=4, mixer=MIXERS)
    inner = IntermediateSlice(
        task_type="classification", **FAST, method="attention-outputs", shape=shape, start="limbeck-encoder"
    )
    facts = done(TRAINING, "intermediate", inner, tmp_path / "first", rows=rows, teacher=teacher)
    assert facts["copied_attention"] == [0, 1, 2, 3]
    answers = AnswerSlice(task_type="classification", max_length=16, precision="fp32")
    done(TRAINING, "answer", answers, tmp_path / "answers", rows=rows, teacher=teacher)
    given = {"rows": rows, "teacher": teacher, "answers": tmp_path / "answers", "start": tmp_path / "first"}
    done(TRAINING, "prediction", PredictionSlice(task_type="classification", **FAST), student, **given)
    same_after_reload(student)
    card = done(SCORING, "score", CLASSES, tmp_path / "card", [student], rows=rows, teacher=teacher)
    assert card["flops"] > 0
    found = done(EXPORTING, "export", EXPORT, tmp_path / "export", model=student, rows=rows)
    assert found["made"] and found["equal_answers"] == 1 and found["largest_difference"] < 1e-4
    for texts in (["the film was good"], ["a meal", "the plot was very bad and the book was not"]):
        ours, graphs = (
            outputs_of(folder, texts, None, 16, task_type="classification")["logits"]
            for folder in (student, tmp_path / "export")
        )
        assert abs(ours - graphs).max() < 1e-4
