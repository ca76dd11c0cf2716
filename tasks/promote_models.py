"""Stage tasks: the promotion of a run's versions, and manual decisions on versions. Each reads, compares and moves
aliases under one lock (``gate/alias_decisions.py``), and records its decision."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tasks.errors import GateError
from tasks.gate.alias_decisions import decide_run, delete_here, promote_here, roll_back_here, under_lock
from tasks.gate.decided import AliasDecision, DeletedVersion, RunDecision
from tasks.gate.gate_inputs import GateInputs
from tasks.gate.requests import require_known_alias, require_reason
from tasks.ports.store.artifacts import Store
from tasks.ports.tracking.tracker import Tracker
from tasks.results.run import Registered
from tasks.stage.task_ends import prefect_task


@prefect_task("promote-models")
async def promote_models(
    gate_inputs: GateInputs, tracker: Tracker, store: Store, registered: Sequence[Registered], run: str
) -> RunDecision:
    """Judge a run's versions against the current champion, and move aliases accordingly; return the decisions."""
    if not registered:
        return {
            "moves": {},
            "words": [],
            "aliases": {},
            "champion": None,
            "news": False,
            "decisions": await asyncio.to_thread(gate_inputs.decide),
        }
    name, numbers = registered[0].name, {entry.candidate: entry.version for entry in registered}
    return await under_lock(store, tracker, name, lambda registry: decide_run(gate_inputs, registry, numbers, run))


@prefect_task("promote-version")
async def promote_version(
    tracker: Tracker, store: Store, name: str, version: str | None, alias: str, force: bool, reason: str
) -> AliasDecision:
    """Give a version an alias at a person's request; unless forced, refuse it if the gate or the comparison is against
    it, and record the refusal, too."""
    require_known_alias(alias)
    require_reason(force, reason)
    found = await under_lock(
        store, tracker, name, lambda registry: promote_here(registry, version, alias, force, reason)
    )
    if found["words"][0]["outcome"] == "refused":
        said = found["words"][0]
        raise GateError(
            f"{name} version {said['version']} was not promoted: {said['reason']}; --force --reason … overrides this"
        )
    return found


@prefect_task("roll-back")
async def roll_back_champion(tracker: Tracker, store: Store, name: str, reason: str) -> AliasDecision:
    """Make the previous champion the champion again."""
    return await under_lock(store, tracker, name, lambda registry: roll_back_here(registry, reason))


@prefect_task("delete-version")
async def delete_version(tracker: Tracker, store: Store, name: str, version: str, reason: str) -> DeletedVersion:
    """Delete a version that has no alias."""
    return await under_lock(store, tracker, name, lambda registry: delete_here(registry, version, reason))
