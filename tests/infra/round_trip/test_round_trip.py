"""A run on the cloud that the runbook's own commands make: its stacks, its site file, its pools and deployments, and
the commands of its services, with Prefect's own worker for ECS.

moto stands for AWS. ``BRIDGES`` lists what it has not: servers, a store and GPUs are those of this machine. No variable
says where stages go.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from flows.home import Home
from tasks.ports.machine import device_class
from tests.flows.run.test_dispatch import small
from tests.infra.cloudformation.moto_cloud import Cloud
from tests.infra.cloudformation.test_stacks import outputs
from tests.infra.containers import Container, Machine, without_keys
from tests.infra.moto_tasks import RunningTasks
from tests.infra.test_pool_workers import CLOUD, needs_workers, state_of, wait_for
from tests.infra.test_runbook import AWS, ROOT, STAND_INS, cloud, for_this_cloud, link_sources, programs, shell_of
from tests.prefect_server import WORKER, guarded, prefect_server_of_our_own
from tests.s3_server import BUCKET, S3Server

__all__ = ["cloud"]
PATIENCE = 1200.0
LIMBECK = {"limbeck": f'exec {sys.executable} -m flows.cli "$@"'}
"""The real command line in place of its stand-in."""
BRIDGES = {
    # The servers of this test have passwords and an account of their own.
    "up workers": """up workers
        aws secretsmanager put-secret-value --secret-id limbeck-dev/prefect-auth --secret-string "$SERVERS_PASSWORD"
        aws secretsmanager put-secret-value --secret-id limbeck-dev/prefect-worker-auth --secret-string "$WORKERS_TOKEN"
        aws secretsmanager put-secret-value --secret-id limbeck-dev/mlflow-worker --secret-string "$SERVERS_ACCOUNT"
    """,
    "https://$PREFECT_HOST/api": "$SERVERS_ADDRESS",
    # Variables that a person adds to the file stay: tasks compute on this machine, and write to this machine's servers.
    "limbeck deploy": f"""{sys.executable} - <<'PYTHON'
from pathlib import Path
from os import environ
import json
from ruamel.yaml import YAML
text, file = YAML(), Path("site.yaml")
site = text.load(file)
site["ecs-gpu"]["device"] = environ["HARDWARE"]
site["ecs-gpu"]["env"].update(json.loads(environ["HERE"]))
text.dump(site, file)
PYTHON
        limbeck deploy""",
}


def script() -> str:
    """Return the runbook from nothing to deployed flows, with the bridges."""
    text = "\n".join(["set -euo pipefail", shell_of("Prepare"), shell_of("Bring it up")])
    for gap, bridge in BRIDGES.items():
        assert gap in text, f"the runbook has no {gap} any more"
        text = text.replace(gap, bridge)
    return text


def service(tasks: RunningTasks, name: str, interpreter: str, **here: str) -> Container:
    """Start the container of a service, with the command, the environment and the secrets of its task definition."""
    ecs = tasks.cloud.client("ecs")
    found = ecs.describe_task_definition(taskDefinition=f"limbeck-dev-{name}")["taskDefinition"]
    (container,) = found["containerDefinitions"]
    assert container["entryPoint"] == ["python", "-m", "prefect"] and "@sha256:" in container["image"]
    environment = {entry["name"]: entry["value"] for entry in container["environment"]}
    secrets = {entry["name"]: tasks.secret(entry["valueFrom"]) for entry in container["secrets"]}
    assert not [name for name in environment if name.startswith("LIMBECK_DISPATCH")]
    words = [interpreter, "-m", "prefect", *container["command"]]
    return tasks.machine.run(words, environment | secrets | here, lambda status: None)


@contextmanager
def servers(tmp_path: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Run Prefect and MLflow; yield what their clients know."""
    home = Home(tmp_path / "mlflow").create()
    with prefect_server_of_our_own() as prefect, guarded(home, "mlflow") as mlflow:
        told = {PREFECT_API_URL: prefect["PREFECT_API_URL"]}
        with temporary_settings(told | {PREFECT_API_AUTH_STRING: prefect["PREFECT_API_AUTH_STRING"]}):
            yield prefect, mlflow.client


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_workers
@pytest.mark.skipif(not AWS.is_file(), reason="NO AWS CLIENT HERE: `make awscli` sets an environment up for it")
def test_a_run_trains_on_ecs_after_the_commands_of_the_runbook(
    cloud: Cloud,  # noqa: F811
    s3: S3Server,
    engines_here: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link_sources(tmp_path)
    bucket, keys = without_keys(s3.environment())
    machine = Machine(tmp_path, keys)
    with servers(tmp_path) as (prefect, mlflow):
        account = {field: mlflow[f"MLFLOW_TRACKING_{field.upper()}"] for field in ("username", "password")}
        here = bucket | {
            "LIMBECK_STORE": f"s3://{BUCKET}/{tmp_path.name}",
            "MLFLOW_TRACKING_URI": mlflow["MLFLOW_TRACKING_URI"],
        }
        settings = cloud.environment() | {
            "PATH": programs(tmp_path / "programs", STAND_INS | LIMBECK),
            "PYTHONPATH": str(ROOT),
            "LIMBECK_HOME": str(tmp_path / "home"),
            "SERVERS_ADDRESS": prefect["PREFECT_API_URL"],
            "SERVERS_PASSWORD": prefect["PREFECT_API_AUTH_STRING"],
            "WORKERS_TOKEN": WORKER,
            "SERVERS_ACCOUNT": json.dumps(account),
            "HARDWARE": device_class(),
            "HERE": json.dumps(here),
        }
        given = {"input": for_this_cloud(cloud, script()), "text": True, "capture_output": True, "cwd": tmp_path}
        done = subprocess.run(["bash"], env=os.environ | settings, **given)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"

        tasks = RunningTasks(cloud, machine, outputs(cloud, "limbeck-dev-workers")["EventsQueue"])
        monkeypatch.setattr(
            "moto.ecs.models.EC2ContainerServiceBackend.run_task", lambda *own, **more: tasks.run_task(*own, **more)
        )
        address = {"PREFECT_API_URL": prefect["PREFECT_API_URL"], "PREFECT_WORKER_QUERY_SECONDS": "1"}
        told = lambda: "\n".join(f"--- {one.folder.name}\n{one.said()[-2500:]}" for one in machine.containers)  # noqa: E731
        try:
            service(tasks, "cpu-worker", sys.executable, **here, **address)
            service(tasks, "dispatcher", str(CLOUD), **cloud.environment(), **address)
            recipe = small(tiny_bert, tiny_rows, {"worker_seconds": 300}, steps=600, checkpoint_minutes=0.005)
            words = ["deployment", "run", "compress/own-recipe", "--params"]
            asked = json.dumps({"recipe": recipe.model_dump(mode="json", exclude_unset=True)})
            started = subprocess.run(
                [sys.executable, "-m", "prefect", *words, asked],
                env=os.environ | address | {"PREFECT_API_AUTH_STRING": prefect["PREFECT_API_AUTH_STRING"]},
                text=True,
                capture_output=True,
            )
            assert started.returncode == 0, started.stderr
            run = UUID(re.search(r"flow-run/([0-9a-f-]{36})", started.stdout)[1])  # type: ignore[index]
            wait_for(lambda: tasks.asked and "steps, loss" in tasks.asked[0]["container"].said(), told, PATIENCE)
            tasks.asked[0]["container"].vanish()  # its instance is gone
            wait_for(lambda: state_of(run).is_final(), told, PATIENCE)
            assert state_of(run).is_completed(), f"{state_of(run)}\n{told()}"
        finally:
            machine.stop()
    tags = {"Project": "limbeck", "Stage": "dev"}
    assert all(tags.items() <= each["tags"].items() for each in tasks.asked), "AWS adds up the costs by them"
    images = {each["definition"]["containerDefinitions"][0]["image"] for each in tasks.asked}
    (image,) = images
    assert "/limbeck-dev/worker@sha256:" in image
    said = "".join(each["container"].said() for each in tasks.asked)
    assert "resuming at step" in said and "took over checkpoint" in said, "the second task goes on where the first was"
    stages = {"finetune-teacher", "answer-rows", "distill-predictions"}
    assert all(stage in said for stage in stages), "every stage that runs models was a task on ECS"
    parent = machine.containers[0].said()
    assert "stages that run models go to the work pool ecs-gpu" in parent and "registered" in parent, parent[-3000:]
