"""Layer-dropping strategies as sets of layer numbers; no model is touched here.

Paper: Sajjad et al. 2020, "On the Effect of Dropping Layers of Pre-trained Transformer Models", arXiv:2004.03844;
greedy is Peer et al. 2021, "Greedy-layer Pruning: Speeding up Transformer Models for Natural Language Processing",
arXiv:2105.14839. Layers count from 0 in this file, as in code; the paper counts from 1, so its "odd" layers are 0, 2, 4
… here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tasks.errors import RecipeError

Strategy = Callable[[int, int, Sequence[float] | None], list[int]]
"""Maps the number of layers, the number to drop and, where needed, an earlier measurement (a cosine for each layer, or
the layers that a search kept) to the layers that remain."""


def top(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop the layers next to the output."""
    _require_droppable("top", layers, drop, layers - 1)
    return list(range(layers - drop))


def bottom(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop the layers next to the embeddings."""
    _require_droppable("bottom", layers, drop, layers - 1)
    return list(range(drop, layers))


def symmetric(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop the middle; if the rest cannot be halved, the bottom keeps one more."""
    _require_droppable("symmetric", layers, drop, layers - 1)
    below = (layers - drop + 1) // 2
    return [*range(below), *range(below + drop, layers)]


def alternate_odd(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop every other layer from the top down: the 1st, 3rd, 5th … as the paper counts."""
    return _without_alternate("alternate-odd", layers, drop, list(range(0, layers, 2)))


def alternate_even(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop every other layer from the top down: the 2nd, 4th, 6th … as the paper counts."""
    return _without_alternate("alternate-even", layers, drop, list(range(1, layers, 2)))


def contribution(layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Drop the layers that change their input least (highest cosine); of equals, the higher layer goes first."""
    _require_droppable("contribution", layers, drop, layers - 1)
    if contributions is None or len(contributions) != layers or not all(map(math.isfinite, contributions)):
        raise RecipeError(
            f"the strategy 'contribution' needs one finite cosine for each of the {layers} layers; "
            "measure them on a sample of the data first"
        )
    by_change = sorted(range(layers), key=lambda layer: (contributions[layer], layer))
    return sorted(by_change[: layers - drop])


def greedy(layers: int, drop: int, kept: Sequence[float] | None = None) -> list[int]:
    """Drop, round by round, the layer whose removal costs least. The rounds are trainings, so the remaining layers are
    an argument."""
    _require_droppable("greedy", layers, drop, layers - 1)
    found = sorted({int(layer) for layer in kept or ()})
    if len(found) != layers - drop or not set(found) <= set(range(layers)):
        raise RecipeError(
            f"the strategy 'greedy' needs the {layers - drop} of {layers} layers that its search kept, not "
            f"{list(kept or ())}; "
            "limbeck sweep searches for them"
        )
    return found


def after_a_round(kept: Sequence[int]) -> list[list[int]]:
    """Return the candidates of one round of the greedy search: the remaining layers, for each layer that could be
    dropped next; the topmost first."""
    return [[layer for layer in kept if layer != gone] for gone in reversed(kept)]


STRATEGIES: dict[str, Strategy] = {
    "top": top,
    "bottom": bottom,
    "alternate-odd": alternate_odd,
    "alternate-even": alternate_even,
    "symmetric": symmetric,
    "contribution": contribution,
    "greedy": greedy,
}


FOUND = ("contribution", "greedy")
"""Strategies whose layers depend on the model and the data."""


def kept_layers(strategy: str, layers: int, drop: int, contributions: Sequence[float] | None = None) -> list[int]:
    """Return the layers, counted from 0, that remain when ``strategy`` drops ``drop`` of ``layers``."""
    if strategy not in STRATEGIES:
        raise RecipeError(
            f"unknown layer dropping strategy {strategy!r}; choose one of {', '.join(sorted(STRATEGIES))}"
        )
    return STRATEGIES[strategy](layers, drop, contributions)


def namesake(strategy: str, layers: int, drop: int) -> str:
    """Return the first strategy that is known to leave the same layers; strategies that need measurements or trials
    match only themselves."""
    if strategy in FOUND:
        return strategy
    kept = kept_layers(strategy, layers, drop)
    named = (name for name in STRATEGIES if name not in FOUND and not undefined(name, layers, drop))
    return next(name for name in named if kept_layers(name, layers, drop) == kept)


def undefined(strategy: str, layers: int, drop: int) -> bool:
    """Tell whether ``strategy`` cannot drop ``drop`` of ``layers``: tables show such a cell as "—"."""
    if strategy not in STRATEGIES:
        return not kept_layers(strategy, layers, drop)
    stand_in = list(range(layers - drop)) if strategy == "greedy" else [0.0] * layers
    try:
        return not STRATEGIES[strategy](layers, drop, stand_in)
    except RecipeError:
        return True


def _require_droppable(strategy: str, layers: int, drop: int, most: int) -> None:
    if not 0 <= drop <= most:
        raise RecipeError(
            f"the strategy {strategy!r} cannot drop {drop} of {layers} layers; it can drop 0 to {max(most, 0)}"
        )


def _without_alternate(strategy: str, layers: int, drop: int, candidates: list[int]) -> list[int]:
    _require_droppable(strategy, layers, drop, min(len(candidates), layers - 1))
    dropped = candidates[len(candidates) - drop :]
    return [layer for layer in range(layers) if layer not in dropped]
