"""BERT (Devlin et al. 2018, arXiv:1810.04805) and ERNIE, which adds task types (Sun et al. 2019, arXiv:1907.12412)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import TWO_MAPS, Architecture, as_bias

if TYPE_CHECKING:
    from torch import Tensor


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of BERT's masked-LM head."""
    logits_NV: Tensor = model.cls(states_ND)
    return logits_NV


BERT = Architecture(feed_forward=TWO_MAPS, plain=True, word_head=words, stands_alone=True, export_mask=as_bias)
ERNIE = Architecture(feed_forward=TWO_MAPS)
