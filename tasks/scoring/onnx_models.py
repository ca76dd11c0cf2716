"""Inference with an exported model as its users run it: with ONNX Runtime and the tokenizer's own file, without torch
or transformers.

Rows are run one at a time: int8 activations share one scale within a call, so in a batch a prediction would depend on
the other rows. On a CPU this costs nothing, because a small model is as fast row by row, and nothing is padded. Outputs
are arrays by name, rows first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from tasks.errors import ModelError
from tasks.results.export_formats import BY_DEFAULT, EXPORT_FORMATS
from tasks.scoring.memory import NEXT_WORD, WritingRules, nothing_read, presents
from tasks.scoring.windows import ReadTexts, outputs_of_parts, outputs_of_units
from tasks.task_types.units import (
    ModelFrame,
    Parts,
    Units,
    WritesChats,
    cut_at,
    first_text_limit,
    framed_texts,
    on_one_day,
    places_in_pair,
)

CARD = "onnx.json"
"""The file that marks a folder as an export; it holds the inputs, the labels and the padding."""
FILES = {"onnx": "model.onnx", "int8": "model_int8.onnx", "executorch": "model.pte"}
"""File names of graphs by format; a folder of a stage holds one."""


class Padding(TypedDict):
    """How texts of a batch are padded to one length."""

    id: int
    token: str
    type_id: int
    side: str


class QuantizedWay(TypedDict):
    """How a graph was quantized."""

    way: str
    reduce_range: bool
    calibration_rows: int


class ExportCard(TypedDict):
    """The card of an export; its other entries are those of its task type, by which outputs are decoded."""

    max_length: int
    positions: int | None
    pairs: NotRequired[bool]
    """Whether rows have a second text."""
    pad: Padding
    opset: int
    parameters: int
    """Of its checkpoint."""
    made_with: dict[str, str]
    """Versions of libraries."""
    inputs: NotRequired[list[str]]
    program_outputs: NotRequired[list[str]]
    """Names of a program's outputs, in order; a graph has them itself."""
    engine: NotRequired[str]
    int8: NotRequired[QuantizedWay]
    because: NotRequired[str]
    """The reason why there is no graph."""
    truncation: NotRequired[str]
    """The way in which pairs are cut, by its name in tokenizers, where it is not the usual one."""
    labels: NotRequired[list[str] | None]
    """Names of the classes; none for a task type without classes."""
    frame: NotRequired[dict[str, str]]
    """The tokens ``begin`` and ``end`` of a text, for a task type whose texts stand between them, and the template
    ``chat_template`` by which chats are written."""
    memory: NotRequired[dict[str, list[int]]]
    """Heads and their size by input that holds what was read before, of a graph that writes or continues texts."""
    own_tokenizer: NotRequired[bool]
    """Whether its model has no ``tokenizer.json``."""
    writing: NotRequired[WritingRules]
    """What a model writes, of one that reads a source and writes a text."""


def template_of_card(template: str, begin: str, end: str) -> WritesChats:
    """Return the function that writes chats by a template as the tokenizer of the checkpoint does."""
    from transformers.utils.chat_template_utils import render_jinja_template

    tokens: Any = {name: token for name, token in (("bos_token", begin), ("eos_token", end)) if token}
    dated = on_one_day(template)

    def write(conversation: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        written: Any = render_jinja_template(
            conversations=[conversation],
            chat_template=dated,
            add_generation_prompt=add_generation_prompt,
            **tokens,
        )
        return str(written[0][0])

    return write


def is_export(folder: Path) -> bool:
    """Return whether a folder is an export rather than a checkpoint."""
    return (folder / CARD).is_file()


def card_of(folder: Path) -> ExportCard:
    """Return the card of an export."""
    card: ExportCard = json.loads((folder / CARD).read_text())
    return card


def graph_of(folder: Path) -> Path:
    """Return the graph file to run: the int8 graph if there is one."""
    found = [folder / name for name in reversed(FILES.values()) if (folder / name).is_file()]
    if not found:
        raise ModelError(f"{folder} holds no {' and no '.join(FILES.values())}; name the onnx folder of a pulled model")
    return found[0]


def tokenizer_of(folder: Path) -> Path:
    """Return the tokenizer's file; in a downloaded model it is one folder up."""
    return next(
        (place / "tokenizer.json" for place in (folder, folder.parent) if (place / "tokenizer.json").is_file()),
        folder / "tokenizer.json",
    )


def require_export_format(name: str) -> str:
    """Return the name of a format of exports. Raises ModelError for an unknown one."""
    if name not in EXPORT_FORMATS:
        near = get_close_matches(name, EXPORT_FORMATS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ModelError(f"{name!r} is no format of exports; {hint}legal are {', '.join(EXPORT_FORMATS)}")
    return name


def require_export(folder: Path, export_format: str) -> Path:
    """Return the folder of a model's graphs: the folder itself, or its folder ``onnx``. Raises ModelError where it has
    no graph of that format."""
    graphs = next((place for place in (folder, folder / "onnx") if is_export(place)), None)
    found = [] if graphs is None else formats_in(graphs)
    if graphs is None or not found:
        raise ModelError(
            f"{folder} has no exported graph; leave the format out, or run a recipe with exports.formats: "
            f"[{export_format}]"
        )
    if export_format not in found:
        raise ModelError(f"{folder} has no graph in {export_format}; it has {', '.join(found)}")
    return graphs


def formats_in(folder: Path) -> list[str]:
    """Return the formats of the graphs in a folder of published exports, the fastest first."""
    return [name for name in BY_DEFAULT if (folder / EXPORT_FORMATS[name].file).is_file()]


def open_session(graph: Path, threads: int) -> Any:
    """Open a session on the CPU with the given number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])


class OnnxModel:
    """A graph, its tokenizer and its card."""

    def __init__(self, folder: Path, *, threads: int = 1, graph: Path | None = None) -> None:
        from tokenizers import Tokenizer

        self.card = card_of(folder)
        self.session = self.start(graph or graph_of(folder), threads)
        self.memory = self.card.get("memory", {})
        unasked = {NEXT_WORD, *presents(self.memory)} if self.memory else set[str]()
        self.names = [output.name for output in self.session.get_outputs() if output.name not in unasked]
        self.tokenizer = Tokenizer.from_file(str(tokenizer_of(folder)))
        self.tokenizer.no_padding()

    def start(self, graph: Path, threads: int) -> Any:
        """Return a session of the graph."""
        return open_session(graph, threads)

    @property
    def padding(self) -> dict[str, str | int]:
        """The padding of a batch, by the names of tokenizers."""
        pad = self.card["pad"]
        return {
            "direction": pad["side"],
            "pad_id": pad["id"],
            "pad_type_id": pad["type_id"],
            "pad_token": pad["token"],
        }

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> dict[str, np.ndarray]:
        """Return the inputs of the graph; rows of different lengths are padded as specified by the card."""
        length, strategy = min(max_length, self.card["positions"] or max_length), self.card.get("truncation")
        if pairs is not None and strategy is not None:
            found = [self.encode_cut(*both, length, strategy) for both in zip(texts, pairs, strict=True)]
            for one in found:
                one.pad(max(len(each.ids) for each in found), **self.padding)
        else:
            self.tokenizer.enable_truncation(length)
            if len(texts) > 1:
                self.tokenizer.enable_padding(**self.padding)
            found = self.tokenizer.encode_batch(list(texts) if pairs is None else list(zip(texts, pairs, strict=True)))
            self.tokenizer.no_padding()
        every = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        return {
            name: np.asarray([getattr(one, every[name]) for one in found], dtype=np.int64)
            for name in self.card["inputs"]
        }

    def encode_cut(self, text: str, pair: str, length: int, strategy: str) -> Any:
        """Tokenize a pair of which one text alone is cut; where the other one fills the input, both are."""
        self.tokenizer.no_truncation()
        other = self.tokenizer.encode(pair if strategy == "only_first" else text, add_special_tokens=False)
        fits = len(other.ids) + self.tokenizer.num_special_tokens_to_add(True) < length
        self.tokenizer.enable_truncation(length, strategy=strategy if fits else "longest_first")
        return self.tokenizer.encode(text, pair)

    def read_windows(
        self,
        texts: Sequence[str],
        max_length: int,
        units: Units,
        *,
        padded: bool,
        pairs: Sequence[str] | None = None,
    ) -> ReadTexts:
        """Return texts, or pairs whose second text is divided, in windows, padded to one length or each by itself."""
        length = min(max_length, self.card["positions"] or max_length)
        if pairs is None:
            framed = framed_texts(units, texts, self.frame)
            self.tokenizer.enable_truncation(length, stride=units.shared(length))
            whole = self.tokenizer.encode_batch([one.text for one in framed], add_special_tokens=units.frame is None)
        else:
            firsts = self.cut_first_texts(texts, first_text_limit(length))
            self.tokenizer.enable_truncation(length, stride=units.shared(length), strategy="only_second")
            whole = self.tokenizer.encode_batch(list(zip(firsts, pairs, strict=True)))
        found = [(place, one) for place, text in enumerate(whole) for one in (text, *text.overflowing)]
        if padded:
            for _, one in found:
                one.pad(max(len(each.ids) for _, each in found), **self.padding)
        every = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        inputs = {
            name: [np.asarray(getattr(one, every[name]), dtype=np.int64) for _, one in found]
            for name in self.card["inputs"]
        }
        if pairs is None:
            places_FT2 = [framed[row].places_in_row(np.asarray(one.offsets, dtype=np.int64)) for row, one in found]
        else:
            places_FT2 = [places_in_pair(one, left=self.card["pad"]["side"] == "left") for _, one in found]
        return ReadTexts(inputs, np.asarray([place for place, _ in found]), places_FT2)

    @property
    def frame(self) -> ModelFrame:
        """The frame of texts, as the card states it."""
        stated = self.card.get("frame", {})
        begin, end, template = (stated.get(name, "") for name in ("begin", "end", "chat_template"))
        return ModelFrame(begin, end, template, template_of_card(template, begin, end) if template else None)

    def cut_first_texts(self, texts: Sequence[str], most: int) -> list[str]:
        """Return the beginnings of first texts, of so many tokens at most."""
        self.tokenizer.no_truncation()
        seen = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [cut_at(text, one.offsets, most) for text, one in zip(texts, seen, strict=True)]

    def ask_windows(self, given: Mapping[str, list[np.ndarray]]) -> Mapping[str, np.ndarray | Sequence[np.ndarray]]:
        """Return the outputs of windows by name: of one length in one call, others one at a time."""
        windows = range(len(next(iter(given.values()))))
        if len({len(one) for one in given[next(iter(given))]}) == 1 and len(windows) > 1:
            return self.ask({name: np.stack(values) for name, values in given.items()})
        alone = [self.ask({name: values[window][None] for name, values in given.items()}) for window in windows]
        return {name: [one[name][0] for one in alone] for name in self.names}

    def ask(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs of a batch by name, rows first."""
        return dict(zip(self.names, self.session.run(self.names, self.given(given)), strict=True))

    def given(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return all inputs of a call that reads texts from their beginning, from those that a tokenizer returns."""
        return {**inputs, **nothing_read(self.memory, len(inputs["input_ids"]))}

    def outputs(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        max_length: int,
        *,
        units: Units | Parts | None = None,
        together: int = 1,
        report: Callable[[int], None] = lambda done: None,
    ) -> dict[str, np.ndarray]:
        """Return the outputs of all rows by name, computed row by row; those of their ``units`` if they are given,
        computed from ``together`` rows at once."""
        if isinstance(units, Parts):

            def ask_apart(
                own: Sequence[str], second: Sequence[str], told: Callable[[int], None]
            ) -> Mapping[str, np.ndarray]:
                return self.outputs(own, second, max_length, report=told)

            return outputs_of_parts(units, texts, pairs, ask_apart, report)
        if units is not None:

            def read(some: Sequence[str], seconds: Sequence[str] | None) -> ReadTexts:
                return self.read_windows(some, max_length, units, padded=together > 1, pairs=seconds)

            return outputs_of_units(
                units,
                texts,
                self.names,
                read=read,
                ask=self.ask_windows,
                together=together,
                pairs=pairs,
                stated=self.card,
                report=report,
            )
        found: dict[str, list[np.ndarray]] = {name: [] for name in self.names}
        for row, text in enumerate(texts):
            answer = self.ask(self.encode([text], None if pairs is None else [pairs[row]], max_length))
            for name, output in answer.items():
                found[name].append(output[0])
            report(row + 1)
        return {name: np.stack(rows) for name, rows in found.items()}
