"""Checks of a recipe before anything is computed: what a run would find out about rows, columns, classes, models and
their files, as far as they are on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flows.home import Home
from flows.run.opening import (
    SourceFinder,
    find_source,
    metrics_in,
    require_two_classes,
    source_finders,
    sources_of_metrics,
    teacher_name,
)
from tasks.catalog import GLUE_HUB
from tasks.contracts import Artifact
from tasks.ports.files.generation_files import require_followed_configs
from tasks.ports.files.sources import is_at_hand, resolve_model
from tasks.ports.own_metrics import RegisteredMetric, differs_from_source
from tasks.preflight import check_strategies, check_students, require_rows_for_int8
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tasks.register_model import registered_name
from tasks.report.tables.held_back import held_back_lines
from tasks.results.facts import HeldBackFacts, RowsFacts, SetFacts

LARGEST_READ = 16 * 2**20
"""Largest source, in bytes, whose rows are read and divided: this takes seconds."""


def check_recipe(recipe: Recipe) -> list[str]:
    """Return sentences about the rows of a recipe, and about what could not be checked here. Raises LimbeckError for
    everything that a run would refuse before its first training."""
    from tasks.ports.tracking.versions import require_legal_name

    check_strategies(strategies_of(recipe))
    metrics = metrics_in(sources_of_metrics(recipe, Home.from_environment()))
    require_legal_name(registered_name(recipe, teacher_name(recipe)))
    sources, notes = sources_at_hand(recipe)
    if "teacher" in sources:
        starts = {name.removeprefix("start:"): Path(one.uri) for name, one in sources.items() if "start:" in name}
        own = {student.name: student.start for student in recipe.new_students if f"start:{student.name}" in sources}
        if recipe.planned and own.keys() <= starts.keys():
            check_students(recipe, Path(sources["teacher"].uri), starts)
        require_followed_configs([Path(sources["teacher"].uri), *starts.values()], recipe.task_type)
    check_texts(recipe, sources)
    return [*check_rows(recipe, sources, metrics), *notes, *changed_metrics(metrics)]


def strategies_of(recipe: Recipe) -> list[str]:
    """Return the names of all strategies of layer dropping in a recipe."""
    from tasks.recipe.candidates import DroppedCandidate

    swept = list(recipe.sweep.strategies or ()) if recipe.sweep else []
    searched = [one for one in swept if one != "greedy"]
    return [*(one.strategy for one in recipe.planned if isinstance(one, DroppedCandidate)), *searched]


def sources_at_hand(recipe: Recipe) -> tuple[dict[str, Artifact], list[str]]:
    """Return the sources of a recipe that are on this machine, and a sentence about each other one."""
    finders = source_finders(recipe)
    addresses = {name: address_of(finder) for name, finder in finders.items()}
    missing = {name: address for name, address in addresses.items() if not is_at_hand(*address)}
    found = {name: find_source(recipe, name, finder) for name, finder in finders.items() if name not in missing}
    return found, [
        f"not checked: {name} {address}, which is not in the local cache; a run downloads it"
        for name, (address, *_) in missing.items()
    ]


def address_of(finder: SourceFinder) -> tuple[str, str | None, str]:
    """Return the source that a function looks for, its revision, and the kind of its hub."""
    source, revision, *_ = (*finder.args, None)
    return str(source) or GLUE_HUB, revision, "model" if finder.func is resolve_model else "data"


def judging_is_at_hand(recipe: Recipe) -> bool:
    """Tell whether the rows of all judging sets are on this machine."""
    return all(
        is_at_hand(given.source or recipe.data.source or GLUE_HUB, given.revision, "data")
        for given in recipe.judging_sets.values()
    )


def changed_metrics(own: Mapping[str, Artifact]) -> list[str]:
    """Return a sentence about each registered metric whose original files are no longer those that were copied."""
    known = {name: RegisteredMetric.model_validate(one.facts) for name, one in own.items()}
    return [
        f"own/{name} was registered from {one.source}, which has changed since; the registered copy is used: limbeck "
        f"metrics add {one.source} --replace registers it anew"
        for name, one in known.items()
        if differs_from_source(one)
    ]


def check_rows(recipe: Recipe, sources: Mapping[str, Artifact], own: Mapping[str, Artifact]) -> list[str]:
    """Read and divide the rows, and those of judging sets; return sentences about how they were read."""
    from tasks.ports.rows.faulty_rows import rows_without_label

    if "data" not in sources:
        return []
    if sources["data"].bytes > LARGEST_READ:
        return [f"rows: {sources['data'].bytes / 2**20:,.0f} MiB are read and checked by a run, first of all"]
    facts, sets = checked_facts(recipe, sources["data"])
    require_rows_for_int8(recipe, facts)
    require_two_classes(recipe, facts, own)
    counts = ", ".join(f"{split} {count:,}" for split, count in facts.rows.items())
    left_out = [f"left out: {fault}" for fault in (*facts.faulty, *rows_without_label(facts.unlabelled))]
    return [
        *facts.read,
        f"rows: {counts}",
        *held_back_lines(planned_facts(facts, sets)),
        *left_out,
    ]


def planned_facts(facts: RowsFacts, sets: Mapping[str, SetFacts]) -> HeldBackFacts:
    """Return what is known of held-out rows before a run: from the rows that were divided, and the judging sets."""
    return HeldBackFacts(
        rows=facts.rows,
        purged=facts.purged,
        leaked={"training rows": facts.leaked},
        leaked_by_choice=facts.leaked_by_choice,
        leaked_in_part=facts.leaked_in_part,
        groups=facts.groups,
        words_to_write=facts.words_to_write,
        judging=dict(sets),
    )


def checked_facts(recipe: Recipe, source: Artifact) -> tuple[RowsFacts, dict[str, SetFacts]]:
    """Divide the rows of a recipe, compare its judging sets, and return the facts about its own rows and the sets."""
    from flows.branches.judging_sets import planned_sets
    from tasks.ports.rows.prepared import divided_rows

    splits, names, facts = divided_rows(Path(source.uri), RowsSlice(**dict(recipe.data), task=recipe.spec))
    if not recipe.judging_sets or not judging_is_at_hand(recipe):
        return facts, {}
    return facts, planned_sets(recipe, list(recipe.judging_sets), names, splits["train"].sentences, LARGEST_READ)


def check_texts(recipe: Recipe, sources: Mapping[str, Artifact]) -> None:
    """Refuse other texts that lack the columns that the recipe names."""
    from tasks.ports.rows.tables import require_text_columns

    if recipe.corpus is not None and "corpus" in sources:
        require_text_columns(Path(sources["corpus"].uri), [recipe.corpus.text], "; set corpus.text")
    if recipe.transfer is not None and "transfer" in sources:
        columns = [recipe.transfer.text, *([recipe.transfer.pair] if recipe.transfer.pair else [])]
        require_text_columns(Path(sources["transfer"].uri), columns, "; set transfer.text")
