"""A search: the shapes that fit a budget are ranked on the selection rows, in rounds of trainings or in a supernet; the
best are candidates, trained, scored and judged as those of any recipe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from flows.branches.candidate import SharedArtifacts
from flows.branches.search.found import FoundCandidates, compared_by
from flows.branches.search.legal_searches import require_comparable, require_droppable, require_own_layers
from flows.branches.search.rounds import ROUND, train_in_rounds
from flows.branches.search.supernet import CHECKED, LEAST_CHECKED, rank_in_supernet
from flows.branches.search.teacher_losses import TrimmedTeachers, losses_on_teacher
from flows.branches.search.trials import require_trials
from tasks.contracts import Artifact
from tasks.errors import RecipeError
from tasks.recipe.chains import require_chains
from tasks.recipe.judging import Exports
from tasks.recipe.makers.search import LatencySlice, ShapeSearch
from tasks.recipe.recipe import Recipe
from tasks.recipe.training import TaskTraining
from tasks.report.format.numbers import plural, span
from tasks.report.tables.search import PlannedSupernet, planned_lines
from tasks.report.tables.trials import trials_lines
from tasks.results.facts import RowsFacts
from tasks.results.roles import role_of
from tasks.results.search import JudgedShape, LatencyTable, SearchResult
from tasks.results.trials import TrialsResult
from tasks.score_model import measure_latencies
from tasks.scoring.costs.ledger import inference_joules
from tasks.search.chains import chain_of_shape, each_once, part_of_training
from tasks.search.measured_costs import limits_of_graphs
from tasks.search.ranking import LARGEST_LATENCY_ERROR, LEAST_RANK, rounds_of
from tasks.search.space import (
    SizedVocabulary,
    amount_of,
    fitting_forms,
    fitting_shapes,
    largest_first,
    longest_table,
    measured_shapes,
    most_of_each_budget,
    points_of,
)
from tasks.stage.session import Session, StageRecord

FEWEST_SELECTION_ROWS = 1000
"""Rows on which shapes should be compared: of 1,000, an accuracy has a standard error of about one point."""


def of_a_search(recipe: Recipe) -> Recipe:
    """Return a recipe that can be searched; raise RecipeError for one without a budget or without selection rows."""
    search = recipe.search or ShapeSearch()
    if search.recipes is not None:
        return require_trials(recipe, search)
    try:
        search.require_budget()
    except ValueError as error:
        raise RecipeError(str(error)) from error
    if recipe.task_type.keeps_words and set(search.space.vocabulary) != {"whole"}:
        raise RecipeError(
            f"search.space.vocabulary: models of type {recipe.spec.kind} compute a logit for each piece, and what they "
            f"cost with fewer is not predicted; set vocabulary: [whole], and trim the model that is chosen"
        )
    if not recipe.data.selection_rows:
        raise RecipeError(
            "shapes are compared on selection rows, and data.selection_rows is 0; set data.selection_rows: 1000"
        )
    require_comparable(recipe, search)
    return recipe.model_copy(update={"search": search})


def table_knobs(recipe: Recipe, search: ShapeSearch, layers: int) -> LatencySlice:
    """Return the knobs of the latency table: shapes of the space, measured as section speed measures models."""
    return LatencySlice(
        **dict(recipe.speed),
        **measured_shapes(search, layers),
        task_type=recipe.spec.kind,
        formats=search.space.formats,
        flops_length=recipe.scoring.flops_length,
        seed=search.seed,
    )


def planned_words(recipe: Recipe, result: SearchResult | TrialsResult, records: Sequence[StageRecord]) -> list[str]:
    """Return sentences on a search that was not run; ``records`` are its planned stages."""
    if isinstance(result, TrialsResult):
        return trials_lines(result)
    search = recipe.search or ShapeSearch()
    lengths = [length_in_words(part_of_training(search.training, left)) for left in range(len(result.rounds))]
    supernet = None
    if search.ranking == "supernet" and not result.checked and result.fitting >= LEAST_CHECKED:
        supernet = PlannedSupernet(
            length_in_words(search.supernet.prediction),
            cost_in_words([one for one in records if one.name == "train-supernet"]),
            cost_in_words([one for one in records if one.name == "judge-shapes"]),
            min(CHECKED, result.fitting),
            cost_in_words([one for one in records if one.label.endswith(ROUND.format(1))]),
            min(search.candidates, result.fitting),
            search.evolution.generations if result.fitting > search.evolution.above else 0,
        )
    return planned_lines(result, lengths[::-1], supernet)


def length_in_words(training: TaskTraining) -> str:
    """Return the steps or the epochs of a training."""
    return f"{training.steps:,} steps" if training.steps else f"{training.epochs:.3g} epochs"


def cost_in_words(records: Sequence[StageRecord]) -> str:
    """Return what planned stages take together, as far as stages like them ran before."""
    missing = [one for one in records if one.cache != "hit"]
    if not missing:
        return "cached"
    known = [one.estimate for one in missing if one.estimate is not None]
    if not known:
        return "of unknown cost"
    return f"about {span(sum(known))}{'' if len(known) == len(missing) else ', and some of unknown cost'}"


async def find_shapes(recipe: Recipe, shared: SharedArtifacts, session: Session) -> FoundCandidates:
    """Find the shapes that fit the budget, train them in rounds, and return a recipe with the best as candidates."""
    search = recipe.search or ShapeSearch()
    require_own_layers(search, shared.base)
    require_droppable(search, shared.layers)
    told = tuple(str(bound) for bound in search.require_budget())
    knobs = table_knobs(recipe, search, shared.layers)
    result = SearchResult(
        scored_by=compared_by(recipe, search.training),
        budgets=told,
        formats=search.space.formats,
        points=points_of(search, shared.layers),
        fitting=0,
        table_seconds=longest_table(knobs),
    )
    table = await measure_latencies(knobs, base=shared.base)
    trimmed = TrimmedTeachers(recipe, shared)
    vocabularies = await vocabularies_of(search, table, trimmed)
    if not table.facts or vocabularies is None:
        return FoundCandidates(result)
    known = table.read(LatencyTable)
    energy = joules_per_ms(recipe, table, session)
    forms = [form for one in fitting_forms(search, known, vocabularies, energy) for form in one]
    losses, notes = await losses_on_teacher(recipe, search, forms, trimmed, shared)
    shapes = largest_first(fitting_shapes(search, known, vocabularies, energy, losses or {}))
    if recipe.planned:  # chains of a large space take a while to write down
        require_other_names(recipe, names_of_chains(search, shapes, shared.layers))
    sizes = rounds_of(min(len(shapes), search.shapes), search.candidates, search.rounds)
    result = result.replaced(fitting=len(shapes), table=known, rounds=tuple(sizes), shapes=tuple(shapes))
    told = budgets_in_words(search, known, energy)
    result = result.replaced(budgets=told, losses=losses, notes=notes, limits=limits_of_graphs(search, known, energy))
    ranked = await ranked_shapes(recipe, search, result, shared)
    if ranked is None:
        return FoundCandidates(result)
    chosen = [one for one in ranked.shapes if one.state == "candidate"]
    return FoundCandidates(
        ranked.replaced(notes=(*ranked.notes, *notes_of_search(known), *note_of_few_rows(shared))),
        with_candidates(recipe, search, chosen, shared, ranked.trusted),
    )


def names_of_chains(search: ShapeSearch, shapes: Sequence[JudgedShape], layers: int) -> set[str]:
    """Return the names of all models by whose chains shapes are made, by trainings alone or out of a supernet."""
    ways = [None, search.whole_supernet] if search.ranking == "supernet" else [None]
    chains = (
        chain_of_shape(shape, search, search.training, layers, search.seeds, supernet=way)
        for shape in shapes
        for way in ways
    )
    return {one.name for chain in chains for one in chain}


def require_other_names(recipe: Recipe, names: Collection[str]) -> None:
    """Raise RecipeError for a candidate of the recipe that has the name of a shape, or of a model from which one is
    made, before any shape is trained."""
    taken = next((one.name for one in recipe.planned if one.name in names), None)
    if taken is not None:
        raise RecipeError(
            f"search: a shape that fits, or a model on the way to one, is called {taken}, like a candidate of this "
            f"recipe; rename it"
        )


async def ranked_shapes(
    recipe: Recipe, search: ShapeSearch, result: SearchResult, shared: SharedArtifacts
) -> SearchResult | None:
    """Return the answer with ranked shapes: by a supernet if one is asked for and agrees with trainings of single
    shapes, else by rounds of trainings. None in a plan that does not know a score."""
    if search.ranking == "supernet" and len(result.shapes) >= LEAST_CHECKED:
        found = await rank_in_supernet(recipe, search, result, shared)
        if found is None or found.trusted:
            return found
        # Its scores are not used, so that the answer does not tell how many there were.
        result = found.replaced(shapes=result.shapes, rounds=result.rounds, scored=None)
    elif search.ranking == "supernet":
        few = f"fewer than {LEAST_CHECKED} shapes fit, so no supernet was made"
        result = result.replaced(notes=(*result.notes, few))
    sizes = [int(size) for size in result.rounds]
    judged = await train_in_rounds(recipe, search, result, sizes, shared)
    if judged is None:
        return None
    # fewer than planned where shapes are much alike
    trained = [sum(len(one.scores) >= number for one in judged) for number in range(1, len(sizes))]
    chosen = sum(one.state == "candidate" for one in judged)
    return result.replaced(shapes=tuple(judged), rounds=(*trained, chosen))


def joules_per_ms(recipe: Recipe, table: Artifact, session: Session) -> float | None:
    """Return the energy of a millisecond on the cores that serve, in joules; None for a processor of unknown watts."""
    found = inference_joules(1.0, recipe.speed.threads, str(table.used.get("cpu") or ""), session.rates)
    value = found.get("value")
    return None if value is None else float(value)


async def vocabularies_of(
    search: ShapeSearch, table: Artifact, trimmed: TrimmedTeachers
) -> list[SizedVocabulary] | None:
    """Return the different vocabularies of the space with their sizes, which are counted by trimming the teacher: texts
    may use fewer pieces than a number that is named. None in a plan that does not know those that are used."""
    if not table.facts:
        return None
    whole = table.read(LatencyTable).vocabulary
    named = below_the_whole(search.space.vocabulary, whole)
    sizes = await asyncio.gather(*(size_of_vocabulary(pieces, whole, trimmed) for pieces in named))
    found: dict[int, SizedVocabulary] = {}
    for pieces, size in zip(named, sizes, strict=True):
        if size is None:
            return None
        found.setdefault(size, SizedVocabulary(str(pieces), size))
    return [*found.values()]


async def size_of_vocabulary(pieces: str | int, whole: int, trimmed: TrimmedTeachers) -> int | None:
    """Return the number of pieces of a vocabulary; in a plan at most so many, or None where no number is named."""
    if pieces == "whole":
        return whole
    most = None if pieces == "used" else int(pieces)
    facts = (await trimmed.of(SizedVocabulary(str(pieces), most or 0))).facts
    return int(str(facts["pieces"])) if facts else most


def below_the_whole(vocabularies: Sequence[str | int], whole: int) -> list[str | int]:
    """Return vocabularies without those that name more pieces than there are; raise RecipeError if none is left."""
    found = [one for one in vocabularies if isinstance(one, str) or one < whole]
    if not found:
        raise RecipeError(
            f"search.space.vocabulary names {', '.join(map(str, vocabularies))} pieces, and the teacher has {whole:,}; "
            f"give fewer, or whole"
        )
    return found


def with_candidates(
    recipe: Recipe, search: ShapeSearch, chosen: Sequence[JudgedShape], shared: SharedArtifacts, of_supernet: bool
) -> Recipe:
    """Return the recipe with the chosen shapes as further candidates, and the budget among the criteria of the gate if
    checkpoints are what is served; else the shapes are exported in their formats. Shapes ``of_supernet`` begin with its
    weights. They are compared, by intervals, with the recipe's own.

    Raises RecipeError where a candidate of the recipe has the name of a shape.
    """
    supernet = search.whole_supernet if of_supernet else None
    chains = [
        chain_of_shape(one, search, search.training, shared.layers, search.seeds, supernet=supernet) for one in chosen
    ]
    shapes, by_hand = {one.name for one in chosen}, candidates_by_hand(recipe)
    made = [one.model_copy(update={"compared_to": by_hand}) if one.name in shapes else one for one in each_once(chains)]
    changes: dict[str, object] = {"candidates": (*recipe.candidates, *made)}
    formats = [way for way in dict.fromkeys(one.format for one in chosen) if way != "torch"]
    if formats:
        own = recipe.exports or Exports(formats=("onnx",))
        every = tuple(dict.fromkeys((*(own.formats if recipe.exports else ()), *formats)))
        # without names, every student of the recipe is exported, and so are the shapes
        named = () if recipe.exports and not own.of else (*own.of, *by_hand, *(chain[-1].name for chain in chains))
        names = tuple(dict.fromkeys(named))
        changes["exports"] = own.model_copy(update={"formats": every, "of": names})
    if search.space.formats == ("torch",):
        bounds = [bound.criterion for bound in search.require_budget()]
        changes["gate"] = recipe.gate.model_copy(update={"criteria": (*recipe.gate.criteria, *bounds)})
    found = recipe.model_copy(update=changes)
    try:
        require_chains(found.planned, recipe.pretraining)
    except ValueError as error:
        raise RecipeError(f"search: {error}") from error
    return found


def candidates_by_hand(recipe: Recipe) -> tuple[str, ...]:
    """Return the recipe's own candidates that are an answer by themselves: no baseline, and nothing is made of them."""
    planned = recipe.planned
    origins = {one.made_from for one in planned}
    return tuple(one.name for one in planned if role_of(one.planned_role).registered and one.name not in origins)


def budgets_in_words(search: ShapeSearch, table: LatencyTable, joules_per_ms: float | None) -> tuple[str, ...]:
    """Return the budgets, of shares of the teacher's with the amount that they are."""
    bounds = search.require_budget()
    most = most_of_each_budget(bounds, table, joules_per_ms)
    return tuple(f"{one}, {amount_of(most[one.name])} {one.unit}" if one.of_teacher else str(one) for one in bounds)


def note_of_few_rows(shared: SharedArtifacts) -> list[str]:
    """Return a note on selection rows that are too few to compare shapes."""
    rows = shared.rows.read(RowsFacts).rows.get("selection", 0)
    if rows >= FEWEST_SELECTION_ROWS:
        return []
    return [f"shapes were compared on {plural(rows, 'selection row')}, and {FEWEST_SELECTION_ROWS:,} are wanted"]


def notes_of_search(table: LatencyTable) -> tuple[str, ...]:
    """Return notes on the accuracy of the latency table."""
    notes = []
    if table.unsteady:
        notes.append(f"{table.unsteady} of {len(table.cells)} parts of the latency table are unsteady")
    if table.error is not None and table.error > LARGEST_LATENCY_ERROR:
        notes.append(
            f"the latency table is wrong by {100 * table.error:.0f} % on average: shapes near the budget may not fit"
        )
    if table.rank_correlation is not None and table.rank_correlation < LEAST_RANK:
        notes.append(
            f"predicted and measured latencies have a rank correlation of {table.rank_correlation:.3f}, and "
            f"{LEAST_RANK:g} is wanted: of two shapes the one that is said to be faster may be the slower one"
        )
    return tuple(notes)
