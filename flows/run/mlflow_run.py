"""The MLflow run of a flow run: its tags, the data that it reads, and the knobs of its candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.home import Home
from flows.run.judging_sources import SOURCE
from flows.run.stopping import RUN_OPTIONS
from tasks.catalog import GLUE_HUB
from tasks.contracts import Artifact
from tasks.ports.tracking.run_context import DataSource, source_tags
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.candidates import CandidateKnobs, DistilledCandidate
from tasks.recipe.knobs import Knobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import StageName


def new_tracker(recipe: Recipe, home: Home, kind: str, teacher: str, sources: Mapping[str, Artifact]) -> Tracker:
    """Return the tracker of this run: one experiment per task and teacher; ``kind`` names the flow, so that the run can
    be resumed."""
    from prefect.runtime import deployment, flow_run
    from prefect.utilities.urls import url_for

    options = RUN_OPTIONS.get()
    tags = {
        "limbeck.kind": kind,
        "recipe": recipe.name,
        "task": recipe.spec.name,
        "teacher": teacher,
        "prefect.flow_run_id": str(flow_run.id or "none"),
        **source_tags((options.command if options else "") or recipe.name, str(deployment.name or "")),
    }
    page = url_for("flow-run", obj_id=flow_run.id) if flow_run.id else None
    tags |= {"prefect.url": page} if page else {}
    return Tracker(
        home.tracking_uri,
        home.artifacts,
        experiment=f"{recipe.spec.name}/{teacher}",
        run_name=recipe.name,
        tags=tags,
        recipe=recipe.model_dump(mode="json", exclude_unset=True),
        data=data_of(recipe, sources),
    )


def data_of(recipe: Recipe, sources: Mapping[str, Artifact]) -> list[DataSource]:
    """Return the sources of rows and texts of a run, each with its use."""
    places = {
        "data": (recipe.data.source or GLUE_HUB, recipe.spec.name, "training"),
        "corpus": (recipe.corpus.source if recipe.corpus else "", "corpus", "general distillation"),
        "transfer": (recipe.transfer.source if recipe.transfer else "", "transfer", "transfer"),
    }
    places |= {
        f"{SOURCE}{name}": (given.source or recipe.data.source or GLUE_HUB, name, "judging")
        for name, given in recipe.judging_sets.items()
    }
    return [
        DataSource(name, place, sources[source].sha256, use)
        for source, (place, name, use) in places.items()
        if source in sources
    ]


def knobs_of_candidates(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Return the knobs of the teacher and of every candidate, with those of its phases, also where they are the
    recipe's."""
    teacher = {"model": recipe.teacher.model, **recipe.teacher.key_values()}
    return {"teacher": teacher, **{one.name: knobs_of_candidate(recipe, one) for one in recipe.planned}}


def knobs_of_candidate(recipe: Recipe, candidate: CandidateKnobs) -> dict[str, Any]:
    """Return the knobs of one candidate; ``general`` is the distillation on general text."""
    own = {"from": candidate.made_from, **candidate.key_values()}
    if not isinstance(candidate, DistilledCandidate):
        return own
    student, last = recipe.as_student(candidate), candidate.prediction or recipe.task_distillation.prediction
    first: dict[StageName, Knobs | None] = {
        "general": recipe.general_distillation,
        "intermediate": candidate.intermediate or recipe.task_distillation.intermediate,
    }
    taken: dict[str, Any] = {
        name: phase.key_values() for name, phase in first.items() if phase and recipe.takes(student, name)
    }
    return {**own, "intermediate": None, **taken, "prediction": last.key_values()}
