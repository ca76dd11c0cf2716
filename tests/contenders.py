"""Registered versions for tests of promotion: small evaluations in a real MLflow, no models; and processes that promote
when they are told to."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tasks.gate import alias_decisions
from tasks.gate.alias_decisions import decide_run, under_lock
from tasks.gate.gate_inputs import GateInputs, verdict_tags
from tasks.ports.store import folder as folder_store
from tasks.ports.store.folder import FolderStore
from tasks.ports.tracking.registry import Registry, RegistryState
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.verified_download import EVALUATION_TAG, evaluation_digest
from tasks.recipe.recipe import Recipe
from tasks.results.facts import RowsFacts
from tasks.results.row import ResultRow
from tasks.scoring.predictions import Predictions, write_predictions
from tests.report.figures import stated

COUNT = 80
LABELS = [number % 2 for number in range(COUNT)]
BY_MEAN = {"metric": "retained", "at_least": 0.9, "reading": "mean"}
"""Of the figures that a row states: these tests are about promotion, and eighty rows prove nothing."""
WAIT: ContextVar[Callable[[], object]] = ContextVar("wait", default=lambda: None)
"""What happens between what is read and what is written."""


def recipe_for(**gate: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "race",
            "task": {"name": "tiny", "metrics": ["accuracy"]},
            "students": [{"name": "any", "layers": 1}],
            "gate": {"split": "validation", "criteria": [BY_MEAN], **gate},
            "scoring": {"resamples": 100},
        }
    )


def write_rows(folder: Path, *, said: str = "text", learned: Sequence[str] = ()) -> Path:
    """Write the rows that judge, and those that were learned from."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    texts = [f"{said} {number}" for number in range(COUNT)]
    pq.write_table(
        pa.table({"id": range(7, 7 + COUNT), "text": texts, "pair": pa.nulls(COUNT, pa.string()), "label": LABELS}),
        folder / "validation.parquet",
    )
    if learned:
        pq.write_table(
            pa.table({"text": list(learned), "pair": pa.nulls(len(learned), pa.string())}), folder / "train.parquet"
        )
    return folder


def write_answers(folder: Path, wrong: Sequence[int] = (), seeds: int = 1) -> Path:
    """Write a scorecard's answers, wrong in some rows."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [1 - label if number in wrong else label for number, label in enumerate(LABELS)]
    logits = np.eye(2, dtype=np.float32)[found]
    ids = list(range(7, 7 + COUNT))
    write_predictions(
        folder,
        [Predictions("validation", seed, ids, np.asarray(found, float), {"logits": logits}) for seed in range(seeds)],
    )
    return folder


WRONG = tuple(range(0, 40, 4))


def candidate(name: str, size: int, **changes: Any) -> ResultRow:
    own: dict[str, Any] = {
        "bytes": size,
        "difference": {"validation": {"value": 0.0, "low": -0.01, "high": 0.01}},
        "checkpoint": (name * 64)[:64].ljust(64, "0"),
    }
    return stated(name, **own | changes)


def judging_of(
    folder: Path,
    *models: ResultRow,
    wrong: Mapping[str, Sequence[int]] | None = None,
    said: str = "text",
    learned: Sequence[str] = (),
    **gate: Any,
) -> GateInputs:
    """Return a run of these candidates before its judge."""
    rows = write_rows(folder / f"rows {said}", said=said, learned=learned)
    everybody = [stated("teacher", "teacher", bytes=10**9, checkpoint="t" * 64), *models]
    cards = {
        model.name: write_answers(folder / f"card {model.name}", (wrong or {}).get(model.name, WRONG))
        for model in everybody
    }
    places = {name: (lambda place=place: place) for name, place in cards.items()}
    data = RowsFacts(rows={"validation": COUNT}, rows_sha256={"validation": sha256(said.encode()).hexdigest()})
    return GateInputs(recipe_for(**gate), everybody, data, lambda: rows, places, {}, folder)


def register(tracker: Tracker, name: str, judging: GateInputs, known: dict[str, str] | None = None) -> dict[str, str]:
    """Register the candidates of a run without weights; return versions by candidate. ``known`` remembers what was
    uploaded already."""
    known, client = {} if known is None else known, tracker.client
    tracker.require_registered(name, {})
    numbers, decisions = {}, judging.decide()
    for model in judging.models[1:]:
        if model.name not in known:
            place = client.create_logged_model(tracker.experiment_id, name=model.name)
            client.log_model_artifacts(place.model_id, str(packed(judging, model.name)))
            known[model.name] = client.finalize_logged_model(place.model_id, "READY").model_id
            judged = judging.evaluation(model.name)
            known[f"evaluation of {model.name}"] = str(
                evaluation_digest({f"evaluation/{path.name}": path for path in judged.iterdir()})
            )
        figures = {"bytes": model.bytes, "speedup": model.speedup, "headline": 0.9, "quality": 0.9}
        tags = {
            "candidate": model.name,
            "checkpoint.sha256": model.checkpoint,
            "rows.sha256": judging.rows_sha256,
            "figures": json.dumps(figures),
            EVALUATION_TAG: known[f"evaluation of {model.name}"],
        }
        tags |= verdict_tags(decisions[model.name])
        version = client.create_model_version(name, f"models:/{known[model.name]}", tags=tags)
        numbers[model.name] = str(version.version)
    return numbers


def packed(judging: GateInputs, name: str) -> Path:
    """Return a package that holds the evaluation alone."""
    package = judging.workspace / f"package {name}"
    shutil.copytree(judging.evaluation(name), package / "evaluation", dirs_exist_ok=True)
    return package


class Waiting(Registry):
    """A registry in which time passes between what is read and what is written."""

    def read(self) -> RegistryState:
        standing = super().read()
        WAIT.get()()
        return standing


class Nobody:
    """A lease that keeps nobody out."""

    def assert_held(self) -> None:
        """Everybody holds it."""


def promote(
    tracker: Tracker,
    store: Path | None,
    name: str,
    judging: GateInputs,
    numbers: Mapping[str, str],
    wait: float | Callable[[], object] = 0.0,
) -> dict[str, Any]:
    """Decide on a run's versions, with time between reading and writing; without a store there is no lock."""
    WAIT.set(wait if callable(wait) else partial(time.sleep, wait))
    if store is None:
        return decide_run(judging, Waiting(tracker, name, Nobody()), numbers, "run")
    alias_decisions.Registry = Waiting  # type: ignore[misc]
    return asyncio.run(
        under_lock(FolderStore(store), tracker, name, lambda registry: decide_run(judging, registry, numbers, "run"))
    )


def main() -> None:
    """Promote what the lines of standard input name, one after another."""
    trackers: dict[str, Tracker] = {}
    judgings: dict[str, GateInputs] = {}
    folder_store.POLL = 0.01
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        tracker = trackers.setdefault(order["uri"], Tracker(order["uri"], None))
        own = Path(order["folder"]) / str(os.getpid())
        judging = judgings.get(str(own)) or judgings.setdefault(
            str(own), judging_of(own, candidate(order["candidate"], order["size"]))
        )
        promote(
            tracker, Path(order["store"]), order["name"], judging, {order["candidate"]: order["version"]}, order["wait"]
        )
        print("done", flush=True)


if __name__ == "__main__":
    main()
