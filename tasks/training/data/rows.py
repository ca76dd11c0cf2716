"""Rows of a task, as an engine reads them, and the tokenizer with which they are encoded.

Shape letters: N rows, U units of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of, is_told_segments
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.ports.rows.row_files import read_facts, read_split
from tasks.task_types.heads import HEADS
from tasks.task_types.texts.truncation import state_truncation
from tasks.task_types.units import Parts, WrittenPieces
from tasks.training.data.encoded import Encoded, encode, encode_parts, encode_windows, encode_written

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tasks.methods.losses.means import Loss
    from tasks.ports.rows.row_files import StoredRows
    from tasks.task_types.types import Output
    from tasks.task_types.units import Units


@dataclass(frozen=True)
class TaskHead:
    """The fields of a task type's ``Head`` that every training uses. The others are asked where they are used, so that
    the key of a stage counts those that it uses alone."""

    outputs: tuple[Output, ...]
    auto_class: Callable[[], Any]
    configure: Callable[[Any, Sequence[str]], None]
    targets: Callable[[Sequence[Any]], np.ndarray]
    label_loss: Callable[[Mapping[str, Tensor], Tensor], Loss]
    start_from_labels: Callable[[Any, Callable[[], np.ndarray]], AbstractContextManager[None]]
    units: Units | Parts | WrittenPieces | None = None
    pair_targets: Callable[[Sequence[str], Sequence[Any]], np.ndarray] | None = None


@dataclass(frozen=True)
class Task:
    """The facts about a task that the engine needs."""

    name: str
    kind: str
    labels: list[str] | None
    headline: str
    pairs: bool
    head: TaskHead
    """The part of the task's type that training uses."""
    truncate: str = "longest"
    """The text of a pair that is cut where both are too long."""


@dataclass(frozen=True)
class Rows:
    """One split: ids [N], texts, second texts (None for single sentences), and the targets of the labels [N], as the
    head of the task's type makes them; where rows have several answers, or teach in pairs, the targets of a loss are
    apart [U]: those of pairs where they are there without units."""

    ids_N: np.ndarray
    texts: list[str]
    pairs: list[str] | None
    labels_N: np.ndarray
    targets_U: np.ndarray | None = None
    units: Units | Parts | WrittenPieces | None = None
    groups_N: np.ndarray | None = None
    """Rows of one group are judged together; None where each is judged alone."""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, places: np.ndarray) -> Rows:
        """Return the rows at some places, without the targets of their units."""
        return replace(
            self,
            ids_N=self.ids_N[places],
            texts=[self.texts[row] for row in places],
            pairs=None if self.pairs is None else [self.pairs[row] for row in places],
            labels_N=self.labels_N[places],
            targets_U=None,
            groups_N=None if self.groups_N is None else self.groups_N[places],
        )

    @property
    def targets(self) -> np.ndarray:
        """The targets of a loss: of rows, or of their units."""
        return self.labels_N if self.targets_U is None else self.targets_U

    def together(self, weight: float = 1.0) -> np.ndarray | None:
        """Return the first row of each pair, and behind them the number of rows, where a loss reads pairs whole: where
        labels have a ``weight`` in it. A row that belongs to no pair is alone. None where rows come one by one."""
        if self.units is not None or self.targets_U is None or weight == 0.0:
            return None
        is_paired_N = self.targets_U >= 0
        starts_N = ~is_paired_N | ((np.cumsum(is_paired_N) - is_paired_N) % 2 == 0)
        return np.append(np.flatnonzero(starts_N), len(starts_N))

    def tokens(self, tokenizer: Any, max_length: int) -> Encoded:
        """Return the tokens of the rows, at most ``max_length`` of each; a row with several answers is read in windows
        of that length, or one unit after the other."""
        if self.units is None:
            return encode(tokenizer, self.texts, self.pairs, max_length)
        if isinstance(self.units, Parts):
            return encode_parts(tokenizer, self.texts, self.pairs, max_length, self.units, self.targets_U)
        labels = self.labels_N.tolist()
        if isinstance(self.units, WrittenPieces):
            return encode_written(tokenizer, self.texts, labels, max_length, self.units)
        return encode_windows(tokenizer, self.texts, max_length, self.units, self.pairs, labels)

    def targets_in(self, encoded: Encoded) -> np.ndarray:
        """Return the targets of a loss; of units that are found among tokens, those of the encoded rows."""
        found = None if encoded.windows is None else encoded.windows.targets_UK
        return self.targets if found is None else found

    def texts_alone(self, tokenizer: Any, max_length: int, most: int) -> Encoded:
        """Return the tokens of the first rows, at most ``max_length`` of each, for measurements without answers: a long
        row is cut."""
        texts, pairs = self.texts[:most], None if self.pairs is None else self.pairs[:most]
        if isinstance(self.units, Parts):
            return encode_parts(tokenizer, texts, pairs, max_length, self.units)
        return encode(tokenizer, texts, pairs, max_length)


def read_task(folder: Path, task_type: str) -> Task:
    """Read the task of a rows folder; raise DataError if it is of another type than the stage was asked for."""
    facts = read_facts(folder)
    if facts.kind != task_type:
        raise DataError(
            f"the rows of {facts.name!r} are of type {facts.kind}, and this stage is for {task_type}; prepare the rows "
            f"with task.kind: {task_type}"
        )
    head = HEADS[task_type]
    used = TaskHead(
        head.outputs,
        head.auto_class,
        head.configure,
        head.targets,
        head.label_loss,
        head.start_from_labels,
        head.units,
        head.pair_targets,
    )
    return Task(facts.name, facts.kind, facts.labels, facts.headline, facts.pairs, used, facts.truncate)


def task_and_tokenizer(job: Job, task_type: str, model: str) -> tuple[Task, Any]:
    """Return the task of a job's rows, and the tokenizer of the model that is its input of that name, which cuts pairs
    as the task does."""
    task = read_task(job.inputs["rows"], task_type)
    return task, load_tokenizer(job.inputs[model], task.truncate)


def read_rows(folder: Path, split: str, head: TaskHead) -> Rows:
    """Read one split of a rows folder."""
    rows = read_split(folder, split)
    targets_U = None if head.units is None else targets_of_units(rows, head.units)
    if head.pair_targets is not None:
        targets_U = head.pair_targets(rows.texts, rows.labels)
    ids_N, labels_N = np.asarray(rows.ids, dtype=np.int64), head.targets(rows.labels)
    return Rows(ids_N, rows.texts, rows.pairs, labels_N, targets_U, head.units, rows.units_N)


def targets_of_units(rows: StoredRows, units: Units | Parts | WrittenPieces) -> np.ndarray | None:
    """Return the targets of the units of all rows [U]; None where they depend on tokens."""
    if isinstance(units, Parts):
        counts_N = units.read(rows.texts, rows.pairs)[2].tolist()
        found = [units.targets(*row) for row in zip(rows.ids, rows.labels, counts_N, strict=True)]
    elif isinstance(units, WrittenPieces) or units.targets is None or units.count is None:
        return None
    else:
        found = [units.targets(label, units.count(text)) for text, label in zip(rows.texts, rows.labels, strict=True)]
    return np.asarray([target for row in found for target in row], dtype=np.int64)


def join(first: Rows, second: Rows) -> Rows:
    """Concatenate two splits."""
    if (first.pairs is None) != (second.pairs is None):
        raise DataError(
            "training rows and transfer text differ: one has sentence pairs, the other does not; name the pair column"
        )
    pairs = None if first.pairs is None else first.pairs + (second.pairs or [])
    labels_N = np.concatenate([first.labels_N, second.labels_N.astype(first.labels_N.dtype)])
    ids_N, texts = np.concatenate([first.ids_N, second.ids_N]), first.texts + second.texts
    if first.targets_U is None or second.targets_U is None:
        return Rows(ids_N, texts, pairs, labels_N, units=first.units)
    return Rows(ids_N, texts, pairs, labels_N, np.concatenate([first.targets_U, second.targets_U]), first.units)


def student_rows(job: Job, task: Task, *, transfer_alone: bool) -> Rows:
    """Return the rows a student learns from: the training rows, the user's own transfer text, or both."""
    if "transfer" not in job.inputs:
        return read_rows(job.inputs["rows"], "train", task.head)
    own = read_rows(job.inputs["transfer"], "train", task.head)
    return own if transfer_alone else join(read_rows(job.inputs["rows"], "train", task.head), own)


def rows_by_id(kept: Sequence[int] | np.ndarray, wanted_N: np.ndarray, what: str, stage: str) -> np.ndarray:
    """Return the position of each wanted row among the stored rows of the teacher's answers or layers.

    Raises ModelError if rows are missing.
    """
    place = {int(number): index for index, number in enumerate(kept)}
    missing = sum(int(number) not in place for number in wanted_N)
    if missing:
        raise ModelError(f"the teacher's {what} lack {missing:,} of the student's rows; run again with --force {stage}")
    return np.asarray([place[int(number)] for number in wanted_N])


def load_tokenizer(folder: Path, truncate: str | None = None) -> Any:
    """Load a tokenizer with its model's settings, and with a task's ``truncate``; raise ModelError for one with few
    tokens (a vocabulary file that was silently ignored leaves five), or without a token to pad with."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.pad_token_id is None:  # padding is masked everywhere, so any token can pad
        tokenizer.pad_token = tokenizer.sep_token or tokenizer.eos_token or tokenizer.unk_token
    if len(tokenizer) < 20 or tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer in {folder} holds {len(tokenizer)} tokens or no padding token; give a folder with "
            f"tokenizer.json"
        )
    if truncate is not None:
        state_truncation(tokenizer, truncate)
    return fitted(tokenizer, AutoConfig.from_pretrained(folder, local_files_only=True))


def fitted(tokenizer: Any, config: Any) -> Any:
    """Set the padding side and the input names that a model expects, and return the tokenizer; users who load the saved
    tokenizer then get the same inputs. Texts are cut at their end, as graphs cut them, also where the tokenizer of a
    model states the other side."""
    segments = ["token_type_ids"] if is_told_segments(config) else []
    wanted = {
        "padding_side": "left" if architecture_of(config).summary_last else "right",
        "truncation_side": "right",
        "model_input_names": ["input_ids", *segments, "attention_mask"],
    }
    for name, value in wanted.items():
        if sorted(getattr(tokenizer, name)) != sorted(value):
            setattr(tokenizer, name, value)
            tokenizer.init_kwargs[name] = value  # changes after loading are saved only if they are in here
    return tokenizer
