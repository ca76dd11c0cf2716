"""Texts that a language model continues, word by word: always the likeliest one. Shape letters: B batch, T tokens, P
tokens that were read before, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import ModelError
from tasks.results.export_formats import EXPORT_FORMATS
from tasks.scoring.memory import NEXT_WORD, WritingRules, nothing_read, presents
from tasks.scoring.onnx_models import OnnxModel, formats_in, is_export, require_export, require_export_format
from tasks.scoring.predict import stored_type
from tasks.scoring.writing.beam_search import likeliest_text
from tasks.scoring.writing.rules import ids_in, least_words
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.texts.likeliest_words import likeliest_next_words
from tasks.task_types.units import Units, Writing, frame_of

COMPARED = 4
"""Texts on which reading at once and word by word are compared."""


class StepReader:
    """A graph that reads a text in parts, and remembers what it has read."""

    def __init__(self, model: OnnxModel) -> None:
        self.model, self.read, self.memory = model, 0, nothing_read(model.memory, 1)

    def next_word(self, ids: Sequence[int]) -> np.ndarray:
        """Read further tokens; return the logits of the one behind them [V]."""
        self.read += len(ids)
        given = {
            "input_ids": np.asarray([ids], np.int64),
            "attention_mask": np.ones((1, self.read), np.int64),
            **self.memory,
        }
        next_1V, *memory = self.model.session.run([NEXT_WORD, *presents(self.model.memory)], given)
        self.memory = dict(zip(self.memory, memory, strict=True))
        logits_V: np.ndarray = next_1V[0]
        return logits_V


class ContinuedText:
    """A text that a graph continues word by word, as the search over words asks for it."""

    def __init__(self, model: OnnxModel, unread: Sequence[int]) -> None:
        self.reader, self.unread = StepReader(model), list(unread)

    def next_words(self, words_K: Sequence[int]) -> np.ndarray:
        """Read what was not read yet and one further word; return the logits of the one behind it [1, V]."""
        found_V = self.reader.next_word([*self.unread, *words_K])
        self.unread = []
        return found_V[None]

    def keep(self, texts_K: Sequence[int]) -> None:
        """There is one text."""


def largest_step_difference(model: OnnxModel, texts: Sequence[str]) -> float:
    """Return by how much the logits of the last word differ at most between texts that are read at once, and word by
    word."""
    found = [0.0]
    for text in texts[:COMPARED]:
        ids = model.encode([text], None, model.card["max_length"])["input_ids"][0].tolist()
        steps = StepReader(model)
        for word in ids:
            found_V = steps.next_word([word])
        found.append(float(np.abs(found_V - StepReader(model).next_word(ids)).max()))
    return max(found)


def continued_texts(folder: Path, texts: Sequence[str], new_tokens: int, export_format: str | None = None) -> list[str]:
    """Return the words by which a language model continues each text, up to so many tokens or the end that it writes.

    The model is chosen as in ``predict_texts``. Raises ModelError for one that continues no texts, and for a text that
    has no room for so many tokens.
    """
    if export_format is not None:
        folder = require_export(folder, require_export_format(export_format))
    if not GRAPHS[task_type := stored_type(folder)].remembers:
        raise ModelError(
            f"a model of type {task_type} continues no texts; leave --new-tokens out, or name a language model "
            f"(next-words)"
        )
    units = GRAPHS[task_type].units
    assert isinstance(units, Units)
    texts = [units.prepared(text) for text in texts]
    if is_export(folder):
        name = export_format or next(iter(formats_in(folder)), "onnx")
        model = OnnxModel(folder, graph=folder / EXPORT_FORMATS[name].file)
        return [continued_by_graph(model, units, text, new_tokens) for text in texts]
    return continued_by_checkpoint(folder, units, texts, new_tokens)


def continued_by_graph(model: OnnxModel, units: Units, text: str, new_tokens: int) -> str:
    """Return the words by which a graph continues a text."""
    assert units.prompt is not None
    model.tokenizer.no_truncation()
    ids = model.tokenizer.encode(units.prompt(model.frame, text), add_special_tokens=False).ids
    require_room(len(ids), new_tokens, model.card["positions"])
    writing = Writing(most=new_tokens, least=least_words({**model.card}, len(ids)))
    words = likeliest_text(ContinuedText(model, ids[:-1]), rules_of_card(model), writing, ids)
    found: str = model.tokenizer.decode(words)
    return found


def rules_of_card(model: OnnxModel) -> WritingRules:
    """Return what a language model may write; a card of an older release states the end of a text alone."""
    if "writing" in model.card:
        return model.card["writing"]
    end = model.tokenizer.token_to_id(model.frame.end or "")
    assert end is not None
    return {
        "begin": end,
        "ends": [end],
        "never": [],
        "first": None,
        "last": None,
        "no_repeat": 0,
        "normalized": False,
        "beams": 1,
        "length_penalty": 1.0,
        "most": Writing.most,
    }


def require_room(given: int, new_tokens: int, positions: int | None) -> None:
    """Raise ModelError for a text that has no room for so many words behind it."""
    if positions is not None and given + new_tokens > positions:
        raise ModelError(
            f"a text of {given:,} tokens and {new_tokens:,} new ones are more than the {positions:,} that the model "
            f"reads; ask for fewer new tokens, or give the end of the text alone"
        )


def continued_by_checkpoint(folder: Path, units: Units, texts: Sequence[str], new_tokens: int) -> list[str]:
    """Return the words by which a checkpoint continues each text."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tasks.architectures.known_architectures import longest

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype=torch.float32, use_safetensors=True
    ).eval()
    assert units.prompt is not None
    settings = likeliest_next_words(model, new_tokens)
    settings.pad_token_id = tokenizer.eos_token_id
    frame, ends, found = frame_of(tokenizer), ids_in(settings.eos_token_id), list[str]()
    for text in texts:
        given = tokenizer(units.prompt(frame, text), return_tensors="pt", add_special_tokens=False)
        count = given["input_ids"].shape[1]
        require_room(count, new_tokens, longest(model.config, count + new_tokens))
        with torch.inference_mode():
            ids_1T = model.generate(
                input_ids=given["input_ids"],
                attention_mask=given["attention_mask"],
                generation_config=settings,
            )
        words = [word for word in ids_1T[0, count:].tolist() if word not in ends]
        found.append(tokenizer.decode(words, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return found
