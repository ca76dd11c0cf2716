"""A model that computes as its graph in int8 with static ranges will: each linear map has one range for all that it
reads, whatever the text, the batch and the padding; its step may learn with the weights.

Method: ``tasks/methods/quantization/learned_ranges.py``. A graph rounds what a product reads, and keeps its result in
float32; so does the training. The ranges travel in the config of the model, as plain numbers.
Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tasks.methods.quantization.learned_ranges import STATED_RANGES, FixedRange, measured_range, on_learned_range
from tasks.training.models.fake_quantization import FakeQuantization, linear_maps

INPUT_STEP = "input_step"


class FixedRanges(FakeQuantization):
    """Rounds a model while it lasts, with a range for each linear map; ``finish`` leaves weights and ranges in it."""

    def __init__(
        self,
        model: Any,
        format_: str,
        ranges: Mapping[str, FixedRange],
        *,
        seven_bits: bool = False,
        learns: bool = True,
    ) -> None:
        """Round a model as a format of exports does, with these ranges by the name of the map; with ``learns`` their
        steps are parameters of the model that an optimizer finds."""
        super().__init__(model, format_, "8", seven_bits=seven_bits)
        self.model, self.names = model, names_of_maps(model, self.maps)
        self.zeros = {one: ranges[name].zero for one, name in self.names.items()}
        for one, name in self.names.items():
            # of one axis: the optimizer decays matrices alone
            step = torch.tensor([ranges[name].step], device=model.device)
            one.register_parameter(INPUT_STEP, nn.Parameter(step, requires_grad=learns))

    def round_inputs(self, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        """Round what a linear map reads to its range."""
        return (on_learned_range(given[0], module.get_parameter(INPUT_STEP), self.zeros[module]),)

    @property
    def learned_steps(self) -> list[nn.Parameter]:
        """The steps of all ranges; those that do not learn stay as they are."""
        return [one.get_parameter(INPUT_STEP) for one in self.maps]

    @property
    def ranges(self) -> dict[str, FixedRange]:
        """The ranges as they are now, by the name of the map."""
        return {
            name: FixedRange(one.get_parameter(INPUT_STEP).item(), self.zeros[one]) for one, name in self.names.items()
        }

    def finish(self) -> None:
        """Write the rounded weights into the model and the ranges into its config, and round nothing any more."""
        setattr(self.model.config, STATED_RANGES, {name: list(found) for name, found in self.ranges.items()})
        for one in self.maps:
            delattr(one, INPUT_STEP)
        super().finish()


def names_of_maps(model: nn.Module, maps: list[Any]) -> dict[nn.Module, str]:
    """Return the name of each map, one that stands in several places by its first."""
    known = {module: name for name, module in model.named_modules()}
    return {one: known[one] for one in maps}


def measured_ranges(model: Any, format_: str, run: Callable[[], None]) -> dict[str, FixedRange]:
    """Return the range of what each linear map reads while ``run`` lets the model read texts, of their own tokens."""
    found = dict.fromkeys(linear_maps(model, format_), (math.inf, -math.inf))
    masks: list[Tensor | None] = [None]

    def see_mask(module: nn.Module, given: Any, named: dict[str, Tensor]) -> None:
        masks[0] = named.get("attention_mask")

    def measure(module: Any, given: tuple[Tensor]) -> None:
        low, high = torch.aminmax(of_tokens(given[0], masks[0]))
        least, most = found[module]
        found[module] = min(least, float(low)), max(most, float(high))

    hooks = [model.register_forward_pre_hook(see_mask, with_kwargs=True)]
    hooks += [one.register_forward_pre_hook(measure) for one in found]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    names = names_of_maps(model, list(found))
    unread = [names[one] for one, (low, high) in found.items() if low > high]
    assert not unread, f"no text reaches {unread[:3]}"
    return {names[one]: measured_range(torch.tensor(low), torch.tensor(high)) for one, (low, high) in found.items()}


def of_tokens(states: Tensor, mask_BT: Tensor | None) -> Tensor:
    """Return states [B, T, D] with 0, which lies in each range, at padding."""
    if mask_BT is None or states.ndim != 3 or states.shape[:2] != mask_BT.shape:
        return states
    return states.masked_fill(~mask_BT.bool()[:, :, None], 0)
