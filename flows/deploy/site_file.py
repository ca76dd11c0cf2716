"""A site file from the outputs of the CloudFormation stacks: ``limbeck site``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ruamel.yaml import YAML

from flows.deploy.pools import defaults_of, read_pool, read_site
from tasks.errors import RecipeError, ServerError

AWS_POOL = "ecs-gpu"
STACKS_READ = ("storage", "workers", "control")
StackOutputs = Mapping[str, str]
SiteValues = Mapping[str, object]


def aws_client(service: str) -> Any:
    """Return a client of AWS with the usual settings of the environment; raise ServerError if it has none."""
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.session.Session().client(service)
    except BotoCoreError as error:
        raise ServerError(
            f"AWS cannot be used with these settings ({error}); set AWS_DEFAULT_REGION, or run aws configure"
        ) from error


def ask_aws(what: str, question: Callable[[], Any]) -> Any:
    """Return AWS's answer; raise ServerError with its own words if it refuses or cannot be reached."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return question()
    except (BotoCoreError, ClientError) as error:
        raise ServerError(
            f"AWS does not tell {what} ({error}); check the region, the credentials, and --project and --stage"
        ) from error


def outputs_of(client: Any, stack: str) -> StackOutputs:
    """Return the outputs of one stack, by name."""
    answer = ask_aws(f"the outputs of the stack {stack}", lambda: client.describe_stacks(StackName=stack))
    return {output["OutputKey"]: output["OutputValue"] for output in answer["Stacks"][0].get("Outputs", [])}


def image_of(client: Any, repository: str, tag: str) -> str:
    """Return the address of an image by its digest, so that a task runs these bytes and no others."""
    name = repository.split("/", 1)[1]
    answer = ask_aws(
        f"the digest of the image {name}:{tag}",
        lambda: client.describe_images(repositoryName=name, imageIds=[{"imageTag": tag}]),
    )
    return f"{repository}@{answer['imageDetails'][0]['imageDigest']}"


def pool_values(stacks: Mapping[str, StackOutputs], image: str, region: str, tags: Mapping[str, str]) -> SiteValues:
    """Return the variables of the GPU pool, from the outputs of the stacks by their names; ``tags`` are those by which
    AWS adds up the costs of tasks."""
    storage, workers, control = (stacks[name] for name in STACKS_READ)
    template = read_pool(AWS_POOL)["base_job_template"]
    environment = cast(Mapping[str, str], defaults_of(template)["env"])
    account = {
        f"MLFLOW_TRACKING_{field.upper()}": f"{storage['MlflowWorker']}:{field}::" for field in ("username", "password")
    }
    return {
        "device": workers["GpuDevice"],
        "image": image,
        # the dispatcher may register and run definitions of this project alone
        "family": f"{tags['Project']}-{tags['Stage']}-gpu",
        "cluster": workers["Cluster"],
        "capacity_provider_strategy": [{"capacityProvider": workers["Capacity"], "weight": 1, "base": 0}],
        "task_role_arn": workers["TaskRole"],
        "execution_role_arn": workers["ExecutionRole"],
        "prefect_api_auth_string_secret_arn": storage["PrefectWorkerAuth"],
        "secrets": [{"name": name, "valueFrom": value} for name, value in account.items()],
        "env": {**environment, "LIMBECK_STORE": storage["Store"], "MLFLOW_TRACKING_URI": control["MlflowUrl"]},
        "labels": dict(tags),
        "configure_cloudwatch_logs": True,
        "cloudwatch_logs_prefix": "stage",
        # The group is there, encrypted and with a retention; a task may not create another one.
        "cloudwatch_logs_options": {
            "awslogs-group": workers["LogGroup"],
            "awslogs-region": region,
            "awslogs-create-group": "false",
        },
    }


def from_stacks(project: str, stage: str, tag: str) -> SiteValues:
    """Return the variables of the GPU pool for the stacks of a project and stage, with the image of a tag."""
    formation = aws_client("cloudformation")
    stacks = {name: outputs_of(formation, f"{project}-{stage}-{name}") for name in STACKS_READ}
    try:
        image = image_of(aws_client("ecr"), stacks["storage"]["RepositoryUri"], tag)
        return pool_values(stacks, image, formation.meta.region_name, {"Project": project, "Stage": stage})
    except KeyError as error:
        raise ServerError(
            f"the stacks of {project}-{stage} have no output {error}; deploy the templates of this version first"
        ) from error


def write_site(path: Path, values: SiteValues) -> None:
    """Write the pool's variables to a site file; other pools and other variables in it stay. It is written whole or not
    at all."""
    text = YAML()
    known = dict(read_site(path)) if path.exists() else {}
    merged = {**known, AWS_POOL: {**known.get(AWS_POOL, {}), **values}}
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as stream:
            text.dump(merged, stream)
        os.replace(unfinished, path)
    except OSError as error:
        raise RecipeError(
            f"{path} cannot be written ({error.strerror}); name a file in a folder that exists"
        ) from error
