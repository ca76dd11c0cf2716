"""What each role may do, of everything that AWS knows, to examples of everything that the stacks hold: the table is
complete, so that what is not in it is refused."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import pytest

from tests.infra.cloudformation.decisions import ACCOUNT, REGION, arn_of, decide, like, policy, role, trust
from tests.infra.cloudformation.templates import load_templates, many

BUCKET = "arn:aws:s3:::limbeck-dev-artifacts-123456789012"
PLACE = f"{REGION}:{ACCOUNT}"
SECRETS = (
    "database",
    "prefect-database",
    "mlflow-database",
    "prefect-password",
    "prefect-auth",
    "prefect-worker-token",
    "prefect-worker-auth",
    "prefect-encryption",
    "prefect-encryption-seed",  # from which the key follows
    "mlflow-admin",
    "mlflow-secret-key",
    "mlflow-worker",
)
THINGS = {
    "the bucket": BUCKET,
    "an artifact": f"{BUCKET}/store/objects/ab/abcd/model.safetensors",
    "a manifest": f"{BUCKET}/store/manifests/abcd.json",
    "a lease": f"{BUCKET}/store/leases/abcd",
    "a checkpoint": f"{BUCKET}/store/checkpoints/abcd/state.json",
    "a probe": f"{BUCKET}/store/temporary/x",
    "MLflow's files": f"{BUCKET}/mlflow/1/abcd/artifacts/report.html",
    "another folder": f"{BUCKET}/other",
    "access logs": "arn:aws:s3:::limbeck-dev-logs-123456789012/artifacts/x",
    "another bucket": "arn:aws:s3:::somebody/store/objects/x",
    "the key": "arn:aws:kms:eu-central-1:123456789012:key/Key",
    "another key": "arn:aws:kms:eu-central-1:123456789012:key/other",
    "our image": f"arn:aws:ecr:{PLACE}:repository/limbeck-dev/worker",
    "another image": f"arn:aws:ecr:{PLACE}:repository/other",
    "GPU log": f"arn:aws:logs:{PLACE}:log-group:/limbeck-dev/gpu:log-stream:x",
    "server log": f"arn:aws:logs:{PLACE}:log-group:/limbeck-dev/control:log-stream:x",
    "the GPU cluster": f"arn:aws:ecs:{PLACE}:cluster/limbeck-dev-gpu",
    "an instance of it": f"arn:aws:ecs:{PLACE}:container-instance/limbeck-dev-gpu/x",
    "a task of it": f"arn:aws:ecs:{PLACE}:task/limbeck-dev-gpu/x",
    "our task definition": f"arn:aws:ecs:{PLACE}:task-definition/limbeck-gpu:1",
    "another cluster": f"arn:aws:ecs:{PLACE}:cluster/other",
    "another's task": f"arn:aws:ecs:{PLACE}:task/other/x",
    "another task definition": f"arn:aws:ecs:{PLACE}:task-definition/other:1",
    "the queue": f"arn:aws:sqs:{PLACE}:limbeck-dev-ecs-events",
    "lost events": f"arn:aws:sqs:{PLACE}:limbeck-dev-ecs-events-lost",
    "the role of GPU tasks": f"arn:aws:iam::{ACCOUNT}:role/limbeck-dev-gpu-task",
    "the role that starts them": f"arn:aws:iam::{ACCOUNT}:role/limbeck-dev-gpu-execution",
    "the role that asks for them": f"arn:aws:iam::{ACCOUNT}:role/DispatcherRole",
    "another role": f"arn:aws:iam::{ACCOUNT}:role/admin",
    "the account": "*",
    **{f"secret {name}": f"arn:aws:secretsmanager:{PLACE}:secret:limbeck-dev/{name}-AbCdEf" for name in SECRETS},
}
REQUEST = {
    "ecs:cluster": THINGS["the GPU cluster"],
    "ecs:CreateAction": "RunTask",
    "iam:PassedToService": "ecs-tasks.amazonaws.com",
    "iam:PolicyARN": arn_of("guardrails", "NoNewGpuWork"),
    "s3:prefix": "mlflow/1",
}
"""The context in which most is allowed; what each of its values is for is asked below."""
READ_WRITE = {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}
LIST = {"s3:ListBucket", "s3:ListBucketMultipartUploads"}
USE_KEY = {"kms:Decrypt", "kms:GenerateDataKey"}
WORKER = {
    "the bucket": LIST,
    "an artifact": READ_WRITE,
    **{name: READ_WRITE | {"s3:DeleteObject"} for name in ("a manifest", "a lease", "a checkpoint", "a probe")},
    "the key": USE_KEY,
}
PULL = {"ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"}
WRITE_LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}


def starts(log: str, *secrets: str) -> dict[str, set[str]]:
    """Return what a role may do with which ECS starts a task."""
    read = {f"secret {name}": {"secretsmanager:GetSecretValue"} for name in secrets}
    return {
        "our image": PULL,
        log: WRITE_LOG,
        "the key": {"kms:Decrypt"},
        "the account": {"ecr:GetAuthorizationToken"},
    } | read


MAY: dict[str, dict[str, set[str]]] = {
    "TaskRole": WORKER,
    "CpuWorkerRole": WORKER,
    "UpkeepRole": {
        "the bucket": LIST,
        **{
            name: READ_WRITE | {"s3:DeleteObject"}
            for name in ("an artifact", "a manifest", "a lease", "a checkpoint", "a probe")
        },
        "the key": USE_KEY,
    },
    "MlflowRole": {"the bucket": {"s3:ListBucket"}, "MLflow's files": READ_WRITE, "the key": USE_KEY},
    "InstanceRole": {
        "the GPU cluster": {
            "ecs:RegisterContainerInstance",
            "ecs:DeregisterContainerInstance",
            "ecs:SubmitTaskStateChange",
            "ecs:SubmitContainerStateChange",
            "ecs:SubmitAttachmentStateChanges",
        },
        "an instance of it": {"ecs:Poll", "ecs:StartTelemetrySession", "ecs:UpdateContainerInstancesState"},
        "the account": {"ecs:DiscoverPollEndpoint"},
    },
    "ExecutionRole": starts("GPU log", "prefect-worker-auth", "mlflow-worker"),
    "WorkerExecutionRole": starts("server log", "prefect-worker-auth", "mlflow-worker"),
    "ServerExecutionRole": starts(
        "server log",
        "prefect-database",
        "prefect-auth",
        "prefect-worker-auth",
        "prefect-encryption",
        "mlflow-database",
        "mlflow-admin",
        "mlflow-secret-key",
    ),
    "MigrationExecutionRole": starts("server log", "database", "prefect-database", "mlflow-database"),
    "DispatcherRole": {
        "the account": {"ecs:DescribeTaskDefinition", "ecs:DeregisterTaskDefinition"},
        "our task definition": {"ecs:RegisterTaskDefinition", "ecs:RunTask", "ecs:TagResource"},
        "a task of it": {"ecs:DescribeTasks", "ecs:StopTask", "ecs:TagResource"},
        "the role of GPU tasks": {"iam:PassRole"},
        "the role that starts them": {"iam:PassRole"},
        "the queue": {"sqs:GetQueueUrl", "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"},
        "GPU log": {"logs:GetLogEvents"},
    },
    "BudgetRole": {"the role that asks for them": {"iam:AttachRolePolicy", "iam:DetachRolePolicy"}},
}
"""What each role may do to each thing; everything else is refused."""


@cache
def known_actions() -> tuple[tuple[str, bool], ...]:
    """Return every action that AWS knows, and whether a policy can name its resources. cfn-lint brings the table."""
    table = json.loads(files("cfnlint.data.AdditionalSpecs").joinpath("Policies.json").read_text())
    return tuple(
        (f"{service}:{name}", "Resources" in about)
        for service, content in table.items()
        for name, about in content.get("Actions", {}).items()
    )


def allowed(name: str) -> dict[str, set[str]]:
    """Return every action of AWS that a role may take, by the thing that it is taken on."""
    statements = role(name)
    patterns = [given.lower() for statement in statements for given in many(statement.get("Action", "*"))]
    found: dict[str, set[str]] = {}
    for action, can_be_limited in known_actions():
        if any(like(pattern, action.lower()) for pattern in patterns):
            things = THINGS if can_be_limited else {"the account": "*"}
            for thing, resource in things.items():
                if decide(statements, action, resource, REQUEST) == "allow":
                    found.setdefault(thing, set()).add(action.lower())
    return found


def test_every_secret_of_the_templates_is_asked_about() -> None:
    resources = load_templates()["storage"]["Resources"].values()
    named = [one["Properties"]["Name"] for one in resources if one["Type"] == "AWS::SecretsManager::Secret"]
    assert sorted(SECRETS) == sorted(str(name).rsplit("/", 1)[1].rstrip("'}") for name in named)


def test_every_role_has_its_line() -> None:
    roles = {
        name
        for template in load_templates().values()
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::IAM::Role"
    }
    assert roles == set(MAY)
    assert len(known_actions()) > 10_000


@pytest.mark.parametrize("name", MAY)
def test_a_role_may_do_this_and_nothing_else_that_aws_knows(name: str) -> None:
    assert allowed(name) == {thing: {action.lower() for action in actions} for thing, actions in MAY[name].items()}


@pytest.mark.parametrize(
    ("name", "action", "thing", "context"),
    [
        ("DispatcherRole", "ecs:RunTask", "our task definition", {"ecs:cluster": THINGS["another cluster"]}),
        ("DispatcherRole", "ecs:RunTask", "our task definition", {}),
        ("DispatcherRole", "ecs:TagResource", "a task of it", {"ecs:CreateAction": "CreateCluster"}),
        ("DispatcherRole", "iam:PassRole", "the role of GPU tasks", {"iam:PassedToService": "ec2.amazonaws.com"}),
        ("MlflowRole", "s3:ListBucket", "the bucket", {"s3:prefix": "store/objects"}),
        ("MlflowRole", "s3:ListBucket", "the bucket", {}),
        (
            "BudgetRole",
            "iam:AttachRolePolicy",
            "the role that asks for them",
            {"iam:PolicyARN": "arn:aws:iam::aws:policy/AdministratorAccess"},
        ),
    ],
)
def test_a_permission_ends_where_its_condition_does(
    name: str, action: str, thing: str, context: dict[str, str]
) -> None:
    assert decide(role(name), action, THINGS[thing], REQUEST) == "allow"
    assert decide(role(name), action, THINGS[thing], context) == "none"


@pytest.mark.parametrize(
    ("name", "principal", "context", "decision"),
    [
        ("TaskRole", "ecs-tasks.amazonaws.com", {"aws:SourceAccount": ACCOUNT}, "allow"),
        ("TaskRole", "ecs-tasks.amazonaws.com", {"aws:SourceAccount": "999999999999"}, "none"),
        ("TaskRole", "ec2.amazonaws.com", {"aws:SourceAccount": ACCOUNT}, "none"),
        ("TaskRole", f"arn:aws:iam::{ACCOUNT}:root", {"aws:MultiFactorAuthPresent": "true"}, "none"),
        ("InstanceRole", "ec2.amazonaws.com", {}, "allow"),
        ("InstanceRole", "lambda.amazonaws.com", {}, "none"),
        ("UpkeepRole", f"arn:aws:iam::{ACCOUNT}:root", {"aws:MultiFactorAuthPresent": "true"}, "allow"),
        ("UpkeepRole", f"arn:aws:iam::{ACCOUNT}:root", {}, "none"),
        ("UpkeepRole", "arn:aws:iam::999999999999:root", {"aws:MultiFactorAuthPresent": "true"}, "none"),
    ],
)
def test_a_role_is_taken_by_its_own_service_or_people_alone(
    name: str, principal: str, context: dict[str, str], decision: str
) -> None:
    assert decide(trust(name), "sts:AssumeRole", "*", context, principal) == decision


def test_a_spent_budget_stops_new_gpu_tasks_and_nothing_that_runs() -> None:
    spent = (*role("DispatcherRole"), *policy("guardrails", "NoNewGpuWork"))
    assert decide(spent, "ecs:RunTask", THINGS["our task definition"], REQUEST) == "deny"
    assert decide(spent, "ecs:StopTask", THINGS["a task of it"], REQUEST) == "allow"


OURS = {"aws:SourceAccount": ACCOUNT}
TLS = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}
PLAIN, OLD_TLS = {"aws:SecureTransport": "false"}, TLS | {"s3:TlsVersion": "1.1"}
ARTIFACT, TOPIC = THINGS["an artifact"], arn_of("guardrails", "Topic")


@pytest.mark.parametrize(
    ("where", "principal", "action", "resource", "context", "decision"),
    [
        ("storage/ArtifactsPolicy", "anybody", "s3:GetObject", ARTIFACT, TLS, "none"),
        ("storage/ArtifactsPolicy", "anybody", "s3:GetObject", ARTIFACT, PLAIN, "deny"),
        ("storage/ArtifactsPolicy", "anybody", "s3:ListBucket", BUCKET, PLAIN, "deny"),
        ("storage/ArtifactsPolicy", "anybody", "s3:GetObject", ARTIFACT, OLD_TLS, "deny"),
        ("storage/AccessLogsPolicy", "logging.s3.amazonaws.com", "s3:PutObject", THINGS["access logs"], OURS, "allow"),
        ("storage/AccessLogsPolicy", "logging.s3.amazonaws.com", "s3:PutObject", THINGS["access logs"], {}, "none"),
        ("storage/AccessLogsPolicy", "logging.s3.amazonaws.com", "s3:GetObject", THINGS["access logs"], OURS, "none"),
        ("storage/AccessLogsPolicy", "anybody", "s3:PutObject", THINGS["access logs"], OURS | TLS, "none"),
        ("workers/EventsPolicy", "events.amazonaws.com", "sqs:SendMessage", THINGS["the queue"],
         {"aws:SourceArn": arn_of("workers", "TaskChanges")}, "allow"),
        ("workers/EventsPolicy", "events.amazonaws.com", "sqs:SendMessage", THINGS["the queue"],
         {"aws:SourceArn": f"arn:aws:events:{PLACE}:rule/other"}, "none"),
        ("workers/EventsPolicy", "anybody", "sqs:SendMessage", THINGS["the queue"], TLS, "none"),
        ("guardrails/TopicPolicy", "cloudwatch.amazonaws.com", "sns:Publish", TOPIC, OURS, "allow"),
        ("guardrails/TopicPolicy", "cloudwatch.amazonaws.com", "sns:Publish", TOPIC, {}, "none"),
        ("guardrails/TopicPolicy", "anybody", "sns:Subscribe", TOPIC, TLS, "none"),
        ("storage/Key", "cloudwatch.amazonaws.com", "kms:Decrypt", "*", OURS, "allow"),
        ("storage/Key", "cloudwatch.amazonaws.com", "kms:ScheduleKeyDeletion", "*", OURS, "none"),
        ("storage/Key", "arn:aws:iam::999999999999:root", "kms:Decrypt", "*", OURS, "none"),
    ],
)  # fmt: skip
def test_a_policy_of_a_thing_decides(
    where: str, principal: str, action: str, resource: str, context: dict[str, str], decision: str
) -> None:
    stack, name = where.split("/")
    assert decide(policy(stack, name), action, resource, context, principal) == decision
