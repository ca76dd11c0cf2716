"""Decisions of IAM, simulated: may this role do this to that, by the policies of our templates?

Only as much of IAM as the templates use, after https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html:
a matching denial wins, then a matching permission, else the answer is no. An operator of a condition that is not known
here is an error, so that nothing is decided by a condition that is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.infra.cloudformation.templates import load_templates, many

ACCOUNT, REGION = "123456789012", "eu-central-1"
VALUES = {
    "AWS::Partition": "aws",
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "Project": "limbeck",
    "Stage": "dev",
}
ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::KMS::Key": "arn:aws:kms:{place}:key/{name}",
    "AWS::ECR::Repository": "arn:aws:ecr:{place}:repository/{name}",
    "AWS::ECS::Cluster": "arn:aws:ecs:{place}:cluster/{name}",
    "AWS::Logs::LogGroup": "arn:aws:logs:{place}:log-group:{name}:*",
    "AWS::SQS::Queue": "arn:aws:sqs:{place}:{name}",
    "AWS::SNS::Topic": "arn:aws:sns:{place}:{name}",
    "AWS::Events::Rule": "arn:aws:events:{place}:rule/{name}",
    "AWS::SecretsManager::Secret": "arn:aws:secretsmanager:{place}:secret:{name}-AbCdEf",
    "AWS::IAM::Role": "arn:aws:iam::" + ACCOUNT + ":role/{name}",
    "AWS::IAM::ManagedPolicy": "arn:aws:iam::" + ACCOUNT + ":policy/{name}",
}
"""What AWS answers for ``GetAtt X.Arn``, and for ``Ref`` of the types of ``BY_ARN``."""
BY_ARN = ("AWS::SecretsManager::Secret", "AWS::SNS::Topic", "AWS::IAM::ManagedPolicy")
NAMES = (
    *("BucketName", "RepositoryName", "ClusterName", "LogGroupName", "QueueName", "TopicName"),
    *("RoleName", "ManagedPolicyName", "Name"),
)
Policy = Mapping[str, Any]
Context = Mapping[str, str]


# --- what stands in the templates, as AWS would see it ----------------------------------------------------------------


@cache
def exports() -> dict[str, tuple[str, Any]]:
    """Return what each export of each stack is, by its full name."""
    return {
        str(resolved(stack, output["Export"]["Name"])): (stack, output["Value"])
        for stack, template in load_templates().items()
        for output in template["Outputs"].values()
        if "Export" in output
    }


def resolved(stack: str, value: Any) -> Any:
    """Return a value with every function of CloudFormation replaced by a value of an example account."""
    if isinstance(value, list):
        return [resolved(stack, item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return referred(stack, value["Ref"])
    if set(value) == {"Fn::GetAtt"}:
        name, attribute = value["Fn::GetAtt"]
        return arn_of(stack, name) if attribute == "Arn" else f"{name}.{attribute}"
    if set(value) == {"Fn::ImportValue"}:
        return resolved(*exports()[resolved(stack, value["Fn::ImportValue"])])
    if set(value) == {"Fn::Sub"}:
        return substituted(stack, *([value["Fn::Sub"], {}] if isinstance(value["Fn::Sub"], str) else value["Fn::Sub"]))
    return {name: resolved(stack, inner) for name, inner in value.items()}


def substituted(stack: str, text: str, own: Mapping[str, Any]) -> str:
    """Return the text of a ``Sub``."""

    def found(match: re.Match[str]) -> str:
        name, _, attribute = match[1].partition(".")
        if name in own:
            return str(resolved(stack, own[name]))
        return str(resolved(stack, {"Fn::GetAtt": [name, attribute]} if attribute else {"Ref": name}))

    return re.sub(r"\$\{([^}]+)\}", found, text)


def referred(stack: str, name: str) -> str:
    """Return what ``Ref`` is: a value, the ARN or the name of a resource."""
    resource = load_templates()[stack]["Resources"].get(name)
    if resource is None:
        return VALUES.get(name, f"<{name}>")
    if resource["Type"] in BY_ARN:
        return arn_of(stack, name)
    return name_of(stack, name)


def name_of(stack: str, name: str) -> str:
    """Return the name that a resource has in AWS; the one in its template where AWS would make one up."""
    properties = load_templates()[stack]["Resources"][name].get("Properties", {})
    return str(next((resolved(stack, properties[key]) for key in NAMES if key in properties), name))


def arn_of(stack: str, name: str) -> str:
    """Return the ARN of a resource."""
    kind = load_templates()[stack]["Resources"][name]["Type"]
    return ARNS[kind].format(place=f"{REGION}:{ACCOUNT}", name=name_of(stack, name))


def role(name: str) -> tuple[Policy, ...]:
    """Return the statements of a role, as AWS would see them."""
    for stack, template in load_templates().items():
        if template["Resources"].get(name, {}).get("Type") == "AWS::IAM::Role":
            return tuple(
                resolved(stack, statement)
                for policy in template["Resources"][name]["Properties"]["Policies"]
                for statement in policy["PolicyDocument"]["Statement"]
            )
    raise KeyError(name)


def trust(name: str) -> tuple[Policy, ...]:
    """Return the statements that say who may take a role."""
    for stack, template in load_templates().items():
        if name in template["Resources"]:
            document = template["Resources"][name]["Properties"]["AssumeRolePolicyDocument"]
            return tuple(resolved(stack, {"Resource": "*", **statement}) for statement in document["Statement"])
    raise KeyError(name)


def policy(stack: str, name: str) -> tuple[Policy, ...]:
    """Return the statements of the policy of a bucket, a queue, a topic or a key."""
    properties = load_templates()[stack]["Resources"][name]["Properties"]
    document = properties.get("PolicyDocument") or properties["KeyPolicy"]
    return tuple(resolved(stack, statement) for statement in document["Statement"])


# --- the decision -----------------------------------------------------------------------------------------------------


def decide(
    statements: tuple[Policy, ...], action: str, resource: str, context: Context | None = None, principal: str = ""
) -> str:
    """Return ``allow``, ``deny`` (a statement says so) or ``none`` (no statement allows it)."""
    matching = {
        statement["Effect"]
        for statement in statements
        if matches(statement, action, resource, context or {}, principal)
    }
    return "deny" if "Deny" in matching else "allow" if "Allow" in matching else "none"


def matches(statement: Policy, action: str, resource: str, context: Context, principal: str) -> bool:
    """Tell whether a statement is about a request."""
    return (
        named(statement, "Action", action)
        and named(statement, "Resource", resource)
        and (principal == "" or principal in principals(statement))
        and all(holds(operator, tests, context) for operator, tests in statement.get("Condition", {}).items())
    )


def named(statement: Policy, part: str, value: str) -> bool:
    """Tell whether an action or a resource is among those of a statement, or not among those that it leaves out."""
    if f"Not{part}" in statement:
        return not named({part: statement[f"Not{part}"]}, part, value)
    fold = str.lower if part == "Action" else str
    return any(like(fold(str(given)), fold(value)) for given in many(statement[part]))


def like(pattern: str, value: str) -> bool:
    """Tell whether a value fits a pattern with ``*`` and ``?``."""
    return fnmatchcase(value, pattern.replace("[", "[[]"))


def principals(statement: Policy) -> Iterator[str]:
    """Yield who a statement is about; everybody is about whoever asks."""
    given = statement["Principal"]
    if given == "*":
        yield from ("*", "anybody", f"arn:aws:iam::{ACCOUNT}:root")
    else:
        for names in given.values():
            yield from many(names)


OPERATORS = {
    "StringEquals": lambda wanted, value: wanted == value,
    "StringLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "Bool": lambda wanted, value: wanted == value,
    "NumericLessThan": lambda wanted, value: float(value) < float(wanted),
}


def holds(operator: str, tests: Mapping[str, Any], context: Context) -> bool:
    """Tell whether a condition holds; without its key in the request it does not."""
    return all(
        key in context and any(OPERATORS[operator](str(wanted), context[key]) for wanted in many(given))
        for key, given in tests.items()
    )
