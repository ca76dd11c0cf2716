"""Models with zeros on a tiny real model: what a run says of them, and chains that would fill the zeros again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from pydantic import ValidationError
from safetensors.numpy import load_file

from flows.branches.comparison import controls_of
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.run.recipe_file import load_recipe
from tasks.ports.tracking.tracker import Tracker
from tasks.recipe.makers.slices import WeightSlice
from tasks.recipe.recipe import Recipe
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
TWO_OF_FOUR = {**SPARSE, "name": "two-of-four", "pattern": "2:4", "keep": 0.5}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def recipe(tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    bound = {"criteria": [{"metric": "nonzero_share", "at_most": 0.9}, {"metric": "packed_bytes", "at_most": 10**9}]}
    exports = {"of": ["sparse", "two-of-four"], "formats": ["onnx", "int8"], "min_speedup": 0.0, "tolerance": 1.0}
    bert = write_tiny("bert", tmp_path_factory.mktemp("sparse") / "bert", num_hidden_layers=2)
    return chain(bert, tiny_rows, SPARSE, AT_RANDOM, TWO_OF_FOUR, gate={**bound, "leakage": 1.0}, exports=exports)


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, recipe: Recipe) -> dict[str, Any]:
    return run_recipe(recipe, home=home)


def test_a_run_tells_how_many_weights_stay_and_a_second_run_computes_nothing(
    result: dict[str, Any], home: Home, recipe: Recipe
) -> None:
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    sparse, control, teacher = rows["sparse"], rows["at-random"], rows["teacher"]
    assert sparse.role == "sparse" and sparse.making == "made from teacher by weight-pruning"
    assert "weights of the layers' matrices are not 0, by magnitude" in (sparse.note or "")
    assert sparse.parameters == control.parameters == teacher.parameters
    assert {entry["candidate"] for entry in result["registered"]} == {"sparse", "at-random", "two-of-four"}
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


def most_in_a_group(weight_OI: np.ndarray) -> int:
    """Return how many of four consecutive weights of a row are not 0, at most."""
    return int((weight_OI.reshape(-1, 4) != 0).sum(-1).max())


def test_two_of_every_four_weights_are_left_in_the_folder_and_in_its_graphs(
    result: dict[str, Any], home: Home, tmp_path: Path
) -> None:
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    said = rows["two-of-four"].note or ""
    assert "weights of the layers' matrices are not 0, by magnitude, two of every four in a row" in said
    entry = next(one for one in result["registered"] if one["candidate"] == "two-of-four")
    here = Tracker(home.own_tracking_uri, home.artifacts)
    here.download(entry["name"], entry["version"], tmp_path / "two")
    stored = load_file(tmp_path / "two" / "model.safetensors")
    of_layers = {name: one for name, one in stored.items() if ".layer." in name and one.ndim == 2}
    assert len(of_layers) == 2 * 6 and {most_in_a_group(one) for one in of_layers.values()} == {2}
    for name in ("onnx", "int8"):
        card = rows[f"two-of-four-{name}"]
        assert card.gate == "published" and card.nonzero_share is None
    graph = onnx.load(str(tmp_path / "two" / "onnx" / "model.onnx")).graph
    weights = [onnx.numpy_helper.to_array(one) for one in graph.initializer]
    shown = [one.T for one in weights if any(np.array_equal(one.T, theirs) for theirs in of_layers.values())]
    assert len(shown) == len(of_layers), "the graph has every matrix, transposed, with its zeros"


def test_its_control_is_the_same_pattern_at_random(tiny_bert: Path, tiny_rows: Path) -> None:
    control = {**TWO_OF_FOUR, "name": "two-at-random", "scores": "random"}
    anywhere = {**SPARSE, "name": "half-at-random", "keep": 0.5, "scores": "random"}
    recipe = chain(tiny_bert, tiny_rows, TWO_OF_FOUR, control, anywhere)
    assert controls_of(recipe, "two-of-four") == ["two-at-random"]


@pytest.mark.parametrize("written", ["2:4", '"2:4"'])
def test_a_file_may_name_the_pattern_with_or_without_quotes(written: str, tiny_rows: Path, tmp_path: Path) -> None:
    """Older YAML reads 2:4 as a number of minutes and seconds."""
    candidate = f"{{name: two, from: teacher, by: weight-pruning, pattern: {written}}}"
    path = tmp_path / "two.yaml"
    data = f"{{source: {tiny_rows}, holdout_rows: 10}}"
    path.write_text(f"name: two\ntask: sst2\ndata: {data}\ncandidates: [{candidate}]\n")
    for sets in ([], [f"candidates.0.pattern={written}"]):
        [found] = load_recipe(str(path), sets).planned
        assert found.has_pattern


def test_the_key_of_a_training_without_a_pattern_is_what_it_was() -> None:
    knobs = WeightSlice(task_type="classification")
    assert "pattern" not in knobs.key_values()
    assert knobs.model_copy(update={"pattern": "2:4"}).key_values() == {**knobs.key_values(), "pattern": "2:4"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            [SPARSE, {"name": "further", "from": "sparse", "by": "distillation"}],
            "candidate further trains sparse again, and its weights would be 0 no longer; let sparse be made from",
        ),
        ([SPARSE, {**SPARSE, "name": "sparser", "from": "sparse"}], "candidate sparser trains sparse again"),
        ([{**SPARSE, "begin": 0.8}], "candidate sparse loses weights from begin: 0.8 to end: 0.7 of its steps"),
        ([{**TWO_OF_FOUR, "keep": 0.25}], r"keeps two of every four weights \(pattern: 2:4\), which is keep: 0.5, and"),
        ([{**TWO_OF_FOUR, "scores": "movement"}], "2:4 is chosen by magnitude or random, and scores is movement"),
        ([{**TWO_OF_FOUR, "scores": "soft-movement"}], "2:4 is chosen by magnitude or random, and scores is soft"),
        (
            [TWO_OF_FOUR, {"name": "few", "from": "two-of-four", "by": "quantization"}],
            "candidate few trains two-of-four again, and its weights would be 0 no longer",
        ),
        (
            [TWO_OF_FOUR, {"name": "cut", "from": "two-of-four", "by": "neuron-pruning"}],
            "candidate cut takes columns out of the matrices of two-of-four, whose groups of four weights",
        ),
        ([TWO_OF_FOUR, {"name": "cut", "from": "two-of-four", "by": "width-pruning"}], "let two-of-four be made from"),
        ([{"name": "ticket", "from": "teacher", "by": "lottery-ticket", "pattern": "2:4"}], "pattern"),
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
