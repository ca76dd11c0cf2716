"""The MLflow run of a flow run: its tags, the data that it reads, and the knobs of its candidates; and tags and links
on the page of the flow run while it is running."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from flows.home import Home
from flows.run.judging_sources import SOURCE
from flows.run.stopping import RUN_OPTIONS
from tasks.catalog import GLUE_HUB
from tasks.contracts import Artifact
from tasks.errors import LimbeckError
from tasks.ports.tracking.run_context import DataSource, source_tags
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.candidates import DistilledCandidate
from tasks.recipe.knobs import Knobs
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
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


def knobs_of_candidates(recipe: Recipe) -> dict[str, Mapping[str, object]]:
    """Return the knobs of the teacher and of every candidate, with those of its phases, also where they are the
    recipe's."""
    teacher = {"model": recipe.teacher.model, **recipe.teacher.key_values()}
    return {"teacher": teacher, **{one.name: knobs_of_candidate(recipe, one) for one in recipe.planned}}


def knobs_of_candidate(recipe: Recipe, candidate: CandidateKnobs) -> Mapping[str, object]:
    """Return the knobs of one candidate; ``general`` is the distillation on general text."""
    own = candidate.key_values()
    if not isinstance(candidate, DistilledCandidate):
        return own
    student, last = recipe.as_student(candidate), candidate.prediction or recipe.task_distillation.prediction
    first: dict[StageName, Knobs | None] = {
        "general": candidate.general or recipe.general_distillation,
        "intermediate": candidate.intermediate or recipe.task_distillation.intermediate,
    }
    taken: dict[str, object] = {
        name: phase.key_values() for name, phase in first.items() if phase and recipe.takes(student, name)
    }
    return {**own, "intermediate": None, **taken, "prediction": last.key_values()}


async def tag_flow_run(tags: Sequence[str]) -> None:
    """Add tags to the flow run, by which people filter the list of runs.

    Its task runs get none: Prefect would ask its server for a slot of each tag before every stage.
    """
    from prefect.client.orchestration import get_client
    from prefect.runtime import flow_run

    if flow_run.id:
        async with spared("the tags of the flow run"), get_client() as client:
            await client.update_flow_run(flow_run.id, tags=sorted({*flow_run.tags, *tags}))


async def link_to_mlflow(tracker: Tracker) -> None:
    """Add a link to the MLflow run to the flow run's page as soon as there is one, so that people can use it while
    stages run."""
    from prefect.artifacts import acreate_link_artifact

    link = tracker.urls(None).get("run")
    if link:
        async with spared("the link to MLflow"):
            await acreate_link_artifact(
                link,
                link_text=f"{tracker.run_name} in MLflow",
                key="mlflow-run",
                description="Figures, curves and models of this run",
            )


@contextlib.asynccontextmanager
async def spared(what: str) -> AsyncIterator[None]:
    """Turn errors while writing to a page into a warning, so that the run continues."""
    from prefect.logging import get_run_logger

    try:
        yield
    except Exception as error:
        said = str(error) if isinstance(error, LimbeckError) else type(error).__name__
        get_run_logger().warning(f"{what} could not be stored: {said}")
