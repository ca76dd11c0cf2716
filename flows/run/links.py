"""Links on the page of a flow run while it is running."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tasks.errors import LimbeckError
from tasks.ports.tracking.tracker import Tracker


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
