"""The section ``exports``: strict, and refused before anything is spent."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flows.branches.export import fits_seven_bits, stage_knobs
from tasks.errors import DataError
from tasks.preflight import require_rows_for_int8
from tasks.recipe.judging import Exporting, Exports, Quantizing
from tasks.recipe.recipe import Recipe
from tasks.results.facts import RowsFacts

STUDENT = {"name": "half", "layers": 2}
PLAIN = {"name": "r", "task": "sst2", "gate": {"split": "validation"}, "students": [STUDENT]}


def recipe(**changes: Any) -> Recipe:
    return Recipe.model_validate(
        PLAIN | {"layer_dropping": {"strategies": ["top"], "drop": [1]}, "exports": {}} | changes
    )


def test_no_section_no_exports() -> None:
    assert Recipe.model_validate(PLAIN).exports is None and recipe().exports == Exports()


@pytest.mark.parametrize(
    ("exports", "said"),
    [
        (
            {"of": ["hlaf"]},
            "exports.of names 'hlaf', which is not a model of this recipe; its models are teacher, half, top-1",
        ),
        ({"formats": []}, "at least 1 item"),
        ({"formats": ["int8", "int8"]}, "list each once"),
        ({"ways": ["dynamic", "dynamic"]}, "list each once"),
        ({"ways": ["qat"]}, "'dynamic' or 'static'"),
        ({"tolerance": -0.1}, "greater than or equal to 0"),
        ({"min_speedup": -1}, "greater than or equal to 0"),
        ({"tolerence": 0.1}, "Extra inputs are not permitted"),
        ({"opset": 12}, "greater than or equal to 18"),
    ],
)
def test_a_slip_is_refused_with_a_way_out(exports: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        recipe(exports=exports)


def test_a_name_that_an_export_would_have_is_refused() -> None:
    with pytest.raises(ValidationError, match="the student name 'half-int8' is also the name of an export"):
        recipe(students=[STUDENT, {"name": "half-int8", "layers": 2}])


def test_fixed_ranges_of_a_model_that_was_trained_for_those_of_each_text_are_refused() -> None:
    few = {"name": "few", "from": "half", "by": "quantization"}
    said = "exports.ways is .static., and candidate few is trained for int8 with ranges of each text"
    for exports in ({}, {"of": ["few"]}):
        with pytest.raises(ValidationError, match=said):
            recipe(candidates=[few], exports={"ways": ["static"], **exports})
    recipe(candidates=[few], exports={"ways": ["static"], "of": ["half"]})
    recipe(candidates=[few], exports={"ways": ["static", "dynamic"]})
    recipe(candidates=[{**few, "format": "four-bit"}], exports={"ways": ["static"], "formats": ["int8", "four-bit"]})
    recipe(candidates=[{**few, "rounding": "after-training"}], exports={"ways": ["static"]})


def test_calibrated_ranges_alone_of_a_model_that_has_its_own_are_refused() -> None:
    few = {"name": "few", "from": "half", "by": "quantization", "ranges": "trained"}
    said = "exports.ways is .dynamic., and candidate few is trained for int8 with ranges of its own"
    with pytest.raises(ValidationError, match=said):
        recipe(candidates=[few], exports={"ways": ["dynamic"]})
    recipe(candidates=[few], exports={"ways": ["static"]})
    recipe(candidates=[few], exports={"ways": ["dynamic"], "of": ["half"]})
    recipe(candidates=[{**few, "ranges": "calibrated"}], exports={"ways": ["dynamic"]})


def test_int8_needs_rows_to_be_judged_on() -> None:
    with pytest.raises(ValidationError, match="data.selection_rows is 0"):
        recipe(data={"selection_rows": 0})
    assert recipe(data={"selection_rows": 0}, exports={"formats": ["onnx"]}).exports is not None
    with pytest.raises(DataError, match="train is too small for one"):
        require_rows_for_int8(recipe(), RowsFacts(rows={"train": 5}))
    require_rows_for_int8(recipe(), RowsFacts())  # a plan has not counted them
    require_rows_for_int8(recipe(exports=None), RowsFacts(rows={"train": 5}))


def test_what_decides_neither_graph_is_in_neither_key() -> None:
    """A verdict is spoken by the flow: another tolerance makes nothing again."""
    for changed in ({"tolerance": 0.5}, {"parity": 0.5}, {"min_speedup": 2.0}, {"formats": ["int8"]}, {"of": ["half"]}):
        assert all(
            stage_knobs(Exports(**changed), kind) == stage_knobs(Exports(), kind) for kind in (Exporting, Quantizing)
        )
    assert stage_knobs(Exports(calibration_rows=7), Exporting) == stage_knobs(Exports(), Exporting) and stage_knobs(
        Exports(opset=18), Quantizing
    ) == stage_knobs(Exports(), Quantizing)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("avx2 avx512_vnni", False), ("avx2 avx_vnni", False), ("avx2 avx512f", True), ("asimd", False), ("", False)],
)
def test_weights_keep_to_seven_bits_where_bytes_cannot_be_multiplied(
    monkeypatch: pytest.MonkeyPatch, flags: str, expected: bool
) -> None:
    monkeypatch.setattr("tasks.ports.machine.cpuinfo", lambda: f"flags : {flags}")
    assert (
        fits_seven_bits(Exports()) is expected
        and fits_seven_bits(Exports(reduce_range="yes"))
        and not fits_seven_bits(Exports(reduce_range="no"))
    )
