"""Tasks known by name: GLUE's columns, label names and metrics (Wang et al. 2018, arXiv:1804.07461)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.errors import RecipeError

GLUE_HUB = "nyu-mll/glue"

Kind = Literal["classification", "regression"]


class TaskSpec(BaseModel):
    """A task: the columns of texts and labels, the names of the labels, and the metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="Short name of the task.")
    kind: Kind = Field("classification", description="classification or regression.")
    text: str = Field("text", description="Column of the text.")
    pair: str | None = Field(None, description="Column of the second text, for pair tasks.")
    label: str = Field("label", description="Column of the label.")
    labels: tuple[str, ...] | None = Field(None, description="Label names in order; empty: taken from the data.")
    metrics: tuple[str, ...] = Field(("accuracy",), min_length=1, description="Metrics to report.")
    headline: str = Field("accuracy", description="Metric used for decisions.")
    validation: str = Field("validation", description="Name of the validation split.")


def _glue(name: str, texts: str, labels: str, metrics: str = "accuracy", validation: str = "validation") -> TaskSpec:
    """Return one GLUE task from short texts; no labels means regression, and the first metric is the headline."""
    text, pair = [*texts.split(), None][:2]
    names = tuple(labels.split()) or None
    kind: Kind = "classification" if names else "regression"
    scores = tuple(metrics.split())
    return TaskSpec(
        name=name,
        kind=kind,
        text=str(text),
        pair=pair,
        labels=names,
        metrics=scores,
        headline=scores[0],
        validation=validation,
    )


GLUE: dict[str, TaskSpec] = {
    task.name: task
    for task in (
        _glue("cola", "sentence", "unacceptable acceptable", "matthews accuracy"),
        _glue("sst2", "sentence", "negative positive"),
        _glue("mrpc", "sentence1 sentence2", "not_equivalent equivalent", "f1 accuracy"),
        _glue("qqp", "question1 question2", "not_duplicate duplicate", "f1 accuracy"),
        _glue("stsb", "sentence1 sentence2", "", "pearson_spearman pearson spearman"),
        _glue("mnli", "premise hypothesis", "entailment neutral contradiction", validation="validation_matched"),
        _glue("qnli", "question sentence", "entailment not_entailment"),
        _glue("rte", "sentence1 sentence2", "entailment not_entailment"),
        _glue("wnli", "sentence1 sentence2", "not_entailment entailment"),
    )
}


JUDGING_SETS: dict[str, dict[str, str]] = {"mnli": {"mismatched": "validation_mismatched"}}
"""Judging sets that belong to a GLUE task, if its source has them: by task and name, the split of the source."""


def glue_task(name: str) -> TaskSpec:
    """Return a GLUE task by name; raise RecipeError for an unknown one."""
    if name not in GLUE:
        near = get_close_matches(name, GLUE, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RecipeError(
            f"unknown task {name!r}; {hint}known are {', '.join(GLUE)}; or write your own task: name, text, label"
        )
    return GLUE[name]
