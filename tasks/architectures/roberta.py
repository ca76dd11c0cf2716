"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and similar families: CamemBERT, XLM-R (arXiv:1911.02116), XLM-R XL with
norms before the blocks (arXiv:2105.00572), data2vec (arXiv:2202.03555)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import TWO_MAPS, Architecture, as_bias

if TYPE_CHECKING:
    from torch import Tensor


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of RoBERTa's masked-LM head."""
    logits_NV: Tensor = model.lm_head(states_ND)
    return logits_NV


ROBERTA = Architecture(
    feed_forward=TWO_MAPS, plain=True, word_head=words, stands_alone=True, reserved_positions=True, export_mask=as_bias
)
ROBERTA_LIKE = Architecture(feed_forward=TWO_MAPS, reserved_positions=True)
