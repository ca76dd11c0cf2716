"""Labelled rows of a task and other text: sources, splits and augmentation."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.catalog import TaskSpec, TaskTypeName, readable_columns
from tasks.recipe.knobs import Knobs, Name, added_knob, require_distinct, runtime_knob
from tasks.task_types.types import DOCUMENT, MULTIPLE_CHOICE, SENTENCE_VECTORS, TASK_TYPES

SPLITS = ("train", "selection", "validation", "holdout")
"""The splits of a task's own rows."""


class TableFormat(Knobs):
    """Layout of a table in a text file, where it is not found by itself."""

    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="Character between two cells of a line; empty: found."
    )
    quoting: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether quotes frame a cell (on) or are part of its text (off); auto: what fits all lines.",
    )
    encoding: str | None = Field(
        None, description="Encoding of the text, such as utf-16 or latin-1; empty: found, UTF-8 if it is."
    )
    columns: tuple[str, ...] = Field(
        (), description="Names of all columns, in order, of a file without a header; empty: its first line names them."
    )

    @field_validator("encoding")
    @classmethod
    def is_known(cls, given: str | None) -> str | None:
        """Reject an encoding that Python does not know; return its usual name."""
        try:
            return given if given is None else codecs.lookup(given).name
        except LookupError:
            raise ValueError(f"unknown encoding {given!r}; write utf-8, utf-16 or latin-1, for example") from None

    @field_validator("columns")
    @classmethod
    def are_distinct(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        """Reject two columns of one name."""
        require_distinct(given, "columns")
        return given


class JudgingSet(Knobs):
    """Additional labelled rows, of another kind or origin than the task's own, on which every model is scored. They are
    never used for training."""

    source: str = runtime_knob(
        "", "A file, a folder or a hub id. Empty: the recipe's own data, of which split names other rows."
    )
    revision: str | None = runtime_knob(None, "Hub revision (a commit), for a hub id.")
    split: str = Field(
        "",
        max_length=200,
        description="Which file of a folder, its name without ending (axb/test); empty: validation, test or the "
        "only one.",
    )
    kind: TaskTypeName | None = added_knob(
        None,
        "Type of its rows; empty: as in the task. embedding and retrieval, each in a task of the other: an embedder is "
        "judged by similarity and by search. choices, in a task of next-words or chats: the option that a model finds "
        "likeliest behind the text, by byte, is its answer; no model learns such rows.",
    )
    text: str | None = Field(None, description="Column of the text, or a template; empty: as in the task.")
    pair: str | None = Field(
        None, description="Column of the second text, or a template, for pair tasks; empty: as in the task."
    )
    label: str | None = Field(None, description="Column of the label; empty: as in the task.")
    group: str | None = added_knob(
        None,
        "Column of groups that are judged together; intervals draw them whole. Empty: as in the task, where the set "
        "has no source of its own.",
    )
    labels: tuple[str, ...] | None = Field(
        None, description="Names of the numbers in its label column, from 0 on; empty: those of its file."
    )
    classes: dict[str, tuple[str, ...]] = Field(
        {},
        description="Classes of the task for each label with another name; with several classes, predictions are "
        "merged: any of them is correct.",
    )
    rows: int | None = Field(None, ge=1, description="Use at most this many rows (a fixed sample).")
    overlaps: Literal["keep", "leave-out", "purge"] = Field(
        "keep",
        description="Rows that overlap with training rows. keep: counted and checked by the gate; leave-out: removed "
        "from the set; purge: removed from train.",
    )

    @field_validator("text", "pair", "group")
    @classmethod
    def can_be_read(cls, given: str | None) -> str | None:
        """Reject a template that cannot be read."""
        return given if given is None else readable_columns(given)

    @field_validator("classes", mode="before")
    @classmethod
    def one_or_several(cls, given: Any) -> Any:
        """Accept a single class in place of a list of one."""
        return (
            {name: [value] if isinstance(value, str) else value for name, value in given.items()}
            if isinstance(given, Mapping)
            else given
        )

    @model_validator(mode="after")
    def has_rows_of_its_own(self) -> Self:
        """Reject a set that would repeat the rows that the recipe already uses for selection and training."""
        if not self.source and self.split in ("", "train"):
            raise ValueError(
                "a judging set has rows of its own; name their source, or a split of the recipe's own data other "
                "than train"
            )
        return self

    def is_foreign(self, spec: TaskSpec) -> bool:
        """Tell whether its rows are of another type than the task."""
        return self.kind is not None and self.kind != spec.kind

    def asks_alike(self, spec: TaskSpec) -> bool:
        """Tell whether its rows are of another type that reads the same outputs of the same models, as embedding and
        retrieval do: labels judge alone in one of them, so that its models are of either."""
        own, rows = TASK_TYPES[spec.kind], TASK_TYPES[self.kind or spec.kind]
        return rows is not own and rows.outputs == own.outputs and not (rows.learns_labels and own.learns_labels)

    def headline_on(self, spec: TaskSpec) -> str:
        """Return the metric that leads on it: the task's, or that of its rows' type where that is another one."""
        return TASK_TYPES[self.kind or spec.kind].headline if self.is_foreign(spec) else spec.headline

    def check_form(self, where: str, spec: TaskSpec) -> None:
        """Reject another form than the task's, and rows of another type on which its models cannot be judged. Raises
        ValueError."""
        own, rows = TASK_TYPES[spec.kind], TASK_TYPES[self.kind or spec.kind]
        if self.is_foreign(spec) and not (self.asks_alike(spec) or own.continues_texts and rows is MULTIPLE_CHOICE):
            raise ValueError(
                f"{where}.kind is {self.kind}, and the task {spec.name} is of type {spec.kind}; rows of another type "
                f"than the task's are legal as {foreign_types()}; remove kind"
            )
        if self.is_foreign(spec) and self.pair is None:
            second = next(column.description for column in rows.columns if column.role == "pair")
            raise ValueError(
                f"{where} is of type {self.kind} and names no column of {second}; set pair"
                if self.asks_alike(spec)
                else f"{where} is of type {self.kind} and names no options; set pair, for example to '{{choices[]}}' "
                f"or '{{choice1 | choice2}}'"
            )
        if self.pair is not None and spec.pair is None and not self.is_foreign(spec):
            raise ValueError(f"{where} names a second text, and the task {spec.name} has only one text; remove pair")
        if (self.labels or self.classes) and not rows.has_classes:
            raise ValueError(
                f"{where} names classes, and the task {spec.name} predicts a number; remove labels and classes"
                if rows is own
                else f"{where} names classes, and is of type {self.kind}; remove labels and classes"
            )

    def check_criterion(self, name: str, metric: str, spec: TaskSpec) -> None:
        """Reject a criterion of the gate that reads this set, whose rows are of another type than the task's, by a
        ``metric`` that it has not. Of rows that ask alike, the share of the teacher's score is by the metric of each
        set; elsewhere that share says little, since no model has learned such rows. Raises ValueError."""
        if not self.asks_alike(spec):
            raise ValueError(
                f"gate: worst_of names {name!r}, whose rows are of another type than the task's and have no metric of "
                f"its own; remove it from worst_of"
            )
        if metric != "retained":
            raise ValueError(
                f"gate: worst_of names {name!r}, whose rows are of type {self.kind} and have no {metric}; set metric: "
                f"retained, the share of the teacher's {self.headline_on(spec)} there, or remove it from worst_of"
            )


def require_packable(data: Data, spec: TaskSpec, transfer: TransferText | None) -> None:
    """Raise ValueError for packed rows of a type whose rows are no documents that a model continues, and beside text
    that is read row by row."""
    legal = [name for name, one in TASK_TYPES.items() if one.continues_texts and DOCUMENT in one.columns]
    if data.packed and spec.kind not in legal:
        raise ValueError(
            f"data.packed puts documents one behind the other, and {spec.name} is a task of {spec.kind}, whose rows "
            f"are read one by one; remove packed, which is for tasks of type {' or '.join(legal)}"
        )
    if data.packed and transfer is not None:
        raise ValueError(
            "data.packed puts training documents one behind the other, and texts of transfer are read one by one; "
            "remove one of the two"
        )


def foreign_types() -> str:
    """Return the types that rows of a judging set may have beside the task's, in words."""
    continuing = [name for name, one in TASK_TYPES.items() if one.continues_texts]
    embedders = [name for name, one in TASK_TYPES.items() if one.outputs == SENTENCE_VECTORS]
    return (
        f"kind: choices, in a task of type {' or '.join(continuing)}, and as kind: {' or '.join(embedders)}, in a task "
        f"of the other of these two"
    )


class Data(Knobs):
    """Source of the labelled rows, and their division into splits."""

    source: str = runtime_knob(
        "",
        "A hub id, a folder with train/validation files or from save_to_disk, or one file (csv, tsv, json, jsonl, "
        "conll, parquet, arrow; text files also with .gz). Empty: GLUE on the hub.",
    )
    revision: str | None = runtime_knob(None, "Hub revision (a commit), for a hub id.")
    config: str | None = Field(
        None, max_length=200, description="Configuration of a dataset that has several; empty: its only one."
    )
    format: TableFormat = Field(TableFormat(), description="Layout of a text file, where it is not found by itself.")
    faulty_rows: Literal["refuse", "drop"] = Field(
        "refuse",
        description="Rows that cannot be used: with an empty text, in a broken line, or of a class with too few rows "
        "for every split. refuse: all are reported; drop: they are left out and counted.",
    )
    licence: str = runtime_knob("unknown", "Licence of the data, for the model card.")
    language: str | None = runtime_knob(
        None,
        "Language of the texts as a code, for example en or pt-BR, for the model card; empty: unknown, and English for "
        "GLUE on the hub.",
        pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$",
    )
    synthetic: bool = runtime_knob(False, "The data is generated; the model card and the table state this.")
    selection_rows: int = Field(
        1000, ge=0, description="Rows held out from train to choose checkpoints; at most a tenth of train."
    )
    holdout_rows: int = Field(
        0, ge=0, description="Rows held out from train only for reporting; at most a fifth of train."
    )
    purge: bool = Field(
        True,
        description="Remove rows from train that overlap with held-out rows: same sentence, 8 words in sequence, or "
        "one contained in the other.",
    )
    group: str | None = Field(
        None,
        description="Column of groups; no group may be on both sides of a split, and intervals draw groups whole. It "
        "replaces the comparison of texts: equal rows alone are compared then.",
    )
    validation_share: float = Field(
        0.1, gt=0, lt=0.5, description="Share of train used as validation where the source has no validation split."
    )
    train_rows: int | None = Field(
        None,
        ge=1,
        description="Use at most this many training rows (a seeded sample; of the groups of data.group, whole ones).",
    )
    packed: bool = runtime_knob(
        False,
        "Training documents stand one behind the other, in the order of their file, with the token for an end between "
        "them, and windows are cut from that: all are full, and short documents share them, so that a model attends "
        "from one to those before it. For next-words; documents that judge are read one by one.",
    )
    seed: int = Field(0, ge=0, description="Seed of the split.")
    judge: dict[Name, JudgingSet | None] = runtime_knob(
        {},
        "Judging sets by name: further rows on which every model is scored; null removes one that the task defines.",
    )


class CorpusText(Knobs):
    """Unlabelled general text, for general distillation."""

    source: str = runtime_knob(..., "A hub id, a folder or a file (parquet, csv, jsonl with a text column, or txt).")
    revision: str | None = runtime_knob(None, "Hub revision (a commit), for a hub id.")
    licence: str = runtime_knob("unknown", "Licence of the text, for the model card.")
    text: str = Field("text", description="Name of the text column.")
    max_tokens: int = Field(20_000_000, ge=1000, description="Stop after this many tokens.")
    max_length: int = Field(128, ge=16, le=512, description="Tokens in one sequence.")


class Augmentation(Knobs):
    """Substitute words in the training rows, so that the student learns the teacher's predictions for more texts
    (TinyBERT's data augmentation, arXiv:1909.10351)."""

    masked_lm: str | None = runtime_knob(
        None, "A hub id or folder of a masked language model; 'teacher' for the pretrained teacher itself."
    )
    masked_lm_revision: str | None = runtime_knob(None, "Hub revision (a commit), for a hub id.")
    masked_lm_licence: str = runtime_knob(
        "unknown", "Licence of the masked language model, for the model card; 'teacher' has the teacher's."
    )
    word_vectors: str | None = runtime_knob(None, "A file of word vectors in GloVe text format (plain or gzip).")
    word_vectors_licence: str = runtime_knob("unknown", "Licence of the word vectors, for the model card.")
    vocabulary: int = Field(100_000, ge=1, description="Number of word vectors read from the start of the file.")
    options: int = Field(15, ge=1, le=100, description="Substitutes kept for each word.")
    rows: int | None = Field(
        None, ge=1, description="Training rows that get substitutes (a seeded sample); empty: all."
    )
    mode: Literal["masked", "one-pass"] = Field(
        "masked", description="masked: one word masked at a time; one-pass: all words at once, unmasked: much cheaper."
    )
    context: Literal["alone", "beside-original"] = Field(
        "alone", description="beside-original: paired with the unmasked sentence, as in the reference."
    )
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic of the masked language model.")
    max_length: int = Field(128, ge=8, le=512, description="Longest input in tokens.")
    seed: int = Field(0, ge=0, description="Seed of the sample of rows.")

    @model_validator(mode="after")
    def has_a_source(self) -> Self:
        """Reject augmentation without any source of words: it would silently do nothing."""
        if self.masked_lm is None and self.word_vectors is None:
            raise ValueError("augmentation needs masked_lm or word_vectors (or both); remove the section to disable it")
        return self


class Sampling(Knobs):
    """Sampling of training sentences from the stored substitutes."""

    share: float = Field(
        0.5, ge=0, le=1, description="Share of the examples that are replaced by a variant in an epoch."
    )
    probability: float = Field(0.4, ge=0, le=1, description="Chance that a replaceable word of a variant is replaced.")


class TransferText(Knobs):
    """Your own unlabelled in-domain text: the teacher predicts on it, and the student learns these predictions."""

    source: str = runtime_knob(..., "A folder or file (parquet, csv, tsv, jsonl, txt).")
    licence: str = runtime_knob("unknown", "Licence of the text, for the model card.")
    text: str = Field("text", description="Name of the text column.")
    pair: str | None = Field(None, description="Name of the second text's column, for pair tasks.")
    alone: bool = Field(False, description="Use it instead of the training rows, not in addition to them.")
    overlaps: Literal["keep", "leave-out"] = added_knob(
        "keep",
        "Texts that overlap with held-out rows. keep: learned from, counted and checked by the gate; leave-out: not "
        "learned from.",
    )
