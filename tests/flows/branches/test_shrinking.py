"""A chain of layers, neurons and pieces of the vocabulary, on a tiny real model: what the run says of each step."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from flows.cli.console import show_results
from flows.cli.runner import run_recipe
from flows.home import Home
from flows.run.opening import source_finders
from flows.run.recipe_file import load_recipe
from tasks.ports.store.open import open_store
from tasks.recipe.recipe import Recipe
from tasks.report.format.chains import chains
from tasks.report.page.page import run_page
from tasks.report.tables.results import results_markdown
from tasks.results.run import RunResult
from tests.families import write_tiny
from tests.flows.branches.test_makers import CUT, chain
from tests.flows.test_compress import FAST, executed

PRUNED = {"name": "pruned", "from": "cut", "by": "neuron-pruning", "rows": 40}
TRIMMED = {"name": "trimmed", "from": "pruned", "by": "vocabulary-trimming"}
FURTHER = {"name": "further", "from": "trimmed", "by": "distillation", "intermediate": FAST, "prediction": FAST}
BOUND = {"metric": "fertility", "relative_to": "teacher", "at_most": 1.0}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("home")).create()


@pytest.fixture(scope="module")
def recipe(tiny_rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    bert = write_tiny("bert", tmp_path_factory.mktemp("bert"), more=["quick", "brown", "foxes"], num_hidden_layers=3)
    gate = {"criteria": [BOUND, {"metric": "ms_per_text", "at_most": 1e9}], "leakage": 1.0}
    others = {"judge": {"others": {"source": str(tiny_rows), "rows": 50}}}
    data = {"source": str(tiny_rows), "selection_rows": 20, **others}
    exports = {"of": ["trimmed"], "formats": ["onnx"]}
    return chain(bert, tiny_rows, CUT, PRUNED, TRIMMED, FURTHER, gate=gate, data=data, exports=exports)


@pytest.fixture(scope="module")
def result(prefect_server: None, engines_here: None, home: Home, recipe: Recipe) -> dict[str, Any]:
    return run_recipe(recipe, home=home)


def test_a_smaller_vocabulary_changes_the_size_and_no_answer(result: dict[str, Any]) -> None:
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    pruned, trimmed = rows["pruned"], rows["trimmed"]
    assert trimmed.role == "trimmed" and trimmed.note == "97 of 100 pieces"
    assert trimmed.metrics == pruned.metrics and trimmed.per_seed == pruned.per_seed
    assert (pruned.parameters or 0) - (trimmed.parameters or 0) == 3 * 16  # three pieces of width 16
    assert (trimmed.bytes or 0) < (pruned.bytes or 0)
    assert rows["trimmed-onnx"].parameters == trimmed.parameters and rows["trimmed-onnx"].engine == "onnxruntime fp32"


def test_half_of_the_neurons_are_gone_in_all_that_follows(result: dict[str, Any], home: Home) -> None:
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    cut, pruned = rows["cut"], rows["pruned"]
    assert pruned.role == "pruned" and pruned.note == "16 of 32 neurons in each layer, by taylor"
    assert (cut.parameters or 0) - (pruned.parameters or 0) == 2 * 16 * (2 * 16 + 1)  # layers, neurons, weights of each
    assert (pruned.flops or 0) < (cut.flops or 0) and pruned.making == "made from cut by neuron-pruning"
    assert rows["further"].parameters == rows["trimmed"].parameters


def test_real_texts_are_counted_and_timed_for_all(result: dict[str, Any]) -> None:
    rows = {row.name: row for row in RunResult.model_validate(result).models}
    assert {row.fertility for row in rows.values()} == {rows["teacher"].fertility} != {None}
    assert {row.fertility_elsewhere for row in rows.values()} != {None}
    assert all(row.ms_per_text and row.ms_per_text > 0 for row in rows.values())
    said = results_markdown(list(rows.values()), split="validation")
    assert "Texts of the validation split take trimmed " in said and " pieces per word (" in said


def test_the_gate_reads_the_figures_of_texts(result: dict[str, Any]) -> None:
    found = {entry["candidate"]: entry for entry in result["registered"]}
    assert set(found) == {"cut", "pruned", "trimmed", "further"}
    assert any("fertility" in reason and "met" in reason for reason in found["trimmed"]["reasons"])


def test_what_is_made_from_it_has_its_tokenizer(result: dict[str, Any], home: Home) -> None:
    store = open_store(home.store, home.cache)
    vocabularies = {}
    for stage in result["stages"]:
        if stage["name"] in ("drop-layers", "prune-neurons", "trim-vocabulary", "distill-predictions"):
            artifact = store.find(stage["key"])
            assert artifact is not None
            document = json.loads((store.folder(artifact) / "tokenizer.json").read_text())
            vocabularies[stage["label"]] = len(document["model"]["vocab"])
    assert vocabularies == {"cut": 100, "pruned": 100, "trimmed": 97, "further": 97}


def test_page_and_terminal_show_what_each_step_bought(result: dict[str, Any]) -> None:
    run = RunResult.model_validate(result)
    (chain,) = chains(run.models)
    assert chain.names == ("teacher", "cut", "pruned", "trimmed", "further")
    changes = {step.row.name: step.size_change for step in chain.steps}
    assert (changes["cut"] or 0) < 0 and (changes["trimmed"] or 0) < 0 and changes["further"] == 0
    assert "What each step bought" in run_page(run)
    console = Console(width=110, record=True, file=io.StringIO())
    show_results(console, run)
    assert "step by step to further" in console.export_text()


def test_a_second_run_computes_nothing(result: dict[str, Any], recipe: Recipe, home: Home) -> None:
    assert executed(run_recipe(recipe, home=home)) == set()


@pytest.mark.parametrize(
    ("candidates", "changes", "said"),
    [
        ([CUT], {"gate": {"criteria": [BOUND]}}, "fertility is measured where a candidate has a tokenizer of its own"),
        (
            [CUT, PRUNED, TRIMMED],
            {"gate": {"criteria": [{**BOUND, "metric": "fertility_elsewhere"}]}},
            "fertility_elsewhere is measured on judging sets; add one to data.judge",
        ),
        (
            [CUT, PRUNED, TRIMMED, FURTHER],
            {"augmentation": {"word_vectors": "vectors.txt"}},
            "rows that have replaced words cannot be compared .* set stages: .., or trim the vocabulary",
        ),
        ([CUT, PRUNED, {**TRIMMED, "keep": "most"}], {}, "keep"),
        ([CUT, PRUNED, {**TRIMMED, "of": ["validation"]}], {}, "of"),
        ([CUT, PRUNED, {**TRIMMED, "of": ["train", "train"]}], {}, "of .* contain duplicates"),
        ([CUT, {**PRUNED, "keep": 1.0}], {}, "keep"),
        ([CUT, {**PRUNED, "importance": "movement"}], {}, "importance"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    candidates: list[dict[str, Any]], changes: dict[str, Any], said: str, tiny_bert: Path, tiny_rows: Path
) -> None:
    with pytest.raises(ValidationError, match=said):
        chain(tiny_bert, tiny_rows, *candidates, **changes)


def test_the_corpus_is_read_where_its_pieces_are_counted() -> None:
    """Nothing else in this recipe reads it, and pieces would be counted in the rows alone, without a word."""
    recipe = load_recipe("vocabulary")
    assert recipe.general_distillation is None and "corpus" in source_finders(recipe)
    values = recipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for candidate in values["candidates"]:
        if candidate["by"] == "vocabulary-trimming":
            candidate["of"] = ["train"]
    assert "corpus" not in source_finders(Recipe.model_validate(values))
