"""The work pools' files: what the installed packages would write today, and what must be in them whatever those
write."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.schema_tools.validation import ValidationError, validate
from prefect.utilities.templating import apply_values

from deployments.pools.generate import FOLDER, POOLS, generate

ROOT = Path(__file__).resolve().parents[2]
IMAGE = f"example.org/limbeck@sha256:{'0' * 64}"
CLOUD = Path(os.environ.get("LIMBECK_CLOUD_PYTHON", ROOT / ".venv-cloud" / "bin" / "python"))
"""An environment with prefect-aws and prefect-kubernetes, which cannot be installed beside our own pins; `make pools`
makes one."""


def pool(name: str) -> dict[str, Any]:
    return dict(json.loads((FOLDER / f"{name}.json").read_text())["base_job_template"])


def rendered(name: str, **values: Any) -> dict[str, Any]:
    """Fill a template in as a worker does."""
    template = pool(name)
    defaults = {
        key: variable["default"]
        for key, variable in template["variables"]["properties"].items()
        if variable.get("default") is not None
    }
    return dict(apply_values(template["job_configuration"], {**defaults, **values}))


def test_the_pool_of_processes_is_what_prefect_would_write() -> None:
    assert (FOLDER / "cpu.json").read_text() == generate("cpu")


@pytest.mark.skipif(
    not CLOUD.is_file(),
    reason="NO prefect-aws AND prefect-kubernetes HERE: `make pools` sets an environment up for them",
)
def test_all_pools_are_what_their_packages_would_write() -> None:
    command = [str(CLOUD), "-m", "deployments.pools.generate", "--check"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.count("as it should be") == len(POOLS), done.stdout + done.stderr


@pytest.mark.parametrize("name", POOLS)
def test_every_variable_that_is_asked_for_is_described(name: str) -> None:
    template = pool(name)
    asked = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert asked <= set(template["variables"]["properties"])


@pytest.mark.parametrize("name", POOLS)
def test_runs_beat_and_read_no_pickles(name: str) -> None:
    environment = pool(name)["variables"]["properties"]["env"]["default"]
    assert (
        environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
        and environment["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    )
    assert not [
        value
        for key, value in environment.items()
        if any(word in key for word in ("PASSWORD", "SECRET", "TOKEN_", "AUTH", "KEY"))
    ]
    assert ("PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR" in environment) == (name != "cpu")


@pytest.mark.parametrize("name", POOLS)
def test_no_job_variable_brings_a_command_along(name: str) -> None:
    hostile = {"command": "touch /tmp/here", "working_dir": "/tmp/theirs", "task_definition_arn": "arn:aws:theirs"}
    plain, attacked = rendered(name), rendered(name, **hostile)
    assert attacked == plain and not any(value in json.dumps(attacked) for value in hostile.values())


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize(
    "variables",
    [
        {"command": "id"},
        {"working_dir": "/tmp"},
        {"env.LD_PRELOAD": "/tmp/theirs.so"},
        {"env": {"LD_PRELOAD": "/tmp/theirs.so"}},
        {"env": {"PYTHONPATH": "/tmp"}},
        {"env": {"PATH": "/tmp"}},
        {"env": {"PREFECT_API_URL": "http://evil.example"}},
        {"env": {"AWS_CONFIG_FILE": "/tmp/theirs"}},
        {"env": {"PREFECT_PROFILES_PATH": "/tmp/x"}},
    ],
)
def test_prefect_refuses_variables_that_could_load_code(name: str, variables: dict[str, Any]) -> None:
    schema = pool(name)["variables"]
    defaults = {key: one["default"] for key, one in schema["properties"].items() if one.get("default") is not None}
    validate(
        defaults | {"env": {"LIMBECK_STORE": "s3://bucket", "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}},
        schema,
        raise_on_error=True,
    )
    with pytest.raises(ValidationError):
        validate(defaults | variables, schema, raise_on_error=True, ignore_required=True, allow_none_with_default=True)


@pytest.mark.parametrize(
    "variables",
    [
        {"env": {"MLFLOW_TRACKING_PASSWORD": "x"}},
        {"env": {"HF_TOKEN": "x"}},
        {"env": {"AWS_SECRET_ACCESS_KEY": "x"}},
        {"env": {"AWS_ACCESS_KEY_ID": "x"}},
        {"env": {"LIMBECK_METRICS_PASSWORD": "x"}},
        {"image": "example.org/limbeck:1"},
    ],
    ids=str,
)
def test_a_task_on_ecs_has_no_secret_in_its_environment_and_an_image_that_stays(variables: dict[str, Any]) -> None:
    """Everybody who may describe a task reads its environment; a tag is another image tomorrow."""
    schema = pool("ecs-gpu")["variables"]
    defaults = {key: one["default"] for key, one in schema["properties"].items() if one.get("default") is not None}
    site = {
        "image": IMAGE,
        "env": defaults["env"] | {"LIMBECK_STORE": "s3://bucket", "TOKENIZERS_PARALLELISM": "false"},
    }
    validate(defaults | site, schema, raise_on_error=True, allow_none_with_default=True)
    with pytest.raises(ValidationError):
        validate(defaults | site | variables, schema, raise_on_error=True, allow_none_with_default=True)


def test_a_task_on_ecs() -> None:
    task = rendered("ecs-gpu", gpu_count="2", image=IMAGE)
    [container] = task["task_definition"]["containerDefinitions"]
    assert container["resourceRequirements"] == [{"type": "GPU", "value": "2"}], "ECS takes text"
    assert (
        container["linuxParameters"]["sharedMemorySize"] == 2048
        and container["stopTimeout"] == 110
        and container["readonlyRootFilesystem"] is True
    )
    assert container["user"] == "10001:10001", "whatever the image says, it is not root"
    assert "launchType" not in task["task_run_request"], (
        "beside a capacity provider it would keep a cluster of no instances from starting one"
    )
    assert task["task_run_request"]["capacityProviderStrategy"] == [
        {"capacityProvider": "limbeck-gpu", "weight": 1, "base": 0}
    ]
    assert task["task_definition"]["requiresCompatibilities"] == ["EC2"], (
        "else the worker adds a launch type of its own"
    )
    variables = pool("ecs-gpu")["variables"]["properties"]
    assert "launch_type" not in variables and variables["gpu_count"]["type"] == "string"
    assert variables["secrets"]["items"]["properties"]["valueFrom"]["pattern"] == "^arn:", (
        "secrets by reference, never by value"
    )
    assert "prefect_api_auth_string_secret_arn" in variables


def test_a_job_on_kubernetes() -> None:
    job = rendered("k8s-gpu", gpu_count=2)["job_manifest"]
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert (
        container["resources"]["limits"]["nvidia.com/gpu"] == container["resources"]["requests"]["nvidia.com/gpu"] == 2
    )
    assert job["spec"]["backoffLimit"] == 0 and job["spec"]["ttlSecondsAfterFinished"] == 3600
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 1 and "completions" not in pod
    assert pod["terminationGracePeriodSeconds"] == 110 and pod["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert (
        pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}
        and container["volumeMounts"][0]["mountPath"] == "/dev/shm"
    )
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["seccompProfile"] == {
        "type": "RuntimeDefault"
    }
    assert container["envFrom"] == [{"secretRef": {"name": "limbeck"}}]


def test_the_files_are_written_without_other_packages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deployments.pools.generate", "--check", "--only", "cpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "cpu.json: as it should be\n"
