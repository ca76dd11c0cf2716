"""Details behind the scores of a run: a cached error analysis of each candidate's predictions, and the lineage graph of
its artifacts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from flows.branches.candidate import Candidate
from tasks.contracts import Artifact
from tasks.errors import Interrupted, LimbeckError
from tasks.inspect_answers import inspect_answers
from tasks.metrics.of_texts import references_in
from tasks.ports.store.collect import inputs_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import InspectSlice
from tasks.results.record import Lineage, LineageNode
from tasks.scoring.inspection_files import Texts, read_figures, read_texts
from tasks.stage.session import Session, current_session

WORD = "▒"
"""It stands for a word that is not stated."""


async def inspect_all(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], rows: Artifact
) -> dict[str, dict[str, JsonValue]]:
    """Return the error analysis of every candidate by name, each beside the teacher's predictions (the first)."""
    knobs = InspectSlice(task_type=recipe.spec.kind, split=recipe.gate.split)
    teachers = [None, *([cards[0]] * (len(cards) - 1))]
    analyses = await asyncio.gather(
        *(
            analyse_errors(knobs, one.name, card, rows, teacher)
            for one, card, teacher in zip(candidates, cards, teachers, strict=True)
        )
    )
    hides = recipe.task_type.writes and not recipe.report.texts
    return {
        candidate.name: without_written_texts(found) if hides else found
        for candidate, found in zip(candidates, analyses, strict=True)
        if found is not None
    }


def without_written_texts(found: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return an error analysis in which a sign stands for each word of the right and the written texts, so that their
    lengths are known: it becomes part of a run's result, where texts must not be that may not leave the store."""
    apart = found.get("apart")
    lists = apart.get("examples") if isinstance(apart, dict) else None
    if not isinstance(apart, dict) or not isinstance(lists, dict):
        return dict(found)
    hidden: dict[str, JsonValue] = {
        name: [with_signs_for_words(row) for row in rows] if isinstance(rows, list) else rows
        for name, rows in lists.items()
    }
    return {**found, "apart": {**apart, "examples": hidden}}


def with_signs_for_words(value: JsonValue) -> JsonValue:
    """Return an example row with a sign for each word of its texts."""
    if isinstance(value, dict):
        return {name: with_signs_for_words(one) for name, one in value.items()}
    return " ".join(WORD for _ in references_in(value)[0].split()) if isinstance(value, str) else value


async def analyse_errors(
    knobs: InspectSlice, name: str, card: Artifact, rows: Artifact, teacher: Artifact | None
) -> dict[str, JsonValue] | None:
    """Return the error analysis of one candidate; None if it fails, which does not fail the run, and in a plan."""
    try:
        found = await inspect_answers(knobs, card=card, rows=rows, teacher=teacher, label=name)
    except Interrupted:
        raise
    except LimbeckError as error:
        from prefect.logging import get_run_logger

        get_run_logger().warning(f"the report has no confusions, calibration and disagreements of {name}: {error}")
        return None
    if not found.facts:
        return None  # a plan has no figures
    folder = await asyncio.to_thread(current_session().store.folder, found)
    return read_figures(folder)


def texts_of(session: Session) -> Texts:
    """Return the texts of the rows that a run's error analyses chose, by row id."""
    return texts_in(
        [
            session.store.folder(record.artifact)
            for record in session.records
            if record.name == "inspect-answers" and record.artifact is not None
        ]
    )


def texts_in(folders: Iterable[Path]) -> Texts:
    """Return the texts that error analyses stored in these folders, by row id."""
    return {row: texts for folder in folders for row, texts in read_texts(folder).items()}


def lineage_of(session: Session, sources: Mapping[str, Artifact]) -> Lineage:
    """Return a run's stages as a graph: a node for each stage and source with the digest of its artifact, and an edge
    from each to the stages that read that artifact."""
    nodes = [
        LineageNode(id=artifact.sha256[:12], name=name, label="", cache="source", made=artifact.sha256)
        for name, artifact in sources.items()
    ]
    makers = {artifact.sha256: artifact.sha256[:12] for artifact in sources.values()}
    finished = {record.key: (record, record.artifact) for record in session.records if record.artifact is not None}
    for record, artifact in finished.values():
        short = record.key[:12]
        nodes.append(
            LineageNode(id=short, name=record.name, label=record.label, cache=record.cache, made=artifact.sha256)
        )
        makers.setdefault(artifact.sha256, short)
    edges = {
        (makers[digest], record.key[:12])
        for record, _ in finished.values()
        for digest in inputs_of([record.explanation])
        if digest in makers
    }
    return Lineage(nodes=tuple(nodes), edges=tuple(sorted(edges)))
