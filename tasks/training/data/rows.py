"""Rows of a task, and their tokens as one array: no padding is stored, so none is computed by accident.

Shape letters: N rows, S tokens of all rows together, B batch, T tokens of a row (padded within a batch only).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of, is_told_segments
from tasks.engine.job import Job
from tasks.errors import DataError, ModelError
from tasks.ports.rows.row_files import read_facts, read_split
from tasks.task_types.heads import HEADS
from tasks.training.precision import FUSED

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tasks.methods.losses.means import Loss
    from tasks.task_types.types import Output


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


@dataclass(frozen=True)
class Rows:
    """One split: ids [N], texts, second texts (None for single sentences), and the targets of the labels [N], as the
    head of the task's type makes them."""

    ids_N: np.ndarray
    texts: list[str]
    pairs: list[str] | None
    labels_N: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Encoded:
    """Tokens of N rows in one array, with the segment of each token; ``left`` says whether batches are padded on the
    left."""

    ids_S: np.ndarray
    segments_S: np.ndarray
    offsets: np.ndarray
    left: bool = False

    @property
    def lengths_N(self) -> np.ndarray:
        """Return the number of tokens in each row."""
        return np.diff(self.offsets)

    def padded_to(self, width: int | None) -> np.ndarray:
        """Return the number of tokens in each row when padded to ``width``; without a width, its own length."""
        return self.lengths_N if width is None else np.full(len(self.offsets) - 1, width)


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
        head.outputs, head.auto_class, head.configure, head.targets, head.label_loss, head.start_from_labels
    )
    return Task(facts.name, facts.kind, facts.labels, facts.headline, facts.pairs, used)


def read_rows(folder: Path, split: str, head: TaskHead) -> Rows:
    """Read one split of a rows folder."""
    rows = read_split(folder, split)
    return Rows(np.asarray(rows.ids, dtype=np.int64), rows.texts, rows.pairs, head.targets(rows.labels))


def join(first: Rows, second: Rows) -> Rows:
    """Concatenate two splits."""
    if (first.pairs is None) != (second.pairs is None):
        raise DataError(
            "training rows and transfer text differ: one has sentence pairs, the other does not; name the pair column"
        )
    pairs = None if first.pairs is None else first.pairs + (second.pairs or [])
    labels_N = np.concatenate([first.labels_N, second.labels_N.astype(first.labels_N.dtype)])
    return Rows(np.concatenate([first.ids_N, second.ids_N]), first.texts + second.texts, pairs, labels_N)


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


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer with its model's settings; raise ModelError for one with few tokens (a vocabulary file that was
    silently ignored leaves five), or without a token to pad with."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.pad_token_id is None:  # padding is masked everywhere, so any token can pad
        tokenizer.pad_token = tokenizer.sep_token or tokenizer.eos_token or tokenizer.unk_token
    if len(tokenizer) < 20 or tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer in {folder} holds {len(tokenizer)} tokens or no padding token; give a folder with "
            f"tokenizer.json"
        )
    return fitted(tokenizer, AutoConfig.from_pretrained(folder, local_files_only=True))


def fitted(tokenizer: Any, config: Any) -> Any:
    """Set the padding side and the input names that a model expects, and return the tokenizer; users who load the saved
    tokenizer then get the same inputs."""
    segments = ["token_type_ids"] if is_told_segments(config) else []
    wanted = {
        "padding_side": "left" if architecture_of(config).summary_last else "right",
        "model_input_names": ["input_ids", *segments, "attention_mask"],
    }
    for name, value in wanted.items():
        if sorted(getattr(tokenizer, name)) != sorted(value):
            setattr(tokenizer, name, value)
            tokenizer.init_kwargs[name] = value  # changes after loading are saved only if they are in here
    return tokenizer


def pads_left(tokenizer: Any) -> bool:
    """Tell whether batches are padded on the left."""
    return bool(tokenizer.padding_side == "left")


def encode(tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> Encoded:
    """Tokenize rows, truncated to ``max_length`` tokens."""
    out = tokenizer(
        list(texts),
        list(pairs) if pairs is not None else None,
        truncation=True,
        max_length=max_length,
        return_attention_mask=False,
        return_token_type_ids=True,
        verbose=False,
    )
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in out["input_ids"]])]).astype(np.int64)
    return Encoded(flat(out["input_ids"]), flat(out["token_type_ids"]), offsets, pads_left(tokenizer))


def flat(lists: Sequence[Sequence[int]]) -> np.ndarray:
    """Concatenate lists of integers."""
    return np.fromiter((value for values in lists for value in values), dtype=np.int32)


@dataclass(frozen=True)
class Batch:
    """Padded tensors of one batch, on the device of the model."""

    ids_BT: Tensor
    mask_BT: Tensor
    segments_BT: Tensor
    at_B: Tensor | None = None
    """Numbers of the rows, for a loss that needs their labels."""
    host: tuple[Tensor, Tensor] | None = None
    """Tokens and mask before they were sent to the device, for draws that depend on them."""
    is_padded: bool = True
    """Whether a row may be shorter than the batch."""

    def on_host(self) -> tuple[Tensor, Tensor]:
        """Return tokens and mask on the CPU."""
        return self.host or (self.ids_BT.cpu(), self.mask_BT.cpu())

    def inputs(self, model: Any) -> dict[str, Tensor]:
        """Return the keyword arguments that this model's forward takes; the mask of a batch without padding is left out
        for attention that would only look at it to find that out."""
        values = {"input_ids": self.ids_BT, "attention_mask": self.mask_BT}
        if not self.is_padded and model.config._attn_implementation == FUSED:
            del values["attention_mask"]
        if is_told_segments(model.config):
            values["token_type_ids"] = self.segments_BT
        return values


def collate(
    encoded: Encoded, rows: Sequence[int] | np.ndarray, pad: int, place: torch.device, width: int | None = None
) -> Batch:
    """Pad the named rows to the longest of them, or to ``width`` tokens if it is given."""
    lengths = encoded.lengths_N[rows]
    width = int(lengths.max()) if width is None else width
    ids_BT = np.full((len(rows), width), pad, dtype=np.int64)
    segments_BT, mask_BT = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(2))
    for place_in_batch, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        start, there = encoded.offsets[row], valid(length, width, left=encoded.left)
        ids_BT[place_in_batch, there] = encoded.ids_S[start : start + length]
        segments_BT[place_in_batch, there] = encoded.segments_S[start : start + length]
        mask_BT[place_in_batch, there] = 1
    host = torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)
    others = torch.from_numpy(segments_BT), torch.from_numpy(np.asarray(rows, dtype=np.int64))
    sent = [values.to(place, non_blocking=True) for values in (*host, *others)]
    return Batch(sent[0], sent[1], sent[2], sent[3], host, bool((lengths < width).any()))


def valid(length: int, width: int, *, left: bool) -> slice:
    """Return the positions of a row's tokens in a padded batch."""
    return slice(width - length, width) if left else slice(length)
