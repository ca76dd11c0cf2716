"""MobileBERT (Sun et al. 2020, arXiv:2004.02984): narrow layers between bottlenecks, deep rather than wide.

Shape letters: N tokens that count, D width between layers, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import TWO_MAPS, Architecture, as_bias
from tasks.architectures.mobilebert.norm_folding import fold_norms_or_not
from tasks.architectures.mobilebert.of_bert import mobilebert_from_bert, require_shape_within
from tasks.architectures.mobilebert.padding_row import without_padding_row

if TYPE_CHECKING:
    from torch import Tensor


def words_of_mobilebert(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of MobileBERT's masked-LM head."""
    logits_NV: Tensor = model.cls(states_ND)
    return logits_NV


def fit_within(config: Any, kept: Sequence[int]) -> None:
    """Make layers no wider within than between them, and as wide as their heads need; likewise the embeddings."""
    heads = config.num_attention_heads
    config.embedding_size = min(config.embedding_size, config.hidden_size)
    config.intra_bottleneck_size = max(heads, min(config.intra_bottleneck_size, config.hidden_size) // heads * heads)
    config.true_hidden_size = config.intra_bottleneck_size if config.use_bottleneck else config.hidden_size


MOBILEBERT = Architecture(
    shape={
        "layers": "num_hidden_layers",
        "hidden": "hidden_size",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "embedding": "embedding_size",
        "bottleneck": "intra_bottleneck_size",
        "feed_forwards": "num_feedforward_networks",
    },
    follow=fit_within,
    from_teachers={"bert": mobilebert_from_bert},
    check_shape=require_shape_within,
    own_widths=True,
    start_note="evenly spread layers' places in MobileBERT's architecture, of which each begins as the identity "
    "(bottleneck, feed_forwards, embedding, narrow_attention, norm, activation)",
    tie=without_padding_row,
    feed_forward=TWO_MAPS,
    stacked="ffn",
    word_head=words_of_mobilebert,
    stands_alone=True,
    export_mask=as_bias,
    for_export=fold_norms_or_not,
)
