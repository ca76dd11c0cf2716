"""The formulae of quantization, pruning and LAMB behind the golden numbers equal the reference implementations' own
numbers, where these are present."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

from tests.methods.golden import losses, pretraining, quantization, rules
from tests.methods.golden.gradient import gradient
from tests.methods.oracles import Oracle
from tests.methods.test_golden_formulas import CLOSE, opened

SINGLE = {"rtol": 1e-6, "atol": 1e-6}
"""The grids of ONNX Runtime are computed in float32."""


def equals_by(
    upstream: ndarray, t: Mapping[str, Any], kept: dict[str, str], formula: Callable[..., ndarray], **given: Any
) -> None:
    """Compare the gradients of a tensor that is multiplied by ``upstream`` and summed; ``kept`` names the expected
    ones."""
    for name, place in kept.items():
        found = gradient(lambda **moved: np.sum(formula(**moved) * upstream), given, name)
        np.testing.assert_allclose(found, t[place], **CLOSE)


# --- quantization ---


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_learned_steps_of_states(bits: int) -> None:
    oracle, t = opened("lsq", f"activation_{bits}bit")
    content, step = oracle.content, np.array(oracle.knobs.step)
    values, upstream = t[content["inputs"]["x"]], t[content["inputs"]["upstream"]]
    assert float(quantization.first_steps(values.flatten(), bits)[0]) == pytest.approx(float(step), rel=1e-6)
    given, formula = {"values": values, "step": step, "bits": bits}, quantization.on_learned_grid
    np.testing.assert_allclose(formula(**given), t[content["expected_tensors"]["fake"]], **CLOSE)
    of_step = content["expected_gradients"]["step"]
    equals_by(upstream, t, {"values": content["expected_gradients"]["in.x"]}, formula, **given)
    equals_by(upstream, {"step": of_step}, {"step": "step"}, formula, **given)
    if bits == 8:  # 128 of 256 codes lie below 0, as with a sign
        given = {"states": values, "step": step, "zero": 128}
        equals_by(upstream, {"step": of_step}, {"step": "step"}, quantization.on_learned_range, **given)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_learned_steps_of_rows(bits: int) -> None:
    oracle, t = opened("lsq", f"weight_by_row_{bits}bit")
    content = oracle.content
    given = {name: t[content["inputs"][name]] for name in ("weight", "step")}

    def rounded(weight: ndarray, step: ndarray) -> ndarray:
        return quantization.on_learned_grid(weight, step[:, None], bits)

    np.testing.assert_allclose(rounded(**given), t[content["expected_tensors"]["fake"]], **CLOSE)
    expected = content["expected_gradients"]
    kept = {"weight": expected["in.weight"], "step": expected["step"]}
    equals_by(t[content["inputs"]["upstream"]], t, kept, rounded, **given)


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_symmetric_rounding(bits: int) -> None:
    oracle, t = opened("q8bert", f"dynamic_{bits}bit")
    step, largest = quantization.step_of_all(t["in.x"], bits), quantization.largest_code(bits)
    assert 1 / step == pytest.approx(oracle.scalars["scale"], rel=1e-9)
    fake = quantization.fake_symmetric(t["in.x"], step, largest)
    np.testing.assert_allclose(fake, t[oracle.content["expected_tensors"]["fake"]], **CLOSE)
    given = {"values": t["in.x"], "steps": step, "largest": largest}
    [place] = oracle.content["expected_gradients"]["with_respect_to"].values()
    equals_by(2 * fake, t, {"values": place}, quantization.fake_symmetric, **given)


def test_a_rounded_table() -> None:
    oracle, t = opened("q8bert", "embedding")
    table_VD, ids = t["in.embedding"], t["in.ids"].astype(int)
    rows = quantization.fake_symmetric(table_VD, quantization.step_of_all(table_VD, 8), 127)[ids]
    np.testing.assert_allclose(rows, t[oracle.content["expected_tensors"]["training"]], **CLOSE)
    assert np.sum(rows**2) == pytest.approx(oracle.loss, rel=1e-9)


@pytest.mark.parametrize(("name", "largest"), [("eight_bits", 127), ("seven_bits", 64)])
def test_codes_of_a_matrix_and_a_table(name: str, largest: int) -> None:
    oracle, t = opened("int8_grids", name)
    expected = {key: t[place] for key, place in oracle.content["expected_tensors"].items()}
    steps_O1 = quantization.steps_of_outputs(t["in.weight"], largest)
    np.testing.assert_allclose(steps_O1[:, 0], expected["weight_scale"], **SINGLE)
    codes_OI = np.rint(quantization.output_grid(t["in.weight"], largest) / steps_O1)
    assert np.array_equal(codes_OI, expected["weight_codes"])
    ends = t["in.embedding"].min(), t["in.embedding"].max()
    step, zero = quantization.step_and_zero(*ends)
    assert (step, zero) == (
        pytest.approx(oracle.scalars["embedding_scale"], rel=1e-6),
        oracle.scalars["embedding_zero_point"],
    )
    rounded_VD = quantization.asymmetric(t["in.embedding"], *ends)
    assert np.array_equal(np.rint(rounded_VD / step) + zero, expected["embedding_codes"])


@pytest.mark.parametrize("name", ["usual", "all_positive", "one_row_of_two", "zeros"])
def test_codes_of_states(name: str) -> None:
    oracle, t = opened("int8_grids", f"activation_{name}")
    states = t[oracle.content["inputs"]["x"]]
    step, zero = quantization.step_and_zero(states.min(), states.max())
    assert (step, zero) == (pytest.approx(oracle.scalars["scale"], rel=1e-6), oracle.scalars["zero_point"])
    rounded = quantization.asymmetric(states, states.min(), states.max())
    assert np.array_equal(np.rint(rounded / step) + zero, t[oracle.content["expected_tensors"]["codes"]])
    if len(states) == 1:
        assert np.array_equal(quantization.of_each_text(states), rounded)


def test_a_map_in_eight_bits() -> None:
    oracle, t = opened("int8_grids", "linear_dynamic")
    x, weight, bias = (t[oracle.content["inputs"][name]] for name in ("x", "weight", "bias"))
    found = quantization.asymmetric(x, x.min(), x.max()) @ quantization.output_grid(weight, 127).T + bias
    np.testing.assert_allclose(found, t[oracle.content["expected_tensors"]["y"]], **SINGLE)


# --- pruning ---


@pytest.mark.parametrize("share", ["1.0", "0.5", "0.15", "0.03", "0.0"])
@pytest.mark.parametrize("by", ["topk", "magnitude"])
def test_the_largest_scores_stay(by: str, share: str) -> None:
    oracle, t = opened("pruning", f"{by}_keep_{share}")
    [place] = oracle.content["inputs"].values()
    scores = np.abs(t[place]) if by == "magnitude" else t[place]
    [mask_W] = rules.masks_of([scores.flatten().tolist()], oracle.knobs.keep_fraction, "matrix")
    assert mask_W == t[oracle.content["expected_tensors"]["mask"]].flatten().tolist()


@pytest.mark.parametrize("way", ["topK", "magnitude", "sigmoid_threshold"])
def test_a_masked_map(way: str) -> None:
    oracle, t = opened("pruning", f"masked_linear_{way}")
    given = {name: t[place] for name, place in oracle.content["inputs"].items()}
    upstream, x, threshold = given["upstream"], given["input"], oracle.knobs.threshold
    weight, scores = given["weight"], given.get("scores")
    by = np.abs(weight) if scores is None else scores
    mask = losses.sigmoid(by) > threshold
    if way != "sigmoid_threshold":
        mask = np.array(rules.masks_of([by.flatten().tolist()], threshold, "matrix")).reshape(by.shape)
        assert np.array_equal(losses.weight_mask(weight, threshold, scores), weight * mask)

    def output(weight: ndarray, scores: ndarray | None) -> ndarray:
        return x @ losses.masked_weight(weight, mask * 1.0, scores).T + given["bias"]

    np.testing.assert_allclose(output(weight, scores), t[oracle.content["expected_tensors"]["output"]], **CLOSE)
    expected = oracle.content["expected_gradients"]["with_respect_to"]
    kept = {name: expected[f"in.{name}"] for name in ("weight", "scores") if f"in.{name}" in expected}
    assert len(kept) == (1 if way == "magnitude" else 2)
    equals_by(upstream, t, kept, output, weight=weight, scores=scores)


@pytest.mark.parametrize(("name", "keep"), [("iterative", 0.6), ("one_shot", 0.5)])
def test_tickets(name: str, keep: float) -> None:
    """The reference rounds in every round."""
    oracle, t = opened("lottery_ticket", name)
    mask_W, rounds = np.ones_like(t["in.trained_weights"][0]), oracle.knobs.rounds
    for number, expected_W in enumerate(t[oracle.content["expected_tensors"]["masks"]]):
        share = 1 - (1 - keep) * (number + 1) / rounds
        [found] = rules.ticket([(t["in.trained_weights"][number] * mask_W).tolist()], share)
        assert int(np.sum(np.array(found) != expected_W)) <= 1
        mask_W = expected_W


def test_heads_of_several_layers() -> None:
    oracle, t = opened("importance", "by_layer_one_batch")
    raw_LH = t[Oracle("importance", "raw_one_batch").content["expected_tensors"]["importance"]]
    in_units_LH = t[oracle.content["expected_tensors"]["importance"]]
    best = np.argsort(-in_units_LH, axis=None)[:5]
    kept = rules.kept_heads(raw_LH.tolist(), np.ones_like(raw_LH).tolist(), 5 / 8, "global")
    assert sorted(4 * layer + head for layer, heads in enumerate(kept) for head in heads) == sorted(best.tolist())


# --- LAMB ---


@pytest.mark.parametrize("name", ["albert_defaults", "no_exclusions", "no_decay", "adapt_all_but_norms"])
def test_three_steps_of_lamb(name: str) -> None:
    oracle, t = opened("lamb", name)
    knobs = oracle.knobs
    weights = {place.removeprefix("in."): t[place] for place in t if place.startswith("in.") and ".grad" not in place}
    assert len(weights) == 5

    def left_out(of: str, parts: list[str] | None) -> bool:
        return any(part in of for part in parts or ())

    for of, weight in weights.items():
        made = pretraining.steps_of(
            weight.flatten(),
            np.stack([t[f"in.grad{step}.{of}"].flatten() for step in range(3)]),
            0.0 if left_out(of, knobs.left_out_of_decay) else knobs.weight_decay,
            not left_out(of, knobs.left_out_of_layer_adaptation),
            lr=knobs.learning_rate,
            betas=knobs.betas,
            eps=knobs.epsilon,
        )
        for step, found in enumerate(made):
            np.testing.assert_allclose(found.reshape(weight.shape), t[f"out.{name}.step{step}.{of}"], **CLOSE)
