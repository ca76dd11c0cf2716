"""Every method equals golden numbers that stand in the repository.

They are made by formulae that are written a second time, in numpy, without a line of ``tasks``.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.methods.losses.means import Loss
from tests.methods.golden import numbers
from tests.methods.golden_calls import METHODS, as_given, as_stored, called

GOLDEN = numbers.stored()
CASES = [(method, name) for method, cases in GOLDEN.items() for name in cases]
EXACT = {"rtol": 1e-10, "atol": 1e-12}
SINGLE = {"layer_similarity.between_models_BL": {"rtol": 1e-6, "atol": 1e-6}}
"""Functions that compute in float32 whatever they are given."""
ALLOWED = {
    "__future__",
    "collections",
    "dataclasses",
    "fractions",
    "hashlib",
    "json",
    "math",
    "pathlib",
    "random",
    "string",
    "typing",
    "numpy",
    "tests",
}

SORTS = "sorts the pieces of a file; proven by dividing texts anew"
WITHOUT_NUMBERS = {
    "attention_scores": {},
    "contribution": {},
    "ensembles": {"mixture_weights": "calls by_weights or by_certainty"},
    "divergences": {"divergence": "finds a function"},
    "feature_maps": {
        "over_tokens": "the mean that each loss takes",
        "require_same_shape": "refuses, and returns nothing",
    },
    "hidden_states": {"Projections": "maps drawn at random; what they do to a loss is in hidden_state_loss"},
    "silent_heads": {
        "maps_of_heads": "finds modules in a model",
        "sounding_heads": "reads which heads of a model have weights",
        "sounding_of_layer": "the same of one layer",
        "silence_heads": "writes zeros into a model; proven on its outputs",
        "leave_out_silent_heads": "takes heads out of a model; proven by equal outputs",
        "size_of_one_head": "reads a config",
        "has_silent_heads": "tells whether there are any",
        "places_of_heads": "numbers of rows",
    },
    "sub_networks": {
        "SubShape": "three numbers",
        "ShapeAxes": "the sizes that they may have",
        "sandwich": "draws shapes; its rule is tried in training/shrinking/test_supernet.py",
        "by_shape": "draws a shape; its shares are tried there",
        "by_flops": "draws a shape; its shares are tried there",
        "put_in_order": "moves weights; proven by equal outputs, and by the models of width pruning",
        "first_of_each_axis": "takes a part of a weight; proven alike",
    },
    "layer_dropping": {
        "encoder_layers": "finds a module in a model",
        "drop_layers": "takes layers out of a model; proven by reloading it bit for bit",
        "drop_decoder_layers": "the same of a second stack; proven by cached and uncached passes",
    },
    "layer_maps": {"LayerMap": "two lists of layers; the functions that fill it have numbers"},
    "layer_similarity": {
        "Moments": "sums that linear_cka_of reads",
        "moments_of": "makes those sums",
    },
    "layer_strategies": {
        "namesake": "names equal sets; it computes none",
        "undefined": "says whether a strategy refuses",
    },
    "kept_words": {
        "kept_words": "sorts; proven by answers that are kept whole, which are those of soft targets",
        "only_kept": "a student's padding rows; proven by the loss of the live teacher",
        "without_absent": "a teacher's padding rows; proven by the loss of the live teacher",
    },
    "label_sets": {
        "softened": "divides by the temperature, which every case has",
        "require_temperature": "refuses, and returns nothing",
    },
    "lists": {"places_in_rows": "where by_row_of_units puts each unit"},
    "means": {
        "in_full": "widens a number's type",
        "own_count": "the count of one process; mean_of over one process is in every loss here",
        "Term": "a sum and its count, which mean_of makes",
        "Loss": "the terms of a loss; sums of several are in class_prediction_loss",
    },
    "relations": {"require_heads": "refuses, and returns nothing"},
    "theseus": {"Replaceable": "runs one module or the other; tested by weights set by hand"},
    "ngrams": {
        "drawn_ngrams": "draws by numpy's generator; tested by its shares",
        "shown_tokens": "draws by numpy's generator; tested by its shares",
    },
    "sentence_order": {
        "Pairs": "three arrays",
        "segment_pairs": "draws by numpy's generator; proven by its properties",
        "targets": "draws by numpy's generator",
        "pieces_of_both_ends": "draws by numpy's generator; mirrors pieces, which has numbers",
        "cut_alike": "cuts two arrays; proven by lengths that tell nothing",
        "from_others": "draws by numpy's generator; proven by its properties",
        "cut_to_room": "draws by numpy's generator; proven by its properties",
    },
    "bpe": {
        **dict.fromkeys(("bpe_characters", "merged_from", "with_merges"), SORTS),
        "all_below": "follows links",
        "pairs_of": "reads pairs",
        "merged": "joins two pieces",
    },
    "choice": {
        "kept_pieces": "chooses by counts; proven by cases and by dividing texts anew",
        "by_frequency": "sorts; proven by a case",
        "characters_of": "collects characters",
    },
    "importance": {"drawn": "draws by torch's generator"},
    "neurons": {
        "feed_forward_maps": "finds modules in a model",
    },
    "weight_masks": {
        "StraightThrough": "is what WeightMask calls",
    },
    "tickets": {
        "at_random": "draws by torch's generator",
        "drawn_anew": "draws by torch's generator",
    },
    "grids": {
        "PassGradient": "is what straight_through calls",
        "no_zero": "puts 1 in place of 0; in the cases of grids with zeros alone",
        "as_blocks": "moves values",
        "from_blocks": "moves values",
    },
    "learned_steps": {
        "LearnedStep": "is what on_learned_grid calls",
    },
    "learned_ranges": {
        "FixedRange": "two numbers",
        "LearnedRange": "is what on_learned_range calls",
    },
    "widths": {
        "AttentionMaps": "four modules",
        "attention_maps": "finds modules in a model",
        "narrowed": "takes rows and columns out of parameters; proven one by one",
        "inner_rows": "numbers rows",
        "take_kept": "takes rows and columns",
        "width_and_heads_of": "reads a config",
    },
    "tokenizer_files": {
        "TokenizerModel": "four functions",
        "tokenizer_model_of": "finds functions",
        "pieces_by_number": "reads a file",
        "found_in_one_step": "nothing to compute",
        "ids_to_keep": "chooses by counts; proven by dividing texts anew",
        "with_pieces": "sorts the pieces of a file; proven by dividing texts anew",
        "renumbered": "renumbers the tokens of a file",
    },
    "unigram": {
        **dict.fromkeys(("pieces_by_place", "unigram_characters", "with_scored_pieces"), SORTS),
        "is_byte": "tells the form of a piece",
    },
    "wordpiece": dict.fromkeys(("wordpiece_characters", "with_wordpieces"), SORTS),
    "triple_loss": {
        "draw_targets": "draws by torch's generator; its weights are rarity",
        "masked_inputs": "draws by torch's generator; tested by its shares",
    },
    "value_head": {
        "started_at_labels": "replaces a module of a model for a training, and puts it back",
        "drawn_head": "finds a module in a model",
    },
}
"""Public functions and classes of ``tasks/methods`` that are no formula, and why; all others have golden numbers. A
reason holds in a clean checkout, too."""


# --- what stands in the files ---


def test_the_script_makes_the_committed_files_again() -> None:
    made = numbers.computed()
    assert set(made) == set(GOLDEN), "run python -m tests.methods.golden"
    for method, cases in made.items():
        assert differences(cases, GOLDEN[method]) == [], (
            f"{method}: run python -m tests.methods.golden, and say why the numbers changed"
        )
        assert numbers.as_text(GOLDEN[method]) == (numbers.FOLDER / f"{method}.json").read_text(encoding="utf-8"), (
            "a file was edited by hand"
        )


def differences(made: Any, stored: Any, at: str = "") -> list[str]:
    """Return where two trees differ.

    Inputs and rules must be equal. Of computed numbers the last digits may differ: numpy computes exponentials by
    other instructions on another processor.
    """
    if isinstance(made, dict) and isinstance(stored, dict) and set(made) == set(stored):
        return [found for name in made for found in differences(made[name], stored[name], f"{at}/{name}")]
    if isinstance(made, list | tuple) and isinstance(stored, list) and len(made) == len(stored):
        return [
            found
            for index, pair in enumerate(zip(made, stored, strict=True))
            for found in differences(*pair, f"{at}/{index}")
        ]
    if isinstance(made, float) and isinstance(stored, float):
        same = math.isclose(made, stored, rel_tol=1e-13, abs_tol=1e-15) if "/inputs/" not in at else made == stored
        return [] if same or (math.isnan(made) and math.isnan(stored)) else [f"{at}: {made!r}, {stored!r}"]
    return [] if type(made) is type(stored) and made == stored else [f"{at}: {made!r}, {stored!r}"]


def test_differences_are_seen() -> None:
    assert differences({"a": [1.0, 2]}, {"a": [1.0, 2]}) == [] == differences([math.nan], [math.nan])
    assert (
        differences({"a": [1.0]}, {"a": [1.0 + 1e-12]})
        and differences([1], [1.0])
        and differences([1], [1, 2])
        and differences({"a": 1}, {})
    )
    assert differences({"inputs": {"x": [1.0]}}, {"inputs": {"x": [1.0 + 1e-15]}}, "/case")


def test_the_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in numbers.FOLDER.glob("*.json")) < 160_000


@pytest.mark.parametrize("path", sorted(Path(numbers.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_the_script_shares_nothing_with_the_methods(path: Path) -> None:
    imported = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        imported |= {name.name for name in node.names} if isinstance(node, ast.Import) else set()
        imported |= {str(node.module)} if isinstance(node, ast.ImportFrom) else set()
    assert {name.split(".")[0] for name in imported} <= ALLOWED
    assert all(name.startswith("tests.methods.golden") for name in imported if name.startswith("tests"))


# --- nothing goes without ---


def public(path: Path) -> set[str]:
    """Return the functions and classes that a file offers."""
    return {
        node.name
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }


@pytest.mark.parametrize("path", sorted(METHODS.rglob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_method_has_golden_numbers_or_a_reason(path: Path) -> None:
    """A new method without them would be checked against oracles alone, which a clean checkout does not have."""
    numbered = {case["function"] for case in GOLDEN.get(path.stem, {}).values()}
    excused = set(WITHOUT_NUMBERS.get(path.stem, {}))
    assert public(path) == numbered | excused, (
        "add cases to tests/methods/golden/cases.py, or a reason to WITHOUT_NUMBERS"
    )
    assert not numbered & excused


def test_no_reason_is_the_shared_oracles() -> None:
    """Their tests are skipped where the shared folder is missing."""
    reasons = [reason for excused in WITHOUT_NUMBERS.values() for reason in excused.values()]
    assert [one for one in reasons if "reference" in one or "oracle" in one or "ONNX" in one] == []


def test_golden_numbers_are_of_methods_that_are_there() -> None:
    there = {path.stem for path in METHODS.rglob("[a-z]*.py")}
    assert set(GOLDEN) <= there and set(WITHOUT_NUMBERS) <= there


# --- the methods equal them ---


@pytest.mark.parametrize(("method", "name"), CASES, ids=[f"{method}-{name}" for method, name in CASES])
def test_the_method_equals_its_golden_numbers(method: str, name: str) -> None:
    case = SimpleNamespace(**{"table": None, "upstream": None, **GOLDEN[method][name]})
    of = f"{method}.{case.function}"
    if case.table is not None:
        for row in case.table:
            assert as_stored(called(of)(**row["knobs"])) == (
                pytest.approx(row["value"], rel=1e-12) if isinstance(row["value"], float) else row["value"]
            )
        return
    given = {key: as_given(value) for key, value in case.inputs.items()}
    asked = {
        key: value.requires_grad_()
        for key, value in given.items()
        if case.gradients and value.is_floating_point() and not key.startswith("labels")
    }
    found = called(of)(**given, **case.knobs)
    made = found.mean() if isinstance(found, Loss) else found
    close = SINGLE.get(of, EXACT)
    torch.testing.assert_close(
        torch.as_tensor(made, dtype=torch.float64).detach(), torch.tensor(case.value, dtype=torch.float64), **close
    )
    if case.gradients:
        above = None if case.upstream is None else torch.tensor(case.upstream, dtype=torch.float64)
        made.backward(above)
        assert {key for key, value in asked.items() if value.grad is not None} == set(case.gradients), (
            "the student learns, and nothing else"
        )
    for key, expected in case.gradients.items():
        torch.testing.assert_close(given[key].grad, torch.tensor(expected, dtype=torch.float64), **close)
