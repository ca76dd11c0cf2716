"""Tasks known by name: GLUE's columns, label names and metrics (Wang et al. 2018, arXiv:1804.07461)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    model_validator,
)

from tasks.errors import RecipeError
from tasks.task_types.texts.templates import columns_in, is_template
from tasks.task_types.texts.truncation import Truncate
from tasks.task_types.types import CLASSIFICATION, REGRESSION, TASK_TYPES, TaskType, task_type

GLUE_HUB = "nyu-mll/glue"


def known_task_type(name: str) -> str:
    """Return the name of a task type; raise ValueError for an unknown one, as pydantic expects."""
    # Looked up first: reading an engine's knobs runs no code that a key counts.
    if name in TASK_TYPES:
        return name
    try:
        return task_type(name).name
    except RecipeError as error:
        raise ValueError(str(error)) from None


TaskTypeName = Annotated[
    str, AfterValidator(known_task_type), WithJsonSchema({"type": "string", "enum": list(TASK_TYPES)})
]


ADDED: dict[str, JsonValue] = {"added": True}
"""Marks a knob that is in keys only where it differs from its default."""


def readable_columns(name: str) -> str:
    """Return the name of a column, or a template that can be read; raise ValueError for another one."""
    try:
        columns_in(name)
    except RecipeError as error:
        raise ValueError(str(error)) from None
    return name


class TaskSpec(BaseModel):
    """A task: the columns of texts and labels, the names of the labels, and the metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="Short name of the task.")
    kind: TaskTypeName = Field(CLASSIFICATION.name, description="The type of the task.")
    text: str = Field("text", description="Column of the text, or a template of several columns.")
    pair: str | None = Field(None, description="Column of the second text, or a template, for pair tasks.")
    label: str = Field("label", description="Column of the label.")
    labels: tuple[str, ...] | None = Field(None, description="Label names in order; empty: taken from the data.")
    metrics: tuple[str, ...] = Field((), description="Metrics to report; empty: the headline metric.")
    headline: str = Field("", description="Metric used for decisions; empty: that of the task type.")
    validation: str = Field("validation", description="Name of the validation split.")
    truncate: Truncate = Field(
        "longest",
        description="Which text of a pair is cut where both together are too long: the longer one, token by token, or "
        "the first or the second one alone.",
        json_schema_extra=ADDED,
    )
    group: str | None = Field(
        None,
        description="Column of groups that are judged together, such as the question of several answers; they share a "
        "split, and intervals draw them whole, unless data.group names larger ones.",
        json_schema_extra=ADDED,
    )

    @model_validator(mode="after")
    def has_columns(self) -> Self:
        """Reject templates that cannot be read or that its type does not take, and knobs of pairs without pairs."""
        is_words = any(column.is_words for column in TASK_TYPES[self.kind].columns)
        for knob in ("text", "pair", "group"):
            name = getattr(self, knob)
            if name is not None:
                readable_columns(name)
            if name is not None and is_template(name) and is_words:
                raise ValueError(f"{knob} is a template, and a {self.kind} task needs a list of words; name a column")
        if self.truncate != "longest" and self.pair is None:
            raise ValueError(f"truncate is {self.truncate!r}, and there is no pair of texts; remove it, or name pair")
        return self

    @model_validator(mode="before")
    @classmethod
    def with_metrics_of_its_type(cls, given: Any) -> Any:
        """Enter the metric that decides a task of the given type, unless the task names its metrics."""
        name = given.get("kind", CLASSIFICATION.name) if isinstance(given, dict) else None
        if name not in TASK_TYPES:
            return given
        headline = given.get("headline") or TASK_TYPES[name].headline
        usual = {column.role: column.usual for column in TASK_TYPES[name].columns if column.usual}
        return {**usual, **given, "headline": headline, "metrics": given.get("metrics") or (headline,)}


def _glue(
    name: str,
    texts: str,
    labels: str,
    metrics: str = "accuracy",
    validation: str = "validation",
    kind: TaskType = CLASSIFICATION,
) -> TaskSpec:
    """Return one GLUE task from short texts; the first metric is the headline."""
    text, pair = [*texts.split(), None][:2]
    scores = tuple(metrics.split())
    return TaskSpec(
        name=name,
        kind=kind.name,
        text=str(text),
        pair=pair,
        labels=tuple(labels.split()) or None,
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
        _glue("stsb", "sentence1 sentence2", "", "pearson_spearman pearson spearman", kind=REGRESSION),
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
