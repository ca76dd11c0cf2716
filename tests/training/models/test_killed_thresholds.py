"""A process that is killed while it tunes thresholds, of labels and of no answer: the trained model, which students
learn from, is not touched, nothing half is visible, and the next process publishes the bytes of an undisturbed one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.catalog import TaskSpec
from tasks.contracts import Artifact
from tasks.engine.job import Job
from tasks.ports.rows.prepared import prepare_rows
from tasks.ports.rows.table_files import write_table
from tasks.ports.store.artifacts import is_whole
from tasks.ports.store.folder import FolderStore
from tasks.recipe.slices import RowsSlice, ThresholdSlice
from tasks.training.data.rows import load_tokenizer, read_task
from tasks.training.models import thresholds
from tasks.training.models.students import load_classifier, save_model
from tests.ports.store.test_store import KEY, NAMES, explained
from tests.task_types.spans.tables import write_asked
from tests.tiny import WORDS

METRICS = {"multi-label": "micro_f1", "spans": "squad_f1"}


def write_rows_of(folder: Path, kind: str) -> Path:
    """Prepare rows whose selection rows can tune a threshold."""
    if kind == "spans":
        table, spec = write_asked(folder, 40), TaskSpec(name="asked", kind=kind, pair="context")
    else:
        texts = [" ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 6)) for number in range(80)]
        sets = [[word for word in WORDS[:2] if word in text.split()] for text in texts]
        table, spec = folder / "train.parquet", TaskSpec(name="sets", kind=kind)
        write_table(table, {"text": [f"{text} {number}" for number, text in enumerate(texts)], "label": sets})
    prepare_rows(table, RowsSlice(task=spec, selection_rows=20, purge=False), folder / "rows")
    return folder / "rows"


def write_trained(folder: Path, kind: str, rows: Path, bert: Path) -> Path:
    """Write a model as a training would leave it: it has no thresholds."""
    torch.manual_seed(0)
    model = load_classifier(bert, read_task(rows, kind), torch.device("cpu"))
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    save_model(model, load_tokenizer(bert), folder)
    return folder


def tuned(root: Path, kind: str, base: Path, rows: Path) -> Artifact:
    """Tune the thresholds of a model in the workspace of a store, and publish the folder, as the stage does."""
    store = FolderStore(root)
    work = store.workspace() / f"work-{os.getpid()}"
    work.mkdir(parents=True)
    knobs = ThresholdSlice(task_type=kind, metric=METRICS[kind], max_length=20).model_dump(mode="json")
    given: dict[str, Any] = {"job": "thresholds", "knobs": knobs, "output": str(work)}
    facts = thresholds.write_thresholds(Job({**given, "inputs": {"base": str(base), "rows": str(rows)}}, silent=True))

    async def publish() -> Artifact:
        async with store.lease(KEY) as lease:
            made = {"kind": "checkpoint", "folder": work, "facts": facts, "stage": "make"}
            return store.publish(KEY, **made, explanation=explained(NAMES[KEY]), lease=lease)

    return asyncio.run(publish())


def die(*given: Any, **named: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def settled_and_dead(patch: pytest.MonkeyPatch) -> None:
    """Die when the thresholds are in the model, before it is written."""
    patch.setattr(thresholds, "save_model", die)


def half_written(patch: pytest.MonkeyPatch) -> None:
    """Die when half of the weights are written."""

    def save_half(model: Any, tokenizer: Any, folder: Path) -> None:
        save_model(model, tokenizer, folder)
        os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size // 2)
        die()

    patch.setattr(thresholds, "save_model", save_half)


def written_and_unbound(patch: pytest.MonkeyPatch) -> None:
    """Die when the folder is in the store, before its key is bound."""
    patch.setattr(FolderStore, "commit_manifest", die)


def killed(moment: Callable[[pytest.MonkeyPatch], None], *given: Any) -> bool:
    """Fork a process that tunes thresholds and dies at a moment; tell whether it came to that."""
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)
            with pytest.MonkeyPatch.context() as patch:
                moment(patch)
                tuned(*given)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each file of a folder."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is a fork")
@pytest.mark.parametrize("kind", METRICS)
def test_killed_thresholds_end_with_the_same_bytes(kind: str, tiny_bert: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a fork has none of the threads of its parent
    try:
        rows = write_rows_of(tmp_path, kind)
        base = write_trained(tmp_path / "base", kind, rows, tiny_bert)
        before = digests(base)
        whole = tuned(tmp_path / "undisturbed", kind, base, rows)
        assert digests(FolderStore(tmp_path / "undisturbed").folder(whole))["config.json"] != before["config.json"]
        for number, moment in enumerate((settled_and_dead, half_written, written_and_unbound)):
            root = tmp_path / f"store-{number}"
            assert killed(moment, root, kind, base, rows), moment.__name__
            store = FolderStore(root)
            assert store.find(KEY) is None and digests(base) == before
            assert all(is_whole(store.object_path(digest), digest) for digest in store.artifacts())
            assert tuned(root, kind, base, rows).sha256 == whole.sha256
    finally:
        torch.set_num_threads(threads)
