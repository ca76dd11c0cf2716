"""The architectures by their ``model_type``, and the most common properties of a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tasks.architectures.albert import ALBERT
from tasks.architectures.architecture import UNKNOWN, Architecture
from tasks.architectures.bert import BERT, ERNIE
from tasks.architectures.deberta_v2 import DEBERTA_V2
from tasks.architectures.decoders import BART, GPT2, LLAMA, MARIAN, T5
from tasks.architectures.distilbert import DISTILBERT
from tasks.architectures.efficient.facts import LONGFORMER, MAMBA
from tasks.architectures.electra import ELECTRA
from tasks.architectures.limbeck.decoder import LIMBECK_DECODER
from tasks.architectures.limbeck.encoder import LIMBECK_ENCODER
from tasks.architectures.limbeck.translator import LIMBECK_TRANSLATOR
from tasks.architectures.mobilebert.facts import MOBILEBERT
from tasks.architectures.modernbert import MODERNBERT
from tasks.architectures.mpnet import MPNET
from tasks.architectures.roberta import ROBERTA, ROBERTA_LIKE
from tasks.architectures.xlnet import XLNET

if TYPE_CHECKING:
    from torch import Tensor

ARCHITECTURES: dict[str, Architecture] = {
    "albert": ALBERT,
    "bart": BART,
    "bert": BERT,
    "camembert": ROBERTA,
    "data2vec-text": ROBERTA_LIKE,
    "deberta-v2": DEBERTA_V2,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "ernie": ERNIE,
    "gpt2": GPT2,
    "limbeck-decoder": LIMBECK_DECODER,
    "limbeck-encoder": LIMBECK_ENCODER,
    "limbeck-seq2seq": LIMBECK_TRANSLATOR,
    "llama": LLAMA,
    "longformer": LONGFORMER,
    "mamba": MAMBA,
    "marian": MARIAN,
    "mistral": LLAMA,
    "mobilebert": MOBILEBERT,
    "modernbert": MODERNBERT,
    "mpnet": MPNET,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "roberta": ROBERTA,
    "smollm3": LLAMA,
    "t5": T5,
    "xlm-roberta": ROBERTA,
    "xlm-roberta-xl": ROBERTA_LIKE,
    "xlnet": XLNET,
}
"""By the ``model_type`` of a config. A stage's key includes only the entries that its inputs and its start name. The
whole dict may be read only in a ``raise``, or by code that no key includes."""


JUDGED_LENGTH = "limbeck_max_length"
"""Where the config of a registered model states the longest input, in tokens, at which it was evaluated."""
JUDGED_PAIRS = "limbeck_pairs"
"""Where it states whether its rows have a second text."""


def model_type_of(config: Any) -> str:
    """Return the ``model_type`` of a config object or of the contents of its file."""
    return str(config.get("model_type") if isinstance(config, Mapping) else config.model_type)


def architecture_of(config: Any) -> Architecture:
    """Return the architecture of a config object or of the contents of its file."""
    return ARCHITECTURES.get(model_type_of(config), UNKNOWN)


def shape_of(config: Any) -> dict[str, int | None]:
    """Return a config's shape by the names of a student's knobs: layers, width, heads, feed-forward width, and others
    of its architecture."""
    names = architecture_of(config).shape.items()
    return {
        knob: config.get(name) if isinstance(config, Mapping) else getattr(config, name, None) for knob, name in names
    }


def longest(config: Any, wanted: int) -> int:
    """Return the longest input of a model in tokens, at most ``wanted``."""
    positions = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or wanted
    offset = (config.pad_token_id or 0) + 1 if architecture_of(config).reserved_positions else 0
    relative = positions < 0  # some relative-position models say -1: no limit
    return wanted if relative else min(wanted, positions - offset)


def summary_token(config: Any) -> str:
    """Return the token that represents the whole text: the first (``cls``) or the ``last``."""
    return "last" if architecture_of(config).summary_last else "cls"


def is_told_segments(config: Any) -> bool:
    """Tell whether a model takes the segment of each token: the text of a pair that it belongs to."""
    return architecture_of(config).segments(config)


def vocabulary_head(model: Any) -> Callable[[Tensor], Tensor] | None:
    """Return a masked language model's head, from states of tokens [N, D] to logits [N, V], or None if it is not
    known."""
    head = architecture_of(model.config).word_head
    return None if head is None else partial(head, model)
