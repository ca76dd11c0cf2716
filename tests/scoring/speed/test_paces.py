"""What a run says of speed: quotients of printed figures, and who is unsteady."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.results.facts import SpeedFacts
from tasks.results.row import ResultRow
from tasks.scoring.speed.paces import with_paces
from tasks.scoring.speed.speed import figure_of, paces_of
from tests.report.figures import stated

SHAPE = {"parameters": 1000, "flops": 5e6, "bytes": 4000, "measured_at": {"engine": "torch fp32 sdpa, MKL"}}


def pace(model: float, teacher: float, unsteady: str = "") -> dict[str, Any]:
    return paces_of({"model": [model] * 30, "teacher": [teacher] * 30}) | {"unsteady": unsteady}


def rows_of(*paces: dict[str, Any], **shapes: dict[str, Any]) -> list[ResultRow]:
    rows = [stated(f"c{number}", **SHAPE | shapes.get(f"c{number}", {})) for number in range(len(paces))]
    found = [SpeedFacts.model_validate(one) for one in paces]
    return with_paces([rows[0].replaced(parameters=9000), *rows[1:]], found)


def test_speed_up_is_the_quotient_of_the_two_figures_that_are_printed() -> None:
    """Between two stages the machine became half as fast; the candidates' latencies are what they would have been at
    the teacher's moment."""
    teacher, first, second = rows_of(pace(12.3456, 12.3456), pace(2.123, 12.3456), pace(4.25, 24.7))
    assert (
        teacher.latency_ms == 12.35
        and first.latency_ms == pytest.approx(2.12, abs=0.011)
        and second.latency_ms == pytest.approx(2.12, abs=0.011)
    )
    for row in (teacher, first, second):
        assert (
            row.speedup == 12.35 / row.latency_ms
            and row.unsteady is None
            and row.latency_low_ms <= row.latency_ms <= row.latency_high_ms
        )
        assert round(row.speedup, 9) == round(float(f"{teacher.latency_ms:.2f}") / float(f"{row.latency_ms:.2f}"), 9)
    assert second.timed is not None and second.timed.as_json() == {"measured_ms": 4.25, "teacher_ms": 24.7, "calls": 30}


def test_figures_keep_the_digits_that_are_printed() -> None:
    assert [figure_of(value) for value in (123.4567, 2.8149, 0.123456)] == [123.46, 2.81, 0.123]


def test_one_of_a_shape_that_the_others_contradict_is_unsteady_and_so_are_two_that_differ() -> None:
    teacher = pace(10.0, 10.0)
    found = rows_of(teacher, pace(2.0, 10.0), pace(2.05, 10.0), pace(2.9, 10.0))
    assert [bool(row.unsteady) for row in found] == [False, False, False, True]
    assert found[3].unsteady == "3 models of its shape took 2 to 2.9 ms, more than 5 % apart"
    assert [bool(row.unsteady) for row in rows_of(teacher, pace(1.3, 10.0), pace(2.9, 10.0))] == [False, True, True]
    other = {"measured_at": {"engine": "onnxruntime int8 dynamic against torch fp32 sdpa, MKL"}}
    assert not any(row.unsteady for row in rows_of(teacher, pace(2.0, 10.0), pace(1.0, 10.0), c2=other)), (
        "another engine is another shape"
    )
    same = {"measured_at": {"engine": "torch fp32 sdpa, oneDNN against torch fp32 sdpa, MKL"}}
    assert rows_of(teacher, pace(2.0, 10.0), pace(1.0, 10.0), c2=same)[1].unsteady, "another library is not"


def test_what_was_not_known_in_time_is_unsteady_and_an_unsteady_teacher_makes_everybody_so() -> None:
    shaky = paces_of({"model": [1.0] * 16 + [2.0] * 24, "teacher": [4.0] * 40})
    assert shaky["unsteady"].startswith("after 40 calls each its median ± ") and shaky["unsteady"].endswith(
        "beyond 5 %"
    )
    found = rows_of(pace(4.0, 4.0), shaky)
    assert found[0].unsteady is None and found[1].unsteady == shaky["unsteady"]
    assert rows_of(pace(4.0, 4.0, "it wandered"), pace(2.0, 4.0))[1].unsteady == "its teacher is unsteady: it wandered"


OTHER_SHAPES = {f"c{number}": {"parameters": number} for number in range(8)}


def test_where_the_teachers_own_stage_is_unsteady_candidates_that_agree_tell_its_latency() -> None:
    wandered = pace(9.0, 9.0, "it wandered")
    teacher, *rest = rows_of(wandered, pace(2.0, 4.0), pace(1.0, 4.1), pace(4.0, 4.2), pace(3.0, 6.0), **OTHER_SHAPES)
    assert (teacher.latency_ms, teacher.latency_low_ms, teacher.latency_high_ms) == (4.1, 4.0, 4.2)
    assert [row.latency_ms for row in rest] == [2.05, 1.0, pytest.approx(3.905, abs=0.011), 2.05]
    assert [row.unsteady for row in (teacher, *rest)] == [None] * 5


@pytest.mark.parametrize(
    "beside",
    [
        [(2.0, 4.0, ""), (2.0, 4.0, ""), (2.0, 4.0, "no time")],
        [(2.0, 4.0, ""), (2.0, 4.1, ""), (2.0, 4.1, ""), (2.0, 5.0, ""), (2.0, 6.0, ""), (2.0, 7.0, "")],
    ],
)
def test_too_few_of_them_or_no_majority_tell_nothing(beside: list[tuple[float, float, str]]) -> None:
    rows = rows_of(pace(9.0, 9.0, "it wandered"), *(pace(*one) for one in beside), **OTHER_SHAPES)
    assert rows[0].latency_ms == 9.0 and rows[0].unsteady == "it wandered" and all(row.unsteady for row in rows)


def test_a_steady_stage_of_the_teacher_itself_is_what_counts() -> None:
    assert rows_of(pace(9.0, 9.0), *[pace(2.0, 4.0)] * 4, **OTHER_SHAPES)[0].latency_ms == 9.0
