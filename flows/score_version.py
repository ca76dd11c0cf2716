"""Score a registered version as its users get it: pulled from the registry, hashes checked, predictions computed anew.
The figures are written to the version and its run.

After each registration this runs automatically on the evaluation rows of the version's run: the served model must
predict the same as the evaluated one. Started by hand, it scores any rows of the task: last month's, another market's.
The champion predicts the same rows, so that the difference has an interval.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.logging import get_run_logger

from flows.home import Home
from flows.run.forms import VersionToScore
from flows.run.history import recipe_of
from flows.run.notices import on_failure
from flows.run.opening import layout
from tasks.catalog import TaskSpec
from tasks.contracts import Artifact
from tasks.errors import DataError, GateError, RegistryError
from tasks.ports.files.sources import resolve_data, resolve_model
from tasks.ports.rows.data_leakage import JUDGING
from tasks.ports.rows.row_files import has_split
from tasks.ports.rows.seen import rows_seen
from tasks.ports.store.open import open_store
from tasks.ports.tracking.registry import Registry
from tasks.ports.tracking.tracker import Tracker
from tasks.prepare_rows import prepare_rows
from tasks.recipe.data import Data
from tasks.recipe.judging import score_knobs
from tasks.recipe.makers.writing import generation_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice, ScoreSlice
from tasks.results.facts import RowsFacts, ScoreFacts
from tasks.results.row import Estimate
from tasks.score_model import score_model
from tasks.scoring.evaluation import agreement, read_evaluation, read_judged_rows, write_evaluation
from tasks.stage.session import Session, use_session
from tasks.task_types.readers import READERS

# share of rows that must be predicted as when the version was evaluated; other hardware changes a few borderline rows
ALIKE = 0.99
MOST_KNOWN = 0.02  # share of rows that may be in the champion's training data; more would give it an unfair advantage
OWN_ROWS = Data(selection_rows=0, holdout_rows=0, purge=False)
"""Use all rows for evaluation and none for training."""


@dataclass
class Subject:
    """A version with its tags, its run and the folder of its files."""

    number: str
    tags: Mapping[str, str]
    run: str
    folder: Path


@dataclass
class VersionFigures:
    """The figures of a version: numbers for its run, tags for the version, and lines of a table."""

    numbers: dict[str, float]
    tags: dict[str, str]
    lines: list[str]


@flow(name="score-version", flow_run_name="score {scoring.name} {scoring.version}", on_failure=[on_failure])
async def score_version(scoring: VersionToScore) -> dict[str, str | float | None]:
    """Score a registered version as served, together with the champion, and write the figures to the version.

    Args:
        scoring: The version and the rows to score it on.
    """
    home = Home.from_environment().create()
    tracker, store = (
        Tracker(home.tracking_uri, home.artifacts),
        await asyncio.to_thread(open_store, home.store, home.cache),
    )
    with tempfile.TemporaryDirectory(prefix="limbeck-") as place:
        workspace = Path(place)
        subject = await asyncio.to_thread(pull_version, tracker, scoring.name, scoring.version, workspace)
        beside = await asyncio.to_thread(champion_beside, tracker, scoring, subject, workspace)
        recipe = await asyncio.to_thread(recipe_of, tracker, subject.run)
        with use_session(Session(store, *layout(recipe))):
            rows = await rows_for(scoring, recipe, subject, workspace)
            card = await scored(recipe, subject, beside, rows)
        same = await asyncio.to_thread(
            compared,
            tracker,
            scoring,
            recipe,
            (subject, store.folder(rows), store.folder(card)),
            rows.read(RowsFacts),
            workspace,
        )
        known = await asyncio.to_thread(known_to, tracker, scoring, beside, store.folder(rows), workspace)
    figures = figures_of(scoring, recipe, card.read(ScoreFacts), same, beside, known)
    await asyncio.to_thread(tracker.note_scores, scoring.name, subject.number, figures.numbers, figures.tags)
    await leave(scoring, subject, figures)
    if same is not None and same < ALIKE:
        raise GateError(
            f"{scoring.name} version {subject.number} predicts {same:.1%} of the rows as in its evaluation, and at "
            f"least {ALIKE:.0%} are expected; the served model differs from the evaluated one: check the libraries "
            f"of this worker, or stop using the version"
        )
    return {"name": scoring.name, "version": subject.number, "same": same, **figures.numbers}


def pull_version(tracker: Tracker, name: str, which: str, workspace: Path) -> Subject:
    """Pull a version as its users do, and return it with the run that made it."""
    version = tracker.find_version(name, which)
    number = str(version.version)
    folder = workspace / f"version-{number}"
    tracker.download(name, number, folder)
    return Subject(number, dict(version.tags), str(version.run_id), folder)


def champion_beside(tracker: Tracker, scoring: VersionToScore, subject: Subject, workspace: Path) -> Subject | None:
    """Pull the champion, if it is requested, exists and is another version; else return None."""
    number = Registry(tracker, scoring.name).read().aliases.get("champion") if scoring.beside == "champion" else None
    return None if number in (None, subject.number) else pull_version(tracker, scoring.name, str(number), workspace)


async def rows_for(scoring: VersionToScore, recipe: Recipe, subject: Subject, workspace: Path) -> Artifact:
    """Return all rows of the given source; without one, the rows of the recipe, which its run has cached."""
    if not scoring.source:
        source = await asyncio.to_thread(resolve_data, recipe.data.source, recipe.data.revision, recipe.spec)
        return await prepare_rows(RowsSlice(**dict(recipe.data), task=recipe.spec), source=source)
    spec = recipe.spec.model_copy(update={"labels": labels_of(subject.folder, recipe.spec.kind)})
    given = await asyncio.to_thread(resolve_data, scoring.source, scoring.revision, spec)
    source = await asyncio.to_thread(
        resolve_data, str(all_to_judge(Path(given.uri), spec, workspace / "rows")), None, spec
    )
    return await prepare_rows(RowsSlice(**dict(OWN_ROWS), task=spec), source=source, label="given")


def all_to_judge(source: Path, spec: TaskSpec, folder: Path) -> Path:
    """Return a folder in which every row of the source is an evaluation row, with no split held back for training.

    Raises DataError unless the source has exactly one evaluation file.
    """
    files = (
        [source]
        if source.is_file()
        else sorted(
            path for path in source.iterdir() if path.name.startswith((spec.validation, "validation", "dev", "test"))
        )
    )
    if len(files) != 1:
        found = ", ".join(path.name for path in files) or "none"
        raise DataError(
            f"{source} holds {found} to score on; name one file, or a folder with one file validation.* (csv, tsv, "
            f"jsonl or parquet)"
        )
    folder.mkdir()
    for split in ("train", spec.validation):
        shutil.copyfile(files[0], folder / f"{split}{files[0].suffix}")
    return folder


def labels_of(folder: Path, kind: str) -> tuple[str, ...] | None:
    """Return the model's names of its classes, in its order; None for a type of task without classes."""
    return READERS[kind].names_in_config(json.loads((folder / "config.json").read_text()))


async def scored(recipe: Recipe, subject: Subject, beside: Subject | None, rows: Artifact) -> Artifact:
    """Return the scorecard, with the champion in the place of the teacher. Scoring the same rows again is a cache
    hit."""
    model = await asyncio.to_thread(resolve_model, str(subject.folder), None)
    other = await asyncio.to_thread(resolve_model, str(beside.folder), None) if beside else model
    knobs = ScoreSlice.model_validate({**score_knobs(recipe.scoring), **generation_of(recipe), "task": recipe.spec})
    return await score_model(knobs, models=[model], teacher=other, rows=rows, label=f"version {subject.number}")


def compared(
    tracker: Tracker,
    scoring: VersionToScore,
    recipe: Recipe,
    found: tuple[Subject, Path, Path],
    facts: RowsFacts,
    workspace: Path,
) -> float | None:
    """Return the share of rows predicted as when the version was evaluated; None if there are no predictions to compare
    with."""
    (subject, rows, card), split = found, recipe.gate.split
    digest = facts.rows_sha256.get(split)
    if scoring.source or digest is None or digest != subject.tags.get("rows.sha256"):
        return None
    try:
        then = read_evaluation(Registry(tracker, scoring.name).evaluation(subject.number, workspace))
    except (DataError, RegistryError) as error:
        get_run_logger().warning(f"the predictions of its evaluation cannot be read: {error}")
        return None
    now = read_evaluation(write_evaluation(workspace / "now", card, read_judged_rows(rows, split, digest), {}))
    return agreement(then, now, recipe.spec.kind)


def known_to(
    tracker: Tracker, scoring: VersionToScore, champion: Subject | None, rows: Path, workspace: Path
) -> dict[str, int]:
    """Return the number of rows in each split that the champion was trained on; empty if there is no champion or its
    training rows are not recorded."""
    if champion is None:
        return {}
    try:
        learned = read_evaluation(Registry(tracker, scoring.name).evaluation(champion.number, workspace)).learned
    except (DataError, RegistryError) as error:
        get_run_logger().warning(f"the training data of the champion cannot be read: {error}")
        return {}
    if learned is None:
        return {}
    return {split: rows_seen(rows, split, learned) for split in JUDGING if has_split(rows, split)}


def figures_of(
    scoring: VersionToScore,
    recipe: Recipe,
    card: ScoreFacts,
    same: float | None,
    beside: Subject | None,
    known: Mapping[str, int],
) -> VersionFigures:
    """Return the figures of a version as served."""
    numbers: dict[str, float] = {} if same is None else {"score.as_judged": same}
    tags = {name: f"{value:.4f}" for name, value in numbers.items()}
    lines = [] if same is None else [f"| same predictions as in its evaluation | {same:.2%} |"]
    for split, metrics in card.metrics.items():
        place = (scoring.label or Path(scoring.source).stem) if scoring.source else split
        for metric, found in metrics.items():
            numbers |= number(f"score.{place}.{metric}", found)
            tags[f"score.{place}.{metric}"] = format_with_interval(found)
            lines.append(f"| {metric} on {card.rows[split]:,} rows ({place}) | {format_with_interval(found)} |")
        if known.get(split, 0) > MOST_KNOWN * card.rows[split]:
            lines.append(
                f"| rows ({place}) in the champion's training data, excluded from its comparison | "
                f"{known[split]:,} of {card.rows[split]:,} |"
            )
        elif beside is not None:
            ahead = (card.difference or {})[split]
            numbers |= number(f"score.{place}.ahead_of_champion", ahead)
            tags[f"score.{place}.ahead_of_champion"] = (
                f"{format_with_interval(ahead)} (version {beside.number}, {recipe.spec.headline})"
            )
            lines.append(
                f"| {recipe.spec.headline} above the champion's, version {beside.number} "
                f"| {format_with_interval(ahead)} |"
            )
        if scoring.source:
            break  # the other splits contain none of the given rows
    return VersionFigures(numbers, tags, lines)


def number(name: str, found: Estimate) -> dict[str, float]:
    """Return a figure under its name; nothing where it is undefined."""
    return {} if found.value is None else {name: float(found.value)}


def format_with_interval(found: Estimate) -> str:
    """Return a figure with its interval."""
    if found.value is None:
        return "undefined"
    return f"{found.value:.4f} [{found.low:.4f}, {found.high:.4f}]"


async def leave(scoring: VersionToScore, subject: Subject, figures: VersionFigures) -> None:
    """Write the figures to the flow run's page and its log."""
    head = f"{scoring.name} version {subject.number}"
    table = "\n".join([f"| {head} | |", "|---|---|", *figures.lines])
    await acreate_markdown_artifact(table + "\n", key="scores", description=f"Scores of {head}, as served")
    for line in figures.lines:
        get_run_logger().info(f"{head}: {line.strip('| ').replace(' | ', ': ')}")
