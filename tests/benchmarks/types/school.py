"""What both ways of a comparison share: the recipe, its prepared rows, the teacher, and the start of a student."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from flows.run.recipe_file import load_recipe
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.row_files import StoredRows, read_split
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import PredictionSlice, RowsSlice, TeacherSlice
from tasks.recipe.students import Shape
from tasks.training.data.rows import Task, load_tokenizer, read_task
from tasks.training.finetune import finetune
from tasks.training.models.students import build_student, load_classifier, save_model, set_dropout

CPU, QUICK_STEPS = torch.device("cpu"), 4


@dataclass(frozen=True)
class School:
    """The recipe, its prepared rows, a folder for what is made, and the knobs of a training."""

    recipe: Recipe
    rows: Path
    scratch: Path
    knobs: PredictionSlice

    @property
    def kind(self) -> str:
        """The task type."""
        return self.recipe.spec.kind

    @property
    def teacher(self) -> Path:
        """The folder of the fine-tuned teacher."""
        return Path(self.recipe.teacher.model)

    @property
    def task(self) -> Task:
        """The task of the rows."""
        return read_task(self.rows, self.kind)

    @property
    def steps(self) -> int:
        """Steps of a training."""
        assert self.knobs.steps is not None
        return self.knobs.steps

    def split(self, name: str) -> StoredRows:
        """Return the rows of a split."""
        return read_split(self.rows, name)

    def tokenizer(self) -> Any:
        """Return the tokenizer of teacher and student."""
        return load_tokenizer(self.teacher)

    def load_teacher(self) -> Any:
        """Return the teacher."""
        return load_classifier(self.teacher, self.task, CPU).eval()

    def start(self, teacher: Any, seed: int) -> Any:
        """Return a student that begins with layers of its teacher, without dropout."""
        student = build_student("teacher", teacher, self.knobs.shape, seed=seed).requires_grad_(True)
        set_dropout(student, 0.0)
        return student

    def save(self, student: Any, name: str) -> Path:
        """Write a student; return its folder."""
        save_model(student, self.tokenizer(), self.scratch / name)
        return self.scratch / name

    def job(self, name: str, knobs: Any, **inputs: Path) -> Job:
        """Return an engine's job in a folder of its own."""
        folder = self.scratch / name
        folder.mkdir()
        places = {"output": str(folder), "checkpoints": str(folder.with_suffix(".marks"))}
        given = {part: str(place) for part, place in {"rows": self.rows, "teacher": self.teacher, **inputs}.items()}
        return Job({"job": name, "knobs": knobs.model_dump(mode="json"), **places, "inputs": given}, silent=True)


def open_school(scratch: Path, quick: bool) -> School:
    """Read the recipe that the environment names, and prepare its rows."""
    recipe = load_recipe(os.environ["RECIPE"])
    student, prediction = recipe.new_students[0], recipe.task_distillation.prediction
    prepare_rows(Path(recipe.data.source), RowsSlice(**dict(recipe.data), task=recipe.spec), scratch / "rows")
    told: dict[str, Any] = {**dict(prediction), "evaluations": 0, "dropout": 0.0}
    told["steps"] = QUICK_STEPS if quick else prediction.steps
    shape = Shape(**{name: getattr(student, name) for name in Shape.model_fields})
    knobs = PredictionSlice(**told, task_type=recipe.spec.kind, shape=shape, start="teacher", signal="teacher")
    return School(recipe, scratch / "rows", scratch, knobs)


def with_teacher(school: School, quick: bool) -> School:
    """Return a school whose teacher is fine-tuned: as its recipe says, unless its folder holds one that is."""
    recipe = school.recipe
    if recipe.teacher.already_finetuned:
        return school
    knobs: dict[str, Any] = {**dict(recipe.teacher), "task_type": school.kind}
    job = school.job("teacher", TeacherSlice(**knobs | ({"steps": QUICK_STEPS} if quick else {})), base=school.teacher)
    finetune(job)
    teacher = recipe.teacher.model_copy(update={"model": str(school.scratch / "teacher"), "already_finetuned": True})
    return replace(school, recipe=recipe.model_copy(update={"teacher": teacher}))
