"""Texts that an exported graph writes. Shape letters: N rows, B batch, T tokens of a source, K texts side by side, L
words of a text, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tasks.recipe.distillation import Generation
from tasks.scoring.memory import NEXT_WORD, READ_SOURCE, WritingRules, nothing_read, presents
from tasks.scoring.onnx_models import OnnxModel
from tasks.scoring.writing.beam_search import likeliest_text
from tasks.task_types.seq2seq.target import WRITTEN_IDS, WRITTEN_OUTPUT, first_reference
from tasks.task_types.units import Writing

READ_ALONG = 4
"""Sources along whose texts two graphs are compared."""


class GraphWriter:
    """A graph that reads a source with the first word of its texts, and then these word by word.

    At further words no token of the source is left to read: the graph has its keys and values in the memory.
    """

    def __init__(self, model: OnnxModel, source: Mapping[str, np.ndarray]) -> None:
        self.model, self.unread_BT, self.mask_BT = model, source["input_ids"], source["attention_mask"]
        self.memory = nothing_read(model.memory, len(self.mask_BT))

    def next_words(self, words_K: Sequence[int]) -> np.ndarray:
        """Read one further word of each text; return the logits of the one behind it [K, V]."""
        given = {
            "input_ids": self.unread_BT,
            "attention_mask": self.mask_BT,
            WRITTEN_IDS: np.asarray(words_K, np.int64)[:, None],
            **self.memory,
        }
        next_KV, *memory = self.model.session.run([NEXT_WORD, *presents(self.model.memory)], given)
        self.memory = dict(zip(self.memory, memory, strict=True))
        self.unread_BT = self.unread_BT[:, :0]
        found_KV: np.ndarray = next_KV
        return found_KV

    def keep(self, texts_K: Sequence[int]) -> None:
        """Go on with copies of these texts, by their places; all are texts of one source, whose memory is theirs."""
        before = len(self.mask_BT)
        if list(texts_K) == list(range(before)):
            return
        for name, part in self.memory.items():
            if len(texts_K) != before or not name.startswith(READ_SOURCE):
                self.memory[name] = part[texts_K]
        self.mask_BT, self.unread_BT = self.mask_BT[texts_K], self.unread_BT[texts_K]


def rules_on_card(model: OnnxModel) -> WritingRules:
    """Return what a graph may write."""
    return model.card["writing"]


def writing_by_card(generation: Generation | None, rules: WritingRules) -> Writing:
    """Return how a graph writes: as it is judged, or as its card says."""
    if generation is not None:
        return Writing(generation.beams, generation.length_penalty, generation.max_length)
    return Writing(rules["beams"], rules["length_penalty"], rules["most"])


def written_by_graph(
    model: OnnxModel,
    texts: Sequence[str],
    max_length: int,
    generation: Generation | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> dict[str, np.ndarray]:
    """Return the text that a graph writes of each source [N], by the name of the output, one source after another."""
    rules, found = rules_on_card(model), list[str]()
    writing = writing_by_card(generation, rules)
    for row, text in enumerate(texts):
        words = likeliest_text(GraphWriter(model, model.encode([text], None, max_length)), rules, writing)
        found.append(model.tokenizer.decode(words).strip())
        report(row + 1)
    return {WRITTEN_OUTPUT: np.asarray(found, dtype=str)}


def logits_along(model: OnnxModel, text: str, words: Sequence[int], max_length: int) -> np.ndarray:
    """Return the logits at each place of a text that is given [L, V], read word by word."""
    writer = GraphWriter(model, model.encode([text], None, max_length))
    before = [rules_on_card(model)["begin"], *words[:-1]]
    return np.concatenate([writer.next_words([word]) for word in before])


def largest_word_difference(
    ours: OnnxModel, theirs: OnnxModel, texts: Sequence[str], outputs: Mapping[str, np.ndarray], max_length: int
) -> float:
    """Return by how much the logits of two graphs differ at most along the texts that were written of the first
    sources."""
    found = [0.0]
    for text, written in zip(texts[:READ_ALONG], outputs[WRITTEN_OUTPUT].tolist(), strict=False):
        words = ours.tokenizer.encode(written).ids
        both = (logits_along(model, text, words, max_length) for model in (ours, theirs))
        found.append(float(np.abs(next(both) - next(both)).max()))
    return max(found)


def words_of_label(model: OnnxModel, label: str) -> dict[str, np.ndarray]:
    """Return the input of the words of a row's true text [1, L]."""
    model.tokenizer.no_truncation()
    ids = model.tokenizer.encode(first_reference(label)).ids[: rules_on_card(model)["most"]]
    return {WRITTEN_IDS: np.asarray([[rules_on_card(model)["begin"], *ids[:-1]]], np.int64)}


def write_exactly(model: OnnxModel, source: Mapping[str, np.ndarray], tokens: int) -> Any:
    """Write texts of so many tokens, always the likeliest one, of sources that stand side by side."""
    writer = GraphWriter(model, source)
    words_B = np.full(len(source["input_ids"]), rules_on_card(model)["begin"])
    for _ in range(tokens):
        words_B = writer.next_words(words_B.tolist()).argmax(-1)
    return words_B


@dataclass(frozen=True)
class WritingGraphs:
    """What graphs that write do otherwise than graphs that are asked once."""

    outputs: Callable[..., dict[str, np.ndarray]]
    """Returns what is written of some sources, by the name of the output."""
    differ: Callable[[OnnxModel, OnnxModel, Sequence[str], Mapping[str, np.ndarray], int], float]
    """Returns by how much the logits of two graphs differ at most."""
    taught: Callable[[OnnxModel, str], dict[str, np.ndarray]]
    """Returns the words of a true text as an input."""
    timed: Callable[[OnnxModel, Mapping[str, np.ndarray], int], Any]
    """Writes a number of words, of inputs that are timed."""


WRITING_GRAPHS: dict[str, WritingGraphs] = {
    "seq2seq": WritingGraphs(written_by_graph, largest_word_difference, words_of_label, write_exactly),
}
"""By task type; the graphs of the others are asked once."""
