"""Manual promotion: give a version an alias, return to the previous champion, or delete a version; all under the lock
that runs use, too."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger

from flows.home import Home
from flows.run.notices import on_failure, tell_of_promotion
from tasks.gate.decided import AliasDecision, DeletedVersion
from tasks.gate.promotion import BY_HAND
from tasks.ports.store.open import open_store
from tasks.ports.tracking.tracker import Tracker
from tasks.promote_models import delete_version, promote_version, roll_back_champion
from tasks.recipe.knobs import Choices


@flow(name="promote", flow_run_name="promote {name}", on_failure=[on_failure])
async def promote(
    name: str,
    version: str | None = None,
    to: Annotated[str, Choices(*BY_HAND)] = "champion",
    force: bool = False,
    reason: str = "",
) -> AliasDecision:
    """Make a version the champion, or give it another alias. Default version: the challenger.

    Args:
        name: A registered model.
        version: A version by number or alias; empty: the challenger.
        to: The alias that the version gets.
        force: Override the gate's verdict and the comparison with the champion; requires a reason.
        reason: The reason; it is stored in the history.
    """
    decided = await promote_version(*await gates(), name, version, to, force, reason)
    get_run_logger().info(promotion_sentence(name, decided))
    await tell_of_promotion(name, decided)
    return decided


@flow(name="rollback", flow_run_name="rollback {name}", on_failure=[on_failure])
async def rollback(name: str, reason: str = "") -> AliasDecision:
    """Make the previous champion the champion again; later runs do not promote the withdrawn version.

    Args:
        name: A registered model.
        reason: The reason; it is stored in the history.
    """
    decided = await roll_back_champion(*await gates(), name, reason)
    get_run_logger().info(promotion_sentence(name, decided))
    await tell_of_promotion(name, decided)
    return decided


@flow(name="delete", flow_run_name="delete {name} {version}", on_failure=[on_failure])
async def delete(name: str, version: str, reason: str = "") -> DeletedVersion:
    """Delete a version that has no alias."""
    return await delete_version(*await gates(), name, version, reason)


async def gates() -> tuple[Tracker, Any]:
    """Return the registry and the store that holds its lock."""
    home = Home.from_environment()
    return Tracker(home.tracking_uri, home.artifacts), await asyncio.to_thread(open_store, home.store, home.cache)


def promotion_sentence(name: str, decided: AliasDecision) -> str:
    """Return one line about the moved aliases and the reason."""
    moves = [
        f"{name}@{alias} is version {number}" if number else f"{name}@{alias} is removed"
        for alias, number in decided["moves"].items()
    ]
    return f"{'; '.join(moves) or 'no alias moved'} ({decided['words'][0]['reason']})"
