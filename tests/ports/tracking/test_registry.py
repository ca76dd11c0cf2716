"""What is kept of a decision, and what a reader can make of it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tasks.gate.alias_decisions import under_lock
from tasks.ports.store.s3 import S3Store
from tasks.ports.tracking.registry import LONGEST, RegistryState, fitting, history_of, lock_key, missing
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.versions import same_judgement
from tests.s3_server import BUCKET, S3Server


@pytest.mark.parametrize("tag", ["gate.alone", "rows.sha256", "judging_sets.sha256", "scoring.max_length"])
def test_a_version_of_other_rows_or_of_shorter_ones_is_another_judgement(tag: str) -> None:
    """A run that read longer texts got the version of the earlier one, with its card and the limit of its texts."""
    known = {"gate.alone": "accepted", "rows.sha256": "a", "judging_sets.sha256": "b", "scoring.max_length": "16"}
    assert same_judgement(known, known) and not same_judgement(known, {**known, tag: "another"})


def entry(count: int, length: int) -> dict[str, Any]:
    words = [{"version": str(number), "outcome": "refused", "reason": "x" * length} for number in range(count)]
    return {"n": 1, "moves": {"champion": [None, "1"]}, "words": words}


def test_a_decision_fits_into_a_tag_and_keeps_its_moves() -> None:
    assert json.loads(fitting(entry(3, 100))) == entry(3, 100)
    for count, length in ((3, 4000), (10, 1000), (500, 500)):
        body = fitting(entry(count, length))
        assert (
            len(body) <= LONGEST and json.loads(body)["moves"] == {"champion": [None, "1"]} and json.loads(body)["cut"]
        )
    assert len(json.loads(fitting(entry(3, 4000)))["words"]) == 3, "long reasons are cut before words are left out"


@pytest.mark.parametrize(
    "reason",
    ["why " * 1250, '"quoted"\n' * 500, "\x01" * 5000, "é" * 5000],
    ids=["words", "quotes", "controls", "accents"],
)
def test_a_very_long_reason_does_not_spoil_the_history(reason: str) -> None:
    """Five thousand characters of a person's reason: the decision is still read, with who was concerned and the
    reason's beginning."""
    deleted = {"version": "1", "candidate": "4x312", "verdict": "ACCEPT", "outcome": "deleted", "reason": reason}
    for kind, words in (("promote", entry(1, 20)["words"]), ("rollback", entry(1, 20)["words"]), ("delete", [deleted])):
        body = fitting(entry(0, 0) | {"at": "then", "kind": kind, "to": "champion", "because": reason, "words": words})
        [found] = history_of({"decision.000001": body})
        assert len(body) <= LONGEST and (found["kind"], found["moves"]) == (kind, {"champion": [None, "1"]})
        assert found["because"] == reason[:499] + "…" and [word["version"] for word in found["words"]] == [
            words[0]["version"]
        ]


def test_whatever_else_is_long_a_decision_keeps_its_moves() -> None:
    found = json.loads(fitting(entry(3, 10) | {"kind": "run", "recipe": "r" * 6000}))
    assert found == {"n": 1, "kind": "run", "moves": {"champion": [None, "1"]}, "cut": True}


def test_what_somebody_spoilt_still_counts() -> None:
    tags = {
        "decision.000002": "{",
        "decision.000001": json.dumps({"n": 1, "kind": "run"}),
        "other": "1",
        "decision.000010": "[]",
    }
    assert [(found["n"], found["kind"]) for found in history_of(tags)] == [
        (1, "run"),
        (2, "unreadable"),
        (10, "unreadable"),
    ]


def test_an_alias_that_was_taken_away_is_not_missed() -> None:
    history = [
        {"n": 1, "moves": {"champion": [None, "1"], "challenger": [None, "2"]}},
        {"n": 2, "moves": {"challenger": ["2", None]}},
    ]
    assert missing(RegistryState({"champion": "1"}, {}, history)) == {} and missing(RegistryState({}, {}, history)) == {
        "champion": "1"
    }


def test_one_lock_for_one_name_over_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    """Two hosts that share nothing but a bucket, and reach MLflow by different addresses, keep each other out."""
    inside, most = [0], [0]

    def work(registry: Any) -> None:
        registry.lease.assert_held()
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.2)
        inside[0] -= 1

    async def everybody() -> None:
        stores = [
            S3Store(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / f"cache-{host}", lease_seconds=5, patience=20)
            for host in range(3)
        ]
        trackers = [Tracker(f"sqlite:///{tmp_path}/{host}.db", None) for host in range(3)]
        await asyncio.gather(
            *(under_lock(store, tracker, "m", work) for store, tracker in zip(stores, trackers, strict=True))
        )
        assert stores[0].running() == []

    asyncio.run(everybody())
    assert most == [1] and lock_key("m") != lock_key("n")
