"""The stacks go up in the order of the runbook on a moto server, what they make can be read back, and going down leaves
nothing."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.servers.serve import KEPT_SECONDS, PING_SECONDS
from flows.stack.configs import nginx_conf
from flows.stack.settings import Settings, Stack
from tests.infra.cloudformation.moto_cloud import SHIMS, Cloud, moto_cloud
from tests.infra.cloudformation.templates import FOLDER, ORDER, load_templates, parameters_of

RUNBOOK = FOLDER.parent / "cloud.md"
CHOSEN = {
    "ImageDigest": f"sha256:{'a' * 64}",
    "DispatcherDigest": f"sha256:{'b' * 64}",
    "PrefectHost": "prefect.example.com",
    "MlflowHost": "mlflow.example.com",
    "Email": "team@example.com",
}
CLUSTERS = [f"limbeck-{stage}-{name}" for stage in ("dev", "prod") for name in ("gpu", "control")]
FAMILIES = [f"limbeck-dev-{name}" for name in ("prefect", "mlflow", "cpu-worker", "dispatcher", "migration")]
CAPACITY = ["limbeck-dev-gpu-spot", "limbeck-prod-gpu-spot"]

NAMELESS = ("AWS::RDS::DBSubnetGroup", "AWS::EC2::SecurityGroupIngress")
"""Types that moto does make, without telling their ids; that they are there is tested below."""


class Warned(logging.Handler):
    """Keeps what moto warns of: above all, of types that it made nothing of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def up(cloud: Cloud, stage: str, stacks: Sequence[str] = ORDER, **changes: str) -> list[str]:
    """Deploy stacks, as the runbook does; return what moto warned of."""
    certificate = cloud.client("acm").request_certificate(DomainName="*.example.com")["CertificateArn"]
    given, warned = parameters_of(stage) | CHOSEN | {"CertificateArn": certificate} | changes, Warned()
    logging.getLogger("moto").addHandler(warned)
    for name in stacks:
        parameters = [
            {"ParameterKey": key, "ParameterValue": value}
            for key, value in given.items()
            if key in load_templates()[name]["Parameters"]
        ]
        cloud.client("cloudformation").create_stack(
            StackName=f"limbeck-{stage}-{name}",
            TemplateBody=(FOLDER / f"{name}.yaml").read_text(),
            Parameters=parameters,
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
    logging.getLogger("moto").removeHandler(warned)
    return warned.said


def down(cloud: Cloud, stage: str) -> None:
    """Empty the buckets by the runbook's own line, and remove every stack in the opposite order."""
    (line,) = re.findall(r'^empty\(\) \{ python -c "(import boto3.*)" \$', RUNBOOK.read_text(), re.MULTILINE)
    named = outputs(cloud, f"limbeck-{stage}-storage")
    subprocess.run(
        [sys.executable, "-c", line, named["Artifacts"], named["AccessLogs"]],
        env=os.environ | cloud.environment(),
        check=True,
    )
    for name in reversed(ORDER):
        cloud.client("cloudformation").delete_stack(StackName=f"limbeck-{stage}-{name}")


def outputs(cloud: Cloud, stack: str) -> dict[str, str]:
    """Return what a stack says of itself."""
    (found,) = cloud.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in found["Outputs"]}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with moto_cloud() as running:
        yield running


@pytest.fixture(scope="module")
def dev(cloud: Cloud) -> Iterator[Cloud]:
    before = inventory(cloud)
    assert up(cloud, "dev") == []
    yield cloud
    bucket, s3 = outputs(cloud, "limbeck-dev-storage")["Artifacts"], cloud.client("s3")
    s3.put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )  # as the template says; moto drops it
    s3.delete_bucket_policy(
        Bucket=bucket
    )  # moto reads no conditions: to it the policy that wants TLS denies everything
    for body in (b"one", b"two"):
        s3.put_object(Bucket=bucket, Key="store/objects/x", Body=body)
    s3.delete_object(Bucket=bucket, Key="store/objects/x")
    down(cloud, "dev")
    assert inventory(cloud) == before, "tearing down left something behind"


def inventory(cloud: Cloud) -> dict[str, Any]:
    """Return the names of everything that costs money, keeps data, or lets somebody do something."""
    ask: dict[str, Any] = {
        "networks": lambda: cloud.client("ec2").describe_vpcs()["Vpcs"],
        "subnets": lambda: cloud.client("ec2").describe_subnets()["Subnets"],
        "groups": lambda: cloud.client("ec2").describe_security_groups()["SecurityGroups"],
        "nat": lambda: [
            nat for nat in cloud.client("ec2").describe_nat_gateways()["NatGateways"] if nat["State"] != "deleted"
        ],
        "addresses": lambda: cloud.client("ec2").describe_addresses()["Addresses"],
        "endpoints": lambda: [
            end for end in cloud.client("ec2").describe_vpc_endpoints()["VpcEndpoints"] if end["State"] != "deleted"
        ],
        "launch templates": lambda: cloud.client("ec2").describe_launch_templates()["LaunchTemplates"],
        "instances": lambda: cloud.client("ec2").describe_instances()["Reservations"],
        "buckets": lambda: cloud.client("s3").list_buckets()["Buckets"],
        "images": lambda: cloud.client("ecr").describe_repositories()["repositories"],
        "secrets": lambda: cloud.client("secretsmanager").list_secrets()["SecretList"],
        "roles": lambda: cloud.client("iam").list_roles()["Roles"],
        "profiles": lambda: cloud.client("iam").list_instance_profiles()["InstanceProfiles"],
        "databases": lambda: cloud.client("rds").describe_db_instances()["DBInstances"],
        "balancers": lambda: cloud.client("elbv2").describe_load_balancers()["LoadBalancers"],
        "targets": lambda: cloud.client("elbv2").describe_target_groups()["TargetGroups"],
        "clusters": lambda: [
            each
            for each in cloud.client("ecs").describe_clusters(clusters=CLUSTERS)["clusters"]
            if each["status"] == "ACTIVE"
        ],
        "capacity": lambda: cloud.client("ecs").describe_capacity_providers(capacityProviders=CAPACITY)[
            "capacityProviders"
        ],
        "scaling": lambda: cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"],
        "queues": lambda: cloud.client("sqs").list_queues().get("QueueUrls", []),
        "rules": lambda: cloud.client("events").list_rules()["Rules"],
        "topics": lambda: cloud.client("sns").list_topics()["Topics"],
        "alarms": lambda: cloud.client("cloudwatch").describe_alarms()["MetricAlarms"],
        "budgets": lambda: cloud.client("budgets").describe_budgets(AccountId="123456789012").get("Budgets", []),
        "logs": lambda: cloud.client("logs").describe_log_groups()["logGroups"],
    }
    return {name: len(listed()) for name, listed in ask.items()}


def test_nothing_was_skipped(dev: Cloud) -> None:
    """A type that moto makes nothing of has no id, although its stack is called complete."""
    for name in ORDER:
        listed = dev.client("cloudformation").describe_stack_resources(StackName=f"limbeck-dev-{name}")[
            "StackResources"
        ]
        # What a condition leaves out, moto lists without a name.
        made = {resource["LogicalResourceId"]: resource for resource in listed if "LogicalResourceId" in resource}
        template = load_templates()[name]
        assert set(made) == {key for key, resource in template["Resources"].items() if "Condition" not in resource}
        assert all(
            resource.get("PhysicalResourceId") or resource["ResourceType"] in NAMELESS for resource in made.values()
        ), name
        assert {resource["ResourceStatus"] for resource in listed} == {"CREATE_COMPLETE"}


def test_no_request_meets_a_connection_that_its_server_closes() -> None:
    """A proxy forgets a connection before the server behind it does, and a websocket is never as silent as that."""
    control = load_templates()["control"]["Resources"]
    attributes = control["LoadBalancer"]["Properties"]["LoadBalancerAttributes"]
    (balancer,) = [float(one["Value"]) for one in attributes if one["Key"] == "idle_timeout.timeout_seconds"]
    assert PING_SECONDS < balancer < KEPT_SECONDS
    (mlflow,) = re.findall(r"--timeout-keep-alive (\d+)", json.dumps(control["MlflowTask"]))
    assert balancer < float(mlflow)
    of_containers = (FOLDER.parent / "containers" / "nginx.conf").read_text()
    for text in (of_containers, nginx_conf(Stack(Path("stack"), Settings()))):
        (kept,) = re.findall(r"keepalive_timeout (\d+)s", text)
        assert PING_SECONDS <= float(kept) < KEPT_SECONDS


def test_every_shim_is_needed(dev: Cloud) -> None:
    used = {resource["Type"] for template in load_templates().values() for resource in template["Resources"].values()}
    assert set(SHIMS) <= used


def test_dev_pays_for_no_nat_gateway_and_prod_does(dev: Cloud) -> None:
    assert inventory(dev)["nat"] == 0 and inventory(dev)["addresses"] == 0
    network = outputs(dev, "limbeck-dev-network")
    assert (network["TaskPublicIp"], network["InstancePublicIp"], network["WorkerSubnets"]) == (
        "ENABLED",
        "true",
        network["LoadBalancerSubnets"],
    )
    assert up(dev, "prod") == []
    try:
        network = outputs(dev, "limbeck-prod-network")
        assert (network["TaskPublicIp"], network["InstancePublicIp"]) == ("DISABLED", "false")
        assert network["WorkerSubnets"] != network["LoadBalancerSubnets"] and inventory(dev)["nat"] == 2
    finally:
        down(dev, "prod")


def test_workers_are_in_every_zone_that_has_the_gpu(dev: Cloud) -> None:
    """By the runbook's own question; with private subnets each zone has its NAT gateway, and S3 is reached from all."""
    (line,) = re.findall(r"^zones\(\) .*$", RUNBOOK.read_text(), re.MULTILINE)
    assert "describe-instance-type-offerings --location-type availability-zone" in line
    ec2 = dev.client("ec2")
    offered = ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["g5.xlarge"]}]
    )["InstanceTypeOfferings"]
    zones = sorted(each["Location"] for each in offered)
    assert len(zones) == 3
    assert up(dev, "prod", ("network",), Zones=",".join(zones)) == []
    try:
        network = outputs(dev, "limbeck-prod-network")
        subnets = ec2.describe_subnets(SubnetIds=network["WorkerSubnets"].split(","))["Subnets"]
        assert sorted(each["AvailabilityZone"] for each in subnets) == zones and inventory(dev)["nat"] == 3
        (endpoint,) = [
            each for each in ec2.describe_vpc_endpoints()["VpcEndpoints"] if each["VpcId"] == network["VpcId"]
        ]
        assert len(set(endpoint["RouteTableIds"])) == 4
    finally:
        dev.client("cloudformation").delete_stack(StackName="limbeck-prod-network")


def test_nobody_comes_in_from_everywhere(dev: Cloud) -> None:
    """What moto made of the groups, and not only what the templates say."""
    groups = {group["GroupId"]: group for group in dev.client("ec2").describe_security_groups()["SecurityGroups"]}
    network = outputs(dev, "limbeck-dev-network")
    coming = {
        name: groups[network[name]]["IpPermissions"]
        for name in ("LoadBalancerGroup", "ServerGroup", "WorkerGroup", "DatabaseGroup")
    }
    assert coming["WorkerGroup"] == []
    ports = {name: {(rule["FromPort"], rule["ToPort"]) for rule in rules} for name, rules in coming.items()}
    assert ports == {
        "LoadBalancerGroup": {(443, 443)},
        "ServerGroup": {(4200, 4200), (5000, 5000)},
        "WorkerGroup": set(),
        "DatabaseGroup": {(5432, 5432)},
    }
    assert "0.0.0.0/0" not in json.dumps(coming) and network["WorkerGroup"] in json.dumps(coming["LoadBalancerGroup"])


def test_capacity_starts_at_zero_and_is_spot(dev: Cloud) -> None:
    workers = outputs(dev, "limbeck-dev-workers")
    (group,) = dev.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (group["MinSize"], group["DesiredCapacity"], group["MaxSize"]) == (0, 0, 2) and group[
        "NewInstancesProtectedFromScaleIn"
    ]
    policy = group["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"]["OnDemandPercentageAboveBaseCapacity"] == 0
    assert [each["InstanceType"] for each in policy["LaunchTemplate"]["Overrides"]] == [
        "g5.xlarge",
        "g5.2xlarge",
        "g5.4xlarge",
    ]
    (provider,) = dev.client("ecs").describe_capacity_providers(capacityProviders=[workers["Capacity"]])[
        "capacityProviders"
    ]
    assert provider["autoScalingGroupProvider"]["autoScalingGroupArn"] == workers["Instances"]
    (cluster,) = dev.client("ecs").describe_clusters(clusters=[workers["Cluster"]])["clusters"]
    assert cluster["capacityProviders"] == [workers["Capacity"]]
    assert [each["capacityProvider"] for each in cluster["defaultCapacityProviderStrategy"]] == [workers["Capacity"]]


def test_instances_join_the_cluster_and_want_a_token(dev: Cloud) -> None:
    import base64

    ec2 = dev.client("ec2")
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    (version,) = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])[
        "LaunchTemplateVersions"
    ]
    data = version["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required" and data["ImageId"].startswith("ami-")
    assert "ECS_CLUSTER=limbeck-dev-gpu\n" in base64.b64decode(data["UserData"]).decode()


def test_events_of_the_cluster_reach_the_queue(dev: Cloud) -> None:
    workers, events = outputs(dev, "limbeck-dev-workers"), dev.client("events")
    (rule,) = [rule for rule in events.list_rules()["Rules"] if "ECS Task State Change" in rule["EventPattern"]]
    assert json.loads(rule["EventPattern"])["detail"] == {"clusterArn": [workers["Cluster"]]}
    (target,) = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    sqs = dev.client("sqs")
    url = sqs.get_queue_url(QueueName=workers["EventsQueue"])["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["QueueArn"] == target["Arn"] and workers["LostEventsQueue"] in attributes["RedrivePolicy"]
    assert rule["Arn"] in attributes["Policy"]


def test_servers_find_their_database_and_their_secrets(dev: Cloud) -> None:
    """References across the stacks lead somewhere: a container's secrets are secrets that exist."""
    ecs, known = (
        dev.client("ecs"),
        {secret["ARN"] for secret in dev.client("secretsmanager").list_secrets()["SecretList"]},
    )
    (database,) = dev.client("rds").describe_db_instances()["DBInstances"]
    (subnets,) = dev.client("rds").describe_db_subnet_groups()["DBSubnetGroups"]
    assert {each["SubnetIdentifier"] for each in subnets["Subnets"]} == set(
        outputs(dev, "limbeck-dev-network")["DatabaseSubnets"].split(",")
    )
    for family in FAMILIES:
        task = ecs.describe_task_definition(taskDefinition=family)["taskDefinition"]
        for container in task["containerDefinitions"]:
            assert container["image"].rsplit("@", 1)[-1] in (CHOSEN["ImageDigest"], CHOSEN["DispatcherDigest"])
            named = {
                secret["valueFrom"]
                .removesuffix("::")
                .removesuffix(":password")
                .removesuffix(":username")
                .removesuffix(":letters")
                for secret in container.get("secrets", [])
            }
            assert named and named <= known, family
            addresses = [each["value"] for each in container["environment"] if "postgresql" in each["value"]]
            assert all(database["Endpoint"]["Address"] in address for address in addresses)
    assert {service["serviceName"] for service in services(dev)} == {"prefect", "mlflow", "cpu-worker", "dispatcher"}


def services(cloud: Cloud) -> list[dict[str, Any]]:
    """Return the services of the control cluster."""
    ecs = cloud.client("ecs")
    names = ecs.list_services(cluster="limbeck-dev-control")["serviceArns"]
    found: list[dict[str, Any]] = ecs.describe_services(cluster="limbeck-dev-control", services=names)["services"]
    return found


def test_the_bucket_refuses_plain_http(dev: Cloud) -> None:
    storage, s3 = outputs(dev, "limbeck-dev-storage"), dev.client("s3")
    for name in ("Artifacts", "AccessLogs"):
        policy = json.loads(s3.get_bucket_policy(Bucket=storage[name])["Policy"])
        assert (
            policy["Statement"][0]["Effect"] == "Deny"
            and policy["Statement"][0]["Resource"][1] == f"arn:aws:s3:::{storage[name]}/*"
        )
    (rule,) = s3.get_bucket_encryption(Bucket=storage["Artifacts"])["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"] == storage["KeyArn"]
    assert storage["Store"] == f"s3://{storage['Artifacts']}/store"


def test_alarms_ring_on_the_topic(dev: Cloud) -> None:
    topic, alarms = (
        outputs(dev, "limbeck-dev-guardrails")["Topic"],
        dev.client("cloudwatch").describe_alarms()["MetricAlarms"],
    )
    assert {alarm["AlarmName"].removeprefix("limbeck-dev-") for alarm in alarms} == {
        "idle-gpu",
        "busy-gpu",
        "deaf-observer",
        "lost-events",
        "database-crowded",
        "database-full",
        "prefect-down",
        "mlflow-down",
        "cpu-worker-down",
        "dispatcher-down",
        "waiting-gpu",
    }
    assert all(alarm["AlarmActions"] == [topic] for alarm in alarms)
    (subscribed,) = dev.client("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert subscribed["Endpoint"] == "team@example.com"
    (budget,) = dev.client("budgets").describe_budgets(AccountId="123456789012")["Budgets"]
    assert float(budget["BudgetLimit"]["Amount"]) == 200
