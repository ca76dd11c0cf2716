"""Quantized graphs on real sentences: a small student of a real encoder loses at most a point to its own fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.catalog import GLUE
from tasks.engine.job import Job
from tasks.exports.parity import against_fp32, against_full
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice, TeacherSlice
from tasks.results.facts import GraphFacts
from tasks.training.jobs import JOBS
from tests.exports.test_exports import EXPORT, QUANTIZE, do
from tests.ports.rows.test_tables import SHARED

STEPS, LAYERS = 300, 3


def start_of(encoder: Path, folder: Path) -> Path:
    """Write an encoder's first layers."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model = AutoModelForMaskedLM.from_pretrained(encoder)
    model.bert.encoder.layer = model.bert.encoder.layer[:LAYERS]
    model.config.num_hidden_layers = LAYERS
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.real_data
def test_quantized_graphs_lose_at_most_a_point_of_sst2(tmp_path: Path) -> None:
    encoder, source = SHARED / "models" / "minilm", SHARED / "data" / "glue" / "sst2"
    if not encoder.is_dir() or not source.is_dir():
        pytest.skip(f"real data not found: {encoder} and {source}")
    prepare_rows(source, RowsSlice(task=GLUE["sst2"], selection_rows=1000), tmp_path / "rows")
    knobs = TeacherSlice(
        task_type="classification", steps=STEPS, batch_size=32, max_length=64, evaluations=0, learning_rate=1e-4
    ).model_dump(mode="json")
    inputs = {"rows": str(tmp_path / "rows"), "base": str(start_of(encoder, tmp_path / "start"))}
    (tmp_path / "model").mkdir()
    JOBS["finetune"](
        Job(
            {"job": "finetune", "knobs": knobs, "inputs": inputs, "output": str(tmp_path / "model"), "threads": 1},
            silent=True,
        )
    )
    full = do(
        "export",
        tmp_path / "full" / "output",
        EXPORT | {"max_length": 64},
        model=tmp_path / "model",
        rows=tmp_path / "rows",
    )
    small = do(
        "quantize",
        tmp_path / "small" / "output",
        QUANTIZE | {"max_length": 64, "calibration_rows": 200},
        export=tmp_path / "full" / "output",
        rows=tmp_path / "rows",
    )
    print(
        {
            way: {name: found[name] for name in ("score", "loss", "equal_answers")}
            for way, found in small["ways"].items()
        },
        small["fp32"],
    )
    assert against_full(GraphFacts(**full), 1e-3) == "" and against_fp32(GraphFacts(**small), 0.01) == ""
    assert small["fp32"]["score"] > 0.75 and small["bytes"] < 0.27 * full["bytes"]
    for name, (ways, share) in {
        "int8-table4": (["dynamic-table4", "static-table4"], 0.20),
        "four-bit": (["four-bit"], 0.17),
    }.items():
        found = do(
            "quantize-to-four-bits",
            tmp_path / name / "output",
            QUANTIZE | {"ways": ways, "max_length": 64, "calibration_rows": 200},
            export=tmp_path / "full" / "output",
            rows=tmp_path / "rows",
        )
        print(name, found["ways"], found["bytes"], found["bytes"] / full["bytes"])
        assert against_fp32(GraphFacts(**found), 0.01, name) == "" and found["bytes"] < share * full["bytes"]
