"""XLNet (Yang et al. 2019, arXiv:1906.08237): relative positions and segments, and a summary token at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tasks.architectures.architecture import HIDDEN, Architecture

if TYPE_CHECKING:
    from torch import Tensor


def size_of_heads(config: Any, kept: Sequence[int]) -> None:
    """Set the size of a head to the width divided by the number of heads."""
    config.d_head = config.d_model // config.n_head


def always(config: Any) -> bool:
    """Return True: XLNet compares the segments of two tokens, without an embedding table and without a limit."""
    return True


def as_hidden(mask_BT: Tensor) -> dict[str, Tensor]:
    """Pass the inverted mask, 1 for padding: XLNet would invert it in a way that ONNX cannot express."""
    import torch

    return {"input_mask": 1.0 - mask_BT.to(torch.float32)}


XLNET = Architecture(
    shape={"layers": "n_layer", "hidden": "d_model", "heads": "n_head", "feed_forward": "d_inner"},
    follow=size_of_heads,
    embeddings="word_embedding",
    summary_last=True,
    segments=always,
    signals=(HIDDEN,),
    because="its attention is one function that adds position and segment terms to the scores",
    has_masked_lm=False,
    layers=("layer",),
    export_mask=as_hidden,
)
