"""Remote stages: a run on a small machine requests a flow run of a deployment whose workers have GPUs, and takes the
result from the store.

A run requests a stage, not a program: the worker calls the same stage task, with the same key, lease, checkpoints and
publishing as any other. So a stage that is requested twice is computed once, a worker that dies is followed by one that
resumes from the checkpoint, and the store alone decides which results exist. A run reads the store before a request, so
a cached stage starts nothing; and it looks for an unfinished flow run with the same key before it starts one, so a run
that was interrupted, and starts again, finds its stages in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from tasks.errors import BY_NAME, DispatchError, Interrupted, LimbeckError, NoWorker, TooLong
from tasks.ports.flow_run_states import FlowRunStates
from tasks.ports.work_pools import flow_run_page, is_away, no_worker, trouble
from tasks.recipe.running import STAGE_HOURS
from tasks.stage.orders import OrderTerms, StageRequest, key_and_store, named, tag_of

FLOW = "stage"
GRACE = 120.0  # seconds in which a crashed flow run may be restarted, by an automation or by hand
AWAY = 900.0  # seconds for which a Prefect server may be unavailable
FIRST_LOOK, LONGEST, SLOWER = 0.5, 10.0, 1.3  # seconds between two polls of a flow run, growing while nothing changes
SLACK = 600.0  # seconds beyond its limit that a stage has to save its checkpoint, and its worker to report the end
ASKED_AT_MOST = 3  # requests of one run for one stage, if others cancel them
ASKED_TOGETHER = 8  # stages that one run requests at the same time
USUAL = {"Scheduled", "Pending", "Submitting", "Running", "Completed"}
"""States that are not announced."""
Answer = TypeVar("Answer")


@dataclass
class Dispatcher:
    """Requests the remote stages of one run. ``deployment`` is ``stage/NAME``; ``device`` the class of the pool's
    hardware, which is part of keys."""

    deployment: str
    device: str
    grace: float = GRACE
    away: float = AWAY
    worker_seconds: float = 30.0
    """Seconds for which the pool may be without a live worker."""
    start_seconds: float = 3600.0
    """Seconds in which a flow run starts that a worker has taken; an instance may have to be started first."""
    required: bool = False
    """Whether a run without a live worker stops, instead of computing its stages itself."""
    terms: OrderTerms = field(default_factory=lambda: OrderTerms())
    """Fields common to all orders of the run: the store, the costs, the cores."""
    asker: str = ""
    """The id of the flow run that sends the requests: this one."""
    known: Any = None
    """The deployment as known to the server."""
    under_way: dict[UUID, str] = field(default_factory=dict)
    """This run's own unfinished flow runs, with the names of their stages."""
    states: FlowRunStates | None = None
    """The states of the flow runs that are waited for, read together."""
    turns: dict[str, asyncio.Lock] = field(default_factory=dict)
    asking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ASKED_TOGETHER))
    """Lets few requests go at once: a run of a thousand branches must not queue a thousand before the server's other
    clients, whose own requests would then exceed their time limits."""
    made: set[str] = field(default_factory=set)
    """Keys that were computed for this run: branches that need the same stage request it once."""

    async def require(self) -> None:
        """Raise DispatchError, before anything is spent, for a deployment that does not exist, and for a store that its
        workers cannot reach."""
        from prefect.client.orchestration import get_client
        from prefect.exceptions import ObjectNotFound

        async with get_client() as client:
            try:
                self.known = await self.patiently(lambda: client.read_deployment_by_name(self.deployment))
            except ObjectNotFound as error:
                advice = (
                    "create it (limbeck deploy does), set PREFECT_API_URL to the server that has it, or unset "
                    "LIMBECK_DISPATCH"
                )
                raise DispatchError(
                    f"LIMBECK_DISPATCH names the deployment {self.deployment!r}, which is not on this Prefect "
                    f"server; {advice}"
                ) from error
            if self.known.work_pool_name is None or "://" in self.terms["store"] or not self.terms.get("own_folder"):
                return
            pool = await self.patiently(lambda: client.read_work_pool(self.known.work_pool_name))
        if pool.type != "process":
            raise DispatchError(
                f"the results of this run are stored in {self.terms['store']}, which the workers of the pool "
                f"{pool.name!r} ({pool.type}) cannot access; set LIMBECK_STORE to s3://BUCKET/PREFIX, or to a shared "
                f"folder, here and on the workers"
            )

    async def make(self, order: StageRequest, tell: Callable[[str, str], None]) -> bool:
        """Have a stage computed; return True if it was computed for this call, False if for another branch, or for
        another run in parallel."""
        async with self.turns.setdefault(order["key"], asyncio.Lock()):
            if order["key"] in self.made:
                return False
            ours = await self.make_once(order, tell)
            self.made.add(order["key"])
            return ours

    async def make_once(self, order: StageRequest, tell: Callable[[str, str], None]) -> bool:
        """Request a stage until a flow run has computed it or failed; repeat a request that another run cancelled.
        Return whether the flow run was this run's own."""
        for _ in range(ASKED_AT_MOST):
            async with self.asking:
                run, ours = await self.find_or_ask(order)
            shown = named(order)
            tell(
                "waiting",
                f"{'requested' if ours else 'waits for'} the flow run {run.name!r} of {self.deployment}"
                f"{flow_run_page(run)}",
            )
            if ours:
                self.under_way[run.id] = shown
            try:
                state = await self.wait_for(run, tell)
            except (NoWorker, TooLong):
                await self.cancel([run.id] if ours else [])
                raise
            self.under_way.pop(run.id, None)
            if state.is_completed():
                return ours
            if (
                ours or not state.is_cancelled()
            ):  # a flow run that was cancelled with the other run that requested it is requested again
                raise error_of(state, shown, self.grace)
        raise DispatchError(
            f"{named(order)}: the flow runs requested by other runs were cancelled {ASKED_AT_MOST} times; run again"
        )

    async def find_or_ask(self, order: StageRequest) -> tuple[Any, bool]:
        """Return the flow run for this key, found or requested, and whether it is this run's own."""
        from prefect.client.orchestration import get_client
        from prefect.deployments import arun_deployment

        async with get_client() as client:
            runs = await self.runs_of(client, order["key"])
            for run in runs:
                if self.is_under_way(run):
                    return run, await self.is_ours(client, run)
            # Two runs that request at once name the same last flow run in this key, and get the same new one.
            last = f"{self.known.id} after {runs[0].id if runs else 'none'}"
            asked = await self.patiently(
                lambda: arun_deployment(
                    self.deployment,
                    parameters={"order": {**order, **self.order_terms()}},
                    flow_run_name=named(order),
                    timeout=0,
                    tags=[f"stage:{order['stage']}", tag_of(order["key"])],
                    idempotency_key=f"{order['key']} in {self.terms['store']} by {last}",
                )
            )
            return asked, await self.is_ours(client, asked)

    def order_terms(self) -> dict[str, object]:
        """Return the fields common to all orders of this run."""
        return {name: value for name, value in self.terms.items() if name != "own_folder"} | {"asked_by": self.asker}

    async def runs_of(self, client: Any, key: str) -> list[Any]:
        """Return this deployment's flow runs for a key in this store, the newest first."""
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId, FlowRunFilterTags
        from prefect.client.schemas.sorting import FlowRunSort

        wanted = FlowRunFilter(
            tags=FlowRunFilterTags(all_=[tag_of(key)]), deployment_id=FlowRunFilterDeploymentId(any_=[self.known.id])
        )
        found = await self.patiently(
            lambda: client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=200)
        )
        same = [run for run in found if key_and_store(run.parameters) == (key, self.terms["store"])]
        return sorted(same, key=lambda run: run.created, reverse=True)

    def is_under_way(self, run: Any) -> bool:
        """Tell whether a flow run is in progress, or crashed so recently that it may soon be restarted."""
        state = run.state
        if state is None or not state.is_final():
            return state is None or not state.is_cancelling()
        return bool(state.is_crashed() and (datetime.now(UTC) - state.timestamp).total_seconds() < self.grace)

    async def is_ours(self, client: Any, run: Any) -> bool:
        """Tell whether a flow run was requested by this run, or by one that has ended since and left it to its
        successor."""
        from prefect.exceptions import ObjectNotFound

        asked_by = (run.parameters.get("order") or {}).get("asked_by", "")
        if asked_by == self.asker:
            return True
        try:
            asker = await self.patiently(lambda: client.read_flow_run(UUID(asked_by)))
        except (ValueError, ObjectNotFound):
            return True
        return asker.state is None or asker.state.is_final()

    async def wait_for(self, run: Any, tell: Callable[[str, str], None]) -> Any:
        """Wait until a flow run has ended and, after a crash, until a restart is unlikely; return its last state."""
        from prefect.client.orchestration import get_client

        self.states = self.states or FlowRunStates(self.patiently)
        last = self.states.begin(run)
        try:
            async with get_client() as client:
                return await self.follow(client, self.states, run, last, tell)
        finally:
            self.states.end(run.id)

    async def follow(
        self, client: Any, states: FlowRunStates, run: Any, last: int, tell: Callable[[str, str], None]
    ) -> Any:
        """Read the state of a flow run until it is the last one."""
        from prefect.states import Cancelled

        state, before, pause, crashed, alone = run.state, "", FIRST_LOOK, None, None
        while run.id not in states.missing:
            if state is not None and state.name != before:
                words = f"its flow run is {state.name}{': ' + state.message if state.message else ''}"
                tell("running" if state.is_running() else "waiting", "" if state.name in USUAL else words)
                before, pause = state.name, FIRST_LOOK
            alone = await self.alone_since(client, states, state, alone)
            await self.give_up_what_never_starts(client, run.id, state)
            if self.is_too_long(state):  # of a run that began anew meanwhile, an earlier start may be known
                self.require_time((await self.patiently(lambda: client.read_flow_run(run.id))).state)
            crashed = (crashed or time.monotonic()) if state is not None and state.is_crashed() else None
            if state is not None and state.is_final() and (crashed is None or time.monotonic() - crashed > self.grace):
                return state
            await asyncio.sleep(pause)
            pause = min(pause * SLOWER, LONGEST)
            state, last = await states.read(client, run.id, last)
        return Cancelled(message="it was deleted")

    async def alone_since(self, client: Any, states: FlowRunStates, state: Any, before: float | None) -> float | None:
        """Return since when (monotonic seconds) a flow run waits in a pool without a live worker, None if it does not;
        raise NoWorker if that is too long."""
        pool = self.known.work_pool_name
        if state is None or not state.is_scheduled() or pool is None:
            return None
        if await states.has_worker(client, pool):
            return None
        since = before or time.monotonic()
        if time.monotonic() - since >= self.worker_seconds:
            raise NoWorker(no_worker(pool, self.worker_seconds))
        return since

    async def give_up_what_never_starts(self, client: Any, run: UUID, state: Any) -> None:
        """Tell Prefect that a flow run has crashed whose worker took it and died before it started it: nobody else
        does, as it sends no heartbeats yet. What crashed is restarted as usual."""
        from prefect.states import Crashed

        if state is None or not state.is_pending():
            return
        if (datetime.now(UTC) - state.timestamp).total_seconds() > self.start_seconds:
            said = f"a worker took it and did not start it within {self.start_seconds:g} seconds"
            await self.patiently(lambda: client.set_flow_run_state(run, Crashed(message=said), force=True))

    def is_too_long(self, state: Any) -> bool:
        """Return whether a flow run exceeds the limit of its stage, which its worker should have ended."""
        hours = float(self.terms.get("stage_hours") or STAGE_HOURS)
        running = state is not None and state.is_running()
        return bool(running and (datetime.now(UTC) - state.timestamp).total_seconds() > hours * 3600 + SLACK)

    def require_time(self, state: Any) -> None:
        """Raise TooLong for a flow run that exceeds the limit of its stage."""
        hours = float(self.terms.get("stage_hours") or STAGE_HOURS)
        if self.is_too_long(state):
            raise TooLong(
                f"a flow run of {self.deployment} has been running for more than {hours:g} hours, the limit of a stage "
                f"(resources.stage_hours), and its worker did not end it; it is cancelled: see the worker's log"
            )

    async def withdraw(self) -> None:
        """Cancel this run's own flow runs; each writes its checkpoint, from which a later request resumes."""
        await self.cancel(list(self.under_way))

    async def cancel(self, runs: list[UUID]) -> None:
        """Cancel flow runs of this run."""
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.objects import State, StateType

        async with get_client() as client:
            for run in runs:
                self.under_way.pop(run, None)
                with contextlib.suppress(
                    Exception
                ):  # an unavailable server or an ended run: the cause of the withdrawal matters more
                    await client.set_flow_run_state(
                        run,
                        State(type=StateType.CANCELLING, message="the requesting run was stopped or failed"),
                    )

    async def patiently(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeat a request to the Prefect server for as long as it may be unavailable; the stages continue without
        it."""
        import httpx
        from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

        async def once() -> Answer:
            return await ask()

        again = AsyncRetrying(
            stop=stop_after_delay(self.away),
            wait=wait_random_exponential(0.5, max=LONGEST),
            retry=retry_if_exception(is_away),
            reraise=True,
        )
        try:
            return await again(once)
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            raise DispatchError(trouble(error, self.away)) from error


def error_of(state: Any, shown: str, grace: float) -> LimbeckError:
    """Return the error of a stage that was not computed, as the worker reported it."""
    said = re.sub(r"^Flow run encountered an exception: ", "", (state.message or "").strip()) or "no message"
    if state.is_cancelled():
        return Interrupted(f"the flow run of {shown} was cancelled; run the same command again to continue")
    if state.is_crashed():
        return DispatchError(
            f"the flow run of {shown} crashed, and was not restarted within {grace:g} seconds ({said}); run again to "
            f"continue"
        )
    kind, _, sentence = said.partition(": ")
    return (
        BY_NAME[kind](sentence)
        if kind in BY_NAME and sentence
        else DispatchError(f"the flow run of {shown} failed: {said}")
    )
