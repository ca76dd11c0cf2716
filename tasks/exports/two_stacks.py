"""Graphs of models that read a source and write a text: one graph reads the source, and writes every word.

It takes tokens of the source and words of the text, and what it remembers of both: the keys and values of the text, and
those of the source that the decoder attends to. The first call has all tokens of the source; at further calls no token
of it is left to read, so that its encoder has nothing to compute. Weights are stored once. Shape letters: B batch, T
tokens of the source, S of them that were read before, L words, P words that were read before, V vocabulary, H heads, D
size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.architectures.known_architectures import architecture_of
from tasks.errors import ModelError
from tasks.exports.remembering import READ_BEFORE, heads_by_input, outputs_with_memory
from tasks.exports.tracing import example, write_graph
from tasks.recipe.distillation import Generation
from tasks.scoring.memory import READ_SOURCE, keys_and_values, past_names
from tasks.scoring.onnx_models import OnnxModel
from tasks.scoring.writing.graph_writer import logits_along, written_by_graph
from tasks.scoring.writing.rules import rules_of
from tasks.task_types.seq2seq.models import first_token, written_ids
from tasks.task_types.seq2seq.target import WRITTEN_IDS, WRITTEN_OUTPUT
from tasks.task_types.units import Writing

SOURCES_COMPARED, WORDS_COMPARED = 16, 32
"""Sources whose texts are compared, and words of each."""


class ReadingAndWriting(torch.nn.Module):
    """A model of two stacks that takes and returns what it remembers as tensors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = architecture_of(model.config).for_export(model)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        words: Tensor,
        source: Sequence[Tensor],
        past: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """Return the logits of the word behind the last one [B, V], and the memory of the source and of the text. The
        mask [B, S + T] is that of the whole source."""
        from transformers import DynamicCache, EncoderDecoderCache

        unread_BT = attention_mask[:, attention_mask.shape[1] - input_ids.shape[1] :]
        states = self.model.get_encoder()(input_ids=input_ids, attention_mask=bias_of(unread_BT)).last_hidden_state
        own, other = (DynamicCache(list(zip(both[::2], both[1::2], strict=True))) for both in (past, source))
        cache = EncoderDecoderCache(own, other)
        # so that the decoder adds keys and values of these states to those that it is given
        cache.is_updated = dict.fromkeys(cache.is_updated, False)
        outputs = self.model(
            encoder_outputs=(states,),
            attention_mask=bias_of(attention_mask),
            decoder_input_ids=words,
            cache=cache,
            use_cache=True,
        )
        return (outputs.logits[:, -1], *memory_parts(outputs.cache))


def bias_of(mask_BT: Tensor) -> Tensor:
    """Return a padding mask as the bias that is added to scores [B, 1, 1, T]: transformers would otherwise take the
    number of its places for that of the states."""
    return ((1.0 - mask_BT.to(torch.float32)) * torch.finfo(torch.float32).min)[:, None, None, :]


def memory_parts(cache: Any) -> list[Tensor]:
    """Return keys and values by layer, those of the source and those of the text. Raises ModelError for a model that
    remembers anything else."""
    both = [getattr(cache, name, None) for name in ("cross_attention_cache", "self_attention_cache")]
    parts = [keys_and_values(one) for one in both]
    if any(one is None for one in parts):
        raise ModelError("it remembers other things than keys and values of all tokens, and such graphs are not built")
    return [one for each in parts for one in each or []]


def trace_both_stacks(model: Any, tokenizer: Any, texts: Sequence[str], path: Path, *, opset: int) -> dict[str, object]:
    """Write the graph of a model that reads and writes; return the entries of its card that are known from it. Raises
    what ``trace`` does, and ModelError for a memory or a way of writing that is not built."""
    model.set_attn_implementation("eager")
    rules = rules_of(model.generation_config, first_token(model))
    given = example(model, tokenizer, texts, None)
    ids_BT, mask_BT = given["input_ids"], given["attention_mask"]
    # as many words as no other size is, so that no two sizes are taken for one
    words_BL = ids_BT[:, : READ_BEFORE + 2]
    with torch.no_grad():
        outputs = model(
            input_ids=ids_BT[:, :READ_BEFORE], decoder_input_ids=ids_BT[:, : READ_BEFORE + 1], use_cache=True
        )
    parts = memory_parts(outputs.cache)
    half = len(parts) // 2
    names = [*past_names(half // 2, READ_SOURCE), *past_names(half // 2)]
    sizes = heads_by_input(dict(zip(names, parts, strict=True)))
    before_BP = torch.ones(len(ids_BT), READ_BEFORE, dtype=mask_BT.dtype)
    write_graph(
        ReadingAndWriting(model),
        {
            "input_ids": ids_BT,
            "attention_mask": torch.cat([before_BP, mask_BT], 1),
            "words": words_BL,
            "source": parts[:half],
            "past": parts[half:],
        },
        path,
        inputs=["input_ids", "attention_mask", WRITTEN_IDS, *names],
        outputs=outputs_with_memory([], sizes),
        opset=opset,
        open_sizes=open_sizes(half),
    )
    return {"inputs": ["input_ids", "attention_mask"], "memory": sizes, "writing": rules}


def open_sizes(parts: int) -> dict[str, object]:
    """Return the sizes of the inputs that differ from call to call; ``parts`` are tensors of each memory."""
    size = torch.export.Dim.DYNAMIC
    both, remembered = {0: size, 1: size}, [{0: size, 2: size}] * parts
    tokens = dict.fromkeys(("input_ids", "attention_mask", "words"), both)
    return {**tokens, "source": remembered, "past": remembered}


def compare_written(
    model: Any, tokenizer: Any, graph: OnnxModel, texts: Sequence[str], max_length: int
) -> dict[str, object]:
    """Compare a graph with its checkpoint on some sources: the logits of every word of the texts that the checkpoint
    writes, likeliest word by word, and the share of sources of which both write the same."""
    texts, differences, same = texts[:SOURCES_COMPARED], [0.0], list[bool]()
    writing = Writing(most=WORDS_COMPARED)
    for text in texts:
        given = tokenizer([text], truncation=True, max_length=max_length, return_tensors="pt")
        ids_1T, mask_1T = given["input_ids"], given["attention_mask"]
        with torch.inference_mode():
            words_1L = written_ids(model, ids_1T, mask_1T, writing)
            theirs_1LV = model(input_ids=ids_1T, attention_mask=mask_1T, **{WRITTEN_IDS: words_1L}).logits
        ours_LV = logits_along(graph, text, words_1L[0].tolist(), max_length)
        differences.append(float(np.abs(ours_LV - theirs_1LV[0].numpy()).max()))
        said = tokenizer.decode(words_1L[0], skip_special_tokens=True, clean_up_tokenization_spaces=False).strip()
        ours = written_by_graph(graph, [text], max_length, Generation(beams=1, max_length=WORDS_COMPARED))
        same.append(said == ours[WRITTEN_OUTPUT][0])
    return {"rows": len(texts), "largest_difference": max(differences), "equal_answers": float(np.mean(same))}


@dataclass(frozen=True)
class TwoStacks:
    """How models with two stacks become a graph."""

    trace: Callable[..., dict[str, object]]
    """Writes the graph, and returns the entries of its card."""
    compare: Callable[[Any, Any, OnnxModel, Sequence[str], int], dict[str, object]]
    """Compares the graph with its checkpoint."""


TWO_STACKS: dict[str, TwoStacks] = {"seq2seq": TwoStacks(trace_both_stacks, compare_written)}
"""By task type."""
