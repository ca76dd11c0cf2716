"""ECS on moto that really runs its tasks: RunTask starts the container's command as a process of this machine, and its
end is an event in the queue.

What is asked for is kept as it came: the request, and with it the task definition that moto has.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from moto.ecs.models import EC2ContainerServiceBackend, Task

from tests.infra.cloudformation.moto_cloud import Cloud
from tests.infra.containers import Container, Machine


@dataclass
class RunningTasks:
    """The tasks of a cluster."""

    cloud: Cloud
    machine: Machine
    queue: str
    """The name of the queue that the stack has made for what happens to tasks."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Every RunTask: the request, its task definition, and its container."""

    def run_task(
        self,
        backend: EC2ContainerServiceBackend,
        cluster: str,
        definition: str,
        count: int,
        overrides: Any,
        started_by: str,
        tags: Any,
        launch_type: Any,
        *others: Any,
        **more: Any,
    ) -> list[Task]:
        """Start a task's one container."""
        strategy = more.get("capacity_provider_strategy") or (others[3] if len(others) > 3 else None)
        known, place = backend.describe_task_definition(definition), backend._get_cluster(cluster)
        task = Task(
            place,
            known,
            None,
            backend._calculate_task_resource_requirements(known),
            backend,
            f"family:{known.family}",
            launch_type or "",
            overrides or {},
            started_by or "",
            tags or [],
            capacity_provider_name=strategy[0]["capacityProvider"] if strategy else None,
        )
        backend.tasks.setdefault(place.name, {})[task.task_arn] = task
        container = self.start(
            task, known.container_definitions[0], (overrides or {}).get("containerOverrides", [{}])[0]
        )
        described = self.cloud.client("ecs").describe_task_definition(taskDefinition=known.arn)["taskDefinition"]
        self.asked.append(
            {
                "definition": described,
                "strategy": strategy,
                "launch_type": launch_type,
                "overrides": overrides,
                "tags": {tag["key"]: tag["value"] for tag in tags or []},
                "container": container,
            }
        )
        return [task]

    def start(self, task: Task, definition: dict[str, Any], override: dict[str, Any]) -> Container:
        """Run a container with what its definition, its secrets and the override say."""
        environment = {
            entry["name"]: entry["value"]
            for entry in [*definition.get("environment", []), *override.get("environment", [])]
        }
        secrets = {entry["name"]: self.secret(entry["valueFrom"]) for entry in definition.get("secrets", [])}
        return self.machine.run(
            override.get("command") or definition["command"],
            environment | secrets,
            lambda status: self.tell(task, status),
        )

    def secret(self, reference: str) -> str:
        """Return a secret as ECS does: the whole of it, or one of its keys."""
        arn, key = reference.removesuffix("::").rsplit(":", 1) if reference.endswith("::") else (reference, "")
        text = self.cloud.client("secretsmanager").get_secret_value(SecretId=arn)["SecretString"]
        return str(json.loads(text)[key]) if key else str(text)

    def tell(self, task: Task, status: int) -> None:
        """Send the event that EventBridge would bring to the queue."""
        task.last_status = task.desired_status = "STOPPED"
        detail = {
            "taskArn": task.task_arn,
            "clusterArn": task.cluster_arn,
            "taskDefinitionArn": task.task_definition_arn,
            "lastStatus": "STOPPED",
            "desiredStatus": "STOPPED",
            "stopCode": "EssentialContainerExited",
            "containers": [
                {
                    "name": "prefect",
                    "exitCode": status,
                    "lastStatus": "STOPPED",
                    "containerArn": f"{task.task_arn}/prefect",
                }
            ],
        }
        event = {
            "id": task.id,
            "detail-type": "ECS Task State Change",
            "source": "aws.ecs",
            "resources": [task.task_arn],
            "region": task.region_name,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "detail": detail,
        }
        sqs = self.cloud.client("sqs")
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=self.queue)["QueueUrl"], MessageBody=json.dumps(event))
