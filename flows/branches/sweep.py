"""The branches of a sweep: one strategy at all its numbers of layers, the rounds of the greedy search, and the first
rung of successive halving.

Papers: greedy layer pruning, Peer et al. 2021, arXiv:2105.14839 (there each try is a whole fine-tuning; here it has
``sweep.try_steps``); successive halving, Jamieson and Talwalkar 2015, arXiv:1502.07943 (here with one halving, and for
each number of layers by itself).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from flows.branches.candidate import Candidate, SharedArtifacts, best_of, finished_candidate, score_or_lowest
from flows.branches.dropped import make_dropped
from flows.branches.subflow import in_subflow
from flows.branches.teacher import layers_of_teacher
from tasks.contracts import Artifact
from tasks.preflight import check_strategies, check_sweep
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ScoreSlice
from tasks.recipe.students import STRATEGY_NAMES, Sweep
from tasks.score_model import score_model
from tasks.stage.session import Session

SEEDS = (0, 1, 2)
RUNG = 4  # the first rung takes 1 / RUNG of the steps
STRATEGY = "drop-by-strategy"  # the name of the flow of one strategy
LEAST = 2  # minimum number of strategies that continue


@dataclass(frozen=True)
class Grid:
    """The grid of a sweep: strategies times numbers of dropped layers, and the training of each cell, with the sweep's
    seeds."""

    layers: int
    strategies: tuple[str, ...]
    drops: tuple[int, ...]
    dropping: LayerDropping
    halving: bool
    try_steps: int

    def drops_of(self, strategy: str) -> list[int]:
        """Return the numbers of layers that a strategy can drop; the table shows a dash for the others."""
        from tasks.methods.layers.layer_strategies import undefined

        return [drop for drop in self.drops if not undefined(strategy, self.layers, drop)]


@dataclass
class Tried:
    """The result of one strategy at one number of dropped layers: the models, their scorecard, and the score of the
    first rung if there was one."""

    candidate: Candidate | None = None
    card: Artifact | None = None
    rung: float | None = None


@dataclass
class Swept:
    """The result of a sweep, by strategy and number of dropped layers."""

    grid: Grid
    teacher: Artifact
    """The teacher as it is scored."""
    scorecard: Artifact
    """That of the teacher."""
    similarity: Artifact
    tried: dict[tuple[str, int], Tried] = field(default_factory=dict)


@dataclass
class GreedySearch:
    """State of the greedy search: the remaining layers by the number of dropped ones. ``guess`` are the results that a
    plan cannot know, as artifacts of unknown digest."""

    kept: dict[int, list[int]] = field(default_factory=dict)
    guess: dict[str, Artifact] = field(default_factory=dict)


def of_a_sweep(recipe: Recipe) -> Recipe:
    """Return the part of a recipe that a sweep uses, with its knobs: no students, no ensemble, no transfer or general
    text, no augmentation."""
    unused: dict[str, tuple[()] | None] = {
        "students": (),
        "candidates": (),
        "general_distillation": None,
        "augmentation": None,
        "transfer": None,
        "ensemble": None,
    }
    text = {} if recipe.pretraining is not None else {"corpus": None}
    swept = recipe.model_copy(update={**unused, **text, "sweep": recipe.sweep or Sweep()})
    check_strategies(choices(swept)[0])
    return swept


def choices(recipe: Recipe) -> tuple[tuple[str, ...], tuple[int, ...] | None, LayerDropping]:
    """Return strategies, numbers of layers (None: all) and training: the sweep's own knobs, else those of
    layer_dropping, else defaults."""
    given, own = recipe.layer_dropping, recipe.sweep or Sweep()
    strategies = own.strategies or (given.strategies if given else STRATEGY_NAMES)
    dropping = given or LayerDropping(
        steps=500, batch_size=64, learning_rate=1e-4, dropout=0.0, evaluations=1, max_length=recipe.teacher.max_length
    )
    seeds = own.seeds or (given.seeds if given else SEEDS)
    return strategies, own.drop or (given.drop if given else None), dropping.model_copy(update={"seeds": seeds})


def grid_of(recipe: Recipe, sources: Mapping[str, Artifact], session: Session) -> Grid:
    """Return the grid of the sweep, reading only the teacher's config; raise RecipeError if it is not valid."""
    layers = layers_of_teacher(recipe, session.store, sources)
    strategies, drops, dropping = choices(recipe)
    drops = tuple(sorted(drops or range(1, layers)))
    check_sweep(recipe, strategies, drops, dropping, layers)
    knobs = recipe.sweep or Sweep()
    return Grid(layers, strategies, drops, dropping, knobs.halving, knobs.try_steps)


async def as_branch(
    session: Session,
    name: str,
    grid: Grid,
    drops: Sequence[int],
    teacher: Artifact,
    body: Callable[[], Awaitable[None]],
) -> None:
    """Run a branch of the sweep as a subflow, drawn after the teacher."""
    about: dict[str, JsonValue] = {"strategy": name, "drop": [*drops], "seeds": [*grid.dropping.seeds]}
    await in_subflow(session, STRATEGY, name, body, [teacher], about)


async def try_strategy(
    recipe: Recipe,
    swept: Swept,
    strategy: str,
    drops: Sequence[int],
    shared: SharedArtifacts,
    search: GreedySearch,
    session: Session,
    scoring: ScoreSlice,
) -> None:
    """Train and score one strategy at the given numbers of dropped layers, with all seeds, as a subflow."""
    grid, trained = swept.grid, await shared.teacher
    waits = {name: artifact for name, artifact in search.guess.items() if name == "first rung" or strategy == "greedy"}

    async def one(drop: int) -> None:
        kept = search.kept.get(drop) if strategy == "greedy" else None
        candidate = await make_dropped(
            recipe,
            grid.dropping,
            like(grid, strategy, drop),
            drop,
            shared,
            kept=kept,
            shown=f"{strategy}-{drop}",
            waits=waits,
        )
        candidate = await finished_candidate(recipe, candidate, shared.rows)
        card = await score_model(
            scoring,
            models=candidate.chosen_first,
            teacher=swept.teacher,
            rows=shared.rows,
            teacher_predictions=swept.scorecard,
            label=candidate.name,
        )
        tried = swept.tried.setdefault((strategy, drop), Tried())
        tried.candidate, tried.card = candidate, card

    async def body() -> None:
        if strategy == "greedy":
            waits.update(await search_greedily(recipe, grid, shared, search))
        await asyncio.gather(*(one(drop) for drop in drops))

    await as_branch(session, strategy, grid, drops, trained, body)


def like(grid: Grid, strategy: str, drop: int) -> str:
    """Return the strategy under which a cell is trained: cells with the same remaining layers (top and symmetric, with
    one layer left) share their training."""
    from tasks.methods.layers.layer_strategies import namesake

    return namesake(strategy, grid.layers, drop)


async def search_greedily(
    recipe: Recipe, grid: Grid, shared: SharedArtifacts, search: GreedySearch
) -> dict[str, Artifact]:
    """Drop one layer in each round: train briefly without each of the remaining layers, and keep the layers of the best
    score. Return the inputs that a plan cannot know."""
    from tasks.methods.layers.layer_strategies import after_a_round

    short = grid.dropping.model_copy(
        update={"steps": grid.try_steps, "evaluations": 1, "seeds": grid.dropping.seeds[:1]}
    )
    kept = list(range(grid.layers))
    for drop in range(1, max(grid.drops_of("greedy")) + 1):
        if drop not in search.kept:
            tries = after_a_round(kept)
            names = [f"greedy-{drop} try without {min(set(kept) - set(one))}" for one in tries]
            waits = search.guess if drop > 1 else {}
            made = [
                make_dropped(recipe, short, "greedy", drop, shared, kept=one, shown=name, waits=waits)
                for one, name in zip(tries, names, strict=True)
            ]
            scores = [selection_score(candidate) for candidate in await asyncio.gather(*made)]
            search.kept[drop] = tries[best_of(scores)]
            if None in scores:
                search.guess["tries"] = unknown()
        kept = search.kept[drop]
    return {name: artifact for name, artifact in search.guess.items() if name == "tries"}


async def first_rung(
    recipe: Recipe, swept: Swept, shared: SharedArtifacts, search: GreedySearch, session: Session
) -> dict[str, list[int]]:
    """Train every cell for a quarter of the steps with one seed; return the numbers of dropped layers at which each
    strategy continues."""
    grid = swept.grid
    quarter = shortened(grid.dropping)

    async def one(strategy: str, drop: int) -> None:
        kept = search.kept.get(drop) if strategy == "greedy" else None
        waits = search.guess if strategy == "greedy" else {}
        shown = f"{strategy}-{drop} first rung"
        candidate = await make_dropped(
            recipe, quarter, like(grid, strategy, drop), drop, shared, kept=kept, shown=shown, waits=waits
        )
        swept.tried[strategy, drop] = Tried(rung=selection_score(candidate))

    async def branch(strategy: str) -> None:
        async def body() -> None:
            if strategy == "greedy":
                await search_greedily(recipe, grid, shared, search)
            await asyncio.gather(*(one(strategy, drop) for drop in grid.drops_of(strategy)))

        await as_branch(session, f"{strategy} (first rung)", grid, grid.drops_of(strategy), await shared.teacher, body)

    await asyncio.gather(*(branch(strategy) for strategy in grid.strategies if grid.drops_of(strategy)))
    if any(tried.rung is None for tried in swept.tried.values()):
        search.guess["first rung"] = unknown()
    return going_on(grid, {cell: tried.rung for cell, tried in swept.tried.items()})


def going_on(grid: Grid, scores: Mapping[tuple[str, int], float | None]) -> dict[str, list[int]]:
    """Return the numbers of dropped layers at which each strategy is in the better half, of at least two strategies;
    ties are broken by the order of the strategies."""
    going: dict[str, list[int]] = {strategy: [] for strategy in grid.strategies}
    for drop in grid.drops:
        rivals = [strategy for strategy in grid.strategies if (strategy, drop) in scores]
        ranked = sorted(rivals, key=lambda strategy: -score_or_lowest(scores[strategy, drop]))
        for strategy in ranked[: max(LEAST, math.ceil(len(rivals) / 2))]:
            going[strategy].append(drop)
    return going


def shortened(dropping: LayerDropping) -> LayerDropping:
    """Return the training of the first rung: a quarter of the steps or epochs, and the first seed."""
    length: dict[str, float] = {"epochs": dropping.epochs / RUNG}
    if dropping.steps is not None:
        length = {"steps": max(1, dropping.steps // RUNG) if dropping.steps else 0}
    return dropping.model_copy(update={**length, "seeds": dropping.seeds[:1]})


def selection_score(candidate: Candidate) -> float | None:
    """Return the mean score of a candidate's models on the selection rows; None if a plan does not know it."""
    scores = [score for score in candidate.selection_scores if score is not None]
    return sum(scores) / len(scores) if len(scores) == len(candidate.models) else None


def unknown() -> Artifact:
    """Return an artifact of unknown digest for a plan: every stage that reads it is a cache miss."""
    from tasks.stage.keys import UNKNOWN

    return Artifact("checkpoint", UNKNOWN, "", 0)
