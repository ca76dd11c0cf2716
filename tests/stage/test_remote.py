"""Requests of remote stages, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from prefect.client.schemas.objects import FlowRun
from prefect.states import Completed

from tasks.stage.orders import StageRequest
from tasks.stage.remote import ASKED_TOGETHER, Dispatcher

BRANCHES = 50


def order(number: int) -> StageRequest:
    return {"stage": "finetune", "label": f"{number}", "key": f"{number:064}"}  # type: ignore[typeddict-item]


class Counting(Dispatcher):
    """Counts the requests under way; its flow runs end when they are all there."""

    now, most, asked = 0, 0, 0

    async def find_or_ask(self, order: StageRequest) -> tuple[Any, bool]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now, self.asked = self.now - 1, self.asked + 1
        return FlowRun(id=uuid4(), flow_id=uuid4(), name=order["label"]), True

    async def wait_for(self, run: Any, tell: Callable[[str, str], None]) -> Any:
        while self.asked < BRANCHES:
            await asyncio.sleep(0)
        return Completed()


def test_a_run_of_many_branches_requests_few_stages_at_a_time_and_waits_for_all_at_once() -> None:
    """A thousand requests at once would keep the server from its workers, whose own requests would time out."""
    dispatcher = Counting("stage/gpu", "cpu")

    async def all_branches() -> list[bool]:
        return await asyncio.gather(*(dispatcher.make(order(n), lambda state, words: None) for n in range(BRANCHES)))

    assert asyncio.run(asyncio.wait_for(all_branches(), 60)) == [True] * BRANCHES
    assert dispatcher.most == ASKED_TOGETHER
