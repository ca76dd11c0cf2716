"""The points of a space, their predicted costs, and those that fit a budget. Plain values in and out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from tasks.errors import RecipeError
from tasks.recipe.makers.search import Bound, Format, LatencySlice, ShapeSearch
from tasks.recipe.makers.supernets import WHOLE
from tasks.results.row import Number
from tasks.results.search import JudgedShape, LatencyCell, LatencyTable
from tasks.search.expected_losses import expected_loss
from tasks.search.ranking import cost_the_same, dominated

BYTES_OF_A_NUMBER = {"torch": 4.0, "onnx": 4.0, "int8": 1.0, "int8-table4": 0.5}
"""Bytes of one number of an embedding by format."""
SCALED_TOGETHER = {"int8-table4": 32}
"""Numbers of a row of an embedding that share a scale in float32, in formats whose rows have scales of their own."""
BYTES_OF_A_SCALE = 4
NO_LOSSES: Mapping[str, Number] = {}


@dataclass(frozen=True)
class SizedVocabulary:
    """A vocabulary: how its pieces are chosen, and how many there are."""

    pieces: str
    size: int


def depths_of(search: ShapeSearch, layers: int) -> tuple[int, ...]:
    """Return the numbers of layers of a space, in order; raise RecipeError for more than the teacher has."""
    given = sorted(search.space.layers or range(1, layers + 1))
    if given[-1] > layers:
        raise RecipeError(
            f"search.space.layers names {given[-1]}, and the teacher has {layers}; give numbers from 1 to {layers}"
        )
    return tuple(given)


def measured_shapes(search: ShapeSearch, layers: int) -> Mapping[str, tuple[int, ...] | tuple[float, ...]]:
    """Return the depths and shares that a latency table has to measure: those of the space, and the teacher's."""
    depths = depths_of(search, layers)
    ends = tuple(sorted({depths[0], layers}))
    return {
        "depths": ends,
        "between": tuple(depth for depth in depths if depth not in ends),
        "widths": with_whole(search.space.width),
        "neurons": with_whole(search.space.neurons),
    }


def with_whole(shares: Sequence[float]) -> tuple[float, ...]:
    """Return shares, the teacher's first."""
    return (WHOLE, *(share for share in sorted(shares, reverse=True) if share != WHOLE))


def bytes_of_row(way: str, width: int) -> float:
    """Return the bytes of a row of the embedding of words in a format: its numbers, and its scales."""
    scales = math.ceil(width / SCALED_TOGETHER[way]) if way in SCALED_TOGETHER else 0
    return BYTES_OF_A_NUMBER[way] * width + BYTES_OF_A_SCALE * scales


def points_of(search: ShapeSearch, layers: int) -> int:
    """Return the number of points of a space."""
    space = search.space
    shapes = len(depths_of(search, layers)) * len(space.width) * len(space.neurons)
    return shapes * len(space.vocabulary) * len(space.formats)


def longest_table(knobs: LatencySlice) -> float:
    """Return the seconds that the measurements of a table take at most, without building its models."""
    cells = len(knobs.formats) * len(knobs.widths) * len(knobs.neurons)
    checks = min(knobs.checks, cells * len(knobs.between))
    return knobs.seconds * (1 + cells + checks)


def name_of_shape(cell: LatencyCell, layers: int, vocabulary: SizedVocabulary) -> str:
    """Return the name of a shape: its layers, and its width, neurons and pieces where they are not the teacher's."""
    parts = [f"l{layers}", *cut_names(cell.width, cell.hidden, cell.neurons, cell.feed_forward)]
    return "-".join([*parts, *([] if vocabulary.pieces == "whole" else [f"v{vocabulary.size}"])])


def cut_names(width: float, hidden: int, neurons: float, feed_forward: int) -> list[str]:
    """Return the parts of a name that state what is cut before the training."""
    return [*([f"w{hidden}"] if width < WHOLE else []), *([f"f{feed_forward}"] if neurons < WHOLE else [])]


def predicted_costs(
    cell: LatencyCell, layers: int, pieces: int, whole: int, joules_per_ms: float | None
) -> dict[str, float]:
    """Return the predicted costs of a point by the name of their budget. Of memory the weights alone are known; joules
    are left out where the watts of the processor are not known."""
    ms, weights = cell.ms.of(layers), cell.bytes.of(layers) - (whole - pieces) * float(cell.row_bytes)
    joules = {} if joules_per_ms is None else {"joules": ms * joules_per_ms}
    return {"latency_ms": ms, "bytes": weights, "flops": cell.flops.of(layers), "memory": weights, **joules}


def fitting_shapes(
    search: ShapeSearch,
    table: LatencyTable,
    vocabularies: Sequence[SizedVocabulary],
    joules_per_ms: float | None,
    losses: Mapping[str, Number] = NO_LOSSES,
) -> list[JudgedShape]:
    """Return the shapes that fit the budgets, each in that of its fitting forms whose expected loss is the least; among
    equals in the first format. Raises as ``fitting_forms`` does."""
    forms = fitting_forms(search, table, vocabularies, joules_per_ms)
    return [min(one, key=lambda form: expected_loss(form, losses)) for one in forms]


def fitting_forms(
    search: ShapeSearch,
    table: LatencyTable,
    vocabularies: Sequence[SizedVocabulary],
    joules_per_ms: float | None,
) -> list[list[JudgedShape]]:
    """Return of each shape that fits the budgets its forms: one in each format in which it fits, in the order of the
    recipe, with the largest vocabulary that does.

    Raises RecipeError for a budget in joules on a processor of unknown watts, and where no shape fits.
    """
    bounds = search.require_budget()
    if joules_per_ms is None and any(bound.name == "joules" for bound in bounds):
        raise RecipeError(
            "search.budget.joules: the watts of this processor are not known; set costs.core_watts, or remove it"
        )
    limits = most_of_each_budget(bounds, table, joules_per_ms)
    found: dict[tuple[int, float, float], dict[str, JudgedShape]] = {}
    over: list[JudgedShape] = []
    every: list[dict[str, float]] = []
    for cell, layers, vocabulary in points_in_order(search, table, vocabularies):
        costs = predicted_costs(cell, layers, vocabulary.size, table.vocabulary, joules_per_ms)
        shape = shape_of_point(cell, layers, vocabulary, table.vocabulary, costs)
        over.append(shape)
        every.append(costs)
        if all(costs[name] <= most for name, most in limits.items()):
            forms = found.setdefault((layers, float(cell.width), float(cell.neurons)), {})
            forms.setdefault(shape.format, shape)
    if not found:
        raise RecipeError(sentence_on_nearest(over, every, limits))
    return [[*forms.values()] for forms in found.values()]


def sentence_on_nearest(
    shapes: Sequence[JudgedShape], costs: Sequence[Mapping[str, float]], limits: Mapping[str, float]
) -> str:
    """Return a sentence on a budget that no shape meets: which part of it none does, and what the nearest shape, whose
    largest excess over a limit is the least, would need."""
    least = {name: min(one[name] for one in costs) for name in limits}
    unmet = [
        f"{name} is at least {amount_of(least[name])}, and {amount_of(most)} is asked"
        for name, most in limits.items()
        if least[name] > most
    ]
    excess = [max(one[name] / most for name, most in limits.items()) for one in costs]
    at = excess.index(min(excess))
    missed = [f"{name}={amount_of(costs[at][name])}" for name, most in limits.items() if costs[at][name] > most]
    why = "; ".join(unmet) or "each of its parts is met by some shape, and all together by none"
    return (
        f"no shape of the space fits the budget ({why}); the nearest one, {shapes[at].name} in {shapes[at].format}, "
        f"needs {' and '.join(missed)}; raise the budget, or add smaller shapes to search.space"
    )


def amount_of(cost: float) -> str:
    """Return a cost with four digits, rounded up, so that it is enough as a budget."""
    step = 10.0 ** max(math.floor(math.log10(cost)) - 3, -12) if cost > 0 else 1.0
    return f"{math.ceil(cost / step - 1e-9) * step:.12g}"


def most_of_each_budget(bounds: Sequence[Bound], table: LatencyTable, joules_per_ms: float | None) -> dict[str, float]:
    """Return the largest legal cost of each budget; shares are of the teacher's shape in the format of the space that
    is the nearest to its own, whatever their order in the recipe."""
    whole = [cell for cell in table.cells if (cell.width, cell.neurons) == (WHOLE, WHOLE)]
    teacher = min(whole, key=lambda cell: get_args(Format).index(cell.format))
    costs = predicted_costs(teacher, table.layers, table.vocabulary, table.vocabulary, joules_per_ms)
    return {bound.name: bound.amount * (costs[bound.name] if bound.of_teacher else 1.0) for bound in bounds}


def points_in_order(
    search: ShapeSearch, table: LatencyTable, vocabularies: Sequence[SizedVocabulary]
) -> Iterator[tuple[LatencyCell, int, SizedVocabulary]]:
    """Yield the points of a space: by shape, then by format in the order of the recipe, then the largest vocabulary
    first."""
    space = search.space
    ordered = sorted(vocabularies, key=lambda one: -one.size)
    order: dict[str, int] = {way: number for number, way in enumerate(space.formats)}
    inside = different_sizes(
        cell for cell in table.cells if cell.width in space.width and cell.neurons in space.neurons
    )
    for layers in depths_of(search, table.layers):
        for cell in sorted(inside, key=lambda cell: order[cell.format]):
            for vocabulary in ordered:
                yield cell, layers, vocabulary


def different_sizes(cells: Iterable[LatencyCell]) -> list[LatencyCell]:
    """Return cells without those of a size that an earlier one has in the same format: shares of few heads or neurons
    may round to the same number."""
    found: dict[tuple[object, ...], LatencyCell] = {}
    for cell in cells:
        found.setdefault((cell.hidden, cell.heads, cell.feed_forward, cell.format), cell)
    return [*found.values()]


def shape_of_point(
    cell: LatencyCell, layers: int, vocabulary: SizedVocabulary, whole: int, costs: Mapping[str, float]
) -> JudgedShape:
    """Return a point as a shape to be judged."""
    gone = (whole - vocabulary.size) * cell.row_width
    return JudgedShape(
        name=name_of_shape(cell, layers, vocabulary),
        layers=layers,
        hidden=cell.hidden,
        heads=cell.heads,
        feed_forward=cell.feed_forward,
        width=cell.width,
        neurons=cell.neurons,
        vocabulary=vocabulary.size,
        pieces=vocabulary.pieces,
        format=cell.format,
        ms=costs["latency_ms"],
        bytes=round(costs["bytes"]),
        flops=round(costs["flops"]),
        parameters=round(cell.parameters.of(layers) - gone),
        joules=costs.get("joules"),
    )


def largest_first(shapes: Sequence[JudgedShape]) -> list[JudgedShape]:
    """Return shapes in the order in which they are judged, if not all can be: first those that no other one contains,
    since a larger model of the same teacher is seldom worse; then by their FLOPs, the largest first."""
    outer: list[tuple[float, ...]] = []
    inner: dict[str, bool] = {}
    for one in sorted(shapes, key=size_of_shape):  # whatever contains a shape comes before it, or is contained itself
        inner[one.name] = dominated(size_of_shape(one), outer)
        if not inner[one.name]:
            outer.append(size_of_shape(one))
    return sorted(shapes, key=lambda one: (inner[one.name], -one.flops, one.name))


def size_of_shape(shape: JudgedShape) -> tuple[float, ...]:
    """Return the size of a shape in each way in which it is cut, negative, so that the largest is the first."""
    return tuple(-float(value) for value in (shape.layers, shape.width, shape.neurons))


def finalists(
    ranked: Sequence[JudgedShape], count: int, *, cheapest_of_a_score: bool
) -> tuple[list[JudgedShape], list[JudgedShape]]:
    """Return the best shapes that differ by more than 5 % in some cost, and those that are passed over because a better
    one is much alike; ``ranked`` begins with the best.

    With ``cheapest_of_a_score`` the shapes that no other dominates in score, latency and bytes come first, and others
    take the places that they leave. An early round does without: after a part of its training a larger shape is often
    behind a smaller one that it overtakes.
    """
    chosen: list[JudgedShape] = []
    passed: list[JudgedShape] = []
    for one in front_first(ranked) if cheapest_of_a_score else ranked:
        if len(chosen) == count:
            break
        same = any(cost_the_same((one.ms, one.bytes), (other.ms, other.bytes)) for other in chosen)
        (passed if same else chosen).append(one)
    place = {one.name: number for number, one in enumerate(ranked)}
    return sorted(chosen, key=lambda one: place[one.name]), passed


def front_first(ranked: Sequence[JudgedShape]) -> list[JudgedShape]:
    """Return shapes with those first that none of the better ones is below in latency and in bytes, in their order."""
    front: list[JudgedShape] = []
    behind: list[JudgedShape] = []
    for one in ranked:
        is_behind = dominated((one.ms, one.bytes), [(other.ms, other.bytes) for other in front])
        (behind if is_behind else front).append(one)
    return [*front, *behind]
