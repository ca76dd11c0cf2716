"""Metrics of rows that are judged together: SuperGLUE's figures, and resamples that draw groups whole."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from tasks.metrics.definition import metric_value
from tasks.metrics.metrics import METRICS
from tasks.scoring.quality.intervals import compare
from tasks.scoring.quality.resampling import resampled
from tests.methods.oracles import Oracle, reads

GROUPS = np.asarray([4, 4, 9, 9, 9, 1])
TRUTH = np.asarray([1, 0, 0, 1, 1, 0])
FOUND = np.asarray([1, 0, 1, 1, 0, 0])


def by_hand(name: str, found: np.ndarray, truth: np.ndarray, groups: np.ndarray) -> float:
    """Return a metric by its definition, question after question."""
    of = defaultdict(list)
    for group, one, true in zip(groups.tolist(), found.tolist(), truth.tolist(), strict=True):
        of[group].append((one, true))

    def f1(pairs: list[tuple[int, int]]) -> float:
        right = sum(one == true == 1 for one, true in pairs)
        share = [right / max(1, sum(pair[side] == 1 for pair in pairs)) for side in (0, 1)]
        return 0.0 if not right else 2 * share[0] * share[1] / sum(share)

    exact = sum(all(one == true for one, true in pairs) for pairs in of.values()) / len(of)
    every = f1([pair for pairs in of.values() for pair in pairs])
    return {
        "group_exact": exact,
        "group_f1": sum(map(f1, of.values())) / len(of),
        "f1_group_exact": (every + exact) / 2,
        "group_parity": sum(len({one for one, _ in pairs}) == 1 for pairs in of.values()) / len(of),
    }[name]


@reads("task_metrics", "multirc")
def test_figures_are_those_of_multirc(oracle: Oracle) -> None:
    case = oracle.content
    question, truth, found = (np.asarray(case[name]) for name in ("question", "golds", "predictions"))
    expected = case["expected"]
    assert METRICS["f1"](found, truth) == pytest.approx(expected["f1a"], abs=1e-9)
    for name, value in (
        ("group_f1", expected["f1m"]),
        ("group_exact", expected["exact"]),
        ("f1_group_exact", (expected["f1a"] + expected["exact"]) / 2),
    ):
        assert metric_value(METRICS[name], found, truth, question) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("name", ["group_exact", "group_f1", "f1_group_exact", "group_parity"])
def test_figures_are_those_of_the_definition(name: str) -> None:
    draw = np.random.default_rng(0)
    cases = [(FOUND, TRUTH, GROUPS)]
    cases += [tuple(draw.integers(0, high, 40) for high in (2, 2, 9)) for _ in range(20)]
    for found, truth, groups in cases:
        value = metric_value(METRICS[name], found, truth, groups)
        assert value == pytest.approx(by_hand(name, found, truth, groups), abs=1e-12)


def test_golden_figures() -> None:
    values = {name: metric_value(METRICS[name], FOUND, TRUTH, GROUPS) for name in ("group_exact", "group_f1")}
    assert values == {"group_exact": pytest.approx(2 / 3), "group_f1": pytest.approx((1 + 0.5 + 0) / 3)}
    assert metric_value(METRICS["f1_group_exact"], FOUND, TRUTH, GROUPS) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_a_score_of_cb_is_the_mean_of_two() -> None:
    draw = np.random.default_rng(1)
    found, truth = draw.integers(0, 3, (2, 60))
    mean = (METRICS["macro_f1"](found, truth) + METRICS["accuracy"](found, truth)) / 2
    assert METRICS["macro_f1_accuracy"](found, truth) == pytest.approx(mean, abs=1e-12)
    spread = resampled(METRICS["macro_f1_accuracy"], found[None], truth, 200, 0)
    assert spread.shape == (1, 200) and spread.std() > 0.01 and abs(spread.mean() - mean) < 0.05


def test_groups_are_drawn_whole() -> None:
    """An interval of answers drawn one by one would be far too narrow: the answers to a question are right together."""
    questions = 100
    units = np.repeat(np.arange(questions), 5)
    truth = np.ones(5 * questions, dtype=int)
    found = (units % 2).astype(int)
    (spread,) = resampled(METRICS["group_exact"], found[None], truth, 2000, 0, None, units)
    assert spread.std() == pytest.approx(0.05, rel=0.1)  # of 100 questions, not of 500 answers
    paragraphs = units // 10
    (wider,) = resampled(METRICS["group_exact"], found[None], truth, 2000, 0, paragraphs, units)
    assert wider.std() < 0.01  # each paragraph has as many exact questions as any other


def test_a_comparison_judges_the_same_groups_of_both_models() -> None:
    found = compare(METRICS["group_exact"], FOUND[None], TRUTH, TRUTH, groups_N=None, units_N=GROUPS)
    assert found.score.value == pytest.approx(2 / 3) and found.difference.value == pytest.approx(-1 / 3)
