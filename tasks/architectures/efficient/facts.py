"""Models of transformers whose attention is another one, and that are no copies of another family: Longformer, Beltagy
et al. 2020, arXiv:2004.05150, whose layers look at a window and at the first token; Mamba, Gu and Dao 2023,
arXiv:2312.00752, whose layers have a state in place of attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.architectures.architecture import HIDDEN, Architecture, keep_modules, renumber


def windows_of_kept_layers(config: Any, kept: Sequence[int]) -> None:
    """Give each layer the window of the layer that it replaces; a config with one number has it for all."""
    if not isinstance(config.attention_window, int):
        config.attention_window = [config.attention_window[index] for index in kept]


def keep_layers_and_windows(model: Any, stack: Any, kept: Sequence[int]) -> None:
    """Keep some layers of a Longformer with their windows, in place, and renumber them."""
    keep_modules(model, stack, kept)
    for index, layer in enumerate(stack):
        renumber(layer, "layer_id", index)
    windows_of_kept_layers(model.config, kept)


def inner_width_of_mamba(config: Any, kept: Sequence[int]) -> None:
    """Make the inner width that of the model's width, as transformers does when it loads the config, and state one head
    as wide as the model, by which widths are checked: a Mamba has none."""
    config.intermediate_size = int(config.expand * config.hidden_size)
    config.num_attention_heads = 1


LONGFORMER = Architecture(
    follow=windows_of_kept_layers,
    reserved_positions=True,
    signals=(HIDDEN,),
    because="its attention is cut into pieces of a window inside its own code",
    keep_layers=keep_layers_and_windows,
)
MAMBA = Architecture(
    shape={"layers": "num_hidden_layers", "hidden": "hidden_size"},
    follow=inner_width_of_mamba,
    signals=(),
    because="its layers have a state in place of attention, and no check of what is between them exists here",
    has_masked_lm=False,
    layers=("layers",),
)
