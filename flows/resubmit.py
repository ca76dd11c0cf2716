"""Resubmission of crashed flow runs: a run is rescheduled up to a cap; then it fails with a reason.

Prefect can reschedule a crashed run by an automation, but has no cap: a run ended by the out-of-memory killer would be
repeated for ever. Crashes are counted in the run's own history, because Prefect's run count omits runs whose machine
never started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from prefect import flow
from prefect.artifacts import acreate_markdown_artifact
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.logging import get_run_logger
from prefect.states import Failed, Scheduled
from pydantic import Field

from flows.run.notices import notification_blocks, recipe_behind, send, with_links

GAVE_UP = "Gave up"
"""The state of a run that is not rescheduled any more; after a person's Retry, crashes are counted from there."""
NO_MEMORY = ("outofmemory", "out of memory", "oomkilled", "out-of-memory", "cannot allocate memory")
"""Out-of-memory messages of ECS, Kubernetes and CUDA; such a run would run out of memory again."""
KILLED = re.compile(r"(?<![\w-])(?:-9|137)(?![\w-])")
"""Exit codes of a process ended by the kernel's out-of-memory killer or by the loss of its machine."""


@flow(name="resubmit", flow_run_name="resubmit {flow_run}")
async def resubmit(
    flow_run: UUID,
    attempts: Annotated[int, Field(ge=1, le=100)] = 3,
    wait: Annotated[float, Field(ge=0, le=86400)] = 30,
) -> dict[str, str | int]:
    """Reschedule a crashed flow run, unless it has crashed too often or ran out of memory; then let it fail and send a
    notice.

    Args:
        flow_run: The flow run that crashed.
        attempts: Number of crashes after which a run is given up.
        wait: Seconds until the run is started again.
    """
    async with get_client() as client:
        run = await client.read_flow_run(flow_run)
        # The server's answer above does not contain the history of states.
        history = await client.read_flow_run_states(flow_run)
        crashes = crashes_in(history)
        decided = decide(run, crashes, attempts)
        if decided == "again":
            await hand_out(client, run, crashes, attempts, wait)
        elif decided != "leave":
            await give_up(client, run, decided)
        get_run_logger().info(f"{run.name}: {decided}")
    return {"flow_run": str(flow_run), "decided": decided, "crashes": len(crashes)}


def crashes_in(history: Sequence[State]) -> list[str]:
    """Return the message of each crash since the run was last given up."""
    found: list[str] = []
    for state in sorted(history, key=lambda state: state.timestamp):
        if state.is_crashed():
            found.append(state.message or "no message")
        elif state.name == GAVE_UP:
            found.clear()
    return found


def decide(run: FlowRun, crashes: Sequence[str], attempts: int) -> str:
    """Return ``again``, ``leave``, or the reason for giving up the run."""
    if run.state is None or not run.state.is_crashed() or run.deployment_id is None:
        # changed in the meantime; or a subflow or command-line run, which cannot be assigned to a worker
        return "leave"
    last = crashes[-1] if crashes else "no message"
    if any(words in last.lower() for words in NO_MEMORY):
        return (
            f"it ran out of memory and would do so again ({last}); use a larger machine or smaller batches, then "
            f"retry it"
        )
    if len(crashes) >= attempts:
        hint = "; this is also how the kernel's out-of-memory killer ends a process" if KILLED.search(last) else ""
        return f"it crashed {len(crashes)} times, the last time with: {last}{hint}; fix the cause, then retry it"
    return "again"


async def hand_out(client: PrefectClient, run: FlowRun, crashes: Sequence[str], attempts: int, wait: float) -> None:
    """Schedule a run again; its finished stages are cached, and an unfinished stage resumes from its checkpoint."""
    when = datetime.now(UTC) + timedelta(seconds=wait)
    message = f"crash {len(crashes)} of at most {attempts}: {crashes[-1]}; it is restarted"
    # Not forced: if two flow runs handle the same crash, the second finds the run scheduled already.
    await client.set_flow_run_state(run.id, Scheduled(scheduled_time=when, name="AwaitingRetry", message=message))


async def give_up(client: PrefectClient, run: FlowRun, why: str) -> None:
    """End a run permanently, with the reason in its state, an artifact of its page, the log and a notice."""
    from prefect.utilities.urls import url_for

    said = f"{run.name} is not restarted: {why}"
    # Failed, not Crashed: the event of another crash would start this flow again.
    await client.set_flow_run_state(run.id, Failed(name=GAVE_UP, message=said), force=True)
    get_run_logger().error(said)
    page = url_for("flow-run", obj_id=run.id)
    await acreate_markdown_artifact(
        f"**{said}.**\n\n[the run]({page})\n", key="gave-up", description="A run that is not restarted"
    )
    name, named = recipe_behind(run.parameters)
    await send(
        notification_blocks(named),
        (f"Limbeck: {name or run.name}: no further restart", with_links(f"{said}.", {"Prefect": page})),
    )
