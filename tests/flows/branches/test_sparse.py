"""Models with zeros on a tiny real model: what a run says of them, and chains that would fill the zeros again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.cli.runner import run_recipe
from flows.home import Home
from tasks.report.page.page import run_page
from tasks.report.tables.sizes import size_markdown
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_makers import chain
from tests.flows.test_compress import FAST, executed

TRAINING = {**FAST, "steps": 4}
SPARSE: dict[str, Any] = {
    "name": "sparse",
    "from": "teacher",
    "by": "weight-pruning",
    "keep": 0.2,
    "every": 1,
    "prediction": TRAINING,
}
AT_RANDOM = {**SPARSE, "name": "at-random", "scores": "random", "signal": "labels"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


def test_a_run_tells_how_many_weights_stay_and_a_second_run_computes_nothing(
    prefect_server: None, engines_here: None, home: Home, tiny_rows: Path, tmp_path: Path
) -> None:
    bound = {"criteria": [{"metric": "nonzero_share", "at_most": 0.9}, {"metric": "packed_bytes", "at_most": 10**9}]}
    exports = {"of": ["sparse"], "formats": ["onnx", "int8"]}
    bert = write_tiny("bert", tmp_path / "bert", num_hidden_layers=2)
    recipe = chain(bert, tiny_rows, SPARSE, AT_RANDOM, gate={**bound, "leakage": 1.0}, exports=exports)
    result: dict[str, Any] = run_recipe(recipe, home=home)
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    sparse, control, teacher = rows["sparse"], rows["at-random"], rows["teacher"]
    assert sparse.role == "sparse" and sparse.making == "made from teacher by weight-pruning"
    assert "weights of the layers' matrices are not 0, by magnitude" in (sparse.note or "")
    assert sparse.parameters == control.parameters == teacher.parameters
    assert {entry["candidate"] for entry in result["registered"]} == {"sparse", "at-random"}
    assert teacher.nonzero_share is not None and teacher.nonzero_share > 0.9 > (sparse.nonzero_share or 1)
    assert sparse.bytes == teacher.bytes and (sparse.packed_bytes or 0) < 0.8 * (teacher.packed_bytes or 0)
    graph = rows["sparse-int8"]
    assert (graph.packed_bytes or 0) < (graph.bytes or 0) and graph.nonzero_share is None
    assert sparse.gate in ("champion", "accepted"), sparse.reasons
    shown = RunResult.model_validate(result)
    table = "\n".join(size_markdown(shown.models))
    assert "| sparse | " in table and "| model | parameters | not 0 | MB | MB packed |" in table
    assert "MB packed" in run_page(shown)
    assert executed(run_recipe(recipe, home=home)) == set()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            [SPARSE, {"name": "further", "from": "sparse", "by": "distillation"}],
            "candidate further trains sparse again, and its weights would be 0 no longer; let sparse be made from",
        ),
        ([SPARSE, {**SPARSE, "name": "sparser", "from": "sparse"}], "candidate sparser trains sparse again"),
        ([{**SPARSE, "begin": 0.8}], "candidate sparse loses weights from begin: 0.8 to end: 0.7 of its steps"),
    ],
)
def test_chains_that_would_fill_the_zeros_are_refused(
    more: list[dict[str, Any]], said: str, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(ValidationError, match=said):
        chain(tiny_bert, tiny_rows, *more)


def test_a_bound_on_zeros_where_no_model_has_any_is_refused(tiny_bert: Path, tiny_rows: Path) -> None:
    cut = {"name": "cut", "from": "teacher", "by": "neuron-pruning"}
    with pytest.raises(
        ValidationError, match="gate: nonzero_share is measured where a candidate has zeros, and none has"
    ):
        chain(tiny_bert, tiny_rows, cut, gate={"criteria": [{"metric": "nonzero_share", "at_most": 0.5}]})
