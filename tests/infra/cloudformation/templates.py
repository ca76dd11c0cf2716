"""The CloudFormation templates as plain values, and what the tests ask of them again and again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[3] / "infra" / "cloudformation"
ORDER = ("network", "storage", "workers", "control", "guardrails")
"""The stacks, each after those whose exports it imports."""
STAGES = ("dev", "prod")

Templates = dict[str, dict[str, Any]]


class Loader(yaml.SafeLoader):
    """Reads the short forms of CloudFormation's functions as their long forms, and refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        assert len(made) == len(node.value), f"a key stands twice: {node.start_mark}"
        return made


def long_form(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    """Turn ``!Sub x`` into ``{"Fn::Sub": x}``."""
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    assert isinstance(node, yaml.MappingNode)
    return {name: loader.construct_mapping(node, deep=True)}


Loader.add_multi_constructor("!", long_form)


@cache
def load_templates() -> Templates:
    """Read every template. They are never changed: whoever wants to, copies them."""
    return {name: yaml.load((FOLDER / f"{name}.yaml").read_text(), Loader) for name in ORDER}  # noqa: S506 - a safe loader


def parameters_of(stage: str) -> dict[str, str]:
    """Read a stage's parameters as ``aws cloudformation deploy --parameter-overrides file://…`` does."""
    return dict(line.split("=", 1) for line in json.loads((FOLDER / f"{stage}.json").read_text()))


def resources(templates: Templates, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and properties of every resource of a type, whatever stack it is in."""
    for template in templates.values():
        for name, resource in template["Resources"].items():
            if resource["Type"] == kind:
                yield name, resource.get("Properties", {})


def one(templates: Templates, stack: str, name: str) -> dict[str, Any]:
    """Return the properties of one resource."""
    properties: dict[str, Any] = templates[stack]["Resources"][name].get("Properties", {})
    return properties


def many(value: Any) -> list[Any]:
    """Return what policies write as one value or as a list, as a list."""
    return list(value) if isinstance(value, list) else [value]


def words(value: Any) -> str:
    """Return a value that may hold CloudFormation's functions as one line that can be compared."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        if name == "Ref":
            return f"${{{inner}}}"
        if name == "Fn::GetAtt":
            return f"${{{'.'.join(many(inner))}}}"
        if name == "Fn::ImportValue":
            return f"import {words(inner)}"
        if name == "Fn::Sub":
            return str(inner) if isinstance(inner, str) else substituted(*inner)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def substituted(text: str, values: dict[str, Any]) -> str:
    """Return a text with its own values put in."""
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", f"{{{words(value)}}}")
    return text


def statements(templates: Templates) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every statement of every role's own policies."""
    for role, properties in resources(templates, "AWS::IAM::Role"):
        for policy in properties.get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                yield role, statement


def containers(templates: Templates) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every container of every task."""
    for task, properties in resources(templates, "AWS::ECS::TaskDefinition"):
        for container in properties["ContainerDefinitions"]:
            yield f"{task}/{container['Name']}", container
