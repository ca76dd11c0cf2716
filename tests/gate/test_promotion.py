"""Which aliases move, and which words are said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.gate.promotion import (
    RELEASED,
    WITHDRAWN,
    ChampionComparison,
    Outcome,
    Policy,
    Version,
    promote_by_hand,
    promote_run,
    roll_back,
)
from tasks.gate.row import GateRow
from tasks.results.row import Conditions
from tasks.scoring.quality.gain import Gain

EQUAL = Gain(0.0, -0.01, 0.01)
WORSE = Gain(-0.05, -0.08, -0.02)


def version(number: int, size: float = 100, speedup: float = 2.0, quality: float = 0.9, **changes: Any) -> Version:
    row = GateRow(bytes=size, speedup=speedup, quality=quality, headline=quality)
    values: dict[str, Any] = {
        "number": str(number),
        "candidate": f"c{number}",
        "checkpoint": f"k{number}",
        "verdict": "ACCEPT",
        "row": row,
        "rows": "r",
    }
    return Version(**values | changes)


def run(
    *found: Version, of: list[int], aliases: dict[str, str] | None = None, gain: Gain | None = EQUAL, **policy: Any
) -> Outcome:
    versions = {one.number: one for one in found}
    against = ChampionComparison(gain, "" if gain else "other rows")
    return promote_run(
        [str(number) for number in of], versions, aliases or {}, Policy(**policy), lambda ours, theirs: against
    )


def words(outcome: Outcome) -> dict[str, str]:
    return {word.version: word.outcome for word in outcome.words}


def test_the_first_run_makes_the_preferred_one_champion() -> None:
    found = run(version(1, 200, speedup=9), version(2, 100), version(3, 10, verdict="INFEASIBLE"), of=[1, 2, 3])
    assert found.moves == {"champion": "2", "champion-small": "2", "champion-fast": "1"}
    assert words(found) == {"1": "accepted", "2": "champion", "3": "refused"}
    assert found.states == {"1": RELEASED, "2": RELEASED}


HELD = {"champion": "1", "champion-small": "1", "champion-fast": "1"}
OLD = version(1, 100, state=RELEASED)


def test_a_smaller_one_that_is_no_worse_takes_over_and_the_old_one_is_previous() -> None:
    found = run(OLD, version(2, 50), of=[2], aliases=HELD)
    assert list(found.moves.items()) == [("previous", "1"), ("champion", "2"), ("champion-small", "2")], (
        "the old champion gets its new name first"
    )
    assert (
        found.words[0].reason
        == "smaller than the champion, version 1, and not certainly worse: +0 [-0.01, +0.01] to the champion, version 1"
    )


def timed(one: Version, length: int) -> Version:
    return replace(one, row=one.row.replaced(measured_at=Conditions(batch=1, length=length, threads=1)))


def test_speeds_that_were_measured_otherwise_decide_nothing() -> None:
    """At another length a newcomer looks faster, or slower, whatever it is."""
    short, long = timed(OLD, 32), timed(version(2, 100, speedup=9.0), 128)
    found = run(short, long, of=[2], aliases=HELD, prefer="fastest")
    assert words(found) == {"2": "challenger"} and found.moves == {"challenger": "2"}, "nor is it champion-fast"
    assert found.words[0].reason == (
        "it and the champion, version 1, were timed at batch 1, length 128, 1 thread and at batch 1, length 32, "
        "1 thread; decide manually (limbeck promote)"
    )
    for alike in (timed(version(2, 100, speedup=9.0), 32), version(2, 100, speedup=9.0)):
        moves = run(short, alike, of=[2], aliases=HELD, prefer="fastest").moves
        assert (moves["champion"], moves["champion-fast"]) == ("2", "2"), "versions of before do not say how"
    smaller = timed(version(2, 50, speedup=9.0), 128)
    assert run(short, smaller, of=[2], aliases=HELD).moves["champion-fast"] == "2", "timed as the new champion was"


def test_a_smaller_one_that_is_certainly_worse_is_refused_but_may_be_the_small_one() -> None:
    found = run(OLD, version(2, 50), of=[2], aliases=HELD, gain=WORSE)
    assert found.moves == {"champion-small": "2"} and words(found) == {"2": "refused"}
    assert "certainly worse by more than 0: -0.05 [-0.08, -0.02]" in found.words[0].reason
    assert "champion" in run(OLD, version(2, 50), of=[2], aliases=HELD, gain=WORSE, margin=0.03).moves, (
        "the recipe may allow some loss"
    )


@pytest.mark.parametrize("prefer", ["smallest", "best"])
def test_scores_on_selection_rows_of_another_run_decide_nothing(prefer: str) -> None:
    """A champion that chose its checkpoint on rows which it had learned has a high score there, and keeps a newcomer of
    its size away for ever; one that is better by chance alone replaces nothing."""
    high, low = (
        replace(one, row=one.row.replaced(selection=value)) for one, value in ((OLD, 0.99), (version(2, 100), 0.9))
    )
    better = run(high, low, of=[2], aliases=HELD, prefer=prefer, gain=Gain(0.05, 0.03, 0.07))
    assert better.moves["champion"] == "2" and "certainly better: +0.05 [+0.03, +0.07]" in better.words[0].reason
    lucky = run(replace(high, row=low.row), replace(low, row=high.row), of=[2], aliases=HELD, prefer=prefer)
    assert "champion" not in lucky.moves and words(lucky) == {"2": "accepted"}
    assert "and not certainly better: +0 [-0.01, +0.01]" in lucky.words[0].reason
    worse = run(high, low, of=[2], aliases=HELD, prefer=prefer, gain=WORSE)
    assert words(worse) == {"2": "refused"}


def shaky(number: int, speedup: float = 9.0, **changes: Any) -> Version:
    found = version(number, 100, speedup=speedup, **changes)
    return replace(found, row=found.row.replaced(unsteady="after 40 calls"))


def test_an_unsteady_speed_moves_no_alias() -> None:
    """In one run a student of 2.8 ms and its twin of 1.3 ms: neither is known to be the fastest."""
    assert run(version(1, 200), shaky(2), of=[1, 2]).moves["champion-fast"] == "1"
    assert "champion-fast" not in run(shaky(1), shaky(2), of=[1, 2]).moves
    held = run(shaky(1, state=RELEASED), shaky(2), of=[2], aliases=HELD)
    assert "champion-fast" not in held.moves
    assert (
        run(shaky(1, state=RELEASED), version(2, 200, speedup=1.1), of=[2], aliases=HELD).moves["champion-fast"] == "2"
    ), "what is steady decides"


def test_where_the_fastest_is_preferred_an_unsteady_newcomer_waits_and_an_unsteady_champion_is_for_a_person() -> None:
    newcomer = run(OLD, shaky(2), of=[2], aliases=HELD, prefer="fastest")
    assert (
        not newcomer.moves
        and words(newcomer) == {"2": "accepted"}
        and "its speed is unsteady" in newcomer.words[0].reason
    )
    old = run(shaky(1, 0.5, state=RELEASED), version(2, 100), of=[2], aliases=HELD, prefer="fastest")
    assert "champion" not in old.moves and old.moves["challenger"] == "2" and "decide manually" in old.words[0].reason


def test_a_larger_one_stays_behind_and_is_not_compared() -> None:
    def never(ours: Version, theirs: Version) -> ChampionComparison:
        raise AssertionError("a bootstrap that decides nothing")

    found = promote_run(["2"], {"1": OLD, "2": version(2, 200)}, HELD, Policy(), never)
    assert found.moves == {} and found.words[0].reason == "the champion, version 1, is preferred: it is smaller"


def test_other_rows_are_not_compared_and_a_person_decides() -> None:
    found = run(OLD, version(2, 50), version(3, 60), of=[2, 3], aliases=HELD, gain=None)
    assert found.moves == {"champion-small": "2", "challenger": "2"} and words(found) == {
        "2": "challenger",
        "3": "accepted",
    }
    assert "not compared with the champion, version 1: other rows; decide manually" in found.words[0].reason


def test_the_same_weights_judged_anew_take_their_own_place() -> None:
    again = version(2, 100, checkpoint="k1", rows="new")
    assert run(OLD, again, of=[2], aliases=HELD, gain=None).moves["champion"] == "2"
    assert run(OLD, version(2, 100, checkpoint="k1"), of=[2], aliases=HELD).moves == {}


def test_a_run_that_is_repeated_moves_nothing() -> None:
    first = run(OLD, version(2, 50), of=[2], aliases=HELD)
    after = {**HELD, **{alias: number for alias, number in first.moves.items() if number}}
    again = run(OLD, version(2, 50, state=RELEASED), of=[2], aliases=after)
    assert again.moves == {} and again.states == {} and words(again) == {"2": "champion"}


@pytest.mark.parametrize(("policy", "moves"), [("manual", {"challenger": "2"}), ("never", {})])
def test_other_policies(policy: str, moves: dict[str, str]) -> None:
    assert run(OLD, version(2, 50), of=[2], aliases=HELD, promote=policy).moves == moves
    first = run(version(2, 50), of=[2], promote=policy)
    assert first.moves == moves and first.states == {}, "nobody becomes champion, not even where there is none"


@pytest.mark.parametrize("verdict", ["REGRESSION", "ANOMALOUS", "INFEASIBLE", ""])
def test_only_what_was_accepted_gets_a_name(verdict: str) -> None:
    found = run(version(1, verdict=verdict), of=[1])
    assert found.moves == {} and words(found) == {"1": "refused"}
    by_hand = promote_by_hand(
        version(1, verdict=verdict), "champion", {"1": version(1, verdict=verdict)}, {}, comparison(EQUAL), force=False
    )
    assert by_hand.moves == {} and by_hand.words[0].outcome == "refused"
    assert (
        promote_by_hand(
            version(1, verdict=verdict), "champion", {"1": version(1)}, {}, comparison(EQUAL), force=True
        ).moves["champion"]
        == "1"
    )


def comparison(gain: Gain | None) -> Any:
    return lambda ours, theirs: ChampionComparison(gain)


def test_a_person_may_prefer_a_larger_one_but_not_a_worse_one() -> None:
    versions = {"1": OLD, "2": version(2, 200)}
    assert (
        promote_by_hand(versions["2"], "champion", versions, HELD, comparison(None), force=False).moves["champion"]
        == "2"
    )
    found = promote_by_hand(versions["2"], "champion", versions, HELD, comparison(WORSE), force=False)
    assert found.moves == {} and "certainly worse than the champion, version 1" in found.words[0].reason
    moves = promote_by_hand(versions["2"], "champion", versions, HELD, comparison(WORSE), force=True).moves
    assert moves == {"previous": "1", "champion": "2"}


def test_a_challenger_that_won_is_no_challenger_any_more() -> None:
    versions = {"1": OLD, "2": version(2, 50)}
    found = promote_by_hand(
        versions["2"], "champion", versions, {**HELD, "challenger": "2"}, comparison(EQUAL), force=False
    )
    assert found.moves["challenger"] is None and found.moves["previous"] == "1"


def test_a_rollback_is_undone_by_a_person_only() -> None:
    versions = {"1": OLD, "2": version(2, 50, state=RELEASED)}
    names = {"champion": "2", "previous": "1", "champion-small": "2", "champion-fast": "2"}
    back = roll_back(versions, names)
    assert isinstance(back, Outcome) and back.moves == {
        "previous": "2",
        "champion": "1",
        "champion-small": "1",
        "champion-fast": "1",
    }
    assert back.states == {"2": WITHDRAWN}, "what was rolled back is neither the smallest nor the fastest any more"
    gone = {"1": OLD, "2": version(2, 50, state=WITHDRAWN)}
    names = {**names, **{alias: str(number) for alias, number in back.moves.items()}}
    assert run(*gone.values(), of=[2], aliases=names).moves == {}
    same = version(3, 50, checkpoint="k2", rows="new")
    assert run(*gone.values(), same, of=[3], aliases=names).words[0].reason.startswith("it was rolled back manually"), (
        "a new number makes no new model of it"
    )
    again = roll_back(gone, names)
    assert (
        isinstance(again, Outcome)
        and again.moves["champion"] == "2"
        and again.states == {"2": RELEASED, "1": WITHDRAWN}
    )


def test_without_a_champion_before_there_is_no_way_back() -> None:
    assert "no alias previous" in str(roll_back({"1": OLD}, HELD))
    assert "both version 1" in str(roll_back({"1": OLD}, {**HELD, "previous": "1"}))


def test_aliases_of_others_are_left_alone() -> None:
    assert run(OLD, version(2, 50), of=[2], aliases={**HELD, "production": "1"}).moves.keys() == {
        "previous",
        "champion",
        "champion-small",
    }


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=6, unique=True), order=st.randoms())
def test_in_whatever_order_runs_end_the_smallest_is_champion(sizes: list[int], order: Any) -> None:
    versions = {str(number): version(number, size) for number, size in enumerate(sizes, start=1)}
    numbers, aliases = list(versions), {}
    order.shuffle(numbers)
    for number in numbers:
        found = promote_run([number], versions, aliases, Policy(), comparison(EQUAL))
        aliases |= {alias: moved for alias, moved in found.moves.items() if moved}
    smallest = min(versions, key=lambda number: versions[number].row.bytes or 0)
    assert aliases["champion"] == aliases["champion-small"] == smallest
    assert "previous" not in aliases or aliases["previous"] != smallest
