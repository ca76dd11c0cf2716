"""Facts of stages and records of runs: read and written again without a change, by whichever release they were made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from tasks.contracts import Artifact
from tasks.results.facts import ModelFacts, Purge, RowsFacts, SetPurge
from tasks.results.record import Lineage, Provenance, RunManifest
from tasks.results.row import Stated
from tasks.results.run import RunResult

PURGE = {"rows": 2, "of": 10, "way": "text", "by": {"holdout": 2}, "words_before": 3.0, "words_left": 4.5, "short": {}}
ROWS: dict[str, Any] = {
    "rows": {"train": 8, "holdout": 2},
    "leaked": {"holdout": 0},
    "rows_sha256": {"holdout": "0" * 64},
    "longest_words": 9,
    "labels": ["no", "yes"],
    "purged": PURGE,
    "unlabelled": {"train": 0},
}
MANIFEST = {"schema": 1, "kind": "run", "code": {"version": None, "commit": None, "changed": None, "sha256": "1"}}


def artifact(**facts: Any) -> Artifact:
    return Artifact("rows", "0" * 64, "", 0, facts)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (RowsFacts, ROWS),
        (RunManifest, MANIFEST),
        (Lineage, {"nodes": [{"id": "k1", "name": "data"}], "edges": [["k1", "k2"]]}),
        (Provenance, {"commit": None, "hardware": {"cpu": "a cpu", "cores": 4, "gpu": None}, "minutes": {"run": 1.5}}),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else "",
)
def test_what_is_read_is_written_byte_by_byte(model: type[Stated], values: dict[str, Any]) -> None:
    """Also the order of the names: files of two runs are compared as text."""
    assert json.dumps(model.model_validate(values).as_json()) == json.dumps(values)


def test_a_manifest_keeps_its_schema_inside_of_a_result() -> None:
    values = {
        "recipe": "r",
        "task": "t",
        "headline": "accuracy",
        "split": "holdout",
        "models": [],
        "manifest": MANIFEST,
    }
    assert json.dumps(RunResult.model_validate(values).as_json()) == json.dumps(values)


def test_facts_that_no_model_names_are_kept_and_read_as_figures() -> None:
    found = artifact(steps=4, selection_score=0.5, majority=0.6, architecture="bert").read(ModelFacts)
    assert found.as_json()["architecture"] == "bert" and found.figures == {"majority": 0.6}
    with pytest.raises(ValueError, match="not scored"):
        _ = artifact().read(ModelFacts).score


def test_facts_of_another_stage_are_refused() -> None:
    with pytest.raises(ValidationError, match="words_left"):
        artifact(rows=3).read(Purge)


def test_a_purge_for_judging_sets_is_added_to_that_of_the_splits() -> None:
    rows = RowsFacts.model_validate(ROWS)
    after = rows.after_purge(SetPurge(rows=3, by={"far": 3}, left=5, words_left=5.0))
    assert after.rows == {"train": 5, "holdout": 2} and after.purged is not None
    assert (after.purged.rows, after.purged.by, after.purged.words_left) == (5, {"holdout": 2, "far": 3}, 5.0)
    assert rows.after_purge(None) is rows
