"""Models that are trained for few bits: what a run says of them, and chains that would leave the grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.branches.candidate import Candidate
from flows.branches.export import grids_of
from flows.branches.shrinking.quantized import with_bits
from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.report.page.page import run_page
from tasks.report.tables.sizes import size_markdown
from tasks.results.row import ResultRow
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

TRAINING = {**FAST, "steps": 4}
FEW: dict[str, Any] = {
    "name": "few",
    "from": "teacher",
    "by": "quantization",
    "format": "four-bit",
    "bits": 2,
    "prediction": TRAINING,
}
LATER = {**FEW, "name": "later", "rounding": "after-training"}
EIGHT = {"name": "eight", "from": "teacher", "by": "quantization", "prediction": TRAINING}


@pytest.mark.slow
def test_a_run_tells_bits_and_the_graph_stores_them(
    prefect_server: None, engines_here: None, tiny_rows: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").create()
    exports = {"of": ["few", "eight", "teacher"], "formats": ["onnx", "int8", "four-bit"], "min_speedup": 0}
    gate = {"criteria": [{"metric": "bits", "at_most": 2}], "leakage": 1.0}
    bert = write_tiny("bert", tmp_path / "bert", hidden_size=64, intermediate_size=128)
    recipe = chain(
        bert, tiny_rows, FEW, LATER, EIGHT, gate=gate, exports={**exports, "tolerance": 1.0, "ways": ["dynamic"]}
    )
    result: dict[str, Any] = run_recipe(recipe, home=home)
    shown = RunResult.model_validate(result)
    rows = {row.name: row for row in shown.models}
    few, eight = rows["few"], rows["eight"]
    assert few.role == "quantized" and few.making == "made from teacher by quantization"
    assert "weights of 2 bits for four-bit, rounded in training" in (few.note or "")
    assert few.gate in ("champion", "accepted") and eight.gate not in ("champion", "accepted"), few.reasons
    told = {name: row.bits for name, row in rows.items()}
    assert told["few"] == told["few-four-bit"] == 2 and told["teacher-four-bit"] == 4 and told["eight-int8"] == 8
    assert told["teacher"] == told["teacher-onnx"] == told["few-onnx"] == 32 and told["later"] == 2
    assert rows["few-four-bit"].engine == "onnxruntime four-bit-trained"
    assert (rows["few-four-bit"].bytes or 0) < (rows["teacher-four-bit"].bytes or 0)
    table = "\n".join(size_markdown(shown.models))
    assert "| model | parameters | MB | bits |" in table and "bits those of a weight" in run_page(shown)
    assert executed(run_recipe(recipe, home=home)) == set()


def test_bits_are_those_that_a_graph_stores(tiny_bert: Path, tiny_rows: Path) -> None:
    recipe = chain(
        tiny_bert, tiny_rows, FEW, {**FEW, "name": "three", "bits": 3}, {**FEW, "name": "t", "bits": "ternary"}
    )
    names = ["teacher", "few", "few-onnx", "few-int8", "few-four-bit", "three", "three-four-bit", "t", "t-four-bit"]
    rows = [ResultRow(name=name, role="student", metrics={}, headline="accuracy") for name in names]
    told = {row.name: row.bits for row in with_bits(recipe, rows)}
    assert list(told.values()) == [32, 2, 32, 8, 2, 3, 4, 1.585, 2]
    assert grids_of(recipe, Candidate("few", "quantized", [])) == {"four-bit"}
    assert grids_of(recipe, Candidate("teacher", "teacher", [])) == set()
    plain = chain(tiny_bert, tiny_rows, {"name": "cut", "from": "teacher", "by": "neuron-pruning"})
    assert [row.bits for row in with_bits(plain, rows)] == [None] * len(rows)
    served = chain(tiny_bert, tiny_rows, {"name": "few", "from": "teacher", "by": "neuron-pruning"}, exports=EXPORTS)
    assert [row.bits for row in with_bits(served, rows)][:5] == [32, 32, 32, 8, 4], "graphs have few where no model has"


EXPORTS = {"of": ["few"], "formats": ["onnx", "int8", "four-bit"]}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            [FEW, {"name": "further", "from": "few", "by": "distillation"}],
            "candidate further changes the weights of few, which would leave the grid for which they are trained; let",
        ),
        ([FEW, {"name": "cut", "from": "few", "by": "neuron-pruning"}], "candidate cut changes the weights of few"),
        (
            [{**FEW, "format": "int8"}],
            "candidate few has bits: 2, and a graph in int8 holds 8; set format: four-bit, or leave bits out",
        ),
        (
            [{**FEW, "ranges": "trained"}],
            "candidate few has ranges: trained, and a graph in four-bit has a range for 32 states of each token; set "
            "format: int8",
        ),
        (
            [{**EIGHT, "ranges": "trained", "rounding": "after-training"}],
            "candidate eight has ranges: trained and is rounded after its training, .* set ranges: calibrated",
        ),
        ([{**FEW, "bits": 8}], "has bits: 8, and a graph in four-bit holds 4, 3, 2, ternary; set format: int8"),
        (
            [{**FEW, "from": "pretrained"}],
            "the pretrained model knows no answers; set from: teacher, or signal: labels",
        ),
        (
            [{**FEW, "prediction": {**TRAINING, "patience": {}}}],
            "candidate few compares all hidden states already, so it has no patience",
        ),
        (
            [
                FEW,
                {"name": "sparse", "from": "teacher", "by": "weight-pruning"},
                {**FEW, "name": "b", "from": "sparse"},
            ],
            "candidate b trains sparse again, and its weights would be 0 no longer",
        ),
    ],
)
def test_chains_and_grids_that_no_graph_serves_are_refused(
    more: list[dict[str, Any]], said: str, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(ValidationError, match=said):
        chain(tiny_bert, tiny_rows, *more)


def test_a_bound_on_bits_where_no_model_is_trained_for_few_is_refused(tiny_bert: Path, tiny_rows: Path) -> None:
    cut = {"name": "cut", "from": "teacher", "by": "neuron-pruning"}
    with pytest.raises(ValidationError, match="gate: bits are known where a candidate is trained .*none is"):
        chain(tiny_bert, tiny_rows, cut, gate={"criteria": [{"metric": "bits", "at_most": 4}]})
    exported = {"of": ["cut"], "formats": ["onnx", "int8"]}
    chain(tiny_bert, tiny_rows, cut, gate={"criteria": [{"metric": "bits", "at_most": 8}]}, exports=exported)


def test_fewer_bits_may_follow_more(tiny_bert: Path, tiny_rows: Path) -> None:
    four = {**FEW, "name": "four", "bits": 4}
    assert [one.grid for one in chain(tiny_bert, tiny_rows, four, {**FEW, "from": "four"}).planned] == ["four-bit"] * 2


def test_the_control_of_trained_ranges_differs_in_nothing_else(tiny_bert: Path, tiny_rows: Path) -> None:
    trained = {**EIGHT, "ranges": "trained"}
    kept = {**trained, "name": "kept", "ranges": "calibrated"}
    eight, control = chain(tiny_bert, tiny_rows, trained, kept).planned
    assert control.is_control_of(eight) and not eight.is_control_of(control)
    assert (eight.planned_role, control.planned_role) == ("quantized", "baseline")
    later = chain(tiny_bert, tiny_rows, trained, {**kept, "rounding": "after-training"}).planned[1]
    assert not later.is_control_of(eight)


@pytest.mark.slow
def test_a_run_serves_trained_ranges_and_those_of_its_control(
    prefect_server: None, engines_here: None, tiny_rows: Path, tmp_path: Path
) -> None:
    home = Home(tmp_path / "home").create()
    trained = {**EIGHT, "ranges": "trained"}
    small = {**trained, "name": "kept", "ranges": "calibrated", "format": "int8-table4"}
    exports = {"of": ["eight", "kept", "teacher"], "formats": ["int8", "int8-table4"], "ways": ["static"]}
    bert = write_tiny("bert", tmp_path / "bert", hidden_size=64, intermediate_size=128)
    recipe = chain(bert, tiny_rows, trained, small, exports={**exports, "tolerance": 1.0, "min_speedup": 0})
    result: dict[str, Any] = run_recipe(recipe, home=home)
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    assert "rounded in training, with trained static ranges" in (rows["eight"].note or "")
    assert rows["eight-int8"].engine == "onnxruntime int8 static-trained" and rows["eight-int8"].bits == 8
    assert rows["kept-int8-table4"].engine == "onnxruntime int8 static-trained-table4"
    assert rows["eight-int8-table4"].engine == "onnxruntime int8 static-table4", "it was not trained for this grid"
    assert rows["teacher-int8"].engine == "onnxruntime int8 static" and rows["kept"].role == "baseline"
    assert executed(run_recipe(recipe, home=home)) == set()
