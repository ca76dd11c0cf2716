"""Promotion: which aliases move after a run's verdicts, or at a person's word. Pure: what stands in the registry in,
moves and words out.

- ``champion``: the one to pull: the best accepted one that is no worse than the champion before it.
- ``previous``: the champion before it, for a rollback.
- ``challenger``: one that a person should look at: policy ``manual``, or it could not be compared with the champion.
- ``champion-small``: of all released versions the smallest.
- ``champion-fast``: of all released versions with a steady speed the one with the greatest speed-up.

Released is what the gate accepted under policy ``auto``, or a person promoted; what a person rolled back is withdrawn,
until a person promotes it again. Whether a new champion is worse is asked row by row, on rows that neither of the two
learned from: it is, if the interval of the paired gain lies below minus ``margin``. Where too few such rows were
answered by both they are not compared: the newcomer becomes challenger, and a person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.gate.criteria import shown
from tasks.gate.verdicts import ACCEPT, measure_for, preference
from tasks.scoring.quality.gain import Gain

ALIASES = ("champion", "challenger", "previous", "champion-small", "champion-fast")
BY_HAND = ("champion", "challenger", "champion-small", "champion-fast")
RELEASED, WITHDRAWN = "released", "withdrawn"
NICHES = {"champion-small": "smallest", "champion-fast": "fastest"}
THAN = {"smallest": "smaller", "fastest": "faster", "best": "better"}


@dataclass(frozen=True)
class Version:
    """A registered version as a decision sees it."""

    number: str
    candidate: str
    checkpoint: str
    verdict: str
    row: Mapping[str, Any]
    """The figures that ``preference`` reads."""
    state: str = ""
    rows: str = ""
    """Digest of the rows on which it was judged; empty where nobody wrote it down."""


@dataclass(frozen=True)
class Against:
    """How a version stands to the champion: the paired gain, or why there is none."""

    gain: Gain | None
    why: str = ""
    on: str = ""
    """On which rows; empty where both were judged on them all and learned from none."""
    changed: bool = False
    """Whether there is none because somebody changed what was judged; nobody promotes on that without force."""


@dataclass(frozen=True)
class Word:
    """What became of one version, and why."""

    version: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """What a decision changes: aliases to versions (None: the alias goes), states of versions, and a word on everyone
    who asked."""

    words: tuple[Word, ...]
    moves: Mapping[str, str | None] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """How a run promotes."""

    promote: str = "auto"
    prefer: str = "smallest"
    margin: float = 0.0


Compare = Callable[[Version, Version], Against]
"""Says how the first stands to the second; asked only where the answer matters, for it costs a bootstrap."""


def promote_run(
    contenders: Sequence[str],
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
    policy: Policy,
    compare: Compare,
) -> Outcome:
    """Decide what becomes of a run's versions, given what holds the aliases right now."""
    champion = versions.get(aliases.get("champion", ""))
    withdrawn = {version.checkpoint for version in versions.values() if version.state == WITHDRAWN}
    words = {number: stand(versions[number], champion, withdrawn, policy, compare) for number in contenders}
    wanted: dict[str, str] = {}
    for outcome, alias in (
        ("eligible", "champion" if policy.promote == "auto" else "challenger"),
        ("unsure", "challenger"),
    ):
        fitting = [number for number, word in words.items() if word.outcome == outcome]
        measure = measure_for(versions[number].row for number in fitting)
        best = min(fitting, key=lambda number: preference(versions[number].row, policy.prefer, measure), default=None)
        best = wanted.setdefault(alias, best) if best is not None else None
        for number in fitting:
            lost = Word(number, "accepted", f"version {best} of the same run is preferred")
            words[number] = replace(words[number], outcome=alias) if number == best else lost
    free = policy.promote == "auto"
    released = [
        number
        for number in contenders
        if free and versions[number].verdict == ACCEPT and versions[number].checkpoint not in withdrawn
    ]
    return settle(tuple(words.values()), wanted, dict.fromkeys(released, RELEASED), versions, aliases)


def stand(
    version: Version, champion: Version | None, withdrawn: Collection[str], policy: Policy, compare: Compare
) -> Word:
    """Say whether a version may become champion: it is "eligible", or "unsure" where nobody can tell whether it is
    worse."""
    number = version.number
    if champion is not None and number == champion.number:
        return Word(number, "champion", "it is the champion already")
    if version.verdict != ACCEPT:
        return Word(number, "refused", f"the gate says {version.verdict}")
    if policy.promote == "never":
        return Word(number, "held", "the recipe says gate.promote: never")
    if version.checkpoint in withdrawn:
        return Word(number, "held", "a person rolled it back; only a person can promote it again")
    if champion is None:
        return Word(number, "eligible", "accepted, and there was no champion")
    if version.checkpoint == champion.checkpoint:
        said = f"the same weights as the champion's, version {champion.number}"
        return (
            Word(number, "held", said)
            if version.rows == champion.rows
            else Word(number, "eligible", f"{said}, judged anew")
        )
    if policy.prefer == "fastest" and (version.row.get("unsteady") or champion.row.get("unsteady")):
        return unsteady_word(version, champion)
    measure = measure_for([version.row, champion.row])
    if preference(version.row, policy.prefer, measure) >= preference(champion.row, policy.prefer, measure):
        return Word(
            number,
            "accepted",
            f"the champion, version {champion.number}, is preferred: it is no less {WORD[policy.prefer]}",
        )
    return no_worse(version, champion, policy, compare(version, champion))


def unsteady_word(version: Version, champion: Version) -> Word:
    """Say what becomes of a version where speed should decide and is unsteady: the champion stays, or a person decides
    where its speed is the unsteady one."""
    if version.row.get("unsteady"):
        return Word(
            version.number,
            "accepted",
            f"its speed is unsteady and the recipe prefers the fastest: the champion, version {champion.number}, stays",
        )
    return Word(
        version.number,
        "unsure",
        f"the speed of the champion, version {champion.number}, is unsteady; a person decides (limbeck promote)",
    )


WORD = {"smallest": "small", "fastest": "fast", "best": "good"}


def no_worse(version: Version, champion: Version, policy: Policy, against: Against) -> Word:
    """Ask of a preferred version whether its quality stands up to the champion's."""
    whom = f"the champion, version {champion.number}"
    if against.gain is None:
        return Word(
            version.number, "unsure", f"not compared with {whom}: {against.why}; a person decides (limbeck promote)"
        )
    said = f"{against.gain.value:+.4g} [{against.gain.low:+.4g}, {against.gain.high:+.4g}] to {whom}{against.on}"
    if against.gain.high < -policy.margin:
        return Word(version.number, "refused", f"certainly worse by more than {shown(policy.margin)}: {said}")
    return Word(version.number, "eligible", f"{THAN[policy.prefer]} than {whom}, and not certainly worse: {said}")


def promote_by_hand(
    version: Version,
    alias: str,
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
    compare: Compare,
    *,
    force: bool,
) -> Outcome:
    """Give a version an alias because a person says so; ``force`` passes over the gate's verdict and the comparison,
    nothing else does."""
    if aliases.get(alias) == version.number:
        return Outcome((Word(version.number, alias, f"it is {alias} already"),))
    trouble = None if force or alias == "challenger" else objection(version, alias, versions, aliases, compare)
    if trouble is not None:
        return Outcome((Word(version.number, "refused", trouble),))
    states = {} if alias == "challenger" else {version.number: RELEASED}
    return settle(
        (Word(version.number, alias, "a person promoted it"),), {alias: version.number}, states, versions, aliases
    )


def objection(
    version: Version, alias: str, versions: Mapping[str, Version], aliases: Mapping[str, str], compare: Compare
) -> str | None:
    """Return what speaks against a promotion by hand."""
    if version.verdict != ACCEPT:
        return f"the gate says {version.verdict or 'nothing'}"
    champion = versions.get(aliases.get("champion", ""))
    if alias != "champion" or champion is None or champion.checkpoint == version.checkpoint:
        return None
    against = compare(version, champion)
    if against.changed:
        return against.why
    gain = against.gain
    if gain is None or gain.high >= 0:
        return None
    return (
        f"it is certainly worse than the champion, version {champion.number}: {gain.value:+.4g} "
        f"[{gain.low:+.4g}, {gain.high:+.4g}]{against.on}"
    )


def roll_back(versions: Mapping[str, Version], aliases: Mapping[str, str]) -> Outcome | str:
    """Make the champion before the champion again, and withdraw the one that goes; return a sentence where there is
    none."""
    before, now = aliases.get("previous"), aliases.get("champion")
    if before is None or before not in versions:
        return "it has no alias previous: there is no champion before the champion"
    if before == now:
        return f"champion and previous are both version {now}: there is no other champion before it"
    word = Word(
        before,
        "champion",
        f"a person rolled back from version {now}" if now else "a person rolled back; there was no champion",
    )
    states = {before: RELEASED} | ({now: WITHDRAWN} if now else {})
    return settle((word,), {"champion": before}, states, versions, aliases)


def settle(
    words: tuple[Word, ...],
    wanted: Mapping[str, str],
    states: Mapping[str, str],
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
) -> Outcome:
    """Work out all moves that follow from those that are wanted: the champion before, a challenger that has won, the
    smallest and the fastest."""
    target: dict[str, str | None] = {
        **{alias: number for alias, number in aliases.items() if alias in ALIASES},
        **wanted,
    }
    champion, before = target.get("champion"), aliases.get("champion")
    if champion != before and before is not None:
        target["previous"] = before
    if champion != before and target.get("challenger") == champion:
        target["challenger"] = None
    after = {number: replace(version, state=states.get(number, version.state)) for number, version in versions.items()}
    released = [version for version in after.values() if version.state == RELEASED or version.number == champion]
    for alias, prefer in NICHES.items():
        target[alias] = wanted.get(alias) or best_of(
            that_count(released, prefer, aliases.get(alias)), prefer, aliases.get(alias)
        )
    order = sorted(target, key=ORDER.index)
    moves = {alias: target[alias] for alias in order if target[alias] != aliases.get(alias)}
    return Outcome(words, moves, {number: state for number, state in states.items() if versions[number].state != state})


def that_count(versions: Sequence[Version], prefer: str, holder: str | None) -> list[Version]:
    """Return the versions among which a preference decides: those of steady speed for the fastest; where there are
    none, whoever holds the alias."""
    steady = [version for version in versions if prefer != "fastest" or not version.row.get("unsteady")]
    return steady or [version for version in versions if version.number == holder]


def best_of(versions: Sequence[Version], prefer: str, holder: str | None) -> str | None:
    """Return the preferred version's number, or None where there is none; of equals the one that holds the alias keeps
    it."""
    measure = measure_for(version.row for version in versions)
    best = min(
        versions,
        key=lambda version: (preference(version.row, prefer, measure), version.number != holder, -int(version.number)),
        default=None,
    )
    return None if best is None else best.number


ORDER = ("previous", "champion", "champion-small", "champion-fast", "challenger")
"""The old champion gets its new name before the new one takes its place: whatever stops this in between loses
nobody."""
