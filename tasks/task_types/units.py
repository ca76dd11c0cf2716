"""Units of a row that have an answer each, and arrays of rows that differ in their number of units.

The units of a text, such as the words of a sentence or the pieces of a passage, are found among its tokens; it is read
in windows where it is longer than a model's input. Of a pair, each window has the whole first text and a part of the
second one. Units that are read apart, such as the options of a question, are a pair of texts each; those of one row
stand in one batch while a model learns. Shape letters: N rows, U units of all rows, T tokens of a window, C outputs of
a unit, K numbers of a target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from tasks.errors import ModelError

OVERLAP = 4
"""Neighbouring windows share one token in this many."""
MOST_FIRST, SHARE_OF_FIRST = 64, 3
"""Tokens of a first text that is read beside each window of a second one: at most so many, and one in so many of the
window, so that there is room for more than the overlap."""
PRESENT_DATE = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<form>[^'"]*)(?P=quote)\s*\)""")
"""A call in a template of chats."""
OUTSIDE_OF_TEXT, SUMMARY = -1, -2
"""In place of beginning and end: of tokens that are not of the second text of a pair, and of the token that represents
the window."""


StatedEntries = Mapping[str, object]
"""Entries of the config of a model, or of the card of its export."""
Conclusions = Mapping[str, "str | np.ndarray"]
"""What is concluded from the outputs of one row, by name: texts, or arrays."""


class Encoding(Protocol):
    """One window of a text or a pair, as the library tokenizers returns it; lists have one entry a token."""

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Beginning and end of each token in its text."""

    @property
    def sequence_ids(self) -> list[int | None]:
        """The number of the text of each token; None for special ones."""

    @property
    def attention_mask(self) -> list[int]:
        """1, or 0 for padding."""


def text_as_given(text: str) -> str:
    """Return a text as it is."""
    return text


@dataclass(frozen=True)
class KeptWords:
    """How much of a teacher's answer about a vocabulary is stored."""

    words: int  # the number of likeliest ones
    temperature: float  # the temperature of its students
    bits: int  # bits of a stored logarithm, 16 or 32


class WritesChats(Protocol):
    """Writes messages, each with its role and its content, by the template of a tokenizer."""

    def __call__(self, conversation: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        """Return the messages as one text, and behind them, if it is asked for, the beginning of an answer."""


@dataclass(frozen=True)
class ModelFrame:
    """What a tokenizer has for whole texts: the tokens for their beginning and their end, and its template for chats
    with the function that writes by it; neither of most tokenizers."""

    begin: str | None
    end: str | None
    chat_template: str = ""
    write_chat: WritesChats | None = None


@dataclass(frozen=True)
class FramedText:
    """A text as a model reads it, in the frame of its type. Shape letters: P parts, T tokens."""

    text: str
    parts_P3: np.ndarray | None = None
    """By part its beginning, and the beginning and the length of what it stands for in the text of the row; None: the
    places of tokens are those in the frame."""

    def places_in_row(self, places_T2: np.ndarray) -> np.ndarray:
        """Return the places of tokens in the text of the row, from those in the frame; padding stands nowhere (0, 0),
        and every other token somewhere."""
        if self.parts_P3 is None:
            return places_T2
        part_T3 = self.parts_P3[np.searchsorted(self.parts_P3[:, 0], places_T2[:, 0], side="right") - 1]
        there_T2 = part_T3[:, 1:2] + np.minimum(places_T2 - part_T3[:, :1], part_T3[:, 2:])
        there_T2[:, 1] = np.maximum(there_T2[:, 1], there_T2[:, 0] + 1)
        return np.where(places_T2.any(1, keepdims=True), there_T2, 0)


def overlap_of(max_length: int) -> int:
    """Return the number of tokens that neighbouring windows share."""
    return max_length // OVERLAP


@dataclass(frozen=True)
class Units:
    """The units of a task type whose rows have several answers."""

    places: Callable[[str, Sequence[np.ndarray]], list[np.ndarray]]
    """Returns by window of a text the number of the unit that each token answers [T], -1 for none, from the places of
    its tokens in the text [T, 2]; a unit is answered once at most. Of a pair the text is the second one."""
    count: Callable[[str], int] | None = None
    """Returns the number of units of a text; None: as many as ``places`` numbers, from 0 on."""
    targets: Callable[[Any, int], list[int]] | None = None
    """Returns the targets of a row's units from its label, which may be missing, and their number."""
    prepared: Callable[[str], str] = text_as_given
    """Returns a text of a user in the form of the texts that a model has learned from."""
    targets_at: Callable[[Any, np.ndarray], np.ndarray] | None = None
    """Returns the targets [U, K] of a row's units from its label and, by unit, its beginning, its end and the number of
    its window [U, 3]; None where the number of units tells enough (``targets``)."""
    conclude: Callable[[Mapping[str, np.ndarray], np.ndarray, str, StatedEntries], Conclusions] | None = None
    """Returns what is concluded from all outputs of one row: from the outputs [U, …], the places of the units [U, 3],
    the text, and what config or card state."""
    shared: Callable[[int], int] = overlap_of
    """Returns the number of tokens that neighbouring windows of a text share, from the most tokens of a window."""
    frame: Callable[[ModelFrame, str], FramedText] | None = None
    """Returns a text in the frame of a tokenizer, whose tokens are then among its own; no window has others. None:
    windows have the tokens that the tokenizer adds to texts."""
    prompt: Callable[[ModelFrame, str], str] | None = None
    """Returns the beginning of a framed text, which a model continues; None: it continues none."""

    are_chats: bool = False
    """Whether texts are chats, which the template of a tokenizer writes."""
    are_hidden: bool = False
    """Whether a model does not see the tokens that answer a unit: each is its ``hidden_id`` in the inputs."""

    @property
    def are_pieces(self) -> bool:
        """Whether the units are pieces of a tokenizer, so that models with other pieces have other units."""
        return self.targets_at is not None


@dataclass(frozen=True)
class Parts:
    """The units of a task type that reads each unit of a row as a pair of texts of its own."""

    pairs: Callable[[str, str], list[tuple[str, str]]]
    """Returns the pair of texts of each unit, from the text and the second text of a row."""
    targets: Callable[[int, Any, int], list[int]]
    """Returns the targets of a row's units from its id, its label, which may be missing, and their number. Units of one
    row have targets that tell them from those of other rows: a loss finds the rows of a batch by them."""
    needed: Callable[[np.ndarray], np.ndarray]
    """Tells by unit, from the targets [U], whether a training prefers it where a batch has no room for all of a row's:
    labels say little without it."""
    are_pieces: ClassVar = False
    """Units are texts, whatever the tokenizer makes of them."""

    def read(self, texts: Sequence[str], pairs: Sequence[str] | None) -> tuple[list[str], list[str], np.ndarray]:
        """Return the texts and second texts of the units of all rows [U], and the number of units of each row [N]."""
        rows = [self.pairs(text, pair) for text, pair in zip(texts, pairs or [""] * len(texts), strict=True)]
        every = [both for row in rows for both in row]
        counts_N = np.asarray([len(row) for row in rows], dtype=np.int64)
        return [text for text, _ in every], [pair for _, pair in every], counts_N


@dataclass(frozen=True)
class Writing:
    """How a model writes a text."""

    beams: int = 1
    """Texts that are continued side by side; 1 takes the likeliest word each time."""
    length_penalty: float = 1.0
    """The exponent of the length by which the log-likelihood of a beam is divided."""
    most: int = 128
    """Tokens of a written text, at most."""
    least: int = 0
    """Tokens of a written text, at least."""
    best: int = 1
    """The number of texts that are returned of each source."""


@dataclass(frozen=True)
class WrittenPieces:
    """The units of a task type whose models write a text: the pieces of the true text, each given those before it."""

    target: Callable[[Any], str]
    """Returns the text that a model learns to write, from a label."""
    write: Callable[[Any, Any, Any, Writing], Any]
    """Returns the tokens that a model writes [B * K, L], of each source its best texts, best first, from those that it
    reads and their mask [B, T]."""
    are_pieces: ClassVar = True


def texts_as_asked(
    units: Units | Parts | None, texts: Sequence[str], pairs: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str] | None]:
    """Return the texts and second texts that a model is asked: those of units that are read apart, else of rows."""
    if not isinstance(units, Parts):
        return texts, pairs
    own, second, _ = units.read(texts, pairs)
    return own, second


def hidden_id(ids: Any) -> Any:
    """Return the numbers that stand for hidden tokens in the inputs of a model, from their ids, and back again."""
    return -1 - ids


def place_units(units: Units, text: str, windows: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return by window of a text the number of the unit that each token answers [T], and by unit its beginning, its end
    and the number of its window [U, 3]; -1 for a unit without a token."""
    answered = units.places(text, windows)
    count = max((int(unit_T.max(initial=-1)) + 1 for unit_T in answered), default=0)
    places_U3 = np.full((count if units.count is None else units.count(text), 3), OUTSIDE_OF_TEXT, dtype=np.int64)
    for window, (unit_T, places_T2) in enumerate(zip(answered, windows, strict=True)):
        there = np.flatnonzero(unit_T >= 0)
        places_U3[unit_T[there], :2], places_U3[unit_T[there], 2] = places_T2[there], window
    return answered, places_U3


def places_in_pair(window: Encoding, *, left: bool) -> np.ndarray:
    """Return beginning and end of the tokens of a pair in its second text [T, 2]: ``OUTSIDE_OF_TEXT`` for others,
    ``SUMMARY`` for the first token, or for the last one where padding stands on the ``left``."""
    places_T2 = np.asarray(window.offsets, dtype=np.int64).reshape(-1, 2)
    places_T2[[part != 1 for part in window.sequence_ids]] = OUTSIDE_OF_TEXT
    there = np.flatnonzero(window.attention_mask)
    places_T2[there[-1 if left else 0]] = SUMMARY
    return places_T2


def first_text_limit(max_length: int) -> int:
    """Return the number of tokens that a first text may have beside windows of a second one."""
    return min(MOST_FIRST, max_length // SHARE_OF_FIRST)


def cut_at(text: str, offsets: Sequence[tuple[int, int]], most: int) -> str:
    """Return the beginning of a text with at most so many tokens, from the places of its tokens."""
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


def require_places(tokenizer: Any) -> None:
    """Raise ModelError for a tokenizer that does not tell the places of its tokens."""
    if not tokenizer.is_fast:
        raise ModelError("the tokenizer does not tell where its tokens stand; use a model with a tokenizer.json")


def frame_of(tokenizer: Any) -> ModelFrame:
    """Return the frame of a tokenizer of transformers; of several templates for chats, the default one."""
    template = getattr(tokenizer, "chat_template", None) or ""
    if isinstance(template, Mapping):
        template = template.get("default", "")
    write = partial(tokenizer.apply_chat_template, chat_template=on_one_day(template), tokenize=False)
    return ModelFrame(tokenizer.bos_token, tokenizer.eos_token, template, write if template else None)


def on_one_day(template: str) -> str:
    """Return a template of chats in which one date, that of Llama 3's where they know none, stands where the present
    one is asked for: a training, and a score, of today must be those of tomorrow."""
    return PRESENT_DATE.sub(lambda found: repr(datetime(2024, 7, 26).strftime(found["form"])), template)


def is_framed(units: object) -> bool:
    """Tell whether rows with such units are read in a frame: documents between two tokens, chats by a template."""
    return isinstance(units, Units) and units.frame is not None


def framed_texts(units: Units, texts: Sequence[str], frame: ModelFrame) -> list[FramedText]:
    """Return texts in the frame of their type, if it has one. Raises ModelError for a tokenizer without a token for the
    end of a text."""
    if units.frame is None:
        return [FramedText(text) for text in texts]
    if not frame.end:
        raise ModelError("the tokenizer has no token for the end of a text (eos_token); name a model that has one")
    return [units.frame(frame, text) for text in texts]


def tokens_in_windows(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int, units: Units, **options: Any
) -> tuple[Any, np.ndarray, list[np.ndarray]]:
    """Tokenize rows in windows of at most ``max_length`` tokens, the first at the beginning of a text; of pairs, each
    window has the whole first text, which is cut where it would leave no room.

    Returns the tokens, the row of each window [F], and by window the places of its tokens [T, 2], of a pair in the
    second text.
    """
    options |= {
        "max_length": max_length,
        "stride": units.shared(max_length),
        "add_special_tokens": units.frame is None,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
        "verbose": False,
    }
    tokenizer.truncation_side = "right"  # else windows begin at the end of a text
    if pairs is None:
        framed = framed_texts(units, texts, frame_of(tokenizer))
        out = tokenizer([one.text for one in framed], truncation=True, **options)
        each = zip(out["overflow_to_sample_mapping"], out["offset_mapping"], strict=True)
        places = [
            framed[int(row)].places_in_row(np.asarray(offsets, dtype=np.int64).reshape(-1, 2)) for row, offsets in each
        ]
    else:
        seen = tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        both = zip(texts, seen["offset_mapping"], strict=True)
        firsts = [cut_at(text, offsets, first_text_limit(max_length)) for text, offsets in both]
        out = tokenizer(firsts, list(pairs), truncation="only_second", **options)
        left = tokenizer.padding_side == "left"
        places = [places_in_pair(window, left=left) for window in out.encodings]
    row_F, _ = (out.pop(name) for name in ("overflow_to_sample_mapping", "offset_mapping"))
    return out, np.asarray(row_F, dtype=np.int64), places


def concluded_rows(rows: Sequence[Conclusions]) -> dict[str, np.ndarray]:
    """Return what was concluded from each row, by name: texts as one array [N] of texts, arrays as one of arrays."""
    names = list(rows[0]) if rows else []
    return {
        name: np.asarray([row[name] for row in rows], dtype=str)
        if isinstance(rows[0][name], str)
        else ragged_array([np.asarray(row[name]) for row in rows])
        for name in names
    }


def ragged_array(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as one array [N] of arrays."""
    found = np.empty(len(rows), dtype=object)
    for place, values in enumerate(rows):
        found[place] = values
    return found


def by_row(values_U: np.ndarray, counts_N: np.ndarray) -> np.ndarray:
    """Return the values of all units by row, from the number of units of each row."""
    return ragged_array(np.split(values_U, np.cumsum(counts_N)[:-1]) if len(counts_N) else [])


def flattened(values: np.ndarray) -> np.ndarray:
    """Return the values of all units of all rows; values of whole rows are returned as they are."""
    if values.dtype != object:
        return values
    return np.concatenate(list(values)) if len(values) else np.empty(0)
