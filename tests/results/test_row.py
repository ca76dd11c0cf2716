"""A row of the results keeps the format of the file: read and written again, nothing of it is lost or changed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.results.row import Estimate, ResultRow
from tasks.results.run import RunResult
from tests.gate.test_worst_of import figures
from tests.report.figures import row, stated, undefined, written
from tests.report.test_page import whole

BESIDE: dict[str, Any] = {
    "judged": {"snli": figures(0.7, 0.9, -0.1)},
    "against": {
        "plain": {"validation": {"value": 0.1, "low": 0, "high": 0.2, "p": 0.01, "seeds": [3, 1], "verdict": "better"}}
    },
    "means": {"validation": {"metrics": {"accuracy": {"value": 0.9}}, "a new figure": 1}},
    "deviation": {"validation": {"accuracy": 0.01}},
    "cost": {"kwh": {"value": None, "how": "unknown", "by": "no meter", "at_least": 0.5}, "shared": {"stages": ["a"]}},
    "export": {"format": "int8", "published": True, "because": "", "way": "dynamic", "sha256": "0" * 64},
    "timed": {"measured_ms": 4.0, "teacher_ms": 40, "calls": 30},
    "a field of another release": [1, {"x": None}],
}


@pytest.mark.parametrize(
    "values", [row("teacher", "teacher"), undefined("new"), row("4x312", **BESIDE)], ids=["old", "undefined", "full"]
)
def test_a_row_is_written_as_it_was_read(values: dict[str, Any]) -> None:
    """A count that came back as 14350248.0, a field that is null where it was absent: other releases read the file."""
    assert json.dumps(ResultRow.model_validate(values).as_json(), sort_keys=True) == json.dumps(values, sort_keys=True)


@pytest.mark.parametrize("values", [written(), whole()], ids=["older release", "everything"])
def test_a_result_is_written_as_it_was_read(values: dict[str, Any]) -> None:
    assert RunResult.model_validate(values).as_json() == values


def test_what_is_no_number_stays_that() -> None:
    assert math.isnan(stated("odd", latency_ms=math.nan).as_json()["latency_ms"])


def test_a_row_grows_by_fields_that_it_has_and_by_values_of_their_kind() -> None:
    """A misspelt field, or a score that is text, was seen when somebody read the file."""
    first = stated("4x312")
    grown = first.replaced(gate="champion", seeds=[0, 1])
    assert (grown.gate, grown.seeds, first.gate) == ("champion", (0, 1), "—")
    assert grown.as_json().keys() - first.as_json().keys() == {"seeds"}
    with pytest.raises(TypeError, match="ResultRow has no field gates"):
        first.replaced(gates="champion")
    with pytest.raises(ValidationError):
        first.replaced(latency_ms="fast")
    with pytest.raises(ValidationError):
        setattr(first, "gate", "champion")  # noqa: B010 - mypy knows that it is frozen


def test_what_was_not_scored_is_undefined_and_no_error() -> None:
    model = stated("4x312", retained=None, **BESIDE)
    assert model.score("holdout") == model.share("validation") == model.gap("validation") == Estimate()
    assert model.mean("holdout") is None and model.compared("holdout") == []
    assert model.mean("validation") == Estimate(value=0.9) and model.spread("validation") == 0.01
    assert [name for name, _ in model.compared("validation")] == ["plain"]
    assert stated("one seed", means=BESIDE["means"]).mean("validation") is None


def test_judging_sets_are_read_like_splits() -> None:
    seen = stated("4x312", **BESIDE).on_sets()
    assert (seen.score("snli").value, seen.share("snli").value, seen.gap("snli").value) == (0.7, 0.9, -0.1)
    assert stated("4x312").on_sets().metrics == {}


def test_a_verdict_and_aliases_of_older_releases_are_read() -> None:
    older = {"candidate": "4x312", "version": 3, "aliases": "champion, champion-small", "verdict": {"word": "ACCEPT"}}
    (entry,) = RunResult.model_validate(written() | {"registered": [older]}).registered
    assert (entry.aliases, entry.verdict, entry.version) == (("champion", "champion-small"), "ACCEPT", "3")


def test_a_result_of_an_older_release_may_have_counted_no_rows() -> None:
    assert RunResult.model_validate({**written(), "rows": None}).rows == {}
