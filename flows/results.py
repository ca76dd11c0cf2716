"""The end of a run: who passed the gate, what was registered, and the table, the JSON and the Prefect artifact that say so."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect.logging import get_run_logger

from flows.branches import Candidate, label
from flows.run import Run, teacher_name
from tasks.contracts import Parcel
from tasks.recipe import Recipe
from tasks.register_model import register_models
from tasks.session import StageRecord

SHARED = {"distill-general", "pretrain-base"}
PINNED = ("torch", "transformers", "numpy", "mlflow", "prefect", "limbeck")


async def publish_results(recipe: Recipe, run: Run, rows: Sequence[dict[str, Any]], candidates: Sequence[Candidate], *, data: Parcel) -> dict[str, Any]:
    """Log the figures, register the models, leave the table in the Prefect UI, and return what ``--json`` writes."""
    # What is registered already is not fetched: only a new version asks for its files.
    folders = {candidate.name: partial(run.session.store.folder, candidate.models[0]) for candidate in candidates}
    about = describe_run(recipe, run, data)
    with tempfile.TemporaryDirectory(prefix="limbeck-") as workspace:
        registered = await register_models(recipe, run.tracker, folders, rows, about, Path(workspace))
    verdicts = {entry["candidate"]: entry for entry in registered}
    efforts = efforts_of(recipe, run.session.records)
    models = [finished_row(row, verdicts.get(row["name"])) | efforts.get(row["name"], {}) for row in rows]
    await asyncio.to_thread(run.tracker.candidates, models, split=recipe.gate.split)
    await asyncio.to_thread(run.tracker.story, run.session.records)
    stages = [stage_row(record) for record in run.session.records]
    result = {"recipe": recipe.name, "task": recipe.spec.name, "headline": recipe.spec.headline, "split": recipe.gate.split,
              "rows": data.facts["rows"], "synthetic": recipe.data.synthetic, "stages": stages, "models": models,
              "registered": registered, "links": run.tracker.urls(None)}  # fmt: skip
    await leave_artifacts(result)
    for line in summary(result):
        get_run_logger().info(line)
    return result


def summary(result: Mapping[str, Any]) -> list[str]:
    """Say in a few lines of the run's log what came out."""
    champion = [f"{entry['name']}@champion is {entry['candidate']}" for entry in result["registered"] if entry["alias"] == "champion"]
    where = [f"MLflow run: {result['links']['run']}"] if result["links"] else []
    verdict = "; ".join(champion) or "no candidate passed the gate"
    return [f"{counts(result)}; {verdict}", *where]


def counts(result: Mapping[str, Any]) -> str:
    """Say how many stages were cached and how many versions are new."""
    new = sum(entry["new"] for entry in result["registered"])
    hits = sum(stage["cache"] == "hit" for stage in result["stages"])
    return f"{hits} of {len(result['stages'])} stages cached; {new} new model versions registered"


def describe_run(recipe: Recipe, run: Run, data: Parcel) -> dict[str, Any]:
    """Return what model cards say of where a model comes from."""
    sources = {name: parcel.sha256 for name, parcel in run.sources.items()}
    described = {
        "source": recipe.data.source or recipe.spec.name, "licence": recipe.data.licence, "teacher_licence": recipe.teacher.licence,
        "teacher": teacher_name(recipe), "synthetic": recipe.data.synthetic, "digests": sources, **dict(data.facts),
    }  # fmt: skip
    versions = {name: version(name) for name in PINNED}
    stages = [stage_row(record) for record in run.session.records]
    return {"teacher": teacher_name(recipe), "data": described, "versions": versions, "stages": stages, "example": data.facts["example"]}


def finished_row(row: Mapping[str, Any], verdict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add the gate's word to a row of the results."""
    gate = "—" if verdict is None else "champion" if verdict["alias"] == "champion" else verdict["decision"]
    return {**row, "gate": gate}


def efforts_of(recipe: Recipe, records: Sequence[StageRecord]) -> dict[str, dict[str, Any]]:
    """Return by candidate its seeds, and by seed the optimizer steps and training seconds of its own stages, cached or not.

    What several share, such as general distillation, is not in it.
    """
    dropping = recipe.layer_dropping
    dropped = {f"{strategy}-{drop}": dropping.seeds for strategy in dropping.strategies for drop in dropping.drop} if dropping else {}
    seeds = {"teacher": (recipe.teacher.seed,), **dropped, **{student.name: student.seeds for student in recipe.students}}
    return {name: effort_of({seed: "" if name == "teacher" else label(name, seed, own) for seed in own}, records) for name, own in seeds.items()}


def effort_of(labels: Mapping[int, str], records: Sequence[StageRecord]) -> dict[str, Any]:
    """Add up what the stages of each seed's label took."""
    own = {seed: [record.parcel.facts for record in records if record.parcel and trains(record, shown)] for seed, shown in labels.items()}
    return {
        "seeds": list(labels),
        "steps": [sum(facts.get("steps", 0) for facts in stages) for stages in own.values()],
        "train_seconds": [round(sum(facts.get("train_seconds", 0.0) for facts in stages), 3) for stages in own.values()],
    }


def trains(record: StageRecord, shown: str) -> bool:
    """Tell whether a stage trained the candidate of this label; the teacher's has none."""
    return record.kind == "checkpoint" and record.label == shown and record.name not in SHARED


def stage_row(record: Any) -> dict[str, Any]:
    """Return what a result file says of one stage."""
    return {"name": record.name, "label": record.label, "state": record.state, "cache": record.cache,
            "seconds": round(record.seconds, 3), "key": record.key}  # fmt: skip


async def leave_artifacts(result: Mapping[str, Any]) -> None:
    """Leave the results table and the link to MLflow on the Prefect run page."""
    from prefect.artifacts import acreate_markdown_artifact

    from tasks.report.results import results_markdown

    link = result["links"].get("run")
    note = f"[MLflow run]({link})" if link else "MLflow: start `limbeck ui` for links."
    text = f"{results_markdown(list(result['models']), headline=result['headline'], split=result['split'])}\n\n{note}\n"
    await acreate_markdown_artifact(text, key="results", description="Teacher and every candidate")
