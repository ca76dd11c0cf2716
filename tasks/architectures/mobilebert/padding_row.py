"""The row of [PAD] in MobileBERT's table of words, which is zero at every step of a training.

A token reads the embeddings of its neighbours (Sun et al. 2020, arXiv:2004.02984), and the one behind a text's last
token is that of padding in a batch, and nothing where the text is alone. ``padding_idx`` of the lookup is not enough to
keep the row: a head that predicts words reads the same table, and pushes every word down that is not the right one.
"""

from __future__ import annotations

from typing import Any


def without_padding_row(model: Any) -> Any:
    """Set the row of [PAD] to zero, in place, and return the model, whose trainings leave the row at zero."""
    import torch

    table, pad = model.get_input_embeddings(), model.config.pad_token_id
    if model.config.trigram_input and pad is not None:
        with torch.no_grad():
            table.weight[pad] = 0.0
        # The hook is the table's and not the weight's, so that a copy of a frozen model has it, too.
        if not any(isinstance(one, ShieldPaddingRow) for one in table._forward_pre_hooks.values()):
            table.register_forward_pre_hook(ShieldPaddingRow(pad))
    return model


class ShieldPaddingRow:
    """Before a lookup of a table that learns: removes the row of [PAD] from each gradient of its weight. Without a
    gradient there are no moments, and decay leaves a zero as it is."""

    def __init__(self, pad: int) -> None:
        self.pad = pad

    def __call__(self, table: Any, given: Any) -> None:
        """Register the removal on a weight that does not have it yet, as after a copy of the model."""
        weight = table.weight
        if weight.requires_grad and self.clear not in (weight._post_accumulate_grad_hooks or {}).values():
            weight.register_post_accumulate_grad_hook(self.clear)

    def clear(self, weight: Any) -> None:
        """Set the gradient of the row to zero, in place: a copy would be as large as the table."""
        weight.grad[self.pad] = 0.0
