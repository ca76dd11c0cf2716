"""Links on the page of a flow run while it is running."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from tasks.errors import LimbeckError
from tasks.ports.tracking.tracker import Tracker


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
