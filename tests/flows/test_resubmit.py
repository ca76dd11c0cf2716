"""When a crashed run is handed out again, when it is given up, and with which words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.states import AwaitingRetry, Completed, Crashed, Failed, Running

from flows.resubmit import GAVE_UP, crashes_in, decide
from flows.run.notices import recipe_behind
from tests.flows.run.test_notices import BLOCK


def history(*states: Any) -> list[Any]:
    """Return states in the order in which they came about, as a server may give them in any order."""
    start = datetime.now(UTC)
    dated = [
        state.model_copy(update={"timestamp": start + timedelta(seconds=number)}) for number, state in enumerate(states)
    ]
    return dated[::-1]


def run(state: Any, deployed: bool = True) -> Any:
    return SimpleNamespace(state=state, deployment_id=uuid4() if deployed else None)


KILLED = "Flow run infrastructure exited with non-zero status code -9."


@pytest.mark.parametrize(
    ("state", "crashes", "said"),
    [
        (Crashed(), [KILLED], "again"),
        (Crashed(), [KILLED, KILLED], "again"),
        (
            Crashed(),
            [KILLED] * 3,
            "it crashed 3 times, the last time with: .* code -9.; this is also how the kernel's out-of-memory killer",
        ),
        (
            Crashed(),
            ["no answer from host-137-9 since 2026-11-23-9"] * 3,
            "it crashed 3 times, the last time with: no answer from host-137-9 since 2026-11-23-9; fix the cause",
        ),
        (Crashed(), ["no heartbeat"] * 3, "it crashed 3 times, the last time with: no heartbeat; fix the cause"),
        (
            Crashed(),
            ["OutOfMemoryError: Container killed due to memory usage"],
            "it ran out of memory and would do so again",
        ),
        (
            Crashed(),
            ["pod terminated: OOMKilled"],
            "it ran out of memory and would do so again .* larger machine or smaller batches",
        ),
        (AwaitingRetry(), [KILLED], "leave"),
        (Running(), [KILLED], "leave"),
        (Failed(), [KILLED], "leave"),
        (Completed(), [KILLED], "leave"),
    ],
)
def test_what_is_decided(state: Any, crashes: list[str], said: str) -> None:
    assert re.match(said, decide(run(state), crashes, 3))


def test_a_part_of_another_run_is_left_alone() -> None:
    assert decide(run(Crashed(), deployed=False), [KILLED], 3) == "leave"


def test_crashes_are_counted_from_where_a_person_said_retry() -> None:
    gave_up = Failed(name=GAVE_UP)
    assert crashes_in(history(Running(), Crashed(message="a"), AwaitingRetry(), Crashed(message="b"))) == ["a", "b"]
    assert crashes_in(
        history(Crashed(message="a"), Crashed(message="b"), gave_up, Running(), Crashed(message="c"))
    ) == ["c"]


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"recipe": {"name": "mine", "notify": [BLOCK]}}, ("mine", (BLOCK,))),
        ({"recipe": "sst2-tinybert", "changes": {"notify": [BLOCK]}}, ("sst2-tinybert", (BLOCK,))),
        ({"recipe": "sst2-tinybert"}, ("sst2-tinybert", ())),
        ({"scoring": {}}, ("", ())),
    ],
)
def test_whom_a_run_concerns(parameters: dict[str, Any], found: tuple[str, tuple[str, ...]]) -> None:
    assert recipe_behind(parameters) == found
