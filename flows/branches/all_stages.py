"""Every stage of a run and of a sweep, in order. A plan passes the same code, and loads no Prefect: only flows do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial

from attrs import evolve

from flows.branches.candidate import Candidate, SharedArtifacts, finished_candidate, finished_model
from flows.branches.evaluation import judge_all
from flows.branches.export import beside_models, check_speed, make_exports, with_exports
from flows.branches.judging_sets import compare_sets, corpus_read, packed_rows, rows_of_sets, rows_to_learn
from flows.branches.makers import all_candidates
from flows.branches.search.found import Searched, with_whole_scores
from flows.branches.search.shapes import candidates_by_hand, find_shapes
from flows.branches.search.trials import find_recipes, trials_of
from flows.branches.subflow import in_branch
from flows.branches.sweep import GreedySearch, Swept, first_rung, grid_of, try_strategy
from flows.branches.teacher import colleague, good_teacher, layers_of_teacher, pretrained_base, vocabulary_of_teacher
from flows.branches.teacher_signals import answers_for
from flows.run.judging_sources import with_purge
from flows.run.opening import metrics_in, require_two_classes
from tasks.augment_text import augment_text
from tasks.contracts import Artifact
from tasks.drop_layers import measure_similarity
from tasks.preflight import check_students, require_rows_for_int8, require_selection
from tasks.prepare_corpus import prepare_corpus
from tasks.prepare_rows import compare_corpus, prepare_rows, prepare_transfer
from tasks.recipe.candidates import tokenizes_corpus
from tasks.recipe.judging import score_knobs
from tasks.recipe.makers.writing import generation_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import ContributionSlice, RowsSlice, ScoreSlice, TransferSlice
from tasks.report.tables.kept_answers import require_budget_of_answers
from tasks.results.facts import RowsFacts
from tasks.results.row import ResultRow
from tasks.results.search import SearchResult
from tasks.score_model import score_model
from tasks.search.by_hand import with_shapes_by_hand
from tasks.search.measured_costs import with_notes_over_budget
from tasks.stage.session import Session


@dataclass
class Begun:
    """A run whose rows are divided and whose shared stages have begun."""

    rows: Artifact
    """The rows as they were divided."""
    learned: Artifact
    """The rows to learn from: without those that a judging set purges."""
    shared: SharedArtifacts
    comparing: Awaitable[object]


async def make_everything(
    recipe: Recipe, sources: dict[str, Artifact], session: Session
) -> tuple[list[ResultRow], list[Candidate], Artifact]:
    """Run every stage of the recipe; return the rows of the results, their candidates and the data."""
    return await make_candidates(recipe, await begin_everything(recipe, sources, session))


async def begin_everything(
    recipe: Recipe, sources: dict[str, Artifact], session: Session, *, found_later: bool = False
) -> Begun:
    """Divide the rows, check the students, and start the stages that candidates share. A search may begin without
    candidates."""
    rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=sources["data"])
    require_rows_for_int8(recipe, rows.read(RowsFacts))
    require_two_classes(recipe, rows.read(RowsFacts), metrics_in(sources))
    learned, purging = await rows_to_learn(recipe, sources, rows)
    base = await pretrained_base(recipe, sources)
    if not session.is_guess(base) and not (found_later and not recipe.planned):
        starts = {
            name.removeprefix("start:"): session.store.folder(artifact)
            for name, artifact in sources.items()
            if name.startswith("start:")
        }
        await asyncio.to_thread(check_students, recipe, session.store.folder(base), starts)
    shared = await shared_artifacts(recipe, sources, await packed_rows(recipe, learned), base)
    shared.layers = layers_of_teacher(recipe, session.store, sources)
    session.vocabulary = vocabulary_of_teacher(recipe, session.store, sources)
    require_budget_of_answers(recipe, with_purge(rows, None if learned is rows else learned), session.vocabulary)
    shared.metrics = metrics_in(sources)
    shared.groups = rows.read(RowsFacts).groups
    shared.judging = await rows_of_sets(recipe, sources, learned, purging)
    comparing = asyncio.gather(corpus_leakage(recipe, sources, rows), compare_sets(recipe, sources, shared, learned))
    return Begun(rows, learned, shared, comparing)


async def make_candidates(recipe: Recipe, begun: Begun) -> tuple[list[ResultRow], list[Candidate], Artifact]:
    """Make, export and judge all candidates of a run that has begun."""
    rows, learned, shared = begun.rows, begun.learned, begun.shared
    small = await all_candidates(recipe, shared)
    trained = [Candidate("teacher", "teacher", [await shared.teacher], (recipe.teacher.seed,)), *small]
    candidates = await asyncio.gather(*(finished_candidate(recipe, one, shared.rows) for one in trained))
    exporting = partial(make_exports, recipe, candidates, learned)
    exports = await in_branch(recipe, "exports", exporting, [learned]) if recipe.exports else []
    everyone = beside_models(candidates, exports)
    await begun.comparing
    judged = await judge_all(recipe, everyone, with_teacher(shared, candidates[0].model))
    known = rows if learned is rows else evolve(learned, facts=with_purge(rows, learned).as_json())
    return with_exports(judged, await check_speed(recipe, exports)), everyone, known


async def search_everything(recipe: Recipe, sources: dict[str, Artifact], session: Session) -> Searched:
    """Run every stage of a search: the latency table, the rounds in which shapes are trained, and the candidates; or
    the rounds of trials of ways to train one shape, and the candidates."""
    begun = await begin_everything(recipe, sources, session, found_later=True)
    require_selection(begun.rows.read(RowsFacts))
    find = find_shapes if trials_of(recipe) is None else find_recipes
    found = await find(recipe, begun.shared, session)
    if found.recipe is None:  # a plan does not know what the rounds will choose
        await begun.comparing
        return Searched(found.result)
    judged, candidates, known = await make_candidates(found.recipe, begun)
    result = with_whole_scores(found.result, candidates)
    if isinstance(result, SearchResult) and recipe.search is not None:
        result = with_notes_over_budget(result, recipe.search, judged)
        result = with_shapes_by_hand(result, candidates_by_hand(recipe), judged, recipe.gate.split)
    return Searched(result, found.recipe, judged, candidates, known)


async def shared_artifacts(
    recipe: Recipe, sources: dict[str, Artifact], rows: Artifact, base: Artifact
) -> SharedArtifacts:
    """Start the stages that the branches share: teachers, corpus, word substitutes and the user's transfer text."""
    transfer = None
    if recipe.transfer is not None:
        knobs = TransferSlice(**dict(recipe.transfer), task_type=recipe.spec.kind)
        transfer = await prepare_transfer(knobs, source=sources["transfer"], rows=rows)
    teacher = asyncio.ensure_future(good_teacher(recipe, rows, base))
    return SharedArtifacts(
        rows=rows,
        base=base,
        teacher=teacher,
        colleagues=[
            asyncio.ensure_future(colleague(recipe, knobs, rows, sources[f"teacher:{number}"], number))
            for number, knobs in recipe.colleagues
        ],
        corpus=asyncio.ensure_future(prepare_corpus(recipe.corpus, source=sources["corpus"], base=base))
        if recipe.corpus and tokenizes_corpus(recipe.general_distillation, recipe.candidates)
        else None,
        source=sources.get("corpus"),
        substitutes=asyncio.ensure_future(substitutes(recipe, sources, rows, base)) if recipe.augmentation else None,
        transfer=transfer,
        starts={
            name.removeprefix("start:"): artifact for name, artifact in sources.items() if name.startswith("start:")
        },
    )


def with_teacher(shared: SharedArtifacts, teacher: Artifact) -> SharedArtifacts:
    """Return the shared artifacts with the teacher as it is scored."""
    known = asyncio.get_running_loop().create_future()
    known.set_result(teacher)
    return replace(shared, teacher=known)


async def corpus_leakage(recipe: Recipe, sources: dict[str, Artifact], rows: Artifact) -> None:
    """Compare the general training text with the held-out rows, to find leaks."""
    if recipe.corpus and "corpus" in sources:
        await compare_corpus(corpus_read(recipe), source=sources["corpus"], rows=rows)


async def substitutes(recipe: Recipe, sources: dict[str, Artifact], rows: Artifact, base: Artifact) -> Artifact:
    """Find word substitutes from the sources named in the recipe."""
    assert recipe.augmentation is not None
    masked_lm = base if recipe.augmentation.masked_lm == "teacher" else sources.get("masked_lm")
    words = {"masked_lm": masked_lm, "word_vectors": sources.get("word_vectors")}
    given = {name: artifact for name, artifact in words.items() if artifact is not None}
    return await augment_text(recipe.augmentation, rows=rows, tokenizer=base, **given)


async def sweep_everything(recipe: Recipe, sources: dict[str, Artifact], session: Session) -> Swept:
    """Run every stage of the sweep; return the tried models with their scores."""
    grid = await asyncio.to_thread(grid_of, recipe, sources, session)
    rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=sources["data"])
    require_selection(rows.read(RowsFacts))
    rows = await packed_rows(recipe, (await rows_to_learn(recipe, sources, rows))[0])
    base = await pretrained_base(recipe, sources)
    shared = SharedArtifacts(rows=rows, base=base, teacher=asyncio.ensure_future(good_teacher(recipe, rows, base)))
    trained = await shared.teacher  # a teacher no better than guessing ends the sweep here, before any layer is dropped
    if grid.dropping.signal == "teacher":
        await answers_for(recipe, shared, grid.dropping)
    scoring = ScoreSlice.model_validate({**score_knobs(recipe.scoring), **generation_of(recipe), "task": recipe.spec})
    looked_at = ContributionSlice(
        task_type=recipe.spec.kind, token=grid.dropping.token, max_length=grid.dropping.max_length
    )
    teacher = await finished_model(recipe, trained, rows, "teacher")
    card, similarity = await asyncio.gather(
        score_model(scoring, models=[teacher], teacher=teacher, rows=rows, label="teacher"),
        measure_similarity(looked_at, base=base, teacher=trained, rows=rows),
    )
    search, swept = GreedySearch(), Swept(grid, teacher, card, similarity)
    going = (
        await first_rung(recipe, swept, shared, search, session)
        if grid.halving
        else {name: grid.drops_of(name) for name in grid.strategies}
    )
    branches = [
        try_strategy(recipe, swept, name, drops, shared, search, session, scoring)
        for name, drops in going.items()
        if drops
    ]
    await asyncio.gather(*branches)
    return swept
