"""Held-out rows in a plan: their counts, and their overlaps with everything that is learned from, where no cached stage
has counted them.

Overlaps are counted by the functions of the stages, so that a run finds the same. Augmented rows are variants of
training rows, and need no comparison of their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from flows.branches.judging_sets import corpus_read, planned_sets, too_large, unread_sets
from flows.home import Home
from flows.recipes.checks import LARGEST_READ, planned_facts
from flows.run.judging_sources import known_of_sets, sets_in, sources_of_sets
from flows.run.opening import (
    LEARNED,
    find_source,
    held_back,
    metrics_in,
    require_two_classes,
    source_finders,
    sources_of_metrics,
)
from tasks.ports.files.sources import resolve_data
from tasks.ports.rows.data_leakage import free_of, held_sentences, leaked
from tasks.ports.rows.judging_sets import documents
from tasks.ports.rows.overlap import Sentences
from tasks.ports.rows.prepared import divided_rows, prepare_rows, unlabelled_rows
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.report.tables.kept_answers import require_budget_of_answers
from tasks.results.facts import HeldBackFacts
from tasks.stage.session import Session
from tasks.task_types.readers import READERS

TRAIN, TRANSFER, GENERAL = LEARNED
"""The kinds of training data with which held-out rows are compared."""
LARGEST_TEXT = 64 * 2**20
"""Largest text, in bytes, that a plan compares: it is read once, which takes a core about a second for ten MiB."""
WORD_BYTES = 8
"""About the bytes of a word with the space behind it, so that a corpus of which few words are read counts as small."""
Learned = Mapping[str, Callable[[], Sequence[Sentences]]]
"""Functions that read the texts of each kind of training data, from the first one on."""


def compared_rows(recipe: Recipe, session: Session) -> HeldBackFacts:
    """Return the facts about a plan's held-out rows, with their overlaps with transfer text and general text: those of
    cached stages, or counted now; and why an overlap is not counted, where a source is too large for a plan."""
    texts, unread = texts_learned(recipe)
    held, whole = cache(partial(held_out, recipe, session)), texts.get(TRANSFER)
    if whole is not None and leaves_out(recipe):
        texts = {**texts, TRANSFER: cache(lambda: without_overlaps(whole(), held()))}
    found = planned_rows(recipe, session, texts)
    apart = {kind: read for kind, read in texts.items() if kind not in found.leaked}
    if apart and found.is_known:
        counted = {kind: leaked(read(), held()) for kind, read in apart.items()}
        found = found.replaced(leaked={**found.leaked, **counted})
        left_out = len(whole()) - len(apart[TRANSFER]()) if whole is not None and TRANSFER in apart else 0
        found = found.replaced(left_out={TRANSFER: left_out}) if left_out else found
    unknown = {kind: why for kind, why in unread.items() if kind not in found.leaked}
    if not found.is_known:
        unknown = {**dict.fromkeys(apart, "the held-out rows are not read"), **unknown}
    return found.replaced(uncompared={**found.uncompared, **unknown}) if unknown else found


def leaves_out(recipe: Recipe) -> bool:
    """Tell whether texts that overlap with held-out rows are not learned from."""
    return recipe.transfer is not None and recipe.transfer.overlaps == "leave-out"


def without_overlaps(texts: Sequence[Sentences], held: Mapping[str, Sequence[Sentences]]) -> list[Sentences]:
    """Return the texts that overlap with no held-out row."""
    return [texts[row] for row in free_of(texts, held)]


def planned_rows(recipe: Recipe, session: Session, texts: Learned | None = None) -> HeldBackFacts:
    """Return the facts about a plan's held-out rows: from cached stages, or by splitting the rows now if the source is
    small; else nothing. Judging sets that no stage has compared with them are compared with ``texts``, too."""
    learned, known, sets = dict(texts or {}), held_back(session), known_of_sets(session)
    missing = [
        name for name in recipe.judging_sets if name not in sets or not learned.keys() <= sets[name].leaked.keys()
    ]
    if known.is_known and not missing:
        return known
    source = resolve_data(recipe.data.source, recipe.data.revision, recipe.spec)
    if source.bytes > LARGEST_READ:
        there = sets_in(recipe, sources_of_sets(recipe))
        unread = [*([] if known.is_known else [TRAIN]), *(f"judging set {name}" for name in missing if name in there)]
        return known.replaced(uncompared=dict.fromkeys(unread, too_large(source.bytes, LARGEST_READ)))
    divided, names, facts = divided_rows(Path(source.uri), RowsSlice(**dict(recipe.data), task=recipe.spec))
    require_two_classes(recipe, facts, metrics_in(sources_of_metrics(recipe, Home.from_environment())))
    require_budget_of_answers(recipe, facts, session.vocabulary)
    found = known if known.is_known else planned_facts(facts, {})
    compared = planned_sets(recipe, missing, names, divided["train"].sentences, LARGEST_READ, learned)
    reasons = {f"judging set {name}": why for name, why in unread_sets(recipe, missing, LARGEST_READ).items()}
    found = found.replaced(uncompared=reasons) if reasons else found
    return found.replaced(judging={**found.judging, **compared}) if compared else found


def held_out(recipe: Recipe, session: Session) -> dict[str, list[Sentences]]:
    """Return the texts of the held-out rows by split, as stages compare them: of the cached rows, or of rows that are
    prepared for this alone."""
    rows = session.artifact_of("prepare-rows", "")
    if rows is not None and rows.facts:
        return held_sentences(session.store.folder(rows))
    source = resolve_data(recipe.data.source, recipe.data.revision, recipe.spec)
    with tempfile.TemporaryDirectory() as scratch:
        prepare_rows(Path(source.uri), RowsSlice(**dict(recipe.data), task=recipe.spec), Path(scratch))
        return held_sentences(Path(scratch))


def texts_learned(recipe: Recipe) -> tuple[Learned, dict[str, str]]:
    """Return how to read the texts beside the training rows from which a recipe's models learn, and for each that is
    too large for a plan the reason. Raises DataError where a source cannot be found."""
    finders = source_finders(recipe)
    sources = {name: find_source(recipe, name, finders[name]) for name in ("transfer", "corpus") if name in finders}
    found: dict[str, Callable[[], Sequence[Sentences]]] = {}
    sizes: dict[str, int] = {}
    if recipe.transfer is not None and "transfer" in sources:
        found[TRANSFER] = read_once(partial(transfer_sentences, recipe, Path(sources["transfer"].uri)))
        sizes[TRANSFER] = sources["transfer"].bytes
    if recipe.corpus is not None and "corpus" in sources:
        knobs, size = corpus_read(recipe), sources["corpus"].bytes
        found[GENERAL] = read_once(partial(documents, Path(sources["corpus"].uri), knobs.text, knobs.most))
        sizes[GENERAL] = size if knobs.most is None else min(size, WORD_BYTES * knobs.most)
    small = {kind: read for kind, read in found.items() if sizes[kind] <= LARGEST_TEXT}
    return small, {kind: too_large(size, LARGEST_TEXT) for kind, size in sizes.items() if kind not in small}


def read_once(read: Callable[[], Iterable[Sentences]]) -> Callable[[], Sequence[Sentences]]:
    """Return a function that reads texts when it is first called, for the held-out rows and for every judging set."""
    return cache(lambda: [*read()])


def transfer_sentences(recipe: Recipe, source: Path) -> Sequence[Sentences]:
    """Return the texts of a user's unlabelled rows, without the prompts before them."""
    given = recipe.transfer
    reader = READERS[recipe.spec.kind]
    return unlabelled_rows(source, given.text, given.pair, reader).sentences if given is not None else []
