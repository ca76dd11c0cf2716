"""The work pools at work: Prefect's own workers for ECS and Kubernetes, a moto server and a fake API that run what they
are asked to run, and real stages.

The workers need an environment of their own (``make pools``), as their packages do not fit beside ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.utilities.templating import apply_values

from tests.flows.run.test_dispatch import resubmit, small
from tests.infra.cloudformation.moto_cloud import moto_cloud
from tests.infra.cloudformation.test_stacks import outputs, up
from tests.infra.containers import Machine, without_keys
from tests.infra.fake_kubernetes import VERSIONS, Cluster
from tests.infra.moto_tasks import RunningTasks
from tests.infra.spot_flow import teacher_alone
from tests.prefect_server import WORKER
from tests.s3_server import BUCKET, S3Server

ROOT = Path(__file__).resolve().parents[2]
POOLS = ROOT / "deployments" / "pools"
CLOUD = Path(os.environ.get("LIMBECK_CLOUD_PYTHON", ROOT / ".venv-cloud" / "bin" / "python"))
PATIENCE = 600.0
needs_workers = pytest.mark.skipif(
    not CLOUD.is_file(),
    reason="NO prefect-aws AND prefect-kubernetes HERE: `make pools` sets an environment up for them",
)


def template_of(name: str) -> dict[str, Any]:
    """Return a pool's base job template."""
    template: dict[str, Any] = json.loads((POOLS / f"{name}.json").read_text())["base_job_template"]
    return template


def rendered(pool: str, /, **values: Any) -> dict[str, Any]:
    """Fill a template in as a worker does."""
    template = template_of(pool)
    defaults = {
        key: variable["default"]
        for key, variable in template["variables"]["properties"].items()
        if variable.get("default") is not None
    }
    return dict(apply_values(template["job_configuration"], {**defaults, **values}))


# --- what they would ask for ------------------------------------------------------------------------------------------


IMAGE = f"example.org/limbeck@sha256:{'0' * 64}"


def job(variables: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a job as the Kubernetes worker sends it; ``variables`` are those of a site."""
    values = {"name": "stage", "image": IMAGE, "labels": {}, "annotations": {}, **(variables or {})}
    manifest = rendered("k8s-gpu", **values)["job_manifest"]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in container["env"].items()]
    return {**manifest, **changes}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_job_is_strictly_valid(version: str) -> None:
    import kubernetes_validate

    kubernetes_validate.validate(job(), version, strict=True)
    wrong = job()
    wrong["spec"]["template"]["spec"]["completions"] = 1  # where Prefect's own template has it
    with pytest.raises(kubernetes_validate.ValidationError, match="completions"):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_the_job_gets_a_gpu_time_to_stop_and_no_second_try() -> None:
    spec = job()["spec"]
    pod, container = spec["template"]["spec"], spec["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == container["resources"]["requests"]["nvidia.com/gpu"], (
        "GPUs cannot be lent"
    )
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}} in pod["volumes"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert (
        spec["backoffLimit"] == 0
        and pod["restartPolicy"] == "Never"
        and environment["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "reschedule"
    )
    assert pod["terminationGracePeriodSeconds"] == 110 and pod["automountServiceAccountToken"] is False
    assert (
        spec["template"]["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        and spec["ttlSecondsAfterFinished"] == 3600
    )


def test_a_job_that_no_node_takes_ends() -> None:
    pod = job()["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert job()["spec"]["activeDeadlineSeconds"] == 90_000
    assert job({"active_deadline_seconds": 3600})["spec"]["activeDeadlineSeconds"] == 3600
    assert pod["requests"]["memory"] == pod["limits"]["memory"] == "16Gi" and pod["requests"]["cpu"] == "3"
    assert pod["requests"]["ephemeral-storage"] == pod["limits"]["ephemeral-storage"] == "50Gi"


CLOUDS = {
    "GKE": ({"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-spot": "true"}, "nvidia.com/gpu"),
    "EKS with Karpenter": ({"karpenter.sh/capacity-type": "spot"}, "nvidia.com/gpu"),
    "AKS": ({"kubernetes.azure.com/scalesetpriority": "spot"}, "kubernetes.azure.com/scalesetpriority"),
}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_jobs_go_to_the_nodes_of_each_cloud(cloud: str) -> None:
    import kubernetes_validate

    selector, taint = CLOUDS[cloud]
    tolerations = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}]
    made = job({"node_selector": selector, "tolerations": tolerations})
    kubernetes_validate.validate(made, VERSIONS[-1], strict=True)
    pod = made["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == selector and pod["tolerations"] == tolerations


def test_tasks_on_spot_instances_ask_for_their_notice() -> None:
    """Kubernetes tells its pods itself, by SIGTERM; ECS tells tasks like these nothing."""
    assert rendered("ecs-gpu")["env"]["LIMBECK_SPOT"] == "aws"
    assert "LIMBECK_SPOT" not in rendered("k8s-gpu")["env"]


# --- what they do -----------------------------------------------------------------------------------------------------


async def make_pool(name: str, kind: str, template: dict[str, Any]) -> None:
    """Create a work pool."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    async with get_client() as client:
        await client.create_work_pool(WorkPoolCreate(name=name, type=kind, base_job_template=template))


async def ask_for(pool: str, recipe: Any, job_variables: dict[str, Any]) -> UUID:
    """Deploy the flow on a pool, as ``limbeck deploy`` does ours, and ask for one run of it."""
    from prefect.client.orchestration import get_client
    from prefect.deployments.runner import EntrypointType

    deployment = await teacher_alone.ato_deployment(
        pool, work_pool_name=pool, entrypoint_type=EntrypointType.MODULE_PATH, job_variables=job_variables
    )
    async with get_client() as client:
        run = await client.create_flow_run_from_deployment(
            await deployment.aapply(), parameters={"recipe": recipe.model_dump(mode="json", exclude_unset=True)}
        )
    return run.id


def state_of(run: UUID) -> Any:
    """Return a flow run's state."""
    from prefect.client.orchestration import get_client

    async def ask() -> Any:
        async with get_client() as client:
            return (await client.read_flow_run(run)).state

    return asyncio.run(ask())


@contextmanager
def worker(pool: str, kind: str, folder: Path, url: str, **environment: str) -> Iterator[Path]:
    """Run Prefect's own worker for a pool; yield its log."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "LIMBECK_", "MLFLOW_", "AWS_"))
    }
    own = {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": WORKER}
    own |= {
        "PREFECT_HOME": str(folder / "worker"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_LOGGING_LEVEL": "INFO",
    }
    words = [str(CLOUD), "-m", "prefect", "worker", "start", "--pool", pool, "--type", kind]
    path = folder / "worker.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            words, env=kept | own | environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield path
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # a worker for ECS does not end at the first SIGTERM
        process.wait()


def wait_for(what: Callable[[], Any], told: Callable[[], str], seconds: float = PATIENCE) -> None:
    """Wait until something is so."""
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit, told()[-4000:]
        time.sleep(0.3)


def long_enough(bert: Path, rows: Path) -> Any:
    """Return a recipe whose teacher can be killed half-way, and saves as it goes."""
    return small(bert, rows, steps=600, evaluations=1, checkpoint_minutes=0.005)


def undisturbed(recipe: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what one worker makes whom nobody disturbs."""
    for name in ("LIMBECK_STORE", "LIMBECK_SPOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LIMBECK_HOME", str(folder / "undisturbed"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/undisturbed.db")
    return asyncio.run(teacher_alone(recipe))


def made(store: str) -> dict[str, str]:
    """Return the digests in a store, by stage."""
    from tasks.ports.store.open import open_store

    return {
        manifest["stage"]: manifest["sha256"]
        for manifest in open_store(store, Path(os.environ["LIMBECK_HOME"]) / "seen").manifests()
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_workers
def test_ecs_runs_a_stage_tells_of_its_death_and_ends_it(
    prefect_url: str,
    s3: S3Server,
    engines_here: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the cluster, the capacity, the roles, the secrets and the queue that our own stacks made."""
    recipe, store = long_enough(tiny_bert, tiny_rows), f"s3://{BUCKET}/{tmp_path.name}"
    bucket, keys = without_keys(s3.environment())
    machine = Machine(tmp_path, keys)
    with moto_cloud() as cloud:
        assert up(cloud, "dev", ("network", "storage", "workers")) == []
        storage, workers = outputs(cloud, "limbeck-dev-storage"), outputs(cloud, "limbeck-dev-workers")
        # the token of the server of these tests, which no stack made
        own = {"SecretId": storage["PrefectWorkerAuth"], "SecretString": WORKER}
        cloud.client("secretsmanager").put_secret_value(**own)
        tasks = RunningTasks(cloud, machine, workers["EventsQueue"])
        monkeypatch.setattr(
            "moto.ecs.models.EC2ContainerServiceBackend.run_task", lambda *given, **more: tasks.run_task(*given, **more)
        )
        asyncio.run(make_pool("ecs-gpu", "ecs", template_of("ecs-gpu")))
        variables = {
            "cluster": workers["Cluster"],
            "capacity_provider_strategy": [{"capacityProvider": workers["Capacity"], "weight": 1, "base": 0}],
            "execution_role_arn": workers["ExecutionRole"],
            "task_role_arn": workers["TaskRole"],
            "image": f"{storage['RepositoryUri']}@sha256:{'0' * 64}",
            "gpu_count": "2",
            "prefect_api_auth_string_secret_arn": storage["PrefectWorkerAuth"],
            "secrets": [{"name": "MLFLOW_TRACKING_PASSWORD", "valueFrom": f"{storage['MlflowWorker']}:password::"}],
            "env": template_of("ecs-gpu")["variables"]["properties"]["env"]["default"]
            | bucket
            | {
                "LIMBECK_STORE": store,
                "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
                "PREFECT_LOGGING_LEVEL": "INFO",
            },
        }
        queue = {"PREFECT_INTEGRATIONS_AWS_ECS_OBSERVER_SQS_QUEUE_NAME": workers["EventsQueue"]}
        with worker("ecs-gpu", "ecs", tmp_path, prefect_url, **cloud.environment(), **queue) as log:
            told = lambda: log.read_text() + "".join(each.said() for each in machine.containers)  # noqa: E731
            run = asyncio.run(ask_for("ecs-gpu", recipe, variables))
            wait_for(lambda: machine.containers and "steps, loss" in machine.containers[0].said(), told)
            machine.containers[0].vanish()
            wait_for(lambda: state_of(run).is_crashed(), told)
            asyncio.run(resubmit(run))
            wait_for(lambda: state_of(run).is_completed(), told)
        first, second = tasks.asked
    definition = first["definition"]
    (container,) = definition["containerDefinitions"]
    assert (
        container["resourceRequirements"] == [{"type": "GPU", "value": "2"}]
        and container["linuxParameters"]["sharedMemorySize"] == 2048
    )
    assert (
        container["stopTimeout"] == 110
        and container["image"].endswith(f"/worker@sha256:{'0' * 64}")
        and definition["requiresCompatibilities"] == ["EC2"]
    )
    assert definition["family"].startswith("limbeck-"), "the role of the dispatcher may start no other"
    assert (
        first["strategy"] == [{"capacityProvider": workers["Capacity"], "weight": 1, "base": 0}]
        and not first["launch_type"]
    )
    assert (
        first["overrides"]["taskRoleArn"] == workers["TaskRole"]
        and definition["executionRoleArn"] == workers["ExecutionRole"]
    )
    secrets = {entry["name"]: entry["valueFrom"] for entry in container["secrets"]}
    assert secrets == {
        "MLFLOW_TRACKING_PASSWORD": f"{storage['MlflowWorker']}:password::",
        "PREFECT_API_AUTH_STRING": storage["PrefectWorkerAuth"],
    }
    assert not [
        entry
        for entry in first["overrides"]["containerOverrides"][0]["environment"]
        if "PASSWORD" in entry["name"] or "AUTH" in entry["name"]
    ]
    assert second["definition"]["taskDefinitionArn"] == definition["taskDefinitionArn"], "the same task, defined once"
    assert "took over checkpoint" in second["container"].said() and "resuming at step" in second["container"].said()
    assert made(store)["finetune-teacher"] == undisturbed(recipe, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_workers
def test_kubernetes_runs_a_stage(
    prefect_url: str,
    s3: S3Server,
    engines_here: None,
    tiny_bert: Path,
    tiny_rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe, store = long_enough(tiny_bert, tiny_rows), f"s3://{BUCKET}/{tmp_path.name}"
    machine, secret = (
        Machine(tmp_path),
        s3.environment() | {"LIMBECK_STORE": store, "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"},
    )
    cluster = Cluster(machine, {"limbeck": secret})
    threading.Thread(target=cluster.serve_forever, daemon=True).start()
    asyncio.run(make_pool("k8s-gpu", "kubernetes", template_of("k8s-gpu")))
    own = {"KUBECONFIG": str(cluster.kubeconfig(tmp_path)), "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_ENABLED": "false"}
    environment = template_of("k8s-gpu")["variables"]["properties"]["env"]["default"] | {
        "PREFECT_LOGGING_LEVEL": "INFO"
    }
    with worker("k8s-gpu", "kubernetes", tmp_path, prefect_url, **own) as log:
        told = lambda: log.read_text() + "".join(each.said() for each in machine.containers) + str(cluster.refused)  # noqa: E731
        run = asyncio.run(ask_for("k8s-gpu", recipe, {"image": IMAGE, "gpu_count": 2, "env": environment}))
        wait_for(lambda: machine.containers and "steps, loss" in machine.containers[0].said(), told)
        machine.containers[0].process.terminate()  # as the kubelet does with a pod whose node goes
        wait_for(lambda: len(machine.containers) == 2, told)
        wait_for(lambda: state_of(run).is_completed(), told)
    cluster.shutdown()
    assert cluster.refused == [] and len(cluster.jobs) == 2, "one job after another, and no second try of the first"
    for each in cluster.jobs:
        limits = each["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpu"] == 2 and each["spec"]["backoffLimit"] == 0
    assert machine.containers[0].process.returncode == 0, (
        "Prefect has taken the run back: for Kubernetes this pod did its work"
    )
    assert "resuming at step" in machine.containers[1].said()
    assert made(store)["finetune-teacher"] == undisturbed(recipe, tmp_path, monkeypatch)
