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
from typing import Any

from tasks.errors import RecipeError
from tasks.ports.files.bounded_yaml import read_yaml_file
from tasks.ports.machine import available_cores, device_class, total_memory, used_gpus
from tasks.ports.work_pools import DEVICE, device_of
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
OURS = "limbeck"
"""The key under which a template stores the defaults with which it was deployed."""
Template = dict[str, Any]
Site = Mapping[str, Mapping[str, Any]]


def read_pool(name: str) -> dict[str, Any]:
    """Read a pool's file: type, description and template."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    found["base_job_template"][OURS] = {"defaults": defaults_in(found["base_job_template"])}
    return found


def local_pool(name: str) -> dict[str, Any]:
    """Return the definition of a pool of processes whose workers are on this machine: the pool of GPU stages names its
    hardware and has one place for each GPU; every other pool has as many places as the machine has memory for."""
    pool = read_pool("cpu")
    if name == LOCAL_GPUS:
        template = pool["base_job_template"]
        template["variables"]["properties"][DEVICE] = device_variable(device_class())
        return pool | {
            "description": "Stages that run models, as processes of one machine.",
            "concurrency_limit": gpu_places(),
        }
    return pool


def is_outdated(there: Template, ours: Template) -> bool:
    """Return whether a pool of this machine needs our template: the template of one that a worker made lets runs choose
    a command, and another machine may have other hardware."""
    is_open = "command" in (there.get("variables") or {}).get("properties", {})
    return is_open or device_of(there) != device_of(ours)


def device_variable(device: str) -> dict[str, Any]:
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
    for pool, values in found.items():
        if pool not in POOLS:
            raise RecipeError(f"--site {path} names the unknown pool {pool!r}; known are {', '.join(POOLS)}")
        known = defaults_of(read_pool(pool)["base_job_template"])
        for name in values:
            if name not in known:
                raise RecipeError(
                    f"--site {path}: the pool {pool} has no variable {name!r}; it has {', '.join(sorted(known))}"
                )
    return found


def defaults_of(template: Template) -> dict[str, Any]:
    """Return every variable of a template with its default, None if it has none."""
    return {name: variable.get("default") for name, variable in template["variables"]["properties"].items()}


def defaults_in(template: Template) -> dict[str, Any]:
    """Return the variables of a template that have a default, with that default."""
    return {name: default for name, default in defaults_of(template).items() if default is not None}


def settled(ours: Template, there: Template | None, set_here: Mapping[str, Any]) -> Template:
    """Return the template to deploy: ``ours`` with the defaults that this site has set, earlier or now."""
    remembered = (there or {}).get(OURS)
    template, own = deepcopy(ours), dict(set_here)
    if there is not None and remembered is not None:
        changed = {
            name: value for name, value in defaults_in(there).items() if value != remembered["defaults"].get(name)
        }
        own = {**changed, **own}
    for name, value in own.items():
        if name in template["variables"]["properties"]:
            template["variables"]["properties"][name]["default"] = value
    return template
