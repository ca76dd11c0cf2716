"""The formulae behind the golden numbers equal the reference implementations' own numbers, where these are present."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

from tests.methods.golden import losses, rules
from tests.methods.golden.gradient import gradient
from tests.methods.oracles import Oracle

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
TOKENS = np.array([[1] * 7, [1] * 5 + [0] * 2, [1] * 4 + [0] * 3])


def opened(method: str, name: str) -> tuple[Oracle, dict[str, ndarray]]:
    """Return a case and its method's tensors in numpy."""
    oracle = Oracle(method, name)
    return oracle, {key: tensor.numpy() for key, tensor in oracle.tensors.items()}


def equals(oracle: Oracle, t: dict[str, ndarray], formula: Callable[..., Any], **given: Any) -> None:
    """Compare a formula, and its gradient by every argument that the reference has one for."""
    assert np.real(formula(**given)) == pytest.approx(oracle.loss, rel=1e-9)
    kept = {
        key.removeprefix(f"grad.{oracle.name}."): value
        for key, value in t.items()
        if key.startswith(f"grad.{oracle.name}.")
    }
    assert kept and set(kept) <= set(given)
    for name, expected in kept.items():
        np.testing.assert_allclose(gradient(formula, given, name), expected, **CLOSE)


def test_the_complex_step_is_the_gradient() -> None:
    given = {"x": np.array([0.5, -1.25]), "scale": 3.0}
    found = gradient(lambda x, scale: np.sum(np.exp(scale * x)), given, "x")
    np.testing.assert_allclose(found, 3 * np.exp(3 * given["x"]), rtol=1e-15)
    assert given["x"].tolist() == [0.5, -1.25]


# --- TinyBERT ---


def inner_loss(
    student_hidden: ndarray,
    student_scores: ndarray,
    fit_dense_weight: ndarray,
    fit_dense_bias: ndarray,
    teacher_hidden: ndarray,
    teacher_scores: ndarray,
    masked: bool,
) -> ndarray:
    """Sum the terms of three student layers over six of the teacher's; these scores carry their mask."""
    projection, (states, layers) = (fit_dense_weight, fit_dense_bias), rules.divisible(3, 6)
    pairs = (
        [(student_hidden[m], teacher_hidden[layer]) for m, layer in enumerate(states)],
        [(student_scores[m], teacher_scores[layer]) for m, layer in enumerate(layers)],
    )
    if not masked:
        ones = np.ones((3, 7))
        return losses.intermediate_paper(*zip(*pairs[0], strict=True), *zip(*pairs[1], strict=True), ones, *projection)
    return sum(losses.hidden_state_loss(*pair, TOKENS, *projection) for pair in pairs[0]) + sum(
        losses.attention_score_loss(*pair, TOKENS) for pair in pairs[1]
    )


@pytest.mark.parametrize("name", ["intermediate", "intermediate_without_padding"])
def test_tinyberts_inner_loss(name: str) -> None:
    oracle, t = opened("tinybert", name)
    names = (
        "student_hidden",
        "student_scores",
        "fit_dense_weight",
        "fit_dense_bias",
        "teacher_hidden",
        "teacher_scores",
    )
    equals(oracle, t, inner_loss, **{key: t[f"in.{key}"] for key in names}, masked="without" in name)


def test_tinyberts_threshold() -> None:
    oracle, t = opened("tinybert", "threshold_edge")
    equals(
        oracle,
        t,
        lambda edge_student, edge_teacher: losses.attention_score_loss_paper(edge_student, edge_teacher),
        edge_student=t["in.edge_student"],
        edge_teacher=t["in.edge_teacher"],
    )


@pytest.mark.parametrize("temperature", [1, 2])
def test_tinyberts_soft_cross_entropy(temperature: int) -> None:
    oracle, t = opened("tinybert", f"soft_cross_entropy_T{temperature}")
    equals(
        oracle,
        t,
        lambda student_logits: losses.soft_cross_entropy_paper(student_logits, t["in.teacher_logits"], temperature),
        student_logits=t["in.student_logits"],
    )


def test_tinyberts_regression() -> None:
    oracle, t = opened("tinybert", "regression_prediction")
    knobs = {"hard_weight": 0.0, "formula": "paper"}
    equals(
        oracle,
        t,
        lambda student_regression: losses.value_prediction_loss(
            student_regression, np.zeros((3, 1)), t["in.regression_labels"], **knobs
        ),
        student_regression=t["in.student_regression"],
    )


# --- PKD and soft targets ---


@pytest.mark.parametrize(
    "name", ["batchmean_T1", "batchmean_T2", "batchmean_T4", "batchmean_T10", "mean_T1", "mean_T5", "mean_T10"]
)
def test_soft_targets(name: str) -> None:
    oracle, t = opened("pkd", f"soft_target_{name}")
    knobs, divided = oracle.knobs, 1 if name.startswith("batchmean") else 3

    def mixture(student_logits: ndarray) -> ndarray:
        soft = losses.soft_target_loss(student_logits, t["in.teacher_logits"], knobs.temperature) / divided
        return knobs.alpha * soft + (1 - knobs.alpha) * losses.class_loss(student_logits, t["in.labels"])

    equals(oracle, t, mixture, student_logits=t["in.student_logits"])


@pytest.mark.parametrize("name", ["patience_normalised", "patience_unnormalised"])
def test_patience(name: str) -> None:
    oracle, t = opened("pkd", name)
    copied = [state - 1 for state in rules.patience_layers("skip", 3, 6)]
    assert copied == oracle.knobs.teacher_layers_0based
    equals(
        oracle,
        t,
        lambda student_cls: losses.patience_loss(
            student_cls[:, :2], t["in.teacher_cls"][:, copied], oracle.knobs.normalised
        ),
        student_cls=t["in.student_cls"],
    )


# --- DistilBERT ---


@pytest.mark.parametrize("name", ["triple_loss", "triple_loss_ddp_weights", "restricted_to_mlm_targets_with_mse"])
def test_the_triple_loss(name: str) -> None:
    oracle, t = opened("distilbert", name)
    knobs, labels, kept = oracle.knobs, t["in.mlm_labels"], t["in.attention_mask"] == 1
    tokens = labels != -100 if knobs.tokens.startswith("MLM") else kept

    def three(student_logits: ndarray, student_last_hidden: ndarray) -> ndarray:
        ours, theirs = student_logits[tokens], t["in.teacher_logits"][tokens]
        soft = losses.softened_sum(ours, theirs, knobs.temperature) / len(ours)
        words = losses.masked_word_sum(student_logits[kept], labels[kept]) / np.sum(labels != -100)
        direction = losses.direction_loss(student_last_hidden[kept], t["in.teacher_last_hidden"][kept])
        squares = np.sum((ours - theirs) ** 2) / len(ours)
        return (
            knobs.alpha_ce * soft
            + knobs.alpha_mlm * words
            + knobs.alpha_cos * direction
            + getattr(knobs, "alpha_mse", 0.0) * squares
        )

    equals(oracle, t, three, student_logits=t["in.student_logits"], student_last_hidden=t["in.student_last_hidden"])


def test_the_second_step_on_squad() -> None:
    oracle, t = opened("distilbert", "squad_second_step")

    def second(student_start: ndarray, student_end: ndarray) -> ndarray:
        parts = [
            losses.soft_target_loss(ours, t[f"in.teacher_{end}"], oracle.knobs.temperature)
            for end, ours in (("start", student_start), ("end", student_end))
        ]
        return 0.5 * sum(parts) / 2 + 0.5 * t["in.hard_loss"]

    equals(oracle, t, second, student_start=t["in.student_start"], student_end=t["in.student_end"])


# --- MiniLM's terms ---


@pytest.mark.parametrize("name", ["attention_kl", "attention_kl_without_padding"])
def test_where_attention_looks(name: str) -> None:
    oracle, t = opened("relation_kl", name)
    rows = slice(0, 1 if "without" in name else 3)

    def divergence(student_scores: ndarray) -> ndarray:
        ours, theirs = (
            np.where(scores.real <= -100, 0, scores)[rows] for scores in (student_scores, t["in.teacher_scores"])
        )
        return losses.attention_distribution_loss(ours, theirs, np.ones((len(ours), 7)))

    equals(oracle, t, divergence, student_scores=t["in.student_scores"])


@pytest.mark.parametrize("name", ["state_relation_kl", "state_relation_kl_without_padding"])
def test_relations_of_states(name: str) -> None:
    oracle, t = opened("relation_kl", name)
    rows = slice(0, 1 if "without" in name else 3)

    def divergence(student_states: ndarray) -> ndarray:
        ours, theirs = (np.swapaxes(states, 0, 1)[rows, None] for states in (student_states, t["in.teacher_states"]))
        return losses.relation_loss(ours, theirs, np.ones((len(ours), 7)), heads=4)

    equals(oracle, t, divergence, student_states=t["in.student_states"])


def test_directions() -> None:
    oracle, t = opened("relation_kl", "hidden_cosine")
    equals(
        oracle,
        t,
        lambda student_hidden: losses.direction_loss(
            student_hidden.reshape(21, 24), t["in.teacher_hidden"].reshape(21, 24)
        ),
        student_hidden=t["in.student_hidden"],
    )


# --- layers and words ---


def test_which_layers_go() -> None:
    names = {"odd-alternate": "alternate-odd", "even-alternate": "alternate-even", "readme example, top three": "top-3"}
    for case in Oracle("layer_dropping", "removals").content:
        strategy, _, drop = names.get(case["label"], case["label"]).rpartition("-")
        assert rules.kept_layers(names.get(strategy, strategy), case["layers"], int(drop)) == case["kept_0based"], case[
            "label"
        ]


def test_which_layers_are_copied() -> None:
    assert rules.skip(6, 12)[1] == Oracle("pkd", "layer_map").content["twelve_to_six_skip_0based"]
    assert (
        rules.initial_layers(6, 12) == Oracle("distilbert", "student_initialisation").content["teacher_layers_0based"]
    )


def test_which_words_may_be_swapped() -> None:
    tokens = Oracle("augmentation_rule", "tokens").content
    assert {t["token"]: rules.alphabetic(t["token"]) for t in tokens} == {t["token"]: t["alphabetic"] for t in tokens}
    listed = {t["token"].lower() for t in tokens if t["alphabetic"] and not t["replaceable"]}
    assert {word for word in rules.FUNCTION_WORDS if word in {t["token"].lower() for t in tokens}} <= listed, (
        "words of the cases that the reference swaps"
    )
