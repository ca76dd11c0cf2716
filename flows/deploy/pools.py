"""Definitions of the work pools: templates from ``deployments/pools``, with the values set at this site.

A person sets a pool's image, cluster and roles in the Prefect UI or in a file for ``--site``: both set defaults of the
pool's variables. A pool stores the defaults with which it was deployed: values that differ from them were set at this
site, so an upgrade keeps them and changes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import NotRequired, TypedDict

from pydantic import JsonValue

from tasks.errors import RecipeError
from tasks.ports.files.bounded_yaml import read_yaml_file
from tasks.ports.machine import available_cores, device_class, total_memory, used_gpus
from tasks.ports.work_pools import DEVICE, default_value, device_of, variables_of
from tasks.recipe.running import THREADS_ALONE

RUNS = "cpu"
"""The pool of the runs; of stages those that run no models."""
LOCAL_GPUS = "gpu-local"
"""The pool of processes for the GPUs of one machine, or for its cores if it has none."""
RUN_GIB = 2.0
"""Memory of a run in the pool of runs: its flow and one engine that scores or exports."""
RESERVED_GIB = 3.0
"""Memory of the servers of `limbeck up`."""
FOLDER = Path(__file__).resolve().parents[2] / "deployments" / "pools"
POOLS = (RUNS, "ecs-gpu", "k8s-gpu")
ENV_OF_GPU_STAGES = {"LIMBECK_SILENT_MINUTES": "60"}
"""A stage on a GPU whose engine has reported nothing for an hour is ended: it would keep the GPU for half a day."""
OURS = "limbeck"
"""The key under which a template stores the defaults with which it was deployed."""
Site = Mapping[str, Mapping[str, object]]
"""For each pool, defaults of its variables that are set at this site."""


class Variable(TypedDict, total=False):
    """A variable of a template, by its JSON schema."""

    title: str
    description: str
    type: str
    default: object


class Variables(TypedDict):
    """The variables of a template; its other entries are those of a JSON schema."""

    properties: dict[str, Variable]


class Deployed(TypedDict):
    """The values with which a template was deployed, and the hardware that its workers' own machine named."""

    defaults: dict[str, object]
    device: NotRequired[str]


class Template(TypedDict):
    """A base job template of Prefect, as the files of this repository have it."""

    job_configuration: dict[str, JsonValue]
    variables: Variables
    limbeck: NotRequired[Deployed]


class PoolDefinition(TypedDict):
    """A work pool as it is created."""

    type: str
    description: str
    base_job_template: Template
    concurrency_limit: NotRequired[int]


def read_pool(name: str) -> PoolDefinition:
    """Read a pool's file: type, description and template."""
    found: PoolDefinition = json.loads((FOLDER / f"{name}.json").read_text())
    found["base_job_template"]["limbeck"] = {"defaults": defaults_in(found["base_job_template"])}
    return found


def definition_of(name: str) -> PoolDefinition:
    """Return the definition of a pool for `limbeck deploy`."""
    return local_pool(name) if name == LOCAL_GPUS else read_pool(name)


def local_pool(name: str) -> PoolDefinition:
    """Return the definition of a pool of processes whose workers are on this machine: the pool of GPU stages names its
    hardware and has one place for each GPU; every other pool has as many places as the machine has memory for."""
    pool = read_pool("cpu")
    if name == LOCAL_GPUS:
        template = pool["base_job_template"]
        template["variables"]["properties"][DEVICE] = device_variable(device_class())
        known = template["variables"]["properties"]["env"].get("default")
        template["variables"]["properties"]["env"]["default"] = {
            **(known if isinstance(known, dict) else {}),
            **ENV_OF_GPU_STAGES,
        }
        template["limbeck"] = {"defaults": defaults_in(template) | {DEVICE: None}, "device": device_class()}
        pool["description"] = "Stages that run models, as processes of one machine."
        pool["concurrency_limit"] = gpu_places()
    return pool


def renewed_template(ours: Template, there: Mapping[str, object]) -> Template | None:
    """Return the template that a pool of this machine needs, with the defaults that a person has set there; None if it
    has it. The template of a pool that a worker made lets runs choose a command, and nothing of it is kept."""
    device = device_of(ours)
    own = ours if "command" in variables_of(there) else settled(ours, there, {})
    # hardware that this machine has not named is a person's, for workers of another machine
    if device and device_of(there) in ("", named_by_machine(there) or device):
        own["variables"]["properties"][DEVICE]["default"] = own["limbeck"]["device"] = device
    return None if there == own else own


def named_by_machine(template: Mapping[str, object]) -> str:
    """Return the hardware that the machine of a pool's workers has named; empty if none has. A pool with other hardware
    has it from a person, for workers of another machine."""
    remembered = template.get(OURS)
    return str(remembered.get("device", "")) if isinstance(remembered, Mapping) else ""


def device_variable(device: str) -> Variable:
    """Return the variable of a template that names the hardware of a pool's workers."""
    given = read_pool("k8s-gpu")["base_job_template"]["variables"]["properties"][DEVICE]
    return {**given, "default": device}


def gpu_places() -> int:
    """Return the number of trainings that this machine computes at once: one for each GPU; without one, one for every
    ``THREADS_ALONE`` cores."""
    return len(used_gpus()) or max(1, available_cores() // THREADS_ALONE)


def run_places() -> int:
    """Return the number of runs that the machine has memory and cores for: two a core, because a run mostly waits for
    its stages."""
    by_memory = int((total_memory() / 2**30 - RESERVED_GIB) / RUN_GIB)
    return max(1, min(2 * available_cores(), by_memory))


def read_site(path: Path | None) -> Site:
    """Read the file of ``--site``: for each pool, defaults of its variables."""
    if path is None:
        return {}
    try:
        found = read_yaml_file(path)
    except ValueError as error:
        raise RecipeError(
            f"--site {path} cannot be read as YAML ({error}); name a file with lines such as ecs-gpu: {{image: …}}"
        ) from error
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise RecipeError(
            f"--site {path} is not a mapping of pools to variables; write lines such as ecs-gpu: {{image: …}}"
        )
    known = (*POOLS, LOCAL_GPUS)
    for pool, values in found.items():
        if pool not in known:
            raise RecipeError(f"--site {path} names the unknown pool {pool!r}; known are {', '.join(known)}")
        template = definition_of(pool)["base_job_template"]
        variables = variables_of(template)
        for name, value in values.items():
            if name not in variables:
                raise RecipeError(
                    f"--site {path}: the pool {pool} has no variable {name!r}; it has {', '.join(sorted(variables))}"
                )
            require_value(f"--site {path}: {pool}.{name}", value, variables[name], template["variables"])
    return found


def require_value(where: str, value: object, variable: object, described: Mapping[str, object]) -> None:
    """Raise RecipeError for a value that the schema of a variable excludes; a worker would refuse each of its jobs.

    ``described`` has the definitions to which the schema of a variable refers.
    """
    from jsonschema import Draft202012Validator

    schema = variable if isinstance(variable, Mapping) else {}
    whole = {**schema, "definitions": described.get("definitions", {})}
    fault = next(Draft202012Validator(whole).iter_errors(value), None)
    if fault is not None:
        raise RecipeError(f"{where}: {fault.message}; {schema.get('description', 'see the pool in the Prefect UI')}")


def defaults_of(template: Template | Mapping[str, object]) -> dict[str, object]:
    """Return every variable of a template with its default, None if it has none."""
    return {name: default_value(variable) for name, variable in variables_of(template).items()}


def defaults_in(template: Template | Mapping[str, object]) -> dict[str, object]:
    """Return the variables of a template that have a default, with that default."""
    return {name: default for name, default in defaults_of(template).items() if default is not None}


def settled(ours: Template, there: Mapping[str, object] | None, set_here: Mapping[str, object]) -> Template:
    """Return the template to deploy: ``ours`` with the defaults that this site has set, earlier or now."""
    remembered = (there or {}).get(OURS)
    template, own = deepcopy(ours), dict(set_here)
    if there is not None and isinstance(remembered, Mapping):
        if named := named_by_machine(there):
            template["limbeck"]["device"] = named
        before = remembered["defaults"]
        own = {**{name: value for name, value in defaults_in(there).items() if value != before.get(name)}, **own}
    for name, value in own.items():
        if name in template["variables"]["properties"]:
            template["variables"]["properties"][name]["default"] = value
    return template
