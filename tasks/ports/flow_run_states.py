"""The states of the flow runs that one run waits for, read together.

A request for one flow run costs a Prefect server some thirteen milliseconds, so a thousand stages in flight, requested
one by one, would keep more than one of its cores busy. Therefore the first stage that waits requests the states of all
flow runs that stages wait for, and only those that have changed: most answers are empty, whatever their number.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any
from uuid import UUID

from tasks.ports.work_pools import has_worker

RUNS_OF_A_REQUEST = 200
"""Flow runs that a server returns at most for one request."""
STATES_PER_SECOND = 100
"""Flow runs in flight for each second between two rounds of requests."""
COUNTED_EVERY = 30.0  # seconds between two checks that all flow runs still exist
NOT_READ = ""
"""The name of the state of a flow run that was not read yet."""
RequestSender = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class FlowRunStates:
    """Reads the states of the flow runs of one deployment that are waited for."""

    def __init__(self, ask: RequestSender) -> None:
        """Read by ``ask``, which repeats a request to a server that is away."""
        self.ask = ask
        self.states: dict[UUID, Any] = {}
        self.waiting: set[UUID] = set()
        self.missing: set[UUID] = set()
        self.turn = asyncio.Lock()
        self.rounds, self.ended, self.counted = 0, 0.0, time.monotonic()
        self.served: dict[str, tuple[int, bool]] = {}

    def begin(self, run: Any) -> int:
        """Include a flow run in every later round; return the number of the last one."""
        self.waiting.add(run.id)
        if run.state is not None:
            self.states[run.id] = run.state
        return self.rounds

    def end(self, run: UUID) -> None:
        """Leave a flow run out of later rounds."""
        self.waiting.discard(run)
        self.missing.discard(run)
        self.states.pop(run, None)

    async def read(self, client: Any, run: UUID, after: int) -> tuple[Any, int]:
        """Return the state of a flow run as of a later round than ``after``, and the number of that round; a round that
        somebody else has begun meanwhile is as good as an own one."""
        async with self.turn:
            if self.rounds <= after:
                pause = len(self.waiting) / STATES_PER_SECOND - (time.monotonic() - self.ended)
                await asyncio.sleep(max(0.0, pause))
                await self.read_all(client)
        return self.states.get(run), self.rounds

    async def read_all(self, client: Any) -> None:
        """Read the states of all flow runs that are waited for, where they have changed."""
        known: dict[str, list[UUID]] = defaultdict(list)
        for run in self.waiting - self.missing:
            known[self.states[run].name if self.states.get(run) else NOT_READ].append(run)
        for name, runs in known.items():
            found = await self.changed(client, runs, name)
            self.states |= found
            if name == NOT_READ:
                self.missing |= set(runs) - set(found)
        if time.monotonic() - self.counted >= COUNTED_EVERY:
            await self.require_all(client)
        self.rounds, self.ended = self.rounds + 1, time.monotonic()

    async def changed(self, client: Any, runs: Iterable[UUID], name: str) -> dict[UUID, Any]:
        """Return the states of flow runs whose state has another name; of those that were never read, all."""
        from prefect.client.schemas.filters import (
            FlowRunFilter,
            FlowRunFilterId,
            FlowRunFilterState,
            FlowRunFilterStateName,
        )

        other = FlowRunFilterState(name=FlowRunFilterStateName(not_any_=[name])) if name else None
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(runs)), state=other)
        pages: list[Any] = []
        while True:
            part = {"limit": RUNS_OF_A_REQUEST, "offset": len(pages)}
            page = await self.ask(partial(client.read_flow_runs, flow_run_filter=wanted, **part))
            pages.extend(page)
            if len(page) < RUNS_OF_A_REQUEST:
                return {run.id: run.state for run in pages}

    async def require_all(self, client: Any) -> None:
        """Find the flow runs that were deleted: no filter tells of them."""
        from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

        runs = self.waiting - self.missing
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(runs)))
        if await self.ask(lambda: client.count_flow_runs(flow_run_filter=wanted)) < len(runs):
            self.missing |= runs - set(await self.changed(client, runs, NOT_READ))
        self.counted = time.monotonic()

    async def has_worker(self, client: Any, pool: str) -> bool:
        """Return whether a worker of a pool is alive, asked once for all in each round."""
        asked, found = self.served.get(pool, (-1, False))
        if asked != self.rounds:
            async with self.turn:
                asked, found = self.served.get(pool, (-1, False))
                if asked != self.rounds:
                    found = await self.ask(lambda: has_worker(client, pool))
                    self.served[pool] = (self.rounds, found)
        return found
