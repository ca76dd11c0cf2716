"""What must be true of the cloud's templates: every property that keeps people out, money in, or work safe, as a check
with a name.

moto, to which the stacks are deployed, drops most of these properties without a word, so they are read here where they
are written. A check gets all templates and yields what is wrong; ``test_templates.py`` runs them on the templates as
they are, and as an attacker would have them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from tests.infra.templates import Templates, containers, many, one, resources, statements, words

Check = Callable[[Templates], Iterator[str]]
EVERYONE = ("0.0.0.0/0", "::/0")
MAY_REMOVE = ("leases", "checkpoints", "temporary", "manifests")
ACCOUNT = {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
READS = {
    "ExecutionRole": {"PrefectAuth", "MlflowWorker"},
    "WorkerExecutionRole": {"PrefectAuth", "MlflowWorker"},
    "ServerExecutionRole": {"DatabaseSecret", "PrefectAuth", "PrefectEncryption", "MlflowAdmin"},
}
"""Which role may read which secrets."""


# --- the network ---


def rules(templates: Templates, way: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every rule of every security group, by the group's name; ``way`` is Ingress or Egress."""
    for group, properties in resources(templates, "AWS::EC2::SecurityGroup"):
        yield from ((group, rule) for rule in properties.get(f"SecurityGroup{way}", []))
    for _, rule in resources(templates, f"AWS::EC2::SecurityGroup{way}"):
        yield words(rule["GroupId"]).strip("${}"), rule


def no_open_port(templates: Templates) -> Iterator[str]:
    """Nobody comes in but clients, workers and the load balancer, each by one port."""
    allowed = {
        ("LoadBalancerGroup", 443, "${ClientCidr}"),
        ("LoadBalancerGroup", 443, "${WorkerGroup}"),
        ("LoadBalancerGroup", 443, "${NatAddress}/32"),
        ("ServerGroup", 4200, "${LoadBalancerGroup}"),
        ("ServerGroup", 5000, "${LoadBalancerGroup}"),
        ("DatabaseGroup", 5432, "${ServerGroup}"),
    }
    for group, rule in rules(templates, "Ingress"):
        source = words(rule.get("CidrIp") or rule.get("CidrIpv6") or rule.get("SourceSecurityGroupId"))
        if (group, rule.get("FromPort"), source) not in allowed or rule.get("FromPort") != rule.get("ToPort"):
            yield f"{group} lets {source} in on {rule.get('FromPort')} to {rule.get('ToPort')}"


def clients_are_never_everyone(templates: Templates) -> Iterator[str]:
    """Who may reach the servers must be said, and cannot be the whole internet."""
    given = templates["network"]["Parameters"]["ClientCidr"]
    if "Default" in given or any(
        re.match(given["AllowedPattern"], cidr) for cidr in ("0.0.0.0/0", "1.2.3.4/0", "0.0.0.0/7")
    ):
        yield "ClientCidr may be everyone"


def workers_call_by_https_alone(templates: Templates) -> Iterator[str]:
    for group, rule in rules(templates, "Egress"):
        if group == "WorkerGroup" and (rule["FromPort"], rule["ToPort"]) != (443, 443):
            yield f"workers may call ports {rule['FromPort']} to {rule['ToPort']}"


def the_database_has_no_way_out(templates: Templates) -> Iterator[str]:
    for name, route in resources(templates, "AWS::EC2::Route"):
        if words(route["RouteTableId"]) == "${DatabaseRoutes}":
            yield f"{name} leads out of the database's subnets"


def no_nat_unless_asked_for(templates: Templates) -> Iterator[str]:
    if templates["network"]["Parameters"]["PrivateSubnets"]["Default"] != "no":
        yield "a NAT gateway is paid for by default"
    for name, resource in templates["network"]["Resources"].items():
        if resource["Type"] in ("AWS::EC2::NatGateway", "AWS::EC2::EIP") and resource.get("Condition") != "IsPrivate":
            yield f"{name} is there although nobody asked"


def outside_needs_a_known_address(templates: Templates) -> Iterator[str]:
    """A load balancer that faces the internet must know the address of its workers, which only a NAT gateway gives
    them."""
    asserted = [rule["Assertions"][0]["Assert"] for rule in templates["network"].get("Rules", {}).values()]
    if {"Fn::Equals": [{"Ref": "PrivateSubnets"}, "yes"]} not in asserted:
        yield "internet-facing does not need private subnets"
    if templates["network"]["Parameters"]["LoadBalancerScheme"]["Default"] != "internal":
        yield "the load balancer faces the internet by default"


def addresses_are_given_one_by_one(templates: Templates) -> Iterator[str]:
    for name, subnet in resources(templates, "AWS::EC2::Subnet"):
        if subnet.get("MapPublicIpOnLaunch") is not False:
            yield f"{name} gives a public address to whatever starts in it"


def artifacts_travel_inside(templates: Templates) -> Iterator[str]:
    endpoint = one(templates, "network", "S3Endpoint")
    if endpoint["VpcEndpointType"] != "Gateway" or "PublicRoutes" not in json.dumps(endpoint["RouteTableIds"]):
        yield "S3 is reached over the internet"


# --- what is kept ---


def buckets_are_private(templates: Templates) -> Iterator[str]:
    wanted = dict.fromkeys(("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True)
    for name, bucket in resources(templates, "AWS::S3::Bucket"):
        if bucket.get("PublicAccessBlockConfiguration") != wanted or "AccessControl" in bucket:
            yield f"{name} may become public"
        if bucket.get("OwnershipControls") != {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}:
            yield f"{name} still has access lists"


def buckets_keep_old_versions(templates: Templates) -> Iterator[str]:
    for name, bucket in resources(templates, "AWS::S3::Bucket"):
        if bucket.get("VersioningConfiguration") != {"Status": "Enabled"}:
            yield f"{name} loses what is overwritten"


def buckets_are_encrypted(templates: Templates) -> Iterator[str]:
    for name, bucket in resources(templates, "AWS::S3::Bucket"):
        encryption = (
            bucket.get("BucketEncryption", {})
            .get("ServerSideEncryptionConfiguration", [{}])[0]
            .get("ServerSideEncryptionByDefault", {})
        )
        wanted = ("aws:kms", "${Key.Arn}") if name == "Artifacts" else ("AES256", "null")
        if (encryption.get("SSEAlgorithm"), words(encryption.get("KMSMasterKeyID"))) != wanted:
            yield f"{name} is encrypted by {encryption or 'nothing'}"


def buckets_are_reached_by_tls_alone(templates: Templates) -> Iterator[str]:
    policies = {
        words(policy["Bucket"]).strip("${}"): policy["PolicyDocument"]["Statement"]
        for _, policy in resources(templates, "AWS::S3::BucketPolicy")
    }
    for name, _ in resources(templates, "AWS::S3::Bucket"):
        if not any(refuses_plain(statement, f"{name}.Arn") for statement in policies.get(name, [])):
            yield f"{name} may be read without TLS"


def refuses_plain(statement: dict[str, Any], arn: str) -> bool:
    """Tell whether a statement denies everything on a bucket and its objects to whoever comes without TLS."""
    covered = {words(resource) for resource in many(statement["Resource"])} >= {f"${{{arn}}}", f"${{{arn}}}/*"}
    plain = statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
    return (
        covered
        and plain
        and (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    )


def checkpoints_and_old_versions_go_away(templates: Templates) -> Iterator[str]:
    rules_of = {
        rule["Id"]: rule
        for rule in one(templates, "storage", "Artifacts")["LifecycleConfiguration"]["Rules"]
        if rule["Status"] == "Enabled"
    }
    if (
        rules_of.get("checkpoints", {}).get("Prefix") != "store/checkpoints/"
        or "ExpirationInDays" not in rules_of["checkpoints"]
    ):
        yield "checkpoints stay for ever"
    if "AbortIncompleteMultipartUpload" not in rules_of.get(
        "unfinished-uploads", {}
    ) or "NoncurrentVersionExpiration" not in rules_of.get("old-versions", {}):
        yield "unfinished uploads or old versions stay for ever"
    if any(
        rule.get("Prefix", "/").startswith(("store/objects", "store/manifests", "mlflow")) for rule in rules_of.values()
    ):
        yield "results go away by themselves"


def access_to_artifacts_is_logged(templates: Templates) -> Iterator[str]:
    if (
        words(one(templates, "storage", "Artifacts").get("LoggingConfiguration", {}).get("DestinationBucketName"))
        != "${AccessLogs}"
    ):
        yield "nobody writes down who reads artifacts"


def keys_turn_over(templates: Templates) -> Iterator[str]:
    for name, key in resources(templates, "AWS::KMS::Key"):
        if key.get("EnableKeyRotation") is not True:
            yield f"{name} stays the same for ever"


def images_never_change(templates: Templates) -> Iterator[str]:
    for name, repository in resources(templates, "AWS::ECR::Repository"):
        if repository.get("ImageTagMutability") != "IMMUTABLE" or repository.get("ImageScanningConfiguration") != {
            "ScanOnPush": True
        }:
            yield f"{name}: a tag may come to mean another image, or images are not scanned"
        if repository.get("EncryptionConfiguration", {}).get("EncryptionType") != "KMS":
            yield f"{name} is not encrypted with our key"
    for name in ("ImageTag", "DispatcherTag"):
        given = templates["control"]["Parameters"][name]
        if (
            "Default" in given
            or re.match(given["AllowedPattern"], "latest")
            or not re.match(given["AllowedPattern"], "cpu-0.1.0")
        ):
            yield f"{name} may be latest"


def secrets_are_made_there(templates: Templates) -> Iterator[str]:
    """No secret's value is in a template, or was ever in anybody's hands."""
    for name, secret in resources(templates, "AWS::SecretsManager::Secret"):
        literal = re.sub(
            r"\{\{resolve:secretsmanager:[^}]*\}?[^}]*\}\}|^limbeck:|=$", "", words(secret.get("SecretString", ""))
        )
        if literal or ("SecretString" not in secret and secret["GenerateSecretString"].get("PasswordLength", 0) < 40):
            yield f"{name} is written down in the template, or short"
        if words(secret.get("KmsKeyId")) != "${Key.Arn}":
            yield f"{name} is not encrypted with our key"


# --- who may do what ---


@cache
def actions_of_aws() -> dict[str, Any]:
    """Return what AWS says of every action: whether it can be limited to resources. cfn-lint brings the table."""
    table: dict[str, Any] = json.loads(files("cfnlint.data.AdditionalSpecs").joinpath("Policies.json").read_text())
    return table


def actions(statement: dict[str, Any]) -> list[str]:
    """Return what a statement is about; everything, where it names what it is not about."""
    return ["*"] if "NotAction" in statement or "NotResource" in statement else many(statement["Action"])


def can_be_limited(action: str) -> bool:
    """Tell whether AWS lets a policy name the resources of an action."""
    service, name = action.split(":")
    return "Resources" in actions_of_aws()[service]["Actions"][name.lower()]


def no_wildcard_action(templates: Templates) -> Iterator[str]:
    for role, statement in statements(templates):
        for action in actions(statement):
            if "*" in action or statement["Effect"] != "Allow":
                yield f"{role} may do {action}"
            elif action.lower().split(":")[1] not in actions_of_aws()[action.split(":")[0]]["Actions"]:
                yield f"{role} may do {action}, which AWS does not know"


def no_wildcard_resource(templates: Templates) -> Iterator[str]:
    """A bare star stands only where AWS lets nothing else stand."""
    for role, statement in statements(templates):
        everything = "*" in [words(resource) for resource in many(statement["Resource"])]
        loose = [action for action in actions(statement) if "*" in action or can_be_limited(action)]
        if everything and loose:
            yield f"{role} may do {', '.join(loose)} to everything"


def no_policies_of_others(templates: Templates) -> Iterator[str]:
    """What AWS or somebody else keeps, may allow more tomorrow than it does today."""
    for role, properties in resources(templates, "AWS::IAM::Role"):
        if properties.get("ManagedPolicyArns") or not properties.get("Policies"):
            yield f"{role} has a managed policy, or none at all"
    for kind in ("ManagedPolicy", "Policy", "User", "AccessKey"):
        yield from (f"{name} is attached from outside" for name, _ in resources(templates, f"AWS::IAM::{kind}"))


def roles_are_taken_by_whom_they_are_for(templates: Templates) -> Iterator[str]:
    for role, properties in resources(templates, "AWS::IAM::Role"):
        (statement,) = properties["AssumeRolePolicyDocument"]["Statement"]
        principal, condition = statement["Principal"], statement.get("Condition")
        own_tasks = principal == {"Service": "ecs-tasks.amazonaws.com"} and condition == {
            "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        }
        people = (
            role == "UpkeepRole"
            and principal == ACCOUNT
            and condition == {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
        )
        instances = role == "InstanceRole" and principal == {"Service": "ec2.amazonaws.com"}
        if statement["Action"] != "sts:AssumeRole" or not (own_tasks or people or instances):
            yield f"{role} may be taken by {principal} under {condition}"


def workers_remove_no_artifacts(templates: Templates) -> Iterator[str]:
    for role, statement in statements(templates):
        removing = [
            action
            for action in actions(statement)
            if re.match(r"s3:(Delete|PutLifecycle|PutBucket|PutEncryption|PutObjectAcl)", action)
        ]
        resources_of = [words(resource) for resource in many(statement["Resource"])]
        inside = all(re.search(rf"/store/({'|'.join(MAY_REMOVE)})/\*$", resource) for resource in resources_of)
        if role != "UpkeepRole" and (set(removing) - {"s3:DeleteObject"} or (removing and not inside)):
            yield f"{role} may {', '.join(removing)} on {', '.join(resources_of)}"
        if role == "UpkeepRole" and set(removing) - {"s3:DeleteObject"}:
            yield f"{role} may remove old versions"


def one_role_hands_two_roles_on(templates: Templates) -> Iterator[str]:
    for role, statement in statements(templates):
        if "iam:PassRole" in actions(statement):
            passed = {words(resource) for resource in many(statement["Resource"])}
            limited = statement.get("Condition") == {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
            if role != "DispatcherRole" or passed != {"${TaskRole.Arn}", "${ExecutionRole.Arn}"} or not limited:
                yield f"{role} may hand on {', '.join(sorted(passed))}"


def tasks_start_in_one_cluster(templates: Templates) -> Iterator[str]:
    for role, statement in statements(templates):
        if "ecs:RunTask" in actions(statement):
            here = statement.get("Condition") == {"ArnEquals": {"ecs:cluster": {"Fn::GetAtt": ["Cluster", "Arn"]}}}
            if (
                role != "DispatcherRole"
                or not here
                or not words(statement["Resource"]).endswith(":task-definition/${Project}-*")
            ):
                yield f"{role} may start {words(statement['Resource'])} anywhere"


def secrets_are_read_by_those_who_need_them(templates: Templates) -> Iterator[str]:
    for role, statement in statements(templates):
        if any(action.startswith("secretsmanager:") for action in actions(statement)):
            read = {words(resource).rsplit("-", 1)[-1] for resource in many(statement["Resource"])}
            if actions(statement) != ["secretsmanager:GetSecretValue"] or read != READS.get(role):
                yield f"{role} may {statement['Action']} of {', '.join(sorted(read))}"


def keys_obey_the_account(templates: Templates) -> Iterator[str]:
    for name, key in resources(templates, "AWS::KMS::Key"):
        for statement in key["KeyPolicy"]["Statement"]:
            owner = statement["Principal"] == ACCOUNT
            if not owner and (
                "kms:*" in many(statement["Action"])
                or not statement.get("Condition")
                or "Service" not in statement["Principal"]
            ):
                yield f"{name} obeys {statement['Principal']}"


def doors_open_for_their_own_guest(templates: Templates) -> Iterator[str]:
    """A queue, a topic or a bucket that lets a service of AWS in says on whose behalf."""
    kinds = ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy")
    for kind in kinds:
        for name, policy in resources(templates, kind):
            written = policy["PolicyDocument"]["Statement"]
            for statement in written:
                guest = json.dumps(statement.get("Condition", {})).count("aws:Source") or "logdelivery" in json.dumps(
                    statement["Principal"]
                )
                if statement["Effect"] == "Allow" and (
                    "Service" not in statement["Principal"] or not guest or "*" in json.dumps(statement["Action"])
                ):
                    yield f"{name} lets {statement['Principal']} {statement['Action']}"
            plain = [
                statement
                for statement in written
                if statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
            ]
            if not plain or plain[0]["Effect"] != "Deny":
                yield f"{name} does not refuse whoever comes without TLS"


# --- the servers ---


def listeners_speak_tls(templates: Templates) -> Iterator[str]:
    found = list(resources(templates, "AWS::ElasticLoadBalancingV2::Listener"))
    if len(found) != 1:
        yield f"there are {len(found)} listeners"
    for name, listener in found:
        if (
            (listener["Protocol"], listener["Port"]) != ("HTTPS", 443)
            or "TLS13" not in listener.get("SslPolicy", "")
            or not listener.get("Certificates")
        ):
            yield f"{name} speaks {listener['Protocol']} on {listener['Port']} by {listener.get('SslPolicy')}"
        if listener["DefaultActions"][0]["Type"] != "fixed-response":
            yield f"{name} serves names that nobody gave it"


def servers_want_a_password(templates: Templates) -> Iterator[str]:
    by_name = dict(containers(templates))
    prefect, mlflow = by_name["PrefectTask/prefect"], by_name["MlflowTask/mlflow"]
    if "PREFECT_SERVER_API_AUTH_STRING" not in names(prefect, "Secrets"):
        yield "Prefect's server asks for no password"
    if "--app-name basic-auth" not in mlflow["Command"][0] or "MLFLOW_AUTH_ADMIN_PASSWORD" not in names(
        mlflow, "Secrets"
    ):
        yield "MLflow's server asks for no password"
    if '--allowed-hosts "$ALLOWED_HOSTS"' not in mlflow["Command"][0]:
        yield "MLflow answers to any name"
    if "PREFECT_SERVER_ENCRYPTION_KEY" not in names(prefect, "Secrets"):
        yield "Prefect keeps the key of its secrets beside them"


def names(container: dict[str, Any], part: str) -> set[str]:
    """Return the names of a container's variables."""
    return {entry["Name"] for entry in container.get(part, [])}


def secrets_come_by_reference(templates: Templates) -> Iterator[str]:
    for name, container in containers(templates):
        for entry in container.get("Environment", []):
            if re.search(r"PASSWORD|SECRET|TOKEN|AUTH_STRING|ENCRYPTION|API_KEY", entry["Name"]) or re.search(
                r"://[^/@]*:[^/@$]+@", words(entry["Value"])
            ):
                yield f"{name} finds {entry['Name']} in the open"
    for stack, template in templates.items():
        for parameter in template["Parameters"]:
            if re.search(r"password|secret|token", parameter, re.IGNORECASE):
                yield f"{stack} asks for {parameter}"


def nothing_is_unpickled(templates: Templates) -> Iterator[str]:
    refused = {"Name": "MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "Value": "false"}
    for name, container in containers(templates):
        if "MLFLOW" in json.dumps(container.get("Environment", [])) and refused not in container["Environment"]:
            yield f"{name} may load a pickle"


def containers_have_no_power(templates: Templates) -> Iterator[str]:
    for name, container in containers(templates):
        if (
            container.get("Privileged")
            or container.get("LinuxParameters", {}).get("Capabilities") != {"Drop": ["ALL"]}
            or container.get("User") == "root"
        ):
            yield f"{name} has more rights than it needs"
        if container.get("LogConfiguration", {}).get("LogDriver") != "awslogs":
            yield f"{name} leaves no log"
    for name, service in resources(templates, "AWS::ECS::Service"):
        if service.get("EnableExecuteCommand") is not False:
            yield f"people may get into {name}"


def the_database_is_safe(templates: Templates) -> Iterator[str]:
    database, resource = one(templates, "control", "Database"), templates["control"]["Resources"]["Database"]
    wanted = {
        "PubliclyAccessible": False,
        "StorageEncrypted": True,
        "MultiAZ": {"Fn::If": ["IsProd", True, False]},
        "DeletionProtection": {"Fn::If": ["IsProd", True, False]},
        "CopyTagsToSnapshot": True,
        "AutoMinorVersionUpgrade": True,
    }
    for name, value in wanted.items():
        if database.get(name) != value:
            yield f"{name} is {database.get(name)}"
    if one(templates, "control", "DatabaseParameters")["Parameters"].get("rds.force_ssl") != "1":
        yield "it talks without TLS"
    if (resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")) != ("Snapshot", "Snapshot"):
        yield "it goes away without a last snapshot"
    if templates["control"]["Parameters"]["BackupDays"]["MinValue"] < 1 or "resolve:secretsmanager" not in words(
        database["MasterUserPassword"]
    ):
        yield "it has no back-ups, or its password is in the open"
    for name, container in containers(templates):
        for entry in container.get("Environment", []):
            if "postgresql" in words(entry["Value"]) and not re.search(r"ssl(mode)?=require$", words(entry["Value"])):
                yield f"{name} talks to it without TLS"


def logs_are_kept_a_while_and_encrypted(templates: Templates) -> Iterator[str]:
    for name, group in resources(templates, "AWS::Logs::LogGroup"):
        if not group.get("RetentionInDays") or "KeyArn" not in words(group.get("KmsKeyId")):
            yield f"{name} is kept for ever, or in the open"


# --- spot, and from zero ---


def metadata_want_a_token(templates: Templates) -> Iterator[str]:
    for name, template in resources(templates, "AWS::EC2::LaunchTemplate"):
        options = template["LaunchTemplateData"].get("MetadataOptions", {})
        if options != {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 2,
            "InstanceMetadataTags": "disabled",
        }:
            yield f"{name} serves metadata by {options}"


def disks_are_encrypted(templates: Templates) -> Iterator[str]:
    for name, template in resources(templates, "AWS::EC2::LaunchTemplate"):
        for device in template["LaunchTemplateData"]["BlockDeviceMappings"]:
            if device["Ebs"].get("Encrypted") is not True or device["Ebs"].get("DeleteOnTermination") is not True:
                yield f"{name}: {device['DeviceName']} can be read by whoever finds it"


def instances_take_nobody_in(templates: Templates) -> Iterator[str]:
    for name, template in resources(templates, "AWS::EC2::LaunchTemplate"):
        data = template["LaunchTemplateData"]
        groups = [words(group) for group in data["NetworkInterfaces"][0]["Groups"]]
        if "KeyName" in data or groups != ["import ${Project}-${Stage}-WorkerGroup"]:
            yield f"{name} lets people in by {groups}"


def capacity_scales_to_zero(templates: Templates) -> Iterator[str]:
    group, provider = (
        one(templates, "workers", "Instances"),
        one(templates, "workers", "Capacity")["AutoScalingGroupProvider"],
    )
    if (group["MinSize"], group["DesiredCapacity"]) != ("0", "0"):
        yield f"{group['MinSize']} instances are always there"
    if (
        provider.get("ManagedScaling", {}).get("Status") != "ENABLED"
        or provider["ManagedScaling"].get("TargetCapacity") != 100
    ):
        yield "nobody starts or ends instances"
    if (
        provider.get("ManagedTerminationProtection") != "ENABLED"
        or group.get("NewInstancesProtectedFromScaleIn") is not True
    ):
        yield "an instance may be ended under its task"
    (strategy,) = one(templates, "workers", "ClusterCapacity")["DefaultCapacityProviderStrategy"]
    if words(strategy["CapacityProvider"]) != "${Capacity}":
        yield "the cluster starts tasks elsewhere"


def capacity_is_spot(templates: Templates) -> Iterator[str]:
    policy = one(templates, "workers", "Instances")["MixedInstancesPolicy"]
    shares = policy["InstancesDistribution"]
    if (
        shares["OnDemandBaseCapacity"] != 0
        or words(shares["OnDemandPercentageAboveBaseCapacity"]) != "${OnDemandPercent}"
    ):
        yield "some instances are never spot"
    parameters = templates["workers"]["Parameters"]
    if parameters["OnDemandPercent"]["Default"] != 0 or shares["SpotAllocationStrategy"] != "price-capacity-optimized":
        yield "spot is not the default, or is taken where it is soon reclaimed"
    kinds = [words(override["InstanceType"]).strip("${}") for override in policy["LaunchTemplate"]["Overrides"]]
    if len({parameters[kind]["Default"] for kind in kinds}) < 3:
        yield "spot has too little choice"


def reclaims_are_heard(templates: Templates) -> Iterator[str]:
    """ECS drains what AWS announces; it hears nothing of what rebalancing takes away."""
    data = words(one(templates, "workers", "Template")["LaunchTemplateData"]["UserData"]["Fn::Base64"])
    for setting in (
        "ECS_ENABLE_SPOT_INSTANCE_DRAINING=true",
        "ECS_CONTAINER_STOP_TIMEOUT=110s",
        "ECS_ENABLE_GPU_SUPPORT=true",
        "ECS_DISABLE_PRIVILEGED=true",
    ):
        if setting not in data:
            yield f"the agent is not told {setting}"
    if one(templates, "workers", "Instances").get("CapacityRebalance") is not False:
        yield "rebalancing takes instances away without a word"
    if one(templates, "workers", "Capacity")["AutoScalingGroupProvider"].get("ManagedDraining") != "ENABLED":
        yield "instances are not drained"


def deaths_are_told(templates: Templates) -> Iterator[str]:
    rule, queue = one(templates, "workers", "TaskChanges"), one(templates, "workers", "Events")
    pattern = rule["EventPattern"]
    if (pattern["source"], pattern["detail-type"]) != (["aws.ecs"], ["ECS Task State Change"]) or words(
        rule["Targets"][0]["Arn"]
    ) != "${Events.Arn}":
        yield "what happens to tasks does not reach the queue"
    if (
        pattern.get("detail") != {"clusterArn": [{"Fn::GetAtt": ["Cluster", "Arn"]}]}
        or rule.get("State", "ENABLED") != "ENABLED"
    ):
        yield "other clusters are listened to, or none"
    if (
        queue.get("SqsManagedSseEnabled") is not True
        or queue["VisibilityTimeout"] < 300
        or queue["RedrivePolicy"]["maxReceiveCount"] > 10
    ):
        yield "the queue is in the open, or forgets"
    observer = dict(containers(templates))["DispatcherTask/dispatcher"]
    if "PREFECT_INTEGRATIONS_AWS_ECS_OBSERVER_SQS_QUEUE_NAME" not in names(observer, "Environment"):
        yield "the dispatcher does not listen to the queue"


# --- money ---


def money_is_watched(templates: Templates) -> Iterator[str]:
    budget = one(templates, "guardrails", "Budget")
    told = {entry["Notification"]["NotificationType"] for entry in budget["NotificationsWithSubscribers"]}
    if told != {"ACTUAL", "FORECASTED"} or budget["Budget"]["TimeUnit"] != "MONTHLY":
        yield "nobody is told when the budget is spent, or soon will be"
    alarms = dict(resources(templates, "AWS::CloudWatch::Alarm"))
    if not {"IdleGpu", "BusyGpu", "DeafObserver", "LostEvents"} <= set(alarms):
        yield "an alarm is missing"
    for name, alarm in alarms.items():
        if [words(action) for action in alarm.get("AlarmActions", [])] != ["${Topic}"] or alarm.get(
            "ActionsEnabled"
        ) is False:
            yield f"{name} rings where nobody hears it"
    if "KeyArn" not in words(one(templates, "guardrails", "Topic").get("KmsMasterKeyId")):
        yield "the topic is not encrypted"


def the_idle_alarm_sees_its_figures(templates: Templates) -> Iterator[str]:
    """Both of its metrics are ones that somebody must switch on."""
    idle = {metric["Id"]: metric for metric in one(templates, "guardrails", "IdleGpu")["Metrics"]}
    if "instances > 0" not in idle["idle"]["Expression"] or "tasks" not in idle["idle"]["Expression"]:
        yield "it does not compare instances with tasks"
    if one(templates, "workers", "Instances").get("MetricsCollection") != [
        {"Granularity": "1Minute", "Metrics": ["GroupInServiceInstances"]}
    ]:
        yield "instances are not counted"
    for stack in ("workers", "control"):
        if one(templates, stack, "Cluster")["ClusterSettings"] != [{"Name": "containerInsights", "Value": "enabled"}]:
            yield f"tasks of {stack} are not counted"


CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        no_open_port,
        clients_are_never_everyone,
        workers_call_by_https_alone,
        the_database_has_no_way_out,
        no_nat_unless_asked_for,
        outside_needs_a_known_address,
        addresses_are_given_one_by_one,
        artifacts_travel_inside,
        buckets_are_private,
        buckets_keep_old_versions,
        buckets_are_encrypted,
        buckets_are_reached_by_tls_alone,
        checkpoints_and_old_versions_go_away,
        access_to_artifacts_is_logged,
        keys_turn_over,
        images_never_change,
        secrets_are_made_there,
        no_wildcard_action,
        no_wildcard_resource,
        no_policies_of_others,
        roles_are_taken_by_whom_they_are_for,
        workers_remove_no_artifacts,
        one_role_hands_two_roles_on,
        tasks_start_in_one_cluster,
        secrets_are_read_by_those_who_need_them,
        keys_obey_the_account,
        doors_open_for_their_own_guest,
        listeners_speak_tls,
        servers_want_a_password,
        secrets_come_by_reference,
        nothing_is_unpickled,
        containers_have_no_power,
        the_database_is_safe,
        logs_are_kept_a_while_and_encrypted,
        metadata_want_a_token,
        disks_are_encrypted,
        instances_take_nobody_in,
        capacity_scales_to_zero,
        capacity_is_spot,
        reclaims_are_heard,
        deaths_are_told,
        money_is_watched,
        the_idle_alarm_sees_its_figures,
    )
}
"""Every check by its name."""
