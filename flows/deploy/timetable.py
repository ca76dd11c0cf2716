"""The deployments defined in ``deployments/prefect.yaml``, in the form of Prefect's client, and the comparison of a
deployment on the server with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.events import DeploymentTriggerTypes
from prefect.events.schemas.automations import AutomationCore
from prefect.flows import load_flow_from_entrypoint
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from flows.deploy.form_schema import for_people

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


@dataclass
class Entry:
    """One deployment as defined in the file."""

    flow: str
    name: str
    fields: dict[str, Any]
    """Fields that are compared with the server, and written if they differ."""
    parameters: dict[str, Any]
    schedules: list[dict[str, Any]]
    triggers: list[Any]

    @property
    def full_name(self) -> str:
        """Return the name in Prefect's form, FLOW/NAME."""
        return f"{self.flow}/{self.name}"


def timetable() -> list[Entry]:
    """Read every deployment; the schema of its form is computed from the flow's current parameters."""
    return [entry_of(given) for given in read(FOLDER / "prefect.yaml")["deployments"]]


def automations() -> list[AutomationCore]:
    """Return the automations that belong to no deployment."""
    return [AutomationCore.model_validate(given) for given in read(FOLDER / "automations.yaml")["automations"]]


def read(path: Path) -> dict[str, Any]:
    """Read a YAML file of this repository."""
    return dict(YAML(typ="safe").load(path.read_text(encoding="utf-8")))


def entry_of(given: Mapping[str, Any]) -> Entry:
    """Convert one entry of the file; raise ValueError on unknown fields, so that one that only `prefect deploy` reads
    does not go unnoticed."""
    unknown = set(given) - KNOWN
    if unknown:
        raise ValueError(
            f"prefect.yaml: {given['name']} has {sorted(unknown)}, which limbeck deploy does not read; known are "
            f"{sorted(KNOWN)}"
        )
    flow: Any = load_flow_from_entrypoint(given["entrypoint"])
    limit = given.get("concurrency_limit") or {}
    fields = {
        "entrypoint": given["entrypoint"],
        "description": given.get("description") or flow.description,
        "tags": list(given.get("tags", ())),
        "work_pool_name": given["work_pool"]["name"],
        "work_queue_name": given["work_pool"].get("work_queue_name", "default"),
        "job_variables": to_plain_values(given["work_pool"].get("job_variables", {})),
        "enforce_parameter_schema": given.get("enforce_parameter_schema", True),
        "parameter_openapi_schema": for_people(to_plain_values(flow.parameters.model_dump(exclude_unset=True))),
        "pull_steps": [],
        "concurrency_limit": limit.get("limit"),
        "collision_strategy": limit.get("collision_strategy"),
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


def standing(found: DeploymentResponse) -> dict[str, Any]:
    """Return the fields of an entry as they are in a deployment on the server."""
    limit, options = found.global_concurrency_limit, found.concurrency_options
    same = (
        "entrypoint",
        "description",
        "tags",
        "work_pool_name",
        "work_queue_name",
        "job_variables",
        "enforce_parameter_schema",
        "parameter_openapi_schema",
    )
    return {name: getattr(found, name) for name in same} | {
        "pull_steps": found.pull_steps or [],
        "concurrency_limit": limit.limit if limit else None,
        "collision_strategy": str(options.collision_strategy.value) if limit and options else None,
    }


def schedule_of(given: Mapping[str, Any]) -> CronSchedule:
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
