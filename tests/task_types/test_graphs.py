"""Graphs of every task type: parity, decoding, timed inputs, and which stages count the code of which type."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.exports.jobs import JOBS
from tasks.exports.parity import apart
from tasks.ports.code.fingerprint import program
from tasks.ports.code.program import Program
from tasks.scoring.onnx_models import card_of
from tasks.scoring.predict import outputs_of, predict_texts, stored_type
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.stored import STATED
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.units import ragged_array
from tests.exports.test_exports import write_rows
from tests.scoring.small import sentences
from tests.stage_tasks import changed_stages, edited
from tests.task_types.configs import write_model
from tests.task_types.test_answers import ONE_ANSWER, drawn

NAMES = sorted({*GRAPHS} - {"retrieval", "seq2seq"})  # its graphs are those of embedding; there are none


SEEN_ELSEWHERE = ("classification", "embedding", "multi-label")
"""Types whose graphs are also asked in `exports/test_exports.py` and in the whole chains of their own tests."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] if name in SEEN_ELSEWHERE else [])
        for name in ONE_ANSWER
        if name in NAMES
    ],
)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """A task type, a checkpoint of it, and its export."""
    name, place = request.param, tmp_path_factory.mktemp(request.param)
    model = write_model(place / "model", name)
    knobs = {"opset": 20, "parity_rows": 8, "max_length": 32, "task_type": name}
    inputs = {"model": str(model), "rows": str(write_rows(place / "rows", train=9))}
    (place / "export" / "output").mkdir(parents=True)
    order = {
        "job": "export",
        "knobs": knobs,
        "inputs": inputs,
        "output": str(place / "export" / "output"),
        "threads": 1,
    }
    facts = JOBS["export"](Job(order, silent=True))
    assert facts["equal_answers"] == 1 and facts["largest_difference"] < 1e-4
    return name, model, place / "export" / "output"


def test_every_task_type_has_a_graph_with_its_outputs() -> None:
    assert {name: graph.outputs for name, graph in GRAPHS.items()} == {
        name: one.outputs for name, one in TASK_TYPES.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_equal_to_itself_and_not_to_another(name: str) -> None:
    ours, theirs = drawn(name, 1), drawn(name, 2)
    assert apart(ours, ours, name) == {"largest_difference": 0.0, "equal_answers": 1.0}
    found = apart(ours, theirs, name)
    assert found["largest_difference"] > 0.1 and found["equal_answers"] < 0.9
    by_row = [
        GRAPHS[name].equal(*({key: one[n : n + 1] for key, one in both.items()} for both in (ours, theirs)))[0]
        for n in range(5)
    ]
    assert by_row == GRAPHS[name].equal(ours, theirs)[:5].tolist(), "a row is judged by itself"


def test_an_export_predicts_as_its_checkpoint(exported: tuple[str, Path, Path]) -> None:
    name, model, export = exported
    texts = sentences(12)
    ours, theirs = (predict_texts(folder, texts) for folder in (export, model))
    assert stored_type(export) == stored_type(model) == name
    assert [one.get("label") for one in ours] == [one.get("label") for one in theirs]
    figures = {"classification": "score", "embedding": "embedding", "multi-label": "score_LABEL_1"}
    figure = figures.get(name, "value")
    np.testing.assert_allclose([one[figure] for one in ours], [one[figure] for one in theirs], atol=1e-4)
    outputs = outputs_of(export, texts, None, 32, task_type=name)
    assert list(outputs) == [one.name for one in TASK_TYPES[name].outputs] and all(map(len, outputs.values()))


def test_an_export_that_was_copied_without_its_config_is_told_by_its_labels(
    exported: tuple[str, Path, Path], tmp_path: Path
) -> None:
    name, _, export = exported
    alone = Path(shutil.copytree(export, tmp_path / "pulled" / "onnx"))
    (alone / "config.json").rename(alone.parent / "config.json")
    assert stored_type(alone) == name, "a pulled export, whose config is one folder up"
    (alone.parent / "config.json").unlink()
    assert stored_type(alone) == name and predict_texts(alone, ["good"]) == predict_texts(export, ["good"])


def test_the_card_decodes_as_the_config_of_the_checkpoint(exported: tuple[str, Path, Path]) -> None:
    name, model, export = exported
    from transformers import AutoConfig

    said = GRAPHS[name].card(AutoConfig.from_pretrained(model))
    card = card_of(export)
    assert {key: card[key] for key in said} == said and json.loads(json.dumps(said)) == said


@pytest.mark.parametrize("name", NAMES)
def test_a_timed_call_is_given_all_that_an_encoder_takes(name: str) -> None:
    ids_BT = np.arange(6).reshape(2, 3)
    found = GRAPHS[name].timed_inputs(ids_BT)
    assert list(found) == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(one.shape == (2, 3) and one.dtype == ids_BT.dtype for one in found.values())
    assert found["attention_mask"].all() and not found["token_type_ids"].any()


# --- keys -------------------------------------------------------------------------------------------------------------

KNOBS: dict[str, Any] = {"start": "teacher", "method": "layers", "strategy": "top", "layer_map": "uniform"}


def replaced(module: str, old: str, new: str) -> Program:
    """Return the package with another text in one module."""
    source = program().sources[module]
    assert source.count(old) == 1
    return edited({module: source.replace(old, new)})


def changed(other: Program, name: str) -> set[str]:
    """Return the stages of a task type whose code has another digest in another program."""
    kind = {"task_type": name, "task": {"kind": name}}
    return changed_stages(other, KNOBS | kind | {"combine": "weights", "architectures": ["bert"]})


def test_the_parity_of_values_counts_for_exports_of_regression_alone() -> None:
    """Only the fields that a stage reads count, and only those of its own type."""
    other = replaced("tasks.task_types.regression.graph", "NEAR = 0.01", "NEAR = 0.02")
    assert changed(other, "classification") == set()
    assert changed(other, "regression") == {
        "export-executorch",
        "export-onnx",
        "quantize-as-trained",
        "quantize-onnx",
        "quantize-to-four-bits",
        "quantize-to-trained-ranges",
    }


def test_a_further_task_type_runs_no_stage_again() -> None:
    entry = '    "classification": CLASSIFICATION,\n'
    other = replaced("tasks.task_types.graphs", entry, entry + '    "third": REGRESSION,\n')
    assert changed(other, "classification") == changed(other, "regression") == set()


def test_how_a_timed_call_is_made_counts_for_speed_alone() -> None:
    other = replaced("tasks.task_types.common_graph", "np.zeros_like(ids_BT)", "np.ones_like(ids_BT)")
    assert (
        changed(other, "classification")
        == changed(other, "regression")
        == {
            "measure-speed",
            "measure-latencies",
        }
    )


@pytest.mark.parametrize("name", [name for name, one in TASK_TYPES.items() if one.reads_units_apart])
def test_options_and_texts_to_rank_are_asked_for(name: str, tmp_path: Path) -> None:
    """Without them a single empty one would be chosen with the probability 1."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "num_labels": 1, STATED: name}))
    with pytest.raises(DataError, match=f"a model of type {name} reads two texts, text and pair, and one is given"):
        predict_texts(tmp_path, ["what is it?"], max_length=16)


def test_a_chosen_option_has_its_text() -> None:
    graph, scores = GRAPHS["choices"], [np.array([[0.0], [2.0]]), np.array([[1.0], [0.0], [0.0]])]
    assert graph.spans is not None
    one, other = graph.spans({"logits": ragged_array(scores)}, {}, ["a film\na song", "u\nv\nw"])
    assert (one["choice"], one["option"], other["choice"], other["option"]) == (1, "a song", 0, "u")
