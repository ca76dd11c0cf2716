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

FOLDER = Path(__file__).resolve().parents[2] / "deployments" / "pools"
POOLS = ("cpu", "ecs-gpu", "k8s-gpu")
OURS = "limbeck"
"""The key under which a template stores the defaults with which it was deployed."""
Template = dict[str, Any]
Site = Mapping[str, Mapping[str, Any]]


def read_pool(name: str) -> dict[str, Any]:
    """Read a pool's file: type, description and template."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    found["base_job_template"][OURS] = {"defaults": defaults_in(found["base_job_template"])}
    return found


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
