"""Door: the gate's decisions, and the models that go to the registry, refused ones with their reasons."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.gate import Decision, decide
from tasks.ports.packer import Packer
from tasks.recipe import Recipe
from tasks.report.model_card import model_card


@task(name="register-models", task_run_name="register-models", persist_result=False, cache_policy=NO_CACHE)
async def register_models(
    recipe: Recipe, tracker: Any, folders: Mapping[str, Callable[[], Path]], rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], workspace: Path
) -> list[dict[str, Any]]:
    """Decide on every candidate and register those that are new; return name, version, alias, decision and reasons of each."""
    teacher, candidates = rows[0], rows[1:]
    decisions = {decision.name: decision for decision in decide(gate_rows(recipe, candidates), gate_row(recipe, teacher), recipe.gate)}
    registered = []
    with Packer(workspace) as packer:
        for candidate in candidates:
            if candidate["role"] != "baseline":
                folder, decision = folders[candidate["name"]], decisions[candidate["name"]]
                registered.append(await asyncio.to_thread(register_one, recipe, tracker, folder, candidate, teacher, decision, about, packer))
    return registered


def register_one(
    recipe: Recipe,
    tracker: Any,
    folder: Callable[[], Path],
    candidate: Mapping[str, Any],
    teacher: Mapping[str, Any],
    decision: Decision,
    about: Mapping[str, Any],
    packer: Packer,
) -> dict[str, Any]:
    """Register one candidate, or find the version that holds the same weights and decision."""
    name = registered_name(recipe, about["teacher"])
    card = model_card(dict(candidate), dict(teacher), recipe.model_dump(mode="json"), decision, dict(about["data"]), about["versions"], about["stages"])
    alias = "champion" if decision.champion else None
    version = tracker.register(
        name, candidate["name"], folder, card=card, tags=tags(recipe, candidate, decision, about), description=describe(candidate, recipe.gate.split),
        example=about["example"], packer=packer, alias=alias,
    )  # fmt: skip
    return {
        "name": name, "version": version["version"], "candidate": candidate["name"], "alias": alias, "new": version["new"],
        "decision": "accepted" if decision.accepted else "refused", "reasons": list(decision.reasons),
    }  # fmt: skip


def registered_name(recipe: Recipe, teacher: str) -> str:
    """Return the registered model's name: one per task and teacher."""
    return recipe.gate.register_as or f"{recipe.spec.name}-{teacher}"


def gate_rows(recipe: Recipe, candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return candidates as the gate reads them."""
    return [gate_row(recipe, candidate) for candidate in candidates]


def gate_row(recipe: Recipe, row: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a row of the results to the figures of the gate's split."""
    split = recipe.gate.split
    metrics = {name: value["value"] for name, value in row["metrics"][split].items()}
    retained = (row["retained"] or {}).get(split, {}).get("value")
    return {**row, "metrics": metrics, "retained": retained, "headline": metrics[row["headline"]]}


def describe(candidate: Mapping[str, Any], split: str) -> str:
    """Say in one line what a version is."""
    retained = (candidate["retained"] or {}).get(split, {}).get("value")
    share = f"{retained:.1%} of the teacher, " if retained is not None else ""
    return f"{candidate['name']}: {share}{candidate['speedup']:.1f}x faster, {candidate['bytes'] / 1e6:.0f} MB"


def tags(recipe: Recipe, candidate: Mapping[str, Any], decision: Decision, about: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags that a chooser reads in the registry's table."""
    row = gate_row(recipe, candidate)
    return {
        "candidate": candidate["name"],
        "role": candidate["role"],
        "quality": f"{row['headline']:.4f}",
        "retained": f"{row['retained']:.1%}" if row["retained"] is not None else "unknown",
        "size_mb": f"{candidate['bytes'] / 1e6:.1f}",
        "params_m": f"{candidate['parameters'] / 1e6:.2f}",
        "latency_ms": f"{candidate['latency_ms']:.2f}",
        "speedup": f"{candidate['speedup']:.2f}",
        "gate": "accepted" if decision.accepted else "refused",
        "gate.reasons": json.dumps(list(decision.reasons), ensure_ascii=False),
        "checkpoint.sha256": candidate["checkpoint"],
        "task": recipe.spec.name,
        "teacher": about["teacher"],
        "recipe": recipe.name,
    }
