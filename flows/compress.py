"""The main flow: from a pretrained teacher to small models that are evaluated, gated and registered."""

from __future__ import annotations

import asyncio
from typing import Any

from attrs import evolve
from prefect import flow

from flows.branches.candidate import Candidate, SharedArtifacts
from flows.branches.export import beside_models, check_speed, make_exports, with_exports
from flows.branches.judging import judge_all
from flows.branches.judging_sets import compare_sets, rows_of_sets, rows_to_learn
from flows.branches.makers import all_candidates
from flows.branches.teacher import colleague, good_teacher, layers_of_teacher, pretrained_base
from flows.publish.results import publish_results
from flows.run.judging_sources import with_purge
from flows.run.notices import on_failure
from flows.run.opening import open_run
from flows.run.spot import heeding_notices
from tasks.augment_text import augment_text
from tasks.contracts import Artifact
from tasks.preflight import check_students, require_rows_for_int8
from tasks.prepare_corpus import prepare_corpus
from tasks.prepare_rows import compare_corpus, prepare_rows, prepare_transfer
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import CorpusRead, RowsSlice
from tasks.results.facts import RowsFacts
from tasks.results.row import ResultRow
from tasks.stage.session import Session


@flow(name="compress", flow_run_name="{recipe.name}", on_failure=[on_failure])
async def compress(recipe: Recipe) -> dict[str, Any]:
    """Fine-tune a teacher, distil students and drop layers, score every candidate, and register the results."""
    async with heeding_notices(), open_run(recipe) as run:
        judged, candidates, rows = await make_everything(recipe, run.sources, run.session)
        return await publish_results(recipe, run, judged, candidates, data=rows)


async def make_everything(
    recipe: Recipe, sources: dict[str, Artifact], session: Session
) -> tuple[list[ResultRow], list[Candidate], Artifact]:
    """Run every stage of the recipe; return the rows of the results, their candidates and the data."""
    rows = await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=sources["data"])
    require_rows_for_int8(recipe, rows.read(RowsFacts))
    learned, purging = await rows_to_learn(recipe, sources, rows)
    base = await pretrained_base(recipe, sources)
    if not session.is_guess(base):
        starts = {
            name.removeprefix("start:"): session.store.folder(artifact)
            for name, artifact in sources.items()
            if name.startswith("start:")
        }
        await asyncio.to_thread(check_students, recipe, session.store.folder(base), starts)
    shared = await shared_artifacts(recipe, sources, learned, base)
    shared.layers = layers_of_teacher(recipe, session.store, sources)
    shared.judging = await rows_of_sets(recipe, sources, learned, purging)
    comparing = asyncio.gather(corpus_leakage(recipe, sources, rows), compare_sets(recipe, sources, shared))
    small = await all_candidates(recipe, shared)
    candidates = [Candidate("teacher", "teacher", [await shared.teacher], (recipe.teacher.seed,)), *small]
    exports = await make_exports(recipe, candidates, learned)
    everyone = beside_models(candidates, exports)
    await comparing
    judged = await judge_all(recipe, everyone, shared)
    known = rows if learned is rows else evolve(learned, facts=with_purge(rows, learned).as_json())
    return with_exports(judged, await check_speed(recipe, exports)), everyone, known


async def shared_artifacts(
    recipe: Recipe, sources: dict[str, Artifact], rows: Artifact, base: Artifact
) -> SharedArtifacts:
    """Start the stages that the branches share: teachers, corpus, word substitutes and the user's transfer text."""
    transfer = (
        await prepare_transfer(recipe.transfer, source=sources["transfer"], rows=rows) if recipe.transfer else None
    )
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
        if recipe.corpus and recipe.general_distillation
        else None,
        candidates=asyncio.ensure_future(substitutes(recipe, sources, rows, base)) if recipe.augmentation else None,
        transfer=transfer,
        starts={
            name.removeprefix("start:"): artifact for name, artifact in sources.items() if name.startswith("start:")
        },
    )


async def corpus_leakage(recipe: Recipe, sources: dict[str, Artifact], rows: Artifact) -> None:
    """Compare the general training text with the held-out rows, to find leaks."""
    if recipe.corpus and "corpus" in sources:
        most = None if recipe.pretraining else recipe.corpus.max_tokens
        await compare_corpus(CorpusRead(text=recipe.corpus.text, most=most), source=sources["corpus"], rows=rows)


async def substitutes(recipe: Recipe, sources: dict[str, Artifact], rows: Artifact, base: Artifact) -> Artifact:
    """Find word substitutes from the sources named in the recipe."""
    assert recipe.augmentation is not None
    masked_lm = base if recipe.augmentation.masked_lm == "teacher" else sources.get("masked_lm")
    words = {"masked_lm": masked_lm, "word_vectors": sources.get("word_vectors")}
    given = {name: artifact for name, artifact in words.items() if artifact is not None}
    return await augment_text(recipe.augmentation, rows=rows, tokenizer=base, **given)
