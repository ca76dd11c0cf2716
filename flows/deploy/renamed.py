"""Deployments that had another name in an earlier version: the new one takes over what people set."""

from __future__ import annotations

from typing import TypedDict

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from pydantic import JsonValue

FORMER = {
    "compress-from-shelf/shelf-recipe": "compress-from-shelf/on-demand",
    "compress/own-recipe": "compress/on-demand",
    "promote/promote-version": "promote/on-demand",
    "rollback/rollback-champion": "rollback/on-demand",
}
"""Former names of deployments: several had the same, and Prefect's list shows the flow in small letters only."""


async def former(client: PrefectClient, name: str) -> DeploymentResponse | None:
    """Return the deployment under its former name; None if there is none."""
    if name not in FORMER:
        return None
    try:
        return await client.read_deployment_by_name(FORMER[name])
    except ObjectNotFound:
        return None


class SetByPeople(TypedDict):
    """What people may have set in a deployment."""

    parameters: dict[str, JsonValue]
    """Default parameters."""
    schedules: list[DeploymentScheduleCreate]


def set_by_people(old: DeploymentResponse) -> SetByPeople:
    """Return what people may have set in a deployment: its default parameters and its schedules."""
    schedules = [
        DeploymentScheduleCreate(
            schedule=one.schedule, active=one.active, slug=one.slug, parameters=one.parameters or {}
        )
        for one in old.schedules
    ]
    return {"parameters": old.parameters, "schedules": schedules}
