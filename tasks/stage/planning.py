"""The plan of a stage: whether a run would compute it, and why; only the store is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tasks.contracts import Artifact, StageInputs, Used
from tasks.ports.code.fingerprint import differences, key_of
from tasks.ports.store.manifests import is_of_this_release, used_of
from tasks.ports.store_documents import Manifest
from tasks.recipe.knobs import Knobs
from tasks.stage.keys import OTHER_RELEASE, UNKNOWN, StageSpec, computed_by, key_explanation, new_record
from tasks.stage.session import Session, current_session

MODELS = ("checkpoint", "export")
"""Kinds of artifacts that are models."""
SHAPE = ("layers", "hidden", "feed_forward")
"""Names of the knobs that state the shape of a model."""
LIKE_SIZE = 2.0
"""Largest ratio of two sizes for an estimate: BERT-large has three times the parameters of BERT-base."""


async def plan_stage(spec: StageSpec, session: Session, knobs: Knobs, label: str, artifacts: StageInputs) -> Artifact:
    """Record whether a run would compute this stage, and return its artifact or a placeholder; an input that is not
    known yet makes every later stage a miss."""
    explanation = key_explanation(spec, session, knobs, artifacts)
    record = new_record(spec, session, label, explanation)
    record.model_bytes = model_bytes(artifacts)
    waiting = [
        name
        for name, digest in explanation["inputs"].items()
        if UNKNOWN in ([digest] if isinstance(digest, str) else digest)
    ]
    found = None if waiting or spec.name in session.force else await asyncio.to_thread(session.store.find, record.key)
    record.cache, record.state = ("hit", "cached") if found else ("miss", "would run")
    if found is not None:
        record.why, record.artifact, record.used = "a verified result is cached", found, found.used
        return found
    changes, like = nearest(session, explanation, record.model_bytes)
    record.estimate, record.likely = like.get("seconds") if like else None, took(like)
    record.why = f"waits for {', '.join(waiting)}" if waiting else reason(spec, session, changes)
    expected = record.model_bytes or 0 if spec.makes in MODELS else 0
    return Artifact(spec.makes, UNKNOWN, "", expected, {})


def is_stored(stage_task: Any, knobs: Knobs, artifacts: StageInputs) -> bool:
    """Tell whether the store of the current session has a result of a stage task; its files are not checked."""
    session = current_session()
    key = key_of(key_explanation(stage_task.spec, session, knobs, artifacts))
    return session.store.manifest(key) is not None


def computes_on_gpu(stage_task: Any) -> bool:
    """Tell whether the engine of a stage task would compute on a GPU, here or on a worker."""
    return str(computed_by(stage_task.spec, current_session())["device"]).startswith("cuda")


def reason(spec: StageSpec, session: Session, changes: list[str] | None) -> str:
    """Return why a stage misses: the differences from the nearest earlier result of the same stage."""
    if spec.name in session.force:
        return "forced"
    if changes is None:
        return "never computed before"
    return "; ".join(changes[:3]) or "its result is damaged or missing"


def nearest(
    session: Session, explanation: Mapping[str, object], size: int | None
) -> tuple[list[str] | None, Manifest | None]:
    """Return the differences from the nearest earlier result of a stage, and the manifest of the nearest one with a
    model of like size, which tells how long the stage takes; None if there is none.

    A result of another release still tells how long the stage took, but it is never used.
    """
    earlier = session.earlier.like(explanation)
    compared = [(list(differences(explanation, then["explanation"])), then) for then in earlier]
    compared.sort(key=lambda found: len(found[0]))
    if not compared:
        return None, None
    changes, first = compared[0]
    like = next((then for _, then in compared if is_of_like_size(explanation, size, then)), None)
    return (changes if is_of_this_release(first) else [OTHER_RELEASE]), like


def model_bytes(artifacts: StageInputs) -> int | None:
    """Return the size of the largest model among the inputs of a stage: None without a model, and 0 where the size of
    one is not known."""
    lists = (each if isinstance(each, list) else [each] for each in artifacts.values() if each is not None)
    sizes = [one.bytes for each in lists for one in each if one.kind in MODELS or "architecture" in one.facts]
    return None if not sizes else max(sizes) if all(sizes) else 0


def is_of_like_size(explanation: Mapping[str, object], size: int | None, then: Manifest) -> bool:
    """Tell whether an earlier result was computed with models of about the same size: by the largest model that the
    stage reads, and by the layers and widths in its knobs. An older result does not state the size of its model."""
    if size is not None and not alike(size, used_of(then).get("model_bytes") or 0):
        return False
    ours, theirs = (shape_in(one.get("knobs")) for one in (explanation, then["explanation"]))
    return ours.keys() == theirs.keys() and all(alike(ours[name], theirs[name]) for name in ours)


def alike(one: float, other: float) -> bool:
    """Tell whether two sizes are known, and one is at most twice the other."""
    return min(one, other) > 0 and max(one, other) <= LIKE_SIZE * min(one, other)


def shape_in(knobs: object, place: str = "") -> dict[str, float]:
    """Return the knobs that state a model's layers and widths, by their place."""
    entries = (
        knobs.items() if isinstance(knobs, Mapping) else enumerate(knobs) if isinstance(knobs, (list, tuple)) else ()
    )
    found: dict[str, float] = {}
    for name, value in entries:
        if name in SHAPE and isinstance(value, int) and not isinstance(value, bool):
            found[f"{place}.{name}"] = value
        else:
            found |= shape_in(value, f"{place}.{name}")
    return found


def took(manifest: Manifest | None) -> Used:
    """Return the resources that an earlier result took."""
    return used_of(manifest) if manifest else {}
