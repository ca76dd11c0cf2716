"""The commands of ``infra/cloud.md``, from nothing to a torn-down stack, in their order and by AWS's own client.

moto stands for AWS. ``BRIDGES`` lists what moto cannot do and is done by hand before a section, ``STAND_INS`` lists
the programs that do not run here, and ``AWS_ITSELF`` what AWS does and moto does not.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest
from moto.cloudformation.models import CloudFormationBackend
from moto.ecs.models import EC2ContainerServiceBackend
from ruamel.yaml import YAML

from flows.deploy.pools import read_site
from tests.infra.cloudformation.moto_cloud import REGION, Cloud, moto_cloud
from tests.infra.cloudformation.templates import FOLDER
from tests.infra.cloudformation.test_stacks import inventory

ROOT = FOLDER.parents[1]
RUNBOOK = ROOT / "infra" / "cloud.md"
AWS = Path(os.environ.get("LIMBECK_AWS", ROOT / ".venv-awscli" / "bin" / "aws"))
SECTIONS = (
    "Prepare",
    "Bring it up",
    "A first run",
    "Upgrade",
    "Back up and restore",
    "Rotate secrets",
    "Tear down",
)
MANIFEST = '{"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "tag": "%s"}'
SPENT = """
        POLICY=arn:aws:iam::123456789012:policy/limbeck-dev-no-new-gpu-work
        aws iam attach-role-policy --role-name $(output workers DispatcherRoleName) --policy-arn $POLICY
"""
"""What the budget's action does once the budget is spent."""
BRIDGES = {
    # No instance of ECS runs here, so none is started by the run, and nothing is logged.
    "A first run": """
        GROUP=$(output workers Instances) LOG="--log-group-name $(output workers LogGroup) --log-stream-name stage/x"
        aws autoscaling update-auto-scaling-group --auto-scaling-group-name $GROUP --desired-capacity 1
        aws logs create-log-stream $LOG
        aws logs put-log-events $LOG --log-events timestamp=$(date +%s)000,message=trained
    """,
    # The runbook says: build and push the images under a new tag first.
    "Upgrade": "for NAME in cpu gpu dispatcher; do podman push $REPOSITORY:$NAME-0.2.0; done",
    "Back up and restore": SPENT,
    # moto reads no conditions: to it the policies that require TLS deny everything. It forgets versioning, and that the
    # repository may be deleted with its images.
    "Tear down": """
        BUCKET=$(output storage Artifacts) IMAGES="--repository-name limbeck-dev/worker"
        IDS=$(aws ecr list-images $IMAGES --query imageIds)
        aws ecr batch-delete-image $IMAGES --image-ids "$IDS" --query failures
        aws s3api delete-bucket-policy --bucket $BUCKET
        aws s3api delete-bucket-policy --bucket $(output storage AccessLogs)
        aws s3api put-bucket-versioning --bucket $BUCKET --versioning-configuration Status=Enabled
        for TEXT in one two; do echo $TEXT > object.txt; aws s3 cp --quiet object.txt s3://$BUCKET/store/objects/x; done
        aws s3 rm --quiet s3://$BUCKET/store/objects/x
        restore x
        aws s3api head-object --bucket $BUCKET --key store/objects/x --query VersionId
        aws s3 rm --quiet s3://$BUCKET/store/objects/x
    """
    + SPENT,
}
AWS_ITSELF = f"""
    asked="$*"
    case "$asked" in
    "ce update-cost-allocation-tags-status "*) exit 0;;
    *"delete-stack --stack-name limbeck-dev-guardrails")
        POLICY=arn:aws:iam::123456789012:policy/limbeck-dev-no-new-gpu-work
        HELD=$({AWS} iam list-entities-for-policy --policy-arn $POLICY --query 'PolicyRoles[].RoleName' --output text)
        if [ -n "$HELD" ]; then echo "DELETE_FAILED: the policy is attached to $HELD" >&2; exit 254; fi;;
    *"delete-stack --stack-name limbeck-dev-storage")
        if mkdir "$0.late-log" 2> /dev/null; then
            LOGS="Stacks[0].Outputs[?OutputKey=='AccessLogs'].OutputValue"
            LOGS=$({AWS} cloudformation describe-stacks --stack-name limbeck-dev-storage --query "$LOGS" --output text)
            {AWS} s3 cp --quiet "$0" s3://$LOGS/late
            touch "$0.refused"
            exit 0
        fi;;
    *"wait stack-delete-complete --stack-name limbeck-dev-storage")
        if rm "$0.refused" 2> /dev/null; then echo DELETE_FAILED: the bucket is not empty >&2; exit 255; fi;;
    "autoscaling update-auto-scaling-group "*" --max-size 0 "*)
        {AWS} "$@"
        if mkdir "$0.late-instance" 2> /dev/null; then
            {AWS} autoscaling update-auto-scaling-group --auto-scaling-group-name $4 --max-size 2 --desired-capacity 2
        fi
        exit 0;;
    esac
    exec {AWS} "$@"
"""
"""What AWS does and moto does not: it forgets that a policy is attached, refuses no bucket that a late log came into,
and no instance is on its way when a group is told to have none. Activating tags is a call that moto has not."""
STAND_INS = {
    # Images of gigabytes: a push puts a manifest into the registry, with a digest of its own.
    "podman": f"""TAG=${{2##*:}}
        case $1 in
        login) cat > /dev/null;;
        push) MANIFEST=$(printf {shlex.quote(MANIFEST)} $TAG)
            aws ecr put-image --repository-name limbeck-dev/worker --image-tag $TAG --image-manifest "$MANIFEST";;
        run) echo '{{"bomFormat": "CycloneDX"}}';;
        esac""",
    # MLflow and Prefect have no address here; limbeck deploy and accounts are tested on real servers elsewhere.
    "curl": "true",
    "prefect": "true",
    "limbeck": f'if [ $1 = site ]; then exec {sys.executable} -m flows.cli "$@"; fi',
    "aws": AWS_ITSELF,
    # The tests wait for nothing: moto's instances are gone at once.
    "sleep": "true",
}


def shell_of(section: str) -> str:
    """Return the commands of a section."""
    text = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)
    (found,) = [part for part in text if part.startswith(f"{section}\n")]
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", found, re.DOTALL | re.MULTILINE))


def script() -> str:
    """Return the whole runbook as a program, with the bridges where they belong."""
    parts = ["set -euo pipefail"]
    for section in SECTIONS:
        parts += [f"echo '== {section}'", BRIDGES.get(section, ""), shell_of(section)]
    return "\n".join(parts)


def test_every_section_with_commands_is_run_and_can_be_read_by_a_shell() -> None:
    text = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)
    assert {part.splitlines()[0] for part in text if "```sh\n" in part} == set(SECTIONS)
    done = subprocess.run(["bash", "-n"], input=script(), text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_runbook_starts_deployments_that_there_are() -> None:
    """It started one that had been renamed, and the stand-in of prefect took every name."""
    known = {
        f"{flow_of(each['entrypoint'])}/{each['name']}"
        for each in YAML(typ="safe", pure=True).load((ROOT / "deployments" / "prefect.yaml").read_text())["deployments"]
    }
    named = re.findall(r"prefect deployment run (\S+)", RUNBOOK.read_text())
    assert named and set(named) <= known
    assert set(re.findall(r"prefect work-pool \w+ (\S+)", RUNBOOK.read_text())) == {"cpu", "ecs-gpu"}


def flow_of(entrypoint: str) -> str:
    """Return the name of the flow of an entrypoint."""
    module, _, function = entrypoint.rpartition(".")
    return str(getattr(import_module(module), function).name)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    """moto, whose change sets make stacks without exports, and lose resources when they update one: here a first change
    set creates its stack directly, and a later one only changes the stack's parameters."""

    def create_or_note(backend: CloudFormationBackend, change_set_name: str, stack_name: str | None = None) -> None:
        (found,) = [
            each
            for each in backend.change_sets.values()
            if change_set_name in (each.change_set_id, each.change_set_name)
        ]
        found.parameters.pop("AmiId", None)  # moto takes the image itself for the name under which AWS tells it
        found.execution_status = "EXECUTE_COMPLETE"
        stack = backend.stacks[found.stack_id]
        if found.change_set_type == "CREATE":
            del backend.stacks[found.stack_id]
            backend.create_stack(found.stack_name, found.template, found.parameters)
            return
        stack.parameters = stack.resource_map.input_parameters = found.parameters
        stack.resource_map.load_parameters()
        stack.status = "UPDATE_COMPLETE"

    monkeypatch.setattr(CloudFormationBackend, "execute_change_set", create_or_note)
    # moto wants memory of each container; on Fargate a task has it as a whole.
    nothing = {"CPU": 0, "MEMORY": 0, "PORTS": [], "PORTS_UDP": []}
    monkeypatch.setattr(
        EC2ContainerServiceBackend, "_calculate_task_resource_requirements", staticmethod(lambda definition: nothing)
    )
    with moto_cloud() as running:
        yield running


def for_this_cloud(cloud: Cloud, text: str) -> str:
    """Return commands of the runbook with a certificate and the region of a cloud."""
    certificate = cloud.client("acm").request_certificate(DomainName="*.example.com")["CertificateArn"]
    return re.sub(r"CERTIFICATE=arn:\S+", f"CERTIFICATE={certificate}", text).replace("eu-west-1", REGION)


def link_sources(folder: Path) -> None:
    """Let a folder look like a checkout to the commands that run in it."""
    for name in ("infra", "flows", "tasks", "deployments"):
        (folder / name).symlink_to(ROOT / name)


def programs(folder: Path, stand_ins: Mapping[str, str] = STAND_INS) -> str:
    """Write the stand-ins, each of which notes how it was called; return the path of programs."""
    folder.mkdir()
    for name, body in stand_ins.items():
        (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >> {folder}/called.txt\n{body}\n')
        (folder / name).chmod(0o755)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), str(AWS.parent), os.environ["PATH"]])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not AWS.is_file(), reason="NO AWS CLIENT HERE: `make awscli` sets an environment up for it")
def test_the_runbook_from_nothing_and_back(cloud: Cloud, tmp_path: Path) -> None:
    text = for_this_cloud(cloud, script())
    link_sources(tmp_path)
    settings = cloud.environment() | {"PATH": programs(tmp_path / "programs"), "PYTHONPATH": str(ROOT)}
    before = inventory(cloud)
    done = subprocess.run(["bash"], input=text, text=True, capture_output=True, cwd=tmp_path, env=os.environ | settings)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    called = (tmp_path / "programs" / "called.txt").read_text()
    assert called.count("podman push") == 6 and "limbeck deploy --site site.yaml --gpus 2 --runs 2" in called
    assert "/api/2.0/mlflow/users/create" in called and called.count("podman run") == 3
    assert (
        read_site(tmp_path / "site.yaml")["ecs-gpu"]["cloudwatch_logs_options"]["awslogs-group"] == "/limbeck-dev/gpu"
    )
    first_run = done.stdout.split("== A first run")[1].split("== Upgrade")[0]
    assert "trained" in first_run and '"InService"' in first_run
    for happened in ("late-log", "late-instance"):
        assert (tmp_path / "programs" / f"aws.{happened}").is_dir(), f"no {happened} came between"
    assert called.count("aws iam detach-role-policy") == 2
    states = [
        instance["State"]["Name"]
        for reservation in cloud.client("ec2").describe_instances()["Reservations"]
        for instance in reservation["Instances"]
    ]
    assert set(states) == {"terminated"}, "moto lists an ended instance for ever"
    assert inventory(cloud) | {"instances": 0} == before, "tearing down left something behind"
    assert cloud.client("rds").describe_db_snapshots()["DBSnapshots"] == []
    assert '"DeletionDate"' in done.stdout.split("== Tear down")[1]
    left = cloud.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in left if stack["StackStatus"] != "DELETE_COMPLETE"] == []
