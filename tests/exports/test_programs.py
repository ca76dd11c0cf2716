"""Programs of ExecuTorch: what they answer beside their checkpoint, at any length and beside padding, and what is said
where the package is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.errors import ModelError
from tasks.exports import programs
from tasks.exports.package import files_for_a_model
from tasks.ports.files.onnx_safety import outside_of
from tasks.scoring import executorch_programs
from tasks.scoring.executorch_programs import exported_model, is_installed
from tasks.scoring.onnx_models import FILES, card_of
from tasks.scoring.predict import predict_texts
from tasks.scoring.speed.speed import measure_latency
from tests.exports.test_exports import do, write_rows
from tests.scoring.small import logits_of, sentences, write_classifier

KNOBS: dict[str, Any] = {
    "parity_rows": 12,
    "max_length": 32,
    "task_type": "classification",
    "metric": "accuracy",
    "eight_bits": False,
}
LONG = " ".join(sentences(6))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier and rows."""
    place = tmp_path_factory.mktemp("programs")
    write_classifier(place / "model", num_hidden_layers=1)
    write_rows(place / "rows", train=20, selection=20, validation=10)
    return place


def test_without_the_package_it_is_said_how_to_get_it(place: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "is_installed", lambda: False)
        patch.setattr(executorch_programs, "is_installed", lambda: False)
        facts = do("export-program", tmp_path / "output", KNOBS, model=place / "model", rows=place / "rows")
        assert facts["made"] is False and "pip install 'limbeck[phone]'" in facts["because"]
        with pytest.raises(ModelError, match="programs of ExecuTorch need the package executorch, which is not"):
            executorch_programs.LoadedProgram(tmp_path / "model.pte", ["input_ids"], ["logits"], 1)


def test_a_pulled_program_has_the_identifier_of_one(tmp_path: Path) -> None:
    (tmp_path / "model.pte").write_bytes(b"\x30\0\0\0ET12" + bytes(40))
    assert outside_of(tmp_path / "model.pte") == ""
    (tmp_path / "model.pte").write_bytes(b"#!/bin/sh\nrm -r /")
    assert outside_of(tmp_path / "model.pte") == "cannot be read as a program of ExecuTorch"


@pytest.mark.slow
def test_programs_answer_as_their_checkpoint_at_any_length_and_are_timed(place: Path, tmp_path: Path) -> None:
    if not is_installed():
        pytest.skip("executorch is not installed: pip install 'limbeck[phone]'")
    facts, folders = {}, {}
    for name in ("executorch", "executorch-int8"):
        folders[name] = tmp_path / name / "output"
        knobs = {**KNOBS, "eight_bits": name == "executorch-int8"}
        facts[name] = do("export-program", folders[name], knobs, model=place / "model", rows=place / "rows")
        assert facts[name]["made"], facts[name]
        assert outside_of(folders[name] / FILES["executorch"]) == ""
    full, small = facts["executorch"], facts["executorch-int8"]
    assert full["largest_difference"] < 1e-4 and full["equal_answers"] == 1.0
    assert 1e-7 < small["largest_difference"] < 0.1 and small["equal_answers"] >= 0.95 and small["loss"] <= 0.05
    assert small["bytes"] < full["bytes"] and card_of(folders["executorch-int8"])["engine"] == "executorch int8"
    for texts in (["good"], [LONG], sentences(5)):
        theirs_NC = logits_of(place / "model", texts, None, 32)
        model = exported_model(folders["executorch"])
        assert model.outputs(texts, None, 32)["logits"] == pytest.approx(theirs_NC, abs=1e-4)
        padded = model.ask(model.encode(texts, None, 32))["logits"]
        assert padded == pytest.approx(theirs_NC, abs=1e-4)
    found = measure_latency(
        {"model": folders["executorch"], "teacher": place / "model"},
        task_type="classification",
        batch=1,
        length=16,
        threads=1,
        repeats=3,
        warmup=1,
        seconds=0.0,
    )
    assert found["model"]["p50_ms"] > 0 and found["engines"]["model"] == "executorch fp32"
    (tmp_path / "onnx").mkdir()
    for name, path in files_for_a_model(folders, tmp_path / "work").items():
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "tokenizer.json").write_bytes((place / "model" / "tokenizer.json").read_bytes())
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {"model.pte", "model_int8.pte", "onnx.json"}
    shares_NC = np.exp(logits_of(place / "model", ["good film"], None, 32))
    (one,) = predict_texts(tmp_path, ["good film"], export_format="executorch")
    assert one["score"] == pytest.approx(float((shares_NC / shares_NC.sum()).max()), abs=1e-4)
