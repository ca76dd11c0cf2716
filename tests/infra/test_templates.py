"""The cloud's templates: linted, checked property by property, and changed as an attacker or a tired colleague would
change them.

Every check is shown to fail: for each there is at least one hostile change, and a change that no check notices fails
this module.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.infra.template_checks import CHECKS
from tests.infra.templates import FOLDER, ORDER, Templates, load_templates, parameters_of

ROOT = FOLDER.parents[1]
GONE = object()
OPEN = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "0.0.0.0/0", "Description": "for a moment"}
PLAIN_LISTENER = {
    "Type": "AWS::ElasticLoadBalancingV2::Listener",
    "Properties": {"Port": 80, "Protocol": "HTTP", "DefaultActions": [{"Type": "forward"}]},
}
OUT = {
    "Type": "AWS::EC2::Route",
    "Properties": {"RouteTableId": {"Ref": "DatabaseRoutes"}, "DestinationCidrBlock": "0.0.0.0/0"},
}
STATEMENT = "Properties/Policies/0/PolicyDocument/Statement"
CONTAINER = "Properties/ContainerDefinitions/0"


@dataclass(frozen=True)
class Change:
    """One change to the templates: where (``stack/Resource/Property/…``, ``+`` adds to a list), what stands there then,
    and which check must notice."""

    title: str
    where: str
    value: Any
    caught_by: str

    def applied(self, templates: Templates) -> Templates:
        """Return changed templates."""
        changed = deepcopy(templates)
        stack, *path = self.where.split("/")
        place: Any = changed[stack] if path[0] in ("Parameters", "Rules") else changed[stack]["Resources"]
        for name in path[:-1]:
            place = place[int(name) if isinstance(place, list) else name]
        last = path[-1]
        if last == "+":
            place.append(self.value)
        elif self.value is GONE:
            del place[int(last) if isinstance(place, list) else last]
        else:
            place[int(last) if isinstance(place, list) else last] = self.value
        return changed


HOSTILE = [
    Change("ssh from everywhere", "network/WorkerGroup/Properties/SecurityGroupIngress", [OPEN], "no_open_port"),
    Change(
        "all ports to the servers",
        "network/ServerGroup/Properties/SecurityGroupIngress/0/ToPort",
        65535,
        "no_open_port",
    ),
    Change(
        "the database for the whole network",
        "network/DatabaseGroup/Properties/SecurityGroupIngress/+",
        {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "CidrIpv6": "::/0"},
        "no_open_port",
    ),
    Change(
        "servers for everyone", "network/Parameters/ClientCidr/AllowedPattern", "^.*$", "clients_are_never_everyone"
    ),
    Change(
        "servers for everyone who does not choose",
        "network/Parameters/ClientCidr/Default",
        "10.0.0.0/8",
        "clients_are_never_everyone",
    ),
    Change(
        "workers that may call anything",
        "network/WorkerGroup/Properties/SecurityGroupEgress/0/FromPort",
        0,
        "workers_call_by_https_alone",
    ),
    Change("a way out for the database", "network/Out", OUT, "the_database_has_no_way_out"),
    Change("a NAT gateway nobody asked for", "network/Nat/Condition", GONE, "no_nat_unless_asked_for"),
    Change(
        "facing the internet by default",
        "network/Parameters/LoadBalancerScheme/Default",
        "internet-facing",
        "outside_needs_a_known_address",
    ),
    Change(
        "facing the internet without knowing the workers",
        "network/Rules/OutsideNeedsAKnownAddress",
        GONE,
        "outside_needs_a_known_address",
    ),
    Change(
        "public addresses for whatever starts",
        "network/PublicSubnetA/Properties/MapPublicIpOnLaunch",
        True,
        "addresses_are_given_one_by_one",
    ),
    Change(
        "artifacts over the internet",
        "network/S3Endpoint/Properties/RouteTableIds",
        [{"Ref": "DatabaseRoutes"}],
        "artifacts_travel_inside",
    ),
    Change(
        "a public bucket",
        "storage/Artifacts/Properties/PublicAccessBlockConfiguration/BlockPublicPolicy",
        False,
        "buckets_are_private",
    ),
    Change("a bucket with access lists", "storage/Artifacts/Properties/OwnershipControls", GONE, "buckets_are_private"),
    Change(
        "no old versions",
        "storage/Artifacts/Properties/VersioningConfiguration",
        {"Status": "Suspended"},
        "buckets_keep_old_versions",
    ),
    Change("no encryption", "storage/Artifacts/Properties/BucketEncryption", GONE, "buckets_are_encrypted"),
    Change(
        "HTTP to the bucket",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/0/Effect",
        "Allow",
        "buckets_are_reached_by_tls_alone",
    ),
    Change(
        "HTTP to objects",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/0/Resource/1",
        GONE,
        "buckets_are_reached_by_tls_alone",
    ),
    Change(
        "results that go away",
        "storage/Artifacts/Properties/LifecycleConfiguration/Rules/+",
        {"Id": "tidy", "Status": "Enabled", "Prefix": "store/objects/", "ExpirationInDays": 1},
        "checkpoints_and_old_versions_go_away",
    ),
    Change("no access log", "storage/Artifacts/Properties/LoggingConfiguration", GONE, "access_to_artifacts_is_logged"),
    Change("a key for ever", "storage/Key/Properties/EnableKeyRotation", False, "keys_turn_over"),
    Change("tags that move", "storage/Repository/Properties/ImageTagMutability", "MUTABLE", "images_never_change"),
    Change("the image called latest", "control/Parameters/ImageTag/AllowedPattern", "^.*$", "images_never_change"),
    Change(
        "a password in the template",
        "storage/PrefectAuth/Properties/SecretString",
        "limbeck:hunter2",
        "secrets_are_made_there",
    ),
    Change(
        "a short password",
        "storage/MlflowAdmin/Properties/GenerateSecretString/PasswordLength",
        8,
        "secrets_are_made_there",
    ),
    Change("all of S3", f"workers/TaskRole/{STATEMENT}/1/Action", "s3:*", "no_wildcard_action"),
    Change(
        "everything but one thing",
        f"workers/TaskRole/{STATEMENT}/+",
        {"Effect": "Allow", "NotAction": "iam:CreateUser", "Resource": "x*"},
        "no_wildcard_action",
    ),
    Change("every bucket", f"workers/TaskRole/{STATEMENT}/1/Resource", "*", "no_wildcard_resource"),
    Change("every task definition", f"workers/DispatcherRole/{STATEMENT}/1/Resource", "*", "no_wildcard_resource"),
    Change(
        "a policy that AWS keeps",
        "workers/TaskRole/Properties/ManagedPolicyArns",
        ["arn:aws:iam::aws:policy/AdministratorAccess"],
        "no_policies_of_others",
    ),
    Change(
        "a role for any account",
        "workers/TaskRole/Properties/AssumeRolePolicyDocument/Statement/0/Principal",
        {"AWS": "*"},
        "roles_are_taken_by_whom_they_are_for",
    ),
    Change(
        "a role without a second factor",
        "control/UpkeepRole/Properties/AssumeRolePolicyDocument/Statement/0/Condition",
        GONE,
        "roles_are_taken_by_whom_they_are_for",
    ),
    Change(
        "workers that remove artifacts",
        f"workers/TaskRole/{STATEMENT}/2/Resource/+",
        {"Fn::Sub": "arn:aws:s3:::bucket/store/objects/*"},
        "workers_remove_no_artifacts",
    ),
    Change(
        "workers that remove old versions",
        f"control/CpuWorkerRole/{STATEMENT}/2/Action",
        ["s3:DeleteObject", "s3:DeleteObjectVersion"],
        "workers_remove_no_artifacts",
    ),
    Change(
        "MLflow that removes",
        f"control/MlflowRole/{STATEMENT}/1/Action/+",
        "s3:DeleteObject",
        "workers_remove_no_artifacts",
    ),
    Change(
        "any role handed on",
        f"workers/DispatcherRole/{STATEMENT}/5/Resource",
        {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:role/*"},
        "one_role_hands_two_roles_on",
    ),
    Change(
        "roles handed to anything",
        f"workers/DispatcherRole/{STATEMENT}/5/Condition",
        GONE,
        "one_role_hands_two_roles_on",
    ),
    Change(
        "tasks in any cluster", f"workers/DispatcherRole/{STATEMENT}/2/Condition", GONE, "tasks_start_in_one_cluster"
    ),
    Change(
        "GPU tasks with the database's password",
        f"workers/ExecutionRole/{STATEMENT}/3/Resource/+",
        {"Fn::ImportValue": {"Fn::Sub": "${Project}-${Stage}-DatabaseSecret"}},
        "secrets_are_read_by_those_who_need_them",
    ),
    Change(
        "a key for anyone",
        "storage/Key/Properties/KeyPolicy/Statement/+",
        {"Effect": "Allow", "Principal": "*", "Action": "kms:Decrypt", "Resource": "*"},
        "keys_obey_the_account",
    ),
    Change(
        "a queue for anyone",
        "workers/EventsPolicy/Properties/PolicyDocument/Statement/0/Condition",
        GONE,
        "doors_open_for_their_own_guest",
    ),
    Change(
        "a bucket for anyone",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/+",
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"},
        "doors_open_for_their_own_guest",
    ),
    Change("a listener without TLS", "control/Http", PLAIN_LISTENER, "listeners_speak_tls"),
    Change(
        "TLS of yesterday", "control/Https/Properties/SslPolicy", "ELBSecurityPolicy-2016-08", "listeners_speak_tls"
    ),
    Change("Prefect without a password", f"control/PrefectTask/{CONTAINER}/Secrets", [], "servers_want_a_password"),
    Change(
        "MLflow without a password",
        "control/MlflowTask/Properties/ContainerDefinitions/1/Command",
        ["python -m mlflow server"],
        "servers_want_a_password",
    ),
    Change(
        "a password in the environment",
        f"control/CpuWorkerTask/{CONTAINER}/Environment/+",
        {"Name": "MLFLOW_TRACKING_PASSWORD", "Value": "hunter2"},
        "secrets_come_by_reference",
    ),
    Change(
        "a password in an address",
        f"control/PrefectTask/{CONTAINER}/Environment/+",
        {"Name": "URL", "Value": "postgresql://limbeck:hunter2@db/prefect"},
        "secrets_come_by_reference",
    ),
    Change("pickles", f"control/CpuWorkerTask/{CONTAINER}/Environment/6/Value", "true", "nothing_is_unpickled"),
    Change(
        "a container with power over its host",
        f"control/PrefectTask/{CONTAINER}/Privileged",
        True,
        "containers_have_no_power",
    ),
    Change(
        "people in containers",
        "control/PrefectService/Properties/EnableExecuteCommand",
        True,
        "containers_have_no_power",
    ),
    Change("a database in the open", "control/Database/Properties/PubliclyAccessible", True, "the_database_is_safe"),
    Change("a database on a bare disk", "control/Database/Properties/StorageEncrypted", False, "the_database_is_safe"),
    Change(
        "a database without TLS",
        "control/DatabaseParameters/Properties/Parameters/rds.force_ssl",
        "0",
        "the_database_is_safe",
    ),
    Change("a database that is gone at once", "control/Database/DeletionPolicy", "Delete", "the_database_is_safe"),
    Change("logs for ever", "workers/Logs/Properties/RetentionInDays", GONE, "logs_are_kept_a_while_and_encrypted"),
    Change(
        "metadata without a token (IMDSv1)",
        "workers/Template/Properties/LaunchTemplateData/MetadataOptions/HttpTokens",
        "optional",
        "metadata_want_a_token",
    ),
    Change(
        "metadata for the whole network",
        "workers/Template/Properties/LaunchTemplateData/MetadataOptions/HttpPutResponseHopLimit",
        64,
        "metadata_want_a_token",
    ),
    Change(
        "bare disks",
        "workers/Template/Properties/LaunchTemplateData/BlockDeviceMappings/0/Ebs/Encrypted",
        False,
        "disks_are_encrypted",
    ),
    Change("a key pair", "workers/Template/Properties/LaunchTemplateData/KeyName", "mine", "instances_take_nobody_in"),
    Change("an instance that never goes", "workers/Instances/Properties/MinSize", "1", "capacity_scales_to_zero"),
    Change(
        "an instance that goes under its task",
        "workers/Instances/Properties/NewInstancesProtectedFromScaleIn",
        False,
        "capacity_scales_to_zero",
    ),
    Change("on demand by default", "workers/Parameters/OnDemandPercent/Default", 100, "capacity_is_spot"),
    Change("one type of instance", "workers/Parameters/GpuInstanceType2/Default", "g5.xlarge", "capacity_is_spot"),
    Change("rebalancing", "workers/Instances/Properties/CapacityRebalance", True, "reclaims_are_heard"),
    Change(
        "no draining",
        "workers/Capacity/Properties/AutoScalingGroupProvider/ManagedDraining",
        "DISABLED",
        "reclaims_are_heard",
    ),
    Change("deaths that nobody hears of", "workers/TaskChanges/Properties/State", "DISABLED", "deaths_are_told"),
    Change("a queue in the open", "workers/Events/Properties/SqsManagedSseEnabled", False, "deaths_are_told"),
    Change("an alarm that rings nowhere", "guardrails/IdleGpu/Properties/AlarmActions", [], "money_is_watched"),
    Change("no budget", "guardrails/Budget/Properties/NotificationsWithSubscribers", [], "money_is_watched"),
    Change(
        "an alarm without figures",
        "workers/Instances/Properties/MetricsCollection",
        GONE,
        "the_idle_alarm_sees_its_figures",
    ),
]


@pytest.fixture(scope="module")
def templates() -> Templates:
    return load_templates()


@pytest.mark.parametrize("name", CHECKS)
def test_the_templates_hold(name: str, templates: Templates) -> None:
    assert list(CHECKS[name](templates)) == []


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.title)
def test_a_hostile_change_is_caught(change: Change, templates: Templates) -> None:
    assert list(CHECKS[change.caught_by](change.applied(templates)))


def test_every_check_can_fail() -> None:
    assert {change.caught_by for change in HOSTILE} == set(CHECKS)


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_parameters_are_known_and_legal(stage: str, templates: Templates) -> None:
    """What somebody must choose is left out of the file; what is in it fits."""
    given, declared = (
        parameters_of(stage),
        {name: rule for template in templates.values() for name, rule in template["Parameters"].items()},
    )
    for name, value in given.items():
        rule = declared[name]
        assert value in rule.get("AllowedValues", [value]), name
        assert re.match(rule.get("AllowedPattern", ""), value), name
        assert (
            rule.get("MinValue", 0) <= (float(value) if rule["Type"] == "Number" else 0) <= rule.get("MaxValue", 1e9)
            or rule["Type"] != "Number"
        ), name
    chosen = {name for name, rule in declared.items() if "Default" not in rule} - set(given)
    assert chosen == {"ImageTag", "DispatcherTag", "CertificateArn", "PrefectHost", "MlflowHost", "Email"}


def test_what_is_imported_is_exported_before(templates: Templates) -> None:
    exported: set[str] = set()
    for name in ORDER:
        text = (FOLDER / f"{name}.yaml").read_text()
        imported = set(re.findall(r'"Fn::ImportValue": !Sub "\$\{Project\}-\$\{Stage\}-(\w+)"', text))
        assert text.count("ImportValue") == len(
            re.findall(r'"Fn::ImportValue": !Sub "\$\{Project\}-\$\{Stage\}-\w+"', text)
        )
        assert imported <= exported, f"{name} imports {imported - exported}"
        exported |= {
            output["Export"]["Name"]["Fn::Sub"].rsplit("-", 1)[-1]
            for output in templates[name]["Outputs"].values()
            if "Export" in output
        }


def test_cfn_lint_finds_nothing() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).parent / "cfn-lint"), *(str(FOLDER / f"{name}.yaml") for name in ORDER)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_checkov_finds_nothing_and_skips_with_reasons(tmp_path: Path) -> None:
    """checkov wants old versions of libraries that we have, so it has an environment of its own: ``make checkov`` sets
    it up."""
    command = [checkov(), "-d", str(FOLDER), "--framework", "cloudformation", "--skip-download", "-o", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["summary"]["failed"] == 0 and found["summary"]["parsing_errors"] == 0, [
        (check["check_id"], check["resource"]) for check in found["results"]["failed_checks"]
    ]
    assert found["summary"]["passed"] > 100 and found["summary"]["resource_count"] >= 80
    written = sum(text.count("id: CKV_") for text in ((FOLDER / f"{name}.yaml").read_text() for name in ORDER))
    skipped = found["results"]["skipped_checks"]
    assert len(skipped) == written, "a skip that skips nothing hides what comes after it"
    assert all(len(check["check_result"]["suppress_comment"]) > 30 for check in skipped)


def checkov() -> str:
    """Return where checkov is; a machine without it skips, and says so."""
    found = (
        os.environ.get("LIMBECK_CHECKOV")
        or shutil.which("checkov")
        or shutil.which("checkov", path=str(ROOT / ".venv-checkov" / "bin"))
    )
    if not found:
        pytest.skip(
            "NO CHECKOV HERE: run `make checkov`, or name one by LIMBECK_CHECKOV; the templates were checked by "
            "cfn-lint and by our own checks alone"
        )
    return found
