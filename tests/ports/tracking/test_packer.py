"""The packer: one process for many models, and every failure a sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tasks.catalog import TaskSpec
from tasks.errors import RegistryError
from tasks.ports.tracking.package import PINNED, package
from tasks.ports.tracking.packer import Packer
from tests.forked import start_fork

TASK = TaskSpec(name="tiny")


@pytest.fixture(scope="module")
def checkpoint(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("checkpoint")
    AutoModelForSequenceClassification.from_pretrained(tiny_bert).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


def test_one_process_packs_many_models_and_outlives_a_bad_one(checkpoint: Path, tmp_path: Path) -> None:
    with Packer(tmp_path / "work", start_fork) as packer:
        first = packer.pack(checkpoint, "first", card="# card", task=TASK)
        process = packer.process
        shutil.copytree(checkpoint, tmp_path / "broken")
        (tmp_path / "broken" / "model.safetensors").write_bytes(b"not weights")
        with pytest.raises(RegistryError, match="^broken could not be written as an MLflow model: ") as caught:
            packer.pack(tmp_path / "broken", "broken", card="", task=TASK)
        assert "\n" not in str(caught.value)
        second = packer.pack(checkpoint, "second", card="", task=TASK)
        assert packer.process is process
    assert isinstance(process, subprocess.Popen) and process.poll() is not None
    assert (first / "README.md").read_text() == "# card"
    assert json.loads((first / "input_example.json").read_text()) == ["some text"], "an example that is nobody's row"
    assert (second / "model" / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()


def test_requirements_are_compared_without_a_list_of_the_files_of_all_packages(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The list takes longer than the conversion of a small model; the pinned versions are the installed ones."""
    import importlib_metadata
    from mlflow.utils import requirements_utils

    asked: list[str] = []
    monkeypatch.setattr(importlib_metadata, "packages_distributions", lambda: asked.append("asked") or {})
    monkeypatch.setattr(requirements_utils, "_MODULES_TO_PACKAGES", None)
    monkeypatch.setattr(requirements_utils, "_PACKAGES_TO_MODULES", None)
    order = {"folder": str(checkpoint), "output": str(tmp_path / "packed"), "card": "# card"}
    package({**order, "task_type": "classification", "pairs": False, "max_length": 16})
    assert not asked and "mismatches" not in caplog.text
    pinned = (tmp_path / "packed" / "requirements.txt").read_text().splitlines()
    assert [line.split("==")[0] for line in pinned] == list(PINNED)


def test_a_process_that_dies_is_told_with_its_last_words(checkpoint: Path, tmp_path: Path) -> None:
    with Packer(tmp_path) as packer:
        packer.process = packer.start()
        packer.process.kill()
        packer.process.wait()
        with pytest.raises(
            RegistryError, match="model could not be written as an MLflow model: the packer stopped with status -9"
        ):
            packer.pack(checkpoint, "model", card="", task=TASK)


def test_an_order_that_comes_when_the_run_is_over_starts_nothing(checkpoint: Path, tmp_path: Path) -> None:
    """A thread cannot be cancelled: it may reach its order late."""
    with Packer(tmp_path / "work") as packer:
        pass
    with pytest.raises(RegistryError, match="late could not be written as an MLflow model: the run was stopped"):
        packer.pack(checkpoint, "late", card="", task=TASK)
    assert packer.process is None


def test_nothing_to_pack_starts_nothing(tmp_path: Path) -> None:
    with Packer(tmp_path / "work") as packer:
        assert packer.process is None
    assert not (tmp_path / "work").exists()
