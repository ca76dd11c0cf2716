"""The gate's word, and its reasons."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import RecipeError
from tasks.gate.criteria import Champion, figure
from tasks.gate.row import GateRow
from tasks.gate.verdicts import (
    ACCEPT,
    ANOMALOUS,
    INFEASIBLE,
    REGRESSION,
    Decision,
    Evidence,
    Read,
    evaluate_candidates,
    preference,
)
from tasks.recipe.judging import Criterion, Gate
from tasks.results.row import Conditions
from tasks.scoring.quality.gain import Gain, Unread
from tasks.scoring.quality.verdicts import holm


def candidate(name: str, **changes: Any) -> GateRow:
    values = {
        "name": name,
        "role": "student",
        "retained": 0.97,
        "bytes": 100,
        "latency_ms": 5.0,
        "headline": 0.9,
        "metrics": {"accuracy": 0.9},
    }
    return GateRow.model_validate(values | changes)


TEACHER = candidate("teacher", role="teacher", bytes=1000)
SHARE = Gate(criteria=(Criterion(metric="retained", at_least=0.95),))


def known(rows: list[GateRow], half: float = 0.0) -> Read:
    """Return what reads the intervals of figures that are known to ``half``; as normal ones, they are wider where more
    confidence is asked."""
    by_name = {row.name: row for row in rows}

    def read(name: str, criterion: Criterion, confidence: float) -> Gain | None:
        value = figure(by_name[name], criterion.metric)
        wide = half * NormalDist().inv_cdf((1 + confidence) / 2) / NormalDist().inv_cdf(0.975)
        return None if value is None else Gain(value, value - wide, value + wide)

    return read


def decided(everybody: list[GateRow], gate: Gate = SHARE, *, half: float = 0.0, **evidence: Any) -> list[Decision]:
    """Let the gate decide on figures that are known to ``half``."""
    return evaluate_candidates(everybody, TEACHER, gate, Evidence(read=known(everybody, half), **evidence))


def test_the_smallest_accepted_candidate_is_champion() -> None:
    found = decided([candidate("large", bytes=200), candidate("small"), candidate("weak", retained=0.5, bytes=10)])
    assert [(decision.accepted, decision.champion) for decision in found] == [
        (True, False),
        (True, True),
        (False, False),
    ]
    assert (
        found[2].reasons == ("retained 0.5 [0.5, 0.5] ≥ 0.95 at its lower end: missed by 0.45",)
        and found[2].verdict == INFEASIBLE
    )


def test_a_baseline_never_wins() -> None:
    found = decided([candidate("plain", role="baseline", retained=1.0)])
    assert not found[0].accepted and not found[0].champion and not found[0].closest and found[0].verdict is None


def test_a_step_on_the_way_to_another_candidate_gets_no_verdict_and_does_not_count() -> None:
    found = decided([candidate("cut", role="step", bytes=1), candidate("small")])
    assert found[0].verdict is None and "gets no version" in found[0].reasons[0] and found[1].champion
    assert found[1] == decided([candidate("small")])[0]


def test_a_share_of_the_teacher() -> None:
    gate = Gate(criteria=(Criterion(metric="bytes", at_most=0.05, of_teacher=True),))
    assert (
        evaluate_candidates([candidate("small")], TEACHER, gate)[0].reasons[0]
        == "bytes 100 ≤ 50 (0.05 of the teacher's 1000): missed by 50"
    )


def test_what_is_unknown_is_not_met() -> None:
    assert not decided([candidate("new", retained=None)])[0].accepted
    unread = evaluate_candidates([candidate("new")], TEACHER, SHARE)[0]
    assert not unread.accepted and unread.reasons[0] == "retained 0.97, but its interval is unknown: not met"


def test_quality_is_read_at_the_worse_end_of_its_interval_and_by_the_mean_where_the_recipe_says_so() -> None:
    """A candidate was accepted by a point estimate: with luck, as often as not."""
    found = decided([candidate("lucky")], half=0.03)[0]
    assert not found.accepted and found.reasons[0] == "retained 0.97 [0.94, 1] ≥ 0.95 at its lower end: missed by 0.01"
    by_mean = Gate(criteria=(Criterion(metric="retained", at_least=0.95, reading="mean"),))
    found = decided([candidate("lucky")], by_mean, half=0.03)[0]
    assert found.accepted and found.reasons == ("retained 0.97 ≥ 0.95 by the mean: met",)
    error = Gate(criteria=(Criterion(metric="accuracy", at_most=0.92),))
    assert (
        decided([candidate("wide")], error, half=0.03)[0].reasons[0]
        == "accuracy 0.9 [0.87, 0.93] ≤ 0.92 at its upper end: missed by 0.01"
    )


def test_by_default_a_candidate_is_certainly_no_more_than_two_points_worse() -> None:
    (criterion,) = Gate().for_headline("matthews").criteria
    assert (criterion.metric, criterion.test, criterion.reference, criterion.tolerance) == (
        "matthews",
        "non-inferiority",
        "teacher",
        0.02,
    )
    assert Gate().split == "holdout", "rows on which everybody has looked before decide where a recipe says so"


# --- several candidates -----------------------------------------------------------------------------------------------


def test_several_candidates_are_read_at_a_higher_level_and_who_passes_makes_it_easier_for_the_rest() -> None:
    """Holm by hand: z is 1.96 for one candidate, 2.24 for two, 2.39 for three. ``half`` is 1.96 standard errors."""
    close = candidate("close", retained=0.95 + 0.0105)  # 2.06 standard errors above the bound: enough for one alone
    assert decided([close], half=0.01)[0].accepted
    others = [candidate("weak", retained=0.94), candidate("weaker", retained=0.93)]
    refused = decided([close, *others], half=0.01)[0]
    assert not refused.accepted and "at its lower end, 98.33 % for 3 candidates: missed" in refused.reasons[0]
    strong = [candidate("strong", retained=0.99), candidate("stronger", retained=0.995)]
    found = decided([close, *strong], half=0.01)
    assert [one.accepted for one in found] == [True] * 3 and found[0].reasons[0].endswith("at its lower end: met"), (
        "both leave, and it is asked alone"
    )
    assert "97.5 % for 2 candidates" in decided([close, strong[0], others[0]], half=0.01)[0].reasons[0]


def test_who_is_ruled_out_without_noise_takes_nobodys_place_and_neither_do_exports() -> None:
    gate = Gate(criteria=(*SHARE.criteria, Criterion(metric="bytes", at_most=150)))
    rows = [
        candidate("close", retained=0.95 + 0.0105),
        candidate("huge", bytes=500, retained=0.5),
        candidate("packed", role="export", retained=0.5),
    ]
    found = decided(rows, gate, half=0.01)
    assert found[0].accepted and [one.accepted for one in found[1:]] == [False, False]


@given(st.lists(st.floats(0.9, 1.0), min_size=1, max_size=6), st.floats(0, 0.05))
def test_step_down_by_intervals_is_holms_by_p_values(retained: list[float], half: float) -> None:
    rows = [candidate(f"c{number}", retained=value) for number, value in enumerate(retained)]
    error = half / NormalDist().inv_cdf(0.975)
    p_values = (
        [0.0 if value >= 0.95 else 1.0 for value in retained]
        if error < 1e-6
        else [1 - NormalDist().cdf((value - 0.95) / error) for value in retained]
    )
    expected = [p <= 0.025 for p in holm(p_values)]
    if all(abs(p * rivals - 0.025) > 1e-6 for p in p_values for rivals in range(1, 7)):
        assert [one.accepted for one in decided(rows, half=half if error >= 1e-6 else 0.0)] == expected


def test_an_unknown_metric_lists_the_legal_ones() -> None:
    with pytest.raises(RecipeError, match=r"unknown metric 'speeed'; legal are retained.*accuracy"):
        evaluate_candidates([candidate("a")], TEACHER, Gate(criteria=(Criterion(metric="speeed", at_least=1),)))


def test_an_unknown_metric_is_refused_even_without_candidates() -> None:
    with pytest.raises(RecipeError, match="unknown metric 'f1'"):
        evaluate_candidates([], TEACHER, Gate(criteria=(Criterion(metric="f1", at_least=0.5),)))


@pytest.mark.parametrize(("prefer", "winner"), [("smallest", "small"), ("fastest", "fast"), ("best", "good")])
def test_what_the_recipe_prefers_becomes_champion(prefer: str, winner: str) -> None:
    rows = [
        candidate("small", bytes=50),
        candidate("fast", latency_ms=1.0),
        candidate("good", headline=0.95),
        candidate("untimed", latency_ms=None),
    ]
    found = evaluate_candidates(rows, TEACHER, Gate(criteria=(), prefer=prefer))
    assert [decision.name for decision in found if decision.champion] == [winner]


def test_of_equally_small_ones_the_better_wins_and_undefined_quality_loses() -> None:
    rows = [
        candidate("undefined", headline=float("nan")),
        candidate("worse", headline=0.8),
        candidate("better", headline=0.9),
    ]
    assert [decision.name for decision in decided(rows) if decision.champion] == ["better"]


def test_a_winner_on_the_rows_that_report_it_is_called_one() -> None:
    """Without selection rows the best is the luckiest, too, and its figures were told as if nothing had chosen it."""
    both = [candidate("a", quality=0.9), candidate("b", quality=0.91)]
    gate = Gate(prefer="best", criteria=SHARE.criteria)
    (said,) = [one.reasons[-1] for one in decided(both, gate) if one.champion]
    assert said.startswith("preferred among 2 accepted candidates by its score on the rows that report it")
    for one in (
        decided(both[:1], gate),
        decided([candidate("a", quality=0.9, selection=0.8), candidate("b", quality=0.91, selection=0.7)], gate),
    ):
        assert not any("preferred among" in reason for decision in one for reason in decision.reasons)


def test_undefined_figures_are_not_met_and_said() -> None:
    gate = Gate(
        criteria=(
            Criterion(metric="accuracy", at_least=0.5),
            Criterion(metric="memory_bytes", at_most=0.5, of_teacher=True),
        )
    )
    found = decided([candidate("odd", metrics={"accuracy": float("nan")}, memory_bytes=5)], gate)[0]
    assert found.reasons[:2] == (
        "accuracy is unknown: not met",
        "memory_bytes 5, but the teacher's is unknown: not met",
    )
    assert found.values == {"accuracy": None, "memory_bytes": 5.0}


def test_every_criterion_must_hold_and_a_bound_itself_is_enough() -> None:
    gate = Gate(criteria=(Criterion(metric="retained", at_least=0.97), Criterion(metric="bytes", at_most=60_000_000)))
    exact, large = decided([candidate("exact", bytes=60_000_000), candidate("large", bytes=60_000_001)], gate)
    assert exact.accepted and not large.accepted
    assert large.reasons == (
        "retained 0.97 [0.97, 0.97] ≥ 0.97 at its lower end: met",
        "bytes 60,000,001 ≤ 60,000,000: missed by 1",
    )


# --- the four verdicts ------------------------------------------------------------------------------------------------

NO_WORSE = Criterion(metric="accuracy", relative_to="teacher", test="non-inferiority", tolerance=0.01)


def judged(name: str, gain: tuple[float, float, float] | None, criterion: Criterion = NO_WORSE, **changes: Any) -> Any:
    """Return the decision on one candidate whose gain to its reference is known."""
    evidence = Evidence(read=lambda name, criterion, confidence: None if gain is None else Gain(*gain), rows=872)
    return evaluate_candidates([candidate(name, **changes)], TEACHER, Gate(criteria=(criterion,)), evidence)[0]


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        (NO_WORSE, "could not be compared row by row with the teacher's (40 rows are too few): not met"),
        (Criterion(metric="retained", at_least=0.9), "but its interval is unknown (40 rows are too few): not met"),
    ],
)
def test_an_interval_that_cannot_be_computed_is_named_with_its_reason(criterion: Criterion, said: str) -> None:
    evidence = Evidence(read=lambda *_: Unread("40 rows are too few"), rows=40)
    found = evaluate_candidates([candidate("a")], TEACHER, Gate(criteria=(criterion,)), evidence)[0]
    assert found.verdict == INFEASIBLE and said in found.reasons[0]


def test_an_undefined_share_is_named_with_its_reason() -> None:
    """Of a teacher without a single error, the sentence said that the share is unknown, and not why."""
    evidence = Evidence(read=lambda *_: Unread("one of 0 and 2 mse is 0"), rows=40)
    asked = Gate(criteria=(Criterion(metric="retained", at_least=0.9),))
    found = evaluate_candidates([candidate("a", retained=None)], TEACHER, asked, evidence)[0]
    assert found.reasons[0] == "retained is unknown (one of 0 and 2 mse is 0): not met"


@pytest.mark.parametrize(
    ("gain", "verdict", "said"),
    [
        (
            (-0.002, -0.008, 0.004),
            ACCEPT,
            "accuracy -0.002 [-0.008, +0.004] to the teacher's, no worse than by 0.01: met",
        ),
        (
            (-0.008, -0.02, 0.004),
            INFEASIBLE,
            "accuracy -0.008 [-0.02, +0.004] to the teacher's, no worse than by 0.01: missed by 0.01",
        ),
        (
            (-0.04, -0.06, -0.02),
            REGRESSION,
            "accuracy -0.04 [-0.06, -0.02] to the teacher's, no worse than by 0.01: certainly worse, missed by 0.05",
        ),
        (None, INFEASIBLE, "accuracy could not be compared row by row with the teacher's: not met"),
    ],
)
def test_a_test_against_the_teacher_by_hand(gain: tuple[float, float, float] | None, verdict: str, said: str) -> None:
    found = judged("small", gain)
    assert (found.verdict, found.reasons[0]) == (verdict, said)


def test_superior_is_more_than_no_worse() -> None:
    better = Criterion(metric="accuracy", of_teacher=True, test="superiority", tolerance=0.01)
    assert judged("small", (0.02, 0.015, 0.025), better).verdict == ACCEPT
    assert judged("small", (0.02, 0.01, 0.03), better).verdict == INFEASIBLE, (
        "the interval must lie above the margin, not begin at it"
    )
    assert judged("small", (-0.02, -0.03, -0.01), better).verdict == REGRESSION


@given(value=st.floats(-1, 1), half=st.floats(0, 0.5), tolerance=st.floats(0, 0.5))
def test_of_a_test_exactly_one_word_holds(value: float, half: float, tolerance: float) -> None:
    criterion = Criterion(metric="accuracy", relative_to="teacher", test="non-inferiority", tolerance=tolerance)
    found = judged("small", (value, value - half, value + half), criterion)
    expected = ACCEPT if value - half >= -tolerance else REGRESSION if value + half < -tolerance else INFEASIBLE
    assert found.verdict == expected and (found.shortfall == 0) == (expected == ACCEPT)


@pytest.mark.parametrize(
    ("changes", "overlaps", "said"),
    [
        (
            {"lead": {"low": 0.06, "high": 0.1}},
            {},
            "certainly 0.06 better than the teacher, more than 0.05: implausibly good",
        ),
        ({"perfect": True}, {}, "no error on 872 rows: implausibly good"),
        (
            {},
            {"training rows": 18},
            "18 of the 872 evaluation rows overlap with the training rows (at most 2.0%): too many",
        ),
        (
            {},
            {"training rows": 0, "transfer text": 500},
            "500 of the 872 evaluation rows overlap with the transfer text",
        ),
    ],
)
def test_what_is_too_good_is_looked_into_and_never_accepted(
    changes: dict[str, Any], overlaps: dict[str, int], said: str
) -> None:
    found = decided([candidate("odd", **changes)], rows=872, overlaps=overlaps)[0]
    assert found.verdict == ANOMALOUS and not found.champion and not found.closest
    assert said in found.reasons[-1], found.reasons


def test_a_lead_in_an_error_is_a_share_of_the_teachers() -> None:
    teacher = candidate("teacher", role="teacher", headline=50.0, of_error=True)
    for low, verdict in ((0.06, ACCEPT), (2.5, ACCEPT), (2.6, ANOMALOUS)):
        row = candidate("student", headline=50.0 - low, of_error=True, lead={"low": low, "high": 4.0})
        found = evaluate_candidates([row], teacher, Gate(criteria=(FASTER,)), Evidence())[0]
        assert found.verdict == verdict, (low, found)
    assert found.reasons[-1].startswith("certainly 2.6 better than the teacher, more than 2.5 (0.05 of its 50): impl")


def test_what_is_only_good_is_accepted() -> None:
    fine = {"lead": {"low": 0.05, "high": 0.1}}
    found = decided([candidate("fine", **fine)], rows=872, overlaps={"training rows": 17})[0]
    assert found.verdict == ACCEPT and found.reasons[-1].endswith("few enough"), (
        "a few rows that stand in both are said, and borne"
    )
    few = decided([candidate("few", perfect=True)], rows=99)[0]
    assert few.verdict == ACCEPT, "not one mistake on a handful of rows is no wonder"


# --- relative to the champion -----------------------------------------------------------------------------------------

FASTER = Criterion(metric="latency_ms", at_most=0.9, relative_to="champion")
HELD = candidate("old", latency_ms=10.0, metrics={"accuracy": 0.91})


def test_without_a_champion_everybody_passes_and_the_champion_passes_itself() -> None:
    gate = Gate(criteria=(FASTER,))
    assert evaluate_candidates([candidate("first")], TEACHER, gate)[0].reasons == ("latency_ms: no champion yet: met",)
    same = evaluate_candidates([candidate("same", checkpoint="c")], TEACHER, gate, Evidence(Champion("3", "c", HELD)))[
        0
    ]
    assert same.reasons == ("latency_ms: the candidate is the champion itself: met",) and same.accepted


def test_a_share_of_the_champion_and_a_difference_to_it() -> None:
    evidence = Evidence(Champion("3", "c", HELD))
    found = evaluate_candidates([candidate("new", latency_ms=9.5)], TEACHER, Gate(criteria=(FASTER,)), evidence)[0]
    assert found.reasons[0] == "latency_ms 9.5 ≤ 9 (0.9 of champion v3's 10): missed by 0.5"
    near = Criterion(metric="accuracy", at_least=-0.005, relative_to="champion", by="difference", tolerance=0.005)
    found = decided([candidate("new", metrics={"accuracy": 0.9})], Gate(criteria=(near,)), champion=evidence.champion)[
        0
    ]
    said = "accuracy 0.9 [0.9, 0.9] ≥ 0.905 (-0.005 to champion v3's 0.91, tolerance 0.005) at its lower end: met"
    assert found.accepted and found.reasons[0] == said


def test_a_speed_that_was_measured_otherwise_than_the_champions_is_not_compared() -> None:
    """A text of 32 tokens takes a quarter of the time of one of 128."""
    here, there = (Conditions(batch=1, length=length, threads=2) for length in (32, 128))
    evidence = Evidence(Champion("3", "c", HELD.replaced(measured_at=there)))
    other, alike, unknown = (candidate("new", latency_ms=5.0, measured_at=at) for at in (here, there, None))
    found = evaluate_candidates([other], TEACHER, Gate(criteria=(FASTER,)), evidence)[0]
    assert found.verdict == INFEASIBLE and found.reasons[0] == (
        "latency_ms and that of the champion, version 3, were measured at batch 1, length 32, 2 threads and at "
        "batch 1, length 128, 2 threads: not met"
    )
    for one in (alike, unknown):
        assert evaluate_candidates([one], TEACHER, Gate(criteria=(FASTER,)), evidence)[0].verdict == ACCEPT
    teacher = Criterion(metric="latency_ms", at_most=1, of_teacher=True)
    assert evaluate_candidates([other], TEACHER, Gate(criteria=(teacher,)), evidence)[0].verdict == ACCEPT


def test_quality_on_other_rows_is_not_compared_but_size_is() -> None:
    criteria = (
        Criterion(metric="accuracy", at_least=1, relative_to="champion"),
        Criterion(metric="bytes", at_most=1, relative_to="champion"),
    )
    found = evaluate_candidates(
        [candidate("new")], TEACHER, Gate(criteria=criteria), Evidence(Champion("3", "c", HELD, comparable=False))
    )[0]
    assert found.reasons[0] == "accuracy: the champion, version 3, was evaluated on other rows: not met"
    assert found.reasons[1] == "bytes 100 ≤ 100 (1 of champion v3's 100): met"


def test_a_test_against_the_champion_says_on_which_rows_and_a_person_decides_where_there_are_too_few() -> None:
    test = Criterion(metric="accuracy", relative_to="champion", test="non-inferiority", tolerance=0.01)
    champion = Champion(
        "3", "c", HELD, comparable=False, why="was trained on some of the evaluation rows", on=" on 300 of 1,000 rows"
    )
    evidence = Evidence(champion, read=lambda name, criterion, confidence: Gain(0.0, -0.005, 0.005))
    found = evaluate_candidates([candidate("new")], TEACHER, Gate(criteria=(test,)), evidence)[0]
    assert found.accepted and "to champion v3's on 300 of 1,000 rows, no worse than by 0.01: met" in found.reasons[0]
    assert (
        "was trained on some of the evaluation rows: not met"
        in evaluate_candidates([candidate("new")], TEACHER, Gate(criteria=(test,)), Evidence(champion))[0].reasons[0]
    )


# --- joint goals, and who comes closest -------------------------------------------------------------------------------


def cost(**figures: float | None) -> dict[str, Any]:
    return {"cost": {name: {"value": value, "how": "estimated", "by": "a guess"} for name, value in figures.items()}}


def test_energy_and_money_are_goals_like_others_and_unknown_never_passes() -> None:
    gate = Gate(
        criteria=tuple(
            Criterion(metric=metric, at_most=2) for metric in ("kwh", "co2e_kg", "dollars", "dollars_spot", "joules")
        )
    )
    cheap = candidate("cheap", **cost(kwh=1, co2e_kg=2, dollars_on_demand=0.5, dollars_spot=0.1, joules=2))
    unknown = candidate("unknown", **cost(kwh=1, co2e_kg=None, dollars_on_demand=0.5, dollars_spot=0.1, joules=1))
    found = evaluate_candidates([cheap, unknown, candidate("unmeasured")], TEACHER, gate)
    assert [decision.verdict for decision in found] == [ACCEPT, INFEASIBLE, INFEASIBLE]
    assert (
        found[1].reasons[1] == "co2e_kg is unknown: not met" and found[1].shortfall == 1.0 and found[2].shortfall == 5.0
    )


def test_where_nobody_meets_every_goal_the_least_total_shortfall_comes_closest() -> None:
    gate = Gate(criteria=(Criterion(metric="retained", at_least=0.95), Criterion(metric="bytes", at_most=50)))
    large, weak = candidate("large", bytes=60), candidate("weak", bytes=40, retained=0.5)
    odd, plain, packed = (
        candidate("odd", bytes=51, perfect=True),
        candidate("plain", bytes=51, role="baseline"),
        candidate("packed", bytes=51, role="export"),
    )
    found = decided([weak, large, odd, plain, packed], gate, rows=872)
    assert [decision.closest for decision in found] == [False, True, False, False, False]
    assert found[1].reasons == (
        "retained 0.97 [0.97, 0.97] ≥ 0.95 at its lower end: met",
        "bytes 60 ≤ 50: missed by 10",
        "no candidate meets all criteria; this one is the closest, with a total shortfall of 20.0%",
    )


def test_a_classifier_that_gives_all_rows_one_class_is_not_accepted_and_its_graph_neither() -> None:
    constant = candidate("constant", rows_of_one_class=104, retained=1.0, bytes=10)
    graph = candidate("constant-int8", role="export", rows_of_one_class=104, retained=1.0, bytes=5)
    found = decided([constant, graph, candidate("able")])
    assert [(one.verdict, one.champion) for one in found] == [(INFEASIBLE, False), (INFEASIBLE, False), (ACCEPT, True)]
    assert found[0].shortfall == 1.0 and found[0].reasons[-1] == (
        "all 104 rows get one class although they have several, so that it tells nothing apart: not met"
    )
    assert [one.closest for one in decided([constant, candidate("weak", retained=0.5)])] == [False, True]
    sizes_alone = Gate(criteria=(Criterion(metric="bytes", at_most=50),))
    assert [one.verdict for one in decided([constant], sizes_alone)] == [ACCEPT], "no quality was asked for"


def test_what_sorts_rows_by_its_probabilities_may_expect_a_rare_class_in_none_of_them() -> None:
    gate = Gate(criteria=(Criterion(metric="auroc", at_least=0.8, reading="mean"),))
    teacher = candidate("teacher", role="teacher", metrics={"accuracy": 0.99, "auroc": 0.93})
    sorts = candidate("sorts", rows_of_one_class=104, metrics={"accuracy": 0.99, "auroc": 0.9})
    assert [one.verdict for one in evaluate_candidates([sorts], teacher, gate)] == [ACCEPT]


def test_an_export_is_judged_but_is_nobody_of_its_own() -> None:
    found = decided([candidate("small", bytes=200), candidate("small-int8", role="export", bytes=50)])
    assert [(decision.verdict, decision.champion) for decision in found] == [(ACCEPT, True), (ACCEPT, False)]


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**9)), min_size=1, max_size=6))
def test_there_is_one_champion_or_one_that_comes_closest_and_order_does_not_matter(
    rows: list[tuple[float, int]],
) -> None:
    everybody = [
        candidate(f"c{number}", retained=retained, bytes=size, headline=0.9 + number / 1000)
        for number, (retained, size) in enumerate(rows)
    ]
    found, turned = decided(everybody), decided(everybody[::-1])
    assert sum(decision.champion for decision in found) + sum(decision.closest for decision in found) == 1
    assert any(decision.champion for decision in found) == any(retained >= 0.95 for retained, _ in rows)
    assert {decision.name: decision for decision in found} == {decision.name: decision for decision in turned}


def test_the_fastest_is_known_by_its_speed_up_where_there_is_one() -> None:
    """Latencies of two machines cannot be compared; how much faster than the teacher, timed in turn, can."""
    here, there = candidate("here", latency_ms=9.0, speedup=4.0), candidate("there", latency_ms=3.0, speedup=2.0)
    assert preference(here, "fastest") < preference(there, "fastest")


def test_an_unsteady_speed_meets_no_criterion_and_is_preferred_to_nothing() -> None:
    gate = Gate(
        criteria=(Criterion(metric="speedup", at_least=2), Criterion(metric="latency_ms", at_most=9)), prefer="fastest"
    )
    quick, slow = candidate("quick", latency_ms=1.0, speedup=9.0), candidate("slow", latency_ms=4.0, speedup=2.5)
    assert [one.champion for one in evaluate_candidates([quick, slow], TEACHER, gate)] == [True, False]
    first, second = evaluate_candidates([quick.replaced(unsteady="after 40 calls"), slow], TEACHER, gate)
    assert first.reasons[:2] == ("speedup is unsteady: not met", "latency_ms is unsteady: not met") and second.champion
    shaky = candidate("decoder", token_ms=2.0).replaced(unsteady="for a further token")
    (further,) = evaluate_candidates([shaky], TEACHER, Gate(criteria=(Criterion(metric="token_ms", at_most=3),)))
    assert further.reasons[0] == "token_ms is unsteady: not met" and not further.champion
    assert decided([quick.replaced(unsteady="after 40 calls"), slow], Gate(criteria=SHARE.criteria, prefer="fastest"))[
        1
    ].champion


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of at_least and at_most"),
        ({"at_least": 1, "at_most": 2}, "exactly one of at_least and at_most"),
        ({"test": "superiority"}, "a test compares a metric of the task with relative_to"),
        ({"test": "superiority", "relative_to": "champion", "at_least": 1}, "remove at_least and at_most"),
        ({"metric": "bytes", "test": "superiority", "relative_to": "champion"}, "a test compares a metric of the task"),
        ({"at_least": 1, "of_teacher": True, "relative_to": "champion"}, "write it as two criteria"),
        ({"at_least": -0.01, "by": "difference"}, "a difference and needs a reference"),
        (
            {"test": "superiority", "relative_to": "teacher", "reading": "mean"},
            "reading: mean is for bounds on quality",
        ),
        ({"metric": "bytes", "at_most": 5, "reading": "mean"}, "reading: mean is for bounds on quality"),
    ],
)
def test_a_criterion_that_means_nothing_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Criterion.model_validate({"metric": "accuracy"} | given)
