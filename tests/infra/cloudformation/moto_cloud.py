"""A moto server that knows the resource types of CloudFormation that moto itself leaves out.

moto calls a stack complete although it made nothing of a type that it does not know; with these there is none left
among ours. Each is made by a call of AWS's own API, whose model checks names and types on the way. moto also drops
properties of types that it knows: those are held by the reviewed snapshot (``template_snapshot.py``), not here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.model import ListShape, Shape, StructureShape
from botocore.validate import ParamValidator
from moto.cloudformation import parsing
from moto.core.base_backend import BackendDict
from moto.core.common_models import CloudFormationModel
from moto.rds.models import DBParameterGroup
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from tests.web_server import free_port

REGION = "eu-central-1"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}  # moto asks for some
Values = dict[str, Any]


class Cloud:
    """A moto server and how to reach it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.client = cache(self.new_client)

    def new_client(self, service: str) -> Any:
        """Return a client of one of its services."""
        own = {name.lower(): value for name, value in KEYS.items()}
        return boto3.session.Session().client(service, endpoint_url=self.endpoint, region_name=REGION, **own)

    def environment(self) -> dict[str, str]:
        """Return the usual AWS settings."""
        return KEYS | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@dataclass(frozen=True)
class Shim:
    """How to make, and remove, a resource of a type that moto leaves out."""

    service: str
    operation: str
    id: Callable[[Values, Values], str]
    remove: Callable[[Any, str], Any] = lambda client, made: None
    prepared: Callable[[Values], Values] = lambda given: given


def named(name: str) -> Callable[[Values, Values], str]:
    """Tell a resource by one of its own properties."""
    return lambda given, answer: str(given[name])


def with_a_secret(given: Values) -> Values:
    """Make up the secret that AWS would generate."""
    if "GenerateSecretString" in given:
        made = given.pop("GenerateSecretString")
        secret = "".join(chr(97 + number % 26) for number in range(int(made["PasswordLength"])))
        given["SecretString"] = json.dumps(
            json.loads(made["SecretStringTemplate"]) | {made["GenerateStringKey"]: secret}
        )
    return given


def remove_routes(ec2: Any, table: str) -> None:
    """Remove a table of routes, and its ties to subnets, which moto forgets as well; the last one of a network may have
    gone with it.

    AWS removes what refers to something before it. moto goes in any order, and tries again what was refused: so a table
    in use is refused.
    """
    users = [
        end
        for end in ec2.describe_vpc_endpoints()["VpcEndpoints"]
        if table in end.get("RouteTableIds", []) and end["State"] != "deleted"
    ]
    if users:
        raise RuntimeError(f"{table} is in use")
    for found in ec2.describe_route_tables(Filters=[{"Name": "route-table-id", "Values": [table]}])["RouteTables"]:
        for tie in found["Associations"]:
            ec2.disassociate_route_table(AssociationId=tie["RouteTableAssociationId"])
        ec2.delete_route_table(RouteTableId=table)


def policy_text(given: Values) -> str:
    """Return a policy as the API takes it."""
    return json.dumps(given["PolicyDocument"])


def valid_action(given: Values) -> Values:
    """Check the request that would create an action of a budget; return the question about its budget."""
    operation = boto3.client("budgets", REGION).meta.service_model.operation_model("CreateBudgetAction")
    threshold = {f"ActionThreshold{name}": value for name, value in given["ActionThreshold"].items()}
    subscribers = [{"SubscriptionType": one["Type"], "Address": one["Address"]} for one in given["Subscribers"]]
    asked = {"AccountId": "123456789012", **given, "ActionThreshold": threshold, "Subscribers": subscribers}
    wrong = ParamValidator().validate(as_the_api_has_it(asked, operation.input_shape), operation.input_shape)
    if wrong.has_errors():
        raise ValueError(wrong.generate_report())
    return {"AccountId": "123456789012", "BudgetName": given["BudgetName"]}


SHIMS = {
    "AWS::ECS::CapacityProvider": Shim(
        "ecs",
        "create_capacity_provider",
        named("Name"),
        lambda client, made: client.delete_capacity_provider(capacityProvider=made),
    ),
    "AWS::ECS::ClusterCapacityProviderAssociations": Shim("ecs", "put_cluster_capacity_providers", named("Cluster")),
    "AWS::SecretsManager::Secret": Shim(
        "secretsmanager",
        "create_secret",
        lambda given, answer: str(answer["ARN"]),
        lambda client, made: client.delete_secret(SecretId=made, ForceDeleteWithoutRecovery=True),
        with_a_secret,
    ),
    "AWS::S3::BucketPolicy": Shim(
        "s3",
        "put_bucket_policy",
        named("Bucket"),
        prepared=lambda given: {"Bucket": given["Bucket"], "Policy": policy_text(given)},
    ),
    "AWS::SQS::QueuePolicy": Shim(
        "sqs",
        "set_queue_attributes",
        named("QueueUrl"),
        prepared=lambda given: {"QueueUrl": given["Queues"][0], "Attributes": {"Policy": policy_text(given)}},
    ),
    "AWS::SNS::TopicPolicy": Shim(
        "sns",
        "set_topic_attributes",
        named("TopicArn"),
        prepared=lambda given: {
            "TopicArn": given["Topics"][0],
            "AttributeName": "Policy",
            "AttributeValue": policy_text(given),
        },
    ),
    "AWS::SNS::Subscription": Shim(
        "sns",
        "subscribe",
        lambda given, answer: str(answer["SubscriptionArn"]),
        lambda client, made: client.unsubscribe(SubscriptionArn=made),
    ),
    "AWS::CloudWatch::Alarm": Shim(
        "cloudwatch",
        "put_metric_alarm",
        named("AlarmName"),
        lambda client, made: client.delete_alarms(AlarmNames=[made]),
    ),
    "AWS::Budgets::Budget": Shim(
        "budgets",
        "create_budget",
        lambda given, answer: str(given["Budget"]["BudgetName"]),
        lambda client, made: client.delete_budget(AccountId="123456789012", BudgetName=made),
        lambda given: {"AccountId": "123456789012", **given},
    ),
    # moto has no actions of budgets: the request is checked against AWS's own description, and its budget must exist.
    "AWS::Budgets::BudgetsAction": Shim(
        "budgets",
        "describe_budget",
        lambda given, answer: f"action-of-{given['BudgetName']}",
        prepared=lambda given: valid_action(given),
    ),
}
"""What moto leaves out, by type."""

FORGOTTEN: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "AWS::EC2::VPCEndpoint": ("ec2", lambda client, made: client.delete_vpc_endpoints(VpcEndpointIds=[made])),
    "AWS::EC2::RouteTable": ("ec2", lambda client, made: remove_routes(client, made)),
    "AWS::EC2::NatGateway": ("ec2", lambda client, made: client.delete_nat_gateway(NatGatewayId=made)),
    "AWS::EC2::EIP": ("ec2", lambda client, made: client.release_address(PublicIp=made)),
    "AWS::ECS::Cluster": ("ecs", lambda client, made: client.delete_cluster(cluster=made)),
    "AWS::IAM::ManagedPolicy": ("iam", lambda client, made: client.delete_policy(PolicyArn=made)),
    "AWS::ElasticLoadBalancingV2::TargetGroup": (
        "elbv2",
        lambda client, made: client.delete_target_group(TargetGroupArn=made),
    ),
}
"""What moto makes but forgets to remove with its stack."""


def as_the_api_has_it(value: Any, shape: Shape) -> Any:
    """Return a value with the names and types of the API: CloudFormation's begin with capitals, and its parameters are
    all text."""
    if isinstance(shape, StructureShape):
        members = {name.lower(): name for name in shape.members}
        return {
            members[name.lower()]: as_the_api_has_it(item, shape.members[members[name.lower()]])
            for name, item in value.items()
        }
    if isinstance(shape, ListShape):
        return [as_the_api_has_it(item, shape.member) for item in value]
    numbers: dict[str, Callable[[Any], Any]] = {"integer": int, "long": int, "double": float}
    kinds = numbers | {"string": str, "boolean": lambda given: str(given).lower() == "true"}
    return kinds.get(shape.type_name, lambda given: given)(value)


class Left(CloudFormationModel):
    """A resource of a type that moto leaves out."""

    shim: Shim
    cloud: Cloud

    def __init__(self, made: str) -> None:
        self.physical_resource_id = made

    @classmethod
    def create_from_cloudformation_json(  # type: ignore[no-untyped-def,misc]
        cls, resource_name, cloudformation_json, account_id, region_name, **about
    ) -> Left:
        client = cls.cloud.client(cls.shim.service)
        given = cls.shim.prepared(dict(cloudformation_json["Properties"]))
        operation = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[cls.shim.operation])
        answer = getattr(client, cls.shim.operation)(**as_the_api_has_it(given, operation.input_shape))
        return cls(cls.shim.id(given, answer))

    @classmethod
    def delete_from_cloudformation_json(cls, resource_name, cloudformation_json, account_id, region_name) -> None:  # type: ignore[no-untyped-def]
        cls.shim.remove(cls.cloud.client(cls.shim.service), resource_name)

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return False

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    def is_created(self) -> bool:
        return True


@contextlib.contextmanager
def moto_cloud() -> Iterator[Cloud]:
    """Run moto, with what it leaves out, in this process; what was made in it is forgotten afterwards."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=free_port(), verbose=False)
    server.start()
    cloud = Cloud("http://{}:{}".format(*server.get_host_and_port()))
    others = buckets_here()
    try:
        with pytest.MonkeyPatch.context() as patch:
            complete(patch, cloud)
            yield cloud
    finally:
        server.stop()
        forget_types()
        forget_resources(others)


def buckets_here() -> set[str]:
    """Return the names of the buckets in moto's memory, which all its servers in this process share."""
    return {name for regions in s3_backends.values() for backend in regions.values() for name in backend.buckets}


def forget_resources(kept: set[str]) -> None:
    """Empty moto's memory, so that the next server begins with an empty account; the buckets ``kept`` stay: one belongs
    to the S3 server of the session where Ceph is not installed."""
    for services in [services for services in BackendDict._instances if services is not s3_backends]:
        for regions in services.values():
            regions.reset()
        services.clear()
        BackendDict._instances.remove(services)
    for name in buckets_here() - kept:
        for regions in s3_backends.values():
            for backend in regions.values():
                backend.buckets.pop(name, None)
        s3_backends.bucket_accounts.pop(name, None)


def complete(patch: pytest.MonkeyPatch, cloud: Cloud) -> None:
    """Add the types that moto leaves out, and what it forgets of others."""
    known = [model for model in CloudFormationModel.__subclasses__() if model is not Left]
    extra = [shim_model(kind, shim, cloud) for kind, shim in SHIMS.items()]
    for model in known:
        if model.cloudformation_type() in FORGOTTEN:
            patch.setattr(
                model, "delete_from_cloudformation_json", removal(cloud, *FORGOTTEN[model.cloudformation_type()])
            )
    # moto forgot, too, what a reference to a parameter group is.
    patch.setattr(DBParameterGroup, "physical_resource_id", DBParameterGroup.name, raising=False)
    patch.setattr(parsing, "get_model_list", lambda: [*known, *extra])
    forget_types()


def shim_model(kind: str, shim: Shim, cloud: Cloud) -> type[Left]:
    """Return moto's model of a type that it leaves out."""
    return type(
        kind.replace("::", ""),
        (Left,),
        {"shim": shim, "cloud": cloud, "cloudformation_type": staticmethod(lambda: kind)},
    )


def removal(cloud: Cloud, service: str, remove: Callable[[Any, str], Any]) -> Any:
    """Return the method that removes what a stack made."""
    return classmethod(lambda model, made, *about: remove(cloud.client(service), made) and None)


def forget_types() -> None:
    """Let moto look again for the types that it knows."""
    parsing.get_model_map.cache_clear()
    parsing.get_name_type_map.cache_clear()
