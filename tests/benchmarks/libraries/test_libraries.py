"""Other libraries learn the loss, the start and the batches that ours learns. Nothing here asserts a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.methods.losses.soft_targets import class_prediction_loss
from tests.benchmarks.libraries.lesson import Lesson, inputs_of, lesson_of
from tests.benchmarks.setting import Setting
from tests.benchmarks.types.school import open_school
from tests.tiny import write_tiny_bert, write_tiny_rows


def recipe_in(folder: Path) -> Path:
    """Write a recipe of a tiny classification whose teacher has learned nothing yet."""
    trained = {"steps": 4, "batch_size": 16, "max_length": 16, "precision": "fp32", "evaluations": 0}
    values = {
        "name": "peers",
        "task": {"name": "tiny", "labels": ["negative", "positive"]},
        "data": {"source": str(write_tiny_rows(folder)), "selection_rows": 20},
        "teacher": {"model": str(write_tiny_bert(folder / "bert")), "floor": 0.0, **trained},
        "task_distillation": {
            "intermediate": trained,
            "prediction": {**trained, "temperature": 2.0, "hard_weight": 0.1},
        },
        "students": [{"name": "half", "layers": 2}],
        "scoring": {"resamples": 100, "max_length": 16},
        "gate": {"split": "validation", "criteria": [{"metric": "parameters", "at_most": 1e9}]},
    }
    (folder / "recipe.yaml").write_text(json.dumps(values))
    return folder / "recipe.yaml"


@pytest.fixture
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lesson:
    monkeypatch.setenv("RECIPE", str(recipe_in(tmp_path)))
    (tmp_path / "scratch").mkdir()
    school = open_school(tmp_path / "scratch", quick=True)
    return lesson_of(school, "test", school.save(school.start(school.load_teacher(), 0), "start"), school.knobs, 4)


def our_loss(lesson: Lesson, teacher: Any, student: Any) -> float:
    """Return our loss of the first batch."""
    batch = lesson.batches[0]
    with torch.no_grad():
        ours_BC, theirs_BC = (model(**inputs_of(batch)).logits for model in (student, teacher))
    told = {"temperature": lesson.answers.temperature, "hard_weight": lesson.answers.hard_weight}
    return float(class_prediction_loss(ours_BC, theirs_BC, batch["labels"], **told).mean())


def test_a_lesson_has_the_batches_of_our_training(lesson: Lesson) -> None:
    """As many steps as asked for, of so many rows, padded to the longest of each batch; nobody has dropout."""
    assert len(lesson.batches) == 4 and all(len(batch["labels"]) == 16 for batch in lesson.batches)
    for batch in lesson.batches:
        assert batch["attention_mask"].sum(1).max() == batch["input_ids"].shape[1]
    teacher, student = lesson.pair()
    assert not any(module.p for model in (teacher, student) for module in model.modules() if hasattr(module, "p"))


def test_textbrewer_learns_the_loss_that_we_learn(lesson: Lesson, tmp_path: Path) -> None:
    pytest.importorskip("textbrewer", reason="make peers installs it")
    from tests.benchmarks.libraries.contestants import shown_answers, textbrewer_of, textbrewer_settings

    pair, batch = lesson.pair(), lesson.batches[0]
    distiller = textbrewer_of(tmp_path / "brewer", 4, textbrewer_settings(lesson), pair, shown_answers)
    theirs, parts = distiller.train_on_batch({"teacher": inputs_of(batch), "student": batch}, {})
    # A cross entropy is the divergence and the teacher's own entropy, which nobody learns.
    with torch.no_grad():
        softened_BC = (pair[0](**inputs_of(batch)).logits / lesson.answers.temperature).log_softmax(-1)
    entropy = float(-(softened_BC.exp() * softened_BC).sum(-1).mean())
    weight = (1 - lesson.answers.hard_weight) * lesson.answers.temperature**2
    assert theirs.item() - weight * entropy == pytest.approx(our_loss(lesson, *pair), rel=1e-4)


def test_torchdistill_learns_the_loss_that_we_learn(lesson: Lesson) -> None:
    pytest.importorskip("torchdistill", reason="make peers installs it")
    from tests.benchmarks.libraries.contestants import torchdistill_of

    pair, batch = lesson.pair(), lesson.batches[0]
    box = torchdistill_of(lesson, *pair)
    theirs = box.forward_process(inputs_of(batch), batch["labels"], {})
    assert theirs.item() == pytest.approx(our_loss(lesson, *pair), rel=1e-4)


@pytest.mark.slow
def test_every_contestant_is_timed_and_judged_and_an_absent_one_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlib.util import find_spec

    from tests.benchmarks.libraries.measuring import ANSWERS_ALONE, LAYERS_FIRST, OURS, library_peers

    monkeypatch.setenv("RECIPE", str(recipe_in(tmp_path)))
    figures = library_peers(Setting(1, True, 1))
    told = capsys.readouterr().err
    for library, name in (("textbrewer", "TextBrewer"), ("torchdistill", "torchdistill")):
        there = find_spec(library) is not None
        assert there == any(figure.of == name for figure in figures)
        assert there != (f"{name} is left out: ModuleNotFoundError" in told)
    for lesson_name in (ANSWERS_ALONE, LAYERS_FIRST):
        of_lesson = [figure for figure in figures if figure.name == f"{lesson_name}, a step"]
        assert {(OURS, " ms"), ("Trainer, bf16 by hand", " ms"), (OURS, "×")} <= {
            (one.of, one.unit) for one in of_lesson
        }
        assert all(one.ratios[0] > 0 and one.note.startswith("accuracy") for one in of_lesson)
