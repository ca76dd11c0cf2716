"""Two manifests side by side: what is equal, what differs, and what explains it."""

from __future__ import annotations

from typing import Any

from tasks.report.reproduction import compare, pairs, row_of, summary
from tasks.results.record import Reproduction, RunManifest

HARDWARE = {"cpu": "a processor", "cores": 4}


def stage(
    name: str, digest: str, *, key: str = "", measured: bool = False, threads: int = 1, **explanation: Any
) -> dict[str, Any]:
    given = {"code": "c", "knobs": {"seed": 0}, "inputs": {}} | explanation
    return {
        "stage": name,
        "key": key or f"{name} {sorted(given.items())}",
        "sha256": digest,
        "measured": measured,
        "threads": threads,
        "processes": 1,
        "explanation": given,
    }


def manifest(*stages: dict[str, Any], score: float | None = 0.9, **around: Any) -> RunManifest:
    values = {
        "versions": {"torch": "2.13.0"},
        "hardware": HARDWARE,
        "code": {"sha256": "1"},
        "stages": list(stages),
        "models": {"small": {"headline": "accuracy", "score": score}},
    }
    return RunManifest.model_validate(values | around)


def verdicts(found: Reproduction) -> dict[str, str]:
    return {row.stage: row.verdict for row in found.stages}


def test_the_same_bytes_are_equal_and_measurements_are_not_compared() -> None:
    found = compare(
        manifest(stage("teach", "a"), stage("time", "b", measured=True)),
        manifest(stage("teach", "a"), stage("time", "c", measured=True)),
    )
    assert found.equal and verdicts(found) == {"teach": "equal", "time": "measured"}
    assert summary(found) == ["1 of 1 stages produced the same bytes; 1 measure speed and are not compared."]


def test_other_bytes_under_the_same_key_are_explained_by_what_is_around() -> None:
    now = manifest(stage("teach", "b"), versions={"torch": "2.14.0"}, score=0.91)
    found = compare(manifest(stage("teach", "a")), now)
    assert not found.equal and found.stages[0].why == "versions.torch: 2.13.0 → 2.14.0"
    assert summary(found)[1:] == [
        "The first different stage: teach: versions.torch: 2.13.0 → 2.14.0.",
        "Environment: versions.torch: 2.13.0 → 2.14.0",
        "small: accuracy 0.9000 in the first run, 0.9100 in the second (+1.00 points)",
    ]


def test_what_nothing_explains_is_said_to_be_so() -> None:
    found = compare(manifest(stage("teach", "a")), manifest(stage("teach", "b")))
    assert "no recorded difference" in found.stages[0].why


def test_threads_explain_and_what_follows_from_an_input_says_so() -> None:
    then = manifest(stage("teach", "a", key="1", threads=4), stage("distil", "b", inputs={"teacher": "a", "rows": "r"}))
    now = manifest(stage("teach", "x", key="1", threads=2), stage("distil", "y", inputs={"teacher": "x", "rows": "r"}))
    teach, distil = compare(then, now).stages
    assert teach.why == "threads: 4 → 2" and distil.why == "its inputs differ (teacher)"


def test_another_knob_or_code_is_named_although_the_key_is_another() -> None:
    found = compare(manifest(stage("teach", "a")), manifest(stage("teach", "b", code="d", knobs={"seed": 1})))
    assert found.stages[0].why == "code: c → d; knobs.seed: 0 → 1"
    same = compare(manifest(stage("teach", "a")), manifest(stage("teach", "a", code="d")))
    assert same.equal, "code that changed without effect is no difference"


def test_stages_of_one_name_find_their_like() -> None:
    then = [stage("answer", "a", knobs={"max_length": 16}), stage("answer", "b", knobs={"max_length": 32})]
    now = [
        stage("answer", "b2", knobs={"max_length": 32}, code="d"),
        stage("answer", "a2", knobs={"max_length": 16}, code="d"),
    ]
    found = pairs(manifest(*then).stages, manifest(*now).stages)
    assert [(before.sha256, after.sha256) for before, after in found if before and after] == [
        ("a", "a2"),
        ("b", "b2"),
    ]


def test_a_stage_that_was_asked_for_twice_counts_once() -> None:
    teach, score = stage("teach", "a"), stage("score", "b")
    found = compare(manifest(teach, score), manifest(score, teach, score))
    assert found.equal and [row.stage for row in found.stages] == ["teach", "score"]


def test_a_stage_that_is_gone_or_new_is_a_difference() -> None:
    found = compare(manifest(stage("teach", "a"), stage("old", "b")), manifest(stage("teach", "a"), stage("new", "c")))
    assert not found.equal and verdicts(found) == {"teach": "equal", "old": "missing", "new": "new"}
    assert row_of(found.stages[1])[:4] == ["old", "b", "—", "missing"]
    waiting = stage("old", "b") | {"sha256": None}
    planned = compare(manifest(stage("old", "b")), manifest(waiting))
    assert verdicts(planned) == {"old": "missing"} and "not in the store" in planned.stages[0].why


def test_a_score_that_is_undefined_moves_by_nothing() -> None:
    found = compare(manifest(stage("teach", "a"), score=None), manifest(stage("teach", "b")))
    assert summary(found)[-1] == "small: accuracy — in the first run, 0.9000 in the second"
