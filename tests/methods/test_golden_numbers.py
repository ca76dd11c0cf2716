"""Every method equals golden numbers that stand in the repository.

They are made by formulae that are written a second time, in numpy, without a line of ``tasks``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tasks.methods.layers.layer_maps import LayerMap
from tasks.methods.layers.layer_similarity import linear_cka_of, moments_of
from tasks.methods.losses.means import Loss, mean_of
from tests.methods.golden import numbers
from tests.methods.oracles import ROOT

METHODS = ROOT / "tasks" / "methods"
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
        "kept_heads": "sorts importances, which have numbers; cases by hand in pruning/",
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
        "flops_of_token": "a product of sizes, by which shapes are drawn",
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
    "lamb": {"Lamb": "takes steps by the formulae that have numbers; proven by the reference's"},
    "ngrams": {
        "drawn_ngrams": "draws by numpy's generator; proven by the reference's shares",
        "shown_tokens": "draws by numpy's generator; proven by the reference's shares",
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
    "importance": {"drawn": "draws by torch's generator", "most_important": "sorts; proven by cases"},
    "neurons": {
        "feed_forward_maps": "finds modules in a model",
        "neurons_to_keep": "rounds; proven by cases",
        "keep_neurons": "takes rows and columns out of maps; proven by the reference's logits",
    },
    "weight_masks": {
        "largest": "sorts; proven by cases",
        "masks_of": "calls largest for all matrices, or for each",
        "share_above": "counts; proven by cases",
        "StraightThrough": "is what WeightMask calls",
        "WeightMask": "multiplies; its gradients are proven by the reference's",
    },
    "tickets": {
        "ticket": "sorts; proven by cases",
        "at_random": "draws by torch's generator",
        "drawn_anew": "draws by torch's generator",
    },
    "grids": {
        "PassGradient": "is what straight_through calls",
        "straight_through": "hands on; gradients are proven by the reference's",
        "largest_code": "a power of two; proven by the reference's",
        "no_zero": "avoids a division by zero",
        "fake_symmetric": "proven by the reference's numbers and gradients",
        "step_of_all": "proven by the reference's numbers",
        "steps_of_outputs": "proven by the codes of ONNX Runtime",
        "step_and_zero": "proven by the codes of ONNX Runtime",
        "asymmetric": "proven by the codes of ONNX Runtime",
        "of_each_text": "calls asymmetric for each text; proven by the codes of ONNX Runtime and by answers of graphs",
        "as_blocks": "moves values",
        "from_blocks": "moves values",
        "of_each_block": "calls fake_symmetric for each block; proven by answers of graphs",
        "table_in_four_bits": "proven by cases and by answers of graphs",
        "OutputGrid": "calls fake_symmetric",
    },
    "learned_steps": {
        "LearnedStep": "is what on_learned_grid calls",
        "on_learned_grid": "proven by the reference's numbers and gradients",
        "first_steps": "proven by the reference's numbers",
        "nearest_steps": "tries steps; no other step, and not the first one, leaves less error in the tests",
        "LearnedGrid": "calls on_learned_grid for each block",
    },
    "learned_ranges": {
        "FixedRange": "two numbers",
        "LearnedRange": "is what on_learned_range calls",
        "on_learned_range": "proven by the reference's numbers and gradients",
        "measured_range": "calls step_and_zero; proven by cases",
    },
    "ternary": {
        "ternary": "proven by the paper's rule, written a second time in numpy",
        "TernaryGrid": "calls ternary for each block",
    },
    "widths": {
        "AttentionMaps": "four modules",
        "attention_maps": "finds modules in a model",
        "heads_to_keep": "rounds; proven by cases",
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
        "ValueHead": "a linear map with a scale; tested by the mean and the deviation of its values",
        "started_at_labels": "replaces a module of a model for a training, and puts it back",
        "drawn_head": "finds a module in a model",
    },
}
"""Public functions and classes of ``tasks/methods`` that compute no number, and why; all others have golden numbers."""


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
    assert sum(path.stat().st_size for path in numbers.FOLDER.glob("*.json")) < 115_000


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


def test_golden_numbers_are_of_methods_that_are_there() -> None:
    there = {path.stem for path in METHODS.rglob("[a-z]*.py")}
    assert set(GOLDEN) <= there and set(WITHOUT_NUMBERS) <= there


# --- the methods equal them ---


def as_given(value: Any) -> Any:
    """Return a stored tensor: whole numbers as they are, all others in float64."""
    tensor = torch.tensor(value, dtype=torch.float64)
    return tensor.long() if whole(value) else tensor


def whole(value: Any) -> bool:
    return all(map(whole, value)) if isinstance(value, list) else isinstance(value, int)


def projected(
    function: Callable[..., Tensor], weight_ED: Tensor | None = None, bias_E: Tensor | None = None, **given: Tensor
) -> Tensor:
    """Hand the projection over as a module whose parameters are the given tensors."""
    if weight_ED is None:
        return function(**given)
    return function(**given, projection=lambda states: nn.functional.linear(states, weight_ED, bias_E))


def over_processes(parts: list[list[float]]) -> float:
    """Let every process take its mean, and average them as gradients are averaged."""
    everybody = torch.tensor(max(1, sum(map(len, parts))) / len(parts), dtype=torch.float64)
    losses = [mean_of(torch.tensor(part, dtype=torch.float64).sum(), len(part)) for part in parts]
    return float(sum(loss.mean(lambda count: everybody) for loss in losses)) / len(parts)


def in_two_batches(first_ND: Tensor, second_NE: Tensor, cut: int) -> float:
    return linear_cka_of(moments_of(first_ND[:cut], second_NE[:cut]) + moments_of(first_ND[cut:], second_NE[cut:]))


OWN_WAY: dict[str, Callable[..., Callable[..., Any]]] = {
    "hidden_states.hidden_state_loss": lambda function: partial(projected, function),
    "hidden_states.hidden_state_loss_paper": lambda function: partial(projected, function),
    "attention_scores.attention_score_loss": lambda function: (
        lambda far_1TT=None, **given: function(**given, far_1TT=None if far_1TT is None else far_1TT.bool())
    ),
    "attention_distributions.log_shares": lambda function: (
        lambda kept_BT, **given: function(**given, kept_BT=kept_BT.bool())
    ),
    "means.mean_of": lambda function: over_processes,
    "layer_similarity.linear_cka_of": lambda function: in_two_batches,
    "weight_masks.pressure": lambda function: lambda first_OI, second_OI: function([first_OI, second_OI]),
    "sentence_order.pieces": lambda function: (
        lambda **given: function(**{key: one.numpy() for key, one in given.items()})
    ),
    "word_vectors.nearest_words": lambda function: (
        lambda vectors_VE, rows, k: function(vectors_VE.numpy(), rows.numpy(), k)
    ),
}
"""Functions that are not simply called by the names of their arguments."""


def called(of: str) -> Callable[..., Any]:
    """Return what calls a function of the product with stored arguments."""
    method, name = of.split(".")
    [room] = [path.parent.name for path in METHODS.rglob(f"{method}.py")]
    function = getattr(import_module(f"tasks.methods.{room}.{method}"), name)
    return OWN_WAY.get(of, lambda plain: plain)(function)


def as_stored(made: Any) -> Any:
    """Return a value in the form in which it is stored."""
    if isinstance(made, list) and made and isinstance(made[0], tuple):
        return [list(one) for one in made]
    if isinstance(made, LayerMap):
        return [list(made.hidden), list(made.attention)]
    return made.tolist() if hasattr(made, "tolist") else made


@pytest.mark.parametrize(("method", "name"), CASES, ids=[f"{method}-{name}" for method, name in CASES])
def test_the_method_equals_its_golden_numbers(method: str, name: str) -> None:
    case = SimpleNamespace(**{"table": None, **GOLDEN[method][name]})
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
        made.backward()
        assert {key for key, value in asked.items() if value.grad is not None} == set(case.gradients), (
            "the student learns, and nothing else"
        )
    for key, expected in case.gradients.items():
        torch.testing.assert_close(given[key].grad, torch.tensor(expected, dtype=torch.float64), **close)
