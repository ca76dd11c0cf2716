"""The sources of a recipe's judging sets, and the facts that a run's stages recorded about them."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.contracts import Artifact
from tasks.errors import DataError
from tasks.ports.rows.judging_sets import resolve_judging_set
from tasks.recipe.data import JudgingSet
from tasks.recipe.recipe import Recipe
from tasks.results.facts import RowsFacts, SetFacts, SetPurge
from tasks.stage.session import Session

SOURCE = "judge:"
"""Prefix of a judging set's name among the sources of a run."""


def sources_of_sets(recipe: Recipe) -> dict[str, Artifact]:
    """Find the source of every judging set; a set that comes with the task may be missing if no criterion names it."""
    named = {name for criterion in recipe.gate.criteria for name in criterion.worst_of}
    found = {}
    for name, given in recipe.judging_sets.items():
        try:
            found[f"{SOURCE}{name}"] = resolve_judging_set(name, given, recipe.data, recipe.spec)
        except DataError:
            if name in recipe.data.judge or name in named:
                raise
    return found


def sets_in(recipe: Recipe, sources: Iterable[str]) -> dict[str, JudgingSet]:
    """Return the judging sets whose source this run has found."""
    return {name: given for name, given in recipe.judging_sets.items() if f"{SOURCE}{name}" in sources}


def with_purge(rows: Artifact, purge: Artifact | None) -> RowsFacts:
    """Return the facts of prepared rows after the purge for judging sets; None, and a planned one, purge nothing."""
    learned = purge.read(SetPurge) if purge is not None and purge.facts else None
    return rows.read(RowsFacts).after_purge(learned)


def known_of_sets(session: Session) -> dict[str, SetFacts]:
    """Return by set the facts from this run's stages: its rows, rows left out, merged classes and overlaps. In a plan,
    sets without cached facts are missing."""
    found: dict[str, dict[str, object]] = {}
    for record in session.records:
        if (
            record.name in ("prepare-judging-set", "compare-judging-set")
            and record.artifact is not None
            and record.artifact.facts
        ):
            found.setdefault(record.label, {}).update(record.artifact.facts)
    return {name: SetFacts.model_validate(facts) for name, facts in found.items() if "rows_sha256" in facts}
