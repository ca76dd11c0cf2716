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


async def plan_stage(spec: StageSpec, session: Session, knobs: Knobs, label: str, artifacts: StageInputs) -> Artifact:
    """Record whether a run would compute this stage, and return its artifact or a placeholder; an input that is not
    known yet makes every later stage a miss."""
    explanation = key_explanation(spec, session, knobs, artifacts)
    record = new_record(spec, session, label, explanation)
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
    changes, like = nearest(spec, session, explanation)
    record.estimate, record.likely = like.get("seconds") if like else None, took(like)
    record.why = f"waits for {', '.join(waiting)}" if waiting else reason(spec, session, changes)
    return Artifact(spec.makes, UNKNOWN, "", 0, {})


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
    spec: StageSpec, session: Session, explanation: Mapping[str, object]
) -> tuple[list[str] | None, Manifest | None]:
    """Return the differences from the nearest earlier result of a stage, and its manifest; None if there is none.

    A result of another release still tells how long the stage took, but it is never used.
    """
    earlier = session.earlier.like(explanation)
    compared = [(list(differences(explanation, then["explanation"])), then) for then in earlier]
    changes, like = min(compared, key=lambda found: len(found[0]), default=(None, None))
    return ([OTHER_RELEASE] if like is not None and not is_of_this_release(like) else changes), like


def took(manifest: Manifest | None) -> Used:
    """Return the resources that an earlier result took."""
    return used_of(manifest) if manifest else {}
