"""ELECTRA (Clark et al. 2020, arXiv:2003.10555): BERT's layers over embeddings that may be narrower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import TWO_MAPS, Architecture, as_bias

if TYPE_CHECKING:
    from torch import Tensor


def words(model: Any, states_ND: Tensor) -> Tensor:
    """Return the logits [N, V] of the generator's masked-LM head."""
    logits_NV: Tensor = model.generator_lm_head(model.generator_predictions(states_ND))
    return logits_NV


ELECTRA = Architecture(feed_forward=TWO_MAPS, plain=True, word_head=words, stands_alone=True, export_mask=as_bias)
