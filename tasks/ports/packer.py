"""A packer: one process that writes checkpoint folders as MLflow models, one after another.

Loading torch and MLflow costs seconds, so it happens once for all models of a run, and never in the flow's own process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tasks.errors import RegistryError

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 10.0  # seconds a packer gets to end once nothing more is to be packed


class Packer:
    """Writes packages under ``workspace``; its process starts with the first order, and ends with the ``with`` block."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process is None:
            return
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # an order that a dead process never took
            self.process.stdin.close()
        try:
            self.process.wait(0 if error else PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def pack(self, folder: Path, name: str, *, card: str, pairs: bool, files: Mapping[str, Path] | None = None) -> Path:
        """Write a checkpoint folder as an MLflow model and return where it is; ``files`` go into the model's folder, by their place in it.

        A model takes strings, or with ``pairs`` ``{"text": …, "text_pair": …}``. A regression answers with its bare logit as ``score``,
        because the checkpoint's config says ``problem_type: regression``.
        """
        output = self.workspace / name
        order = {"folder": str(folder), "output": str(output), "card": card, "pairs": pairs}
        problem = self.ask(order)
        if problem:
            raise RegistryError(f"{name} could not be written as an MLflow model: {problem}")
        for place, file in (files or {}).items():
            (output / "model" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, output / "model" / place)
        return output

    def ask(self, order: dict[str, object]) -> str:
        """Hand an order over and wait; return what went wrong, or nothing."""
        process = self.process = self.process or self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            print(json.dumps(order), file=process.stdin, flush=True)
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return str(json.loads(answer)["problem"])
        process.wait()
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the packer stopped with status {process.returncode}"

    def start(self) -> subprocess.Popen[str]:
        """Start the process."""
        self.workspace.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with self.errors.open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "tasks.ports.package"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )

    @property
    def errors(self) -> Path:
        """What the process complains about."""
        return self.workspace / "packer.log"
