"""The deployments defined in ``deployments/prefect.yaml``, in the form of Prefect's client, and the comparison of a
deployment on the server with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import DeploymentTriggerTypes
from prefect.events.schemas.automations import AutomationCore
from prefect.flows import load_flow_from_entrypoint
from pydantic import JsonValue, TypeAdapter
from ruamel.yaml import YAML

from flows.deploy.form_schema import for_people
from flows.deploy.recipe_form import deployment_form

FOLDER = Path(__file__).resolve().parents[2] / "deployments"
KNOWN = {
    "name",
    "description",
    "entrypoint",
    "parameters",
    "work_pool",
    "tags",
    "enforce_parameter_schema",
    "concurrency_limit",
    "schedules",
    "triggers",
}
GPU_POOLS = ("ecs-gpu", "k8s-gpu")


class PoolEntry(TypedDict):
    """The work pool of a deployment."""

    name: str
    work_queue_name: NotRequired[str]
    job_variables: NotRequired[dict[str, JsonValue]]


class LimitEntry(TypedDict):
    """How many runs of a deployment there may be at once, and the fate of further ones."""

    limit: int
    collision_strategy: NotRequired[str]


class ScheduleEntry(TypedDict):
    """A schedule of a deployment."""

    slug: str
    cron: str
    timezone: NotRequired[str]
    active: bool
    parameters: NotRequired[dict[str, JsonValue]]


class DeploymentEntry(TypedDict):
    """A deployment as it stands in the file."""

    name: str
    entrypoint: str
    work_pool: PoolEntry
    description: NotRequired[str]
    parameters: NotRequired[dict[str, JsonValue]]
    tags: NotRequired[list[str]]
    enforce_parameter_schema: NotRequired[bool]
    concurrency_limit: NotRequired[LimitEntry]
    schedules: NotRequired[list[ScheduleEntry]]
    triggers: NotRequired[list[dict[str, JsonValue]]]


class DeploymentFields(TypedDict):
    """The fields of a deployment that are compared with the server, and written if they differ."""

    entrypoint: str | None
    description: str | None
    tags: list[str]
    work_pool_name: str | None
    work_queue_name: str | None
    job_variables: dict[str, JsonValue]
    enforce_parameter_schema: bool
    parameter_openapi_schema: Mapping[str, object] | None
    pull_steps: list[dict[str, JsonValue]]
    concurrency_limit: int | None
    collision_strategy: str | None


@dataclass
class Entry:
    """One deployment as defined in the file."""

    flow: str
    name: str
    fields: DeploymentFields
    parameters: dict[str, JsonValue]
    schedules: list[ScheduleEntry]
    triggers: list[dict[str, JsonValue]]

    @property
    def full_name(self) -> str:
        """Return the name in Prefect's form, FLOW/NAME."""
        return f"{self.flow}/{self.name}"


def timetable() -> list[Entry]:
    """Read every deployment; the schema of its form is computed from the flow's current parameters."""
    given: list[DeploymentEntry] = read(FOLDER / "prefect.yaml")["deployments"]
    return [entry_of(one) for one in given]


def automations() -> list[AutomationCore]:
    """Return the automations that belong to no deployment."""
    return [AutomationCore.model_validate(given) for given in read(FOLDER / "automations.yaml")["automations"]]


def read(path: Path) -> Any:
    """Read a YAML file of this repository."""
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def entry_of(given: DeploymentEntry) -> Entry:
    """Convert one entry of the file; raise ValueError on unknown fields, so that one that only `prefect deploy` reads
    does not go unnoticed."""
    unknown = set(given) - KNOWN
    if unknown:
        raise ValueError(
            f"prefect.yaml: {given['name']} has {sorted(unknown)}, which limbeck deploy does not read; known are "
            f"{sorted(KNOWN)}"
        )
    flow: Any = load_flow_from_entrypoint(given["entrypoint"])
    limit = given.get("concurrency_limit")
    fields: DeploymentFields = {
        "entrypoint": given["entrypoint"],
        "description": given.get("description") or flow.description,
        "tags": list(given.get("tags", ())),
        "work_pool_name": given["work_pool"]["name"],
        "work_queue_name": given["work_pool"].get("work_queue_name", "default"),
        "job_variables": to_plain_values(given["work_pool"].get("job_variables", {})),
        "enforce_parameter_schema": given.get("enforce_parameter_schema", True),
        "parameter_openapi_schema": for_people(to_plain_values(deployment_form(flow))),
        "pull_steps": [],
        "concurrency_limit": limit["limit"] if limit else None,
        "collision_strategy": limit.get("collision_strategy") if limit else None,
    }
    return Entry(
        flow.name,
        given["name"],
        fields,
        to_plain_values(given.get("parameters", {})),
        to_plain_values(given.get("schedules", [])),
        to_plain_values(given.get("triggers", [])),
    )


def to_plain_values(values: Any) -> Any:
    """Return values in the form in which the server returns them: after a round trip through JSON."""
    return json.loads(json.dumps(values))


def standing(found: DeploymentResponse) -> DeploymentFields:
    """Return the fields of an entry as they are in a deployment on the server."""
    limit, options = found.global_concurrency_limit, found.concurrency_options
    return {
        "entrypoint": found.entrypoint,
        "description": found.description,
        "tags": found.tags,
        "work_pool_name": found.work_pool_name,
        "work_queue_name": found.work_queue_name,
        "job_variables": found.job_variables,
        "enforce_parameter_schema": found.enforce_parameter_schema,
        "parameter_openapi_schema": found.parameter_openapi_schema,
        "pull_steps": found.pull_steps or [],
        "concurrency_limit": limit.limit if limit else None,
        "collision_strategy": str(options.collision_strategy.value) if limit and options else None,
    }


def schedule_of(given: ScheduleEntry) -> CronSchedule:
    """Return a schedule in the form of Prefect's client."""
    return CronSchedule(cron=given["cron"], timezone=given.get("timezone", "UTC"))


def triggers_of(entry: Entry, deployment: Any) -> Sequence[AutomationCore]:
    """Return the automations that start a deployment."""
    kinds: Any = DeploymentTriggerTypes  # a union, which mypy takes for a class in one run and not in another
    reader: TypeAdapter[Any] = TypeAdapter(kinds)
    found = []
    for given in entry.triggers:
        trigger = reader.validate_python(given)
        trigger.set_deployment_id(deployment)
        found.append(trigger.as_automation())
    return found
