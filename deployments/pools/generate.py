"""The work pools' templates: what the installed Prefect, prefect-aws and prefect-kubernetes begin with, and what we
change of it.

``python -m deployments.pools.generate`` writes the JSON files beside this one, ``--check`` only says which are not what
would be written. It needs the packages of requirements.txt for all three; ``--only cpu`` needs Prefect alone. ``make
pools`` sets an environment up and does both.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

Template = dict[str, Any]
FOLDER = Path(__file__).parent
GRACE = (
    110  # seconds from SIGTERM to SIGKILL, to write a checkpoint; ECS allows 120, and a spot instance is gone after 120
)

ENVIRONMENT = {
    # A run that falls silent is found by its missing heartbeats; see automations.yaml, which allows three of them to go
    # missing.
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # A stage that hangs is ended; a recipe may allow less (resources.stage_hours), and a site more or less.
    "LIMBECK_STAGE_HOURS": "24",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "TOKENIZERS_PARALLELISM": "false",
}
IN_A_CONTAINER = {
    # SIGTERM hands the run back, so that another worker goes on with it; with retries of the container beside it, it
    # would run twice.
    "PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR": "reschedule",
    # A GPU whose stage reports nothing for an hour is held by an engine that hangs: trainings report every few seconds.
    "LIMBECK_SILENT_MINUTES": "60",
    # The container's own file system is read-only; what a run writes goes to its scratch volume.
    "HOME": "/tmp/home",
    "LIMBECK_HOME": "/tmp/limbeck",
    "PREFECT_HOME": "/tmp/prefect",
    "HF_HOME": "/tmp/huggingface",
}


COMMAND = "prefect flow-run execute"
"""What a container runs; a worker of processes runs the same with the Python that it has itself."""
ENV_NAMES = (
    "^(LIMBECK_[A-Z_]+|MLFLOW_(TRACKING_(URI|USERNAME|PASSWORD|TOKEN)|S3_ENDPOINT_URL|(ENABLE|DISABLE|ALLOW)_[A-Z_]+)|HF_(HOME|TOKEN|HUB_[A-Z_]+)|"
    "AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION|ENDPOINT_URL(_[A-Z0-9]+)?|EC2_METADATA_[A-Z_]+)|"
    "PREFECT_(HOME|FLOWS_HEARTBEAT_FREQUENCY|FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR|LOGGING_LEVEL)|OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|NCCL_[A-Z_]+|"
    "DO_NOT_TRACK|TOKENIZERS_PARALLELISM|HOME)$"
)
"""What a run's ``env`` may set: none of these names a program, a library or a folder of modules to load."""
NO_SECRETS = "(?!.*(PASSWORD|SECRET|ACCESS_KEY|(^|_)TOKEN$))"
"""What ``env`` may not set on ECS: everybody who may describe a task reads it. Secrets go by reference."""
BY_DIGEST = {
    "description": "The image by its digest (NAME@sha256:…): a tag may be another image tomorrow, and a key of the "
    "cache counts what is in it.",
    "pattern": "@sha256:[0-9a-f]{64}$",
}


def sealed(template: Template, command: str | None) -> Template:
    """Fix what a run executes: its job variables name no command, and nothing that is not asked for; what ``env`` may
    set is listed."""
    job = template["job_configuration"]
    words = None if command is None else command.split()
    template["job_configuration"] = {
        **fixed(job, "{{ command }}", words),
        **({} if command is None else {"command": command}),
    }
    variables = template["variables"]
    variables["properties"].pop("command", None)
    variables["properties"]["env"]["propertyNames"] = {"pattern": ENV_NAMES}
    variables["additionalProperties"] = False
    return template


def fixed(part: Any, placeholder: str, value: Any) -> Any:
    """Return a part of a template with a value for a placeholder, or without what held it."""
    if isinstance(part, dict):
        return {
            name: fixed(inner, placeholder, value)
            for name, inner in part.items()
            if inner != placeholder or value is not None
        }
    if isinstance(part, list):
        return [fixed(inner, placeholder, value) for inner in part]
    return value if part == placeholder else part


def variable(kind: str, default: Any, title: str, description: str, **more: Any) -> dict[str, Any]:
    """Describe a variable of our own, as the form of a work pool shows it."""
    return {"type": kind, "default": default, "title": title, "description": description, **more}


DEVICE = variable(
    "string",
    "",
    "Device class",
    "Hardware of the pool's workers, one class for all, as python -m tasks.ports.machine prints it on one: cuda-a10g. "
    "Results depend on it. Empty: runs send no stages to this pool.",
    pattern=r"^$|^(cpu|cuda)-[a-z0-9.+-]+$",
)


def with_environment(template: Template, environment: Mapping[str, str]) -> None:
    """Set what every run of a pool finds in its environment; a deployment's own ``env`` is added to it."""
    template["variables"]["properties"]["env"]["default"] = dict(environment)


def cpu(template: Template) -> Template:
    """Processes on the worker's own machine, in a folder of their own: where a run's modules come from is its
    deployment's to say."""
    del template["job_configuration"]["working_dir"], template["variables"]["properties"]["working_dir"]
    with_environment(template, ENVIRONMENT)
    return sealed(template, None)


def ecs_gpu(template: Template) -> Template:
    """Tasks with GPUs on ECS, on the EC2 instances of a capacity provider, which start from none."""
    job, variables = template["job_configuration"], template["variables"]["properties"]
    definition, request = job["task_definition"], job["task_run_request"]
    # A launch type beside a capacity provider keeps a cluster of no instances from starting one.
    del variables["launch_type"], request["launchType"]
    definition["requiresCompatibilities"] = ["EC2"]
    definition["networkMode"] = "bridge"
    definition["volumes"] = [{"name": "scratch", "host": {}}]
    definition["containerDefinitions"][0] |= {
        "resourceRequirements": [{"type": "GPU", "value": "{{ gpu_count }}"}],
        "linuxParameters": {
            "sharedMemorySize": "{{ shared_memory_mib }}",
            "initProcessEnabled": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "readonlyRootFilesystem": True,
        "mountPoints": [{"sourceVolume": "scratch", "containerPath": "/tmp"}],
        "secrets": "{{ secrets }}",
        "stopTimeout": GRACE,
        # The user of our images; another image, whose own user is root, has no rights of root here either.
        "user": "10001:10001",
    }
    variables["gpu_count"] = variable(
        "string", "1", "GPUs", "GPUs of a task. Text, because ECS takes no number here.", pattern="^[1-9][0-9]?$"
    )
    variables["device"] = DEVICE
    variables["shared_memory_mib"] = variable(
        "integer", 2048, "Shared memory", "MiB of /dev/shm; processes that share a training need it.", minimum=64
    )
    variables["secrets"] = variable(
        "array",
        [],
        "Secrets",
        "Environment variables by reference: names, and ARNs in Secrets Manager or Parameter Store. Never values.",
        items={
            "type": "object",
            "required": ["name", "valueFrom"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "valueFrom": {"type": "string", "pattern": "^arn:"}},
        },
    )
    variables["capacity_provider_strategy"]["default"] = [{"capacityProvider": "limbeck-gpu", "weight": 1, "base": 0}]
    variables["cluster"]["default"], variables["family"]["default"] = "limbeck", "limbeck-gpu"
    variables["cpu"]["default"], variables["memory"]["default"] = 3072, 12288
    # ECS tells a task in no time that its instance is taken back; so runs ask the instance themselves.
    with_environment(template, ENVIRONMENT | IN_A_CONTAINER | {"LIMBECK_SPOT": "aws"})
    # A task that was defined elsewhere has a command, an image and rights of its own.
    template["job_configuration"] = fixed(template["job_configuration"], "{{ task_definition_arn }}", None)
    del variables["task_definition_arn"]
    variables["image"] |= BY_DIGEST
    template = sealed(template, COMMAND)
    variables["env"]["propertyNames"] = {"pattern": ENV_NAMES.replace("^", f"^{NO_SECRETS}", 1)}
    return template


def k8s_gpu(template: Template) -> Template:
    """Jobs with GPUs on Kubernetes."""
    job, variables = template["job_configuration"]["job_manifest"], template["variables"]["properties"]
    pod = job["spec"]["template"]["spec"]
    for name in ("completions", "parallelism"):  # they belong to the job; a strict server refuses them in the pod
        job["spec"][name] = pod.pop(name)
    job["spec"]["backoffLimit"] = (
        0  # Prefect starts a run again; a second pod of the same run beside it would be one too many
    )
    del variables["backoff_limit"]
    # A pod that no node takes, or whose image nobody has, ends, too: the stage's own limit begins with its process.
    job["spec"]["activeDeadlineSeconds"] = "{{ active_deadline_seconds }}"
    job["spec"]["template"]["metadata"] = {
        # Neither Karpenter nor the autoscalers of GKE and AKS move a training to fill their nodes better.
        "annotations": {
            "karpenter.sh/do-not-disrupt": "true",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        },
        "labels": {"app.kubernetes.io/part-of": "limbeck"},
    }
    pod |= {
        "terminationGracePeriodSeconds": GRACE,
        "automountServiceAccountToken": False,
        "nodeSelector": "{{ node_selector }}",
        "tolerations": "{{ tolerations }}",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "{{ shared_memory }}"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "{{ scratch }}"}},
        ],
    }
    container = pod["containers"][0]
    for part in ("limits", "requests"):
        container["resources"][part] |= {"nvidia.com/gpu": "{{ gpu_count }}", "ephemeral-storage": "{{ scratch }}"}
    container |= {
        "envFrom": [{"secretRef": {"name": "{{ secret }}"}}],
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}, {"name": "scratch", "mountPath": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    variables |= k8s_variables()
    for name, value in {
        "namespace": "limbeck",
        "finished_job_ttl": 3600,
        "pod_watch_timeout_seconds": 900,
        # What is requested is what there is: a pod over its request is the first that a node kills. A limit of cores
        # would only throttle.
        "memory_limit": "16Gi",
        "memory_request": "16Gi",
        "cpu_request": "3",
    }.items():
        variables[name]["default"] = value
    variables["image"] |= BY_DIGEST
    with_environment(template, ENVIRONMENT | IN_A_CONTAINER)
    return sealed(template, COMMAND)


TOLERATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": {"type": "string"},
        "operator": {"enum": ["Exists", "Equal"]},
        "value": {"type": "string"},
        "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        "tolerationSeconds": {"type": "integer"},
    },
}
"""What Kubernetes takes as a toleration."""


def k8s_variables() -> dict[str, Any]:
    """Describe what a job's form asks beside the default's."""
    size = {"pattern": "^[1-9][0-9]*(Mi|Gi)$"}
    return {
        "gpu_count": variable("integer", 1, "GPUs", "GPUs of a job, as requests and limits.", minimum=1),
        "device": DEVICE,
        "shared_memory": variable(
            "string", "2Gi", "Shared memory", "Size of /dev/shm; it counts against the memory limit.", **size
        ),
        "scratch": variable(
            "string", "50Gi", "Scratch", "Size of /tmp, where artifacts and models are fetched to.", **size
        ),
        "node_selector": variable(
            "object",
            {},
            "Node selector",
            "Labels of the nodes that may run a job; empty: any with a GPU. Karpenter: karpenter.sh/capacity-type, "
            "GKE: cloud.google.com/gke-accelerator, AKS: kubernetes.azure.com/agentpool.",
            additionalProperties={"type": "string"},
        ),
        "tolerations": variable(
            "array",
            [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "Tolerations",
            "Taints of nodes that a job may run on all the same; on AKS spot nodes also "
            "kubernetes.azure.com/scalesetpriority.",
            items=TOLERATION,
        ),
        "active_deadline_seconds": variable(
            "integer",
            90_000,
            "Deadline",
            "Seconds from the creation of a job to its end, the wait for a node and the pull of its image included.",
            minimum=600,
        ),
        "secret": variable(
            "string",
            "limbeck",
            "Secret",
            "A Kubernetes secret whose entries become environment variables: addresses and passwords.",
        ),
    }


Pool = tuple[str, str, Callable[[Template], Template]]
POOLS: dict[str, Pool] = {
    "cpu": ("prefect.workers.process", "ProcessWorker", cpu),
    "ecs-gpu": ("prefect_aws.workers.ecs_worker", "ECSWorker", ecs_gpu),
    "k8s-gpu": ("prefect_kubernetes.worker", "KubernetesWorker", k8s_gpu),
}
"""Where a pool's default stands, and what we change of it."""


def generate(name: str) -> str:
    """Return a pool's file: the type of its workers, and its base job template."""
    module, worker_name, change = POOLS[name]
    worker = getattr(import_module(module), worker_name)
    content = {
        "type": worker.type,
        "description": " ".join((change.__doc__ or "").split()),
        "base_job_template": change(worker.get_default_base_job_template()),
    }
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write the files, or compare them."""
    asked = argparse.ArgumentParser(
        prog="python -m deployments.pools.generate", description="Write the work pools' templates."
    )
    asked.add_argument("--check", action="store_true", help="write nothing; say which files differ")
    asked.add_argument("--only", choices=sorted(POOLS), action="append", help="one pool alone")
    given = asked.parse_args()
    different = 0
    for name in given.only or POOLS:
        path, text = FOLDER / f"{name}.json", generate(name)
        same = path.is_file() and path.read_text() == text
        print(f"{path.name}: {'as it should be' if same else 'differs' if given.check else 'written'}")
        different += not same
        if not given.check:
            path.write_text(text)
    return int(given.check and different > 0)


if __name__ == "__main__":
    sys.exit(main())
