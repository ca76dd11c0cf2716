"""Promotion: the aliases that move after a run's verdicts, or on a person's command. Pure functions, from the state of
the registry to moves of aliases and a reason for each version.

- ``champion``: the version to use: the best accepted one that is no worse than the champion before it.
- ``previous``: the champion before it, for a rollback.
- ``challenger``: a version for a person to review: policy ``manual``, or it could not be compared with the champion.
- ``champion-small``: the smallest of all released versions.
- ``champion-fast``: the version with the greatest speed-up of all released versions with a steady speed that was
  measured as the champion's was: with texts of one length, in batches of one size, on as many threads.

A version is released if the gate accepted it under policy ``auto``, or if promoted manually. A version that a person
rolled back is withdrawn, until a person promotes it again. A new champion is compared with the old one row by row, on
rows that neither of the two learned from: it is worse if the interval of the paired gain lies below minus ``margin``.
If both were evaluated on too few such rows, or one of them does not record what it learned from, they are not compared:
the new version becomes challenger, and a person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tasks.gate.criteria import format_figure
from tasks.gate.row import GateRow, timed_otherwise
from tasks.gate.verdicts import ACCEPT, cost_by, measure_for, preference
from tasks.scoring.quality.gain import Gain

ALIASES = ("champion", "challenger", "previous", "champion-small", "champion-fast")
BY_HAND = ("champion", "challenger", "champion-small", "champion-fast")
RELEASED, WITHDRAWN = "released", "withdrawn"
NICHES = {"champion-small": "smallest", "champion-fast": "fastest"}
THAN = {"smallest": "smaller", "fastest": "faster", "best": "better"}


@dataclass(frozen=True)
class Version:
    """A registered version in the form that decisions read."""

    number: str
    candidate: str
    checkpoint: str
    verdict: str
    row: GateRow
    """The figures that ``preference`` reads."""
    state: str = ""
    rows: str = ""
    """Digest of the rows on which it was judged; empty if it was not recorded."""


@dataclass(frozen=True)
class ChampionComparison:
    """Comparison of a version with the champion: the paired gain, or the reason why it is missing."""

    gain: Gain | None
    why: str = ""
    on: str = ""
    """The rows of the comparison, in words; empty if both were judged on all of them and learned from none."""
    changed: bool = False
    """The gain is missing because a registered evaluation was changed; promotion then requires ``force``."""


@dataclass(frozen=True)
class VersionOutcome:
    """The outcome for one version, and the reason."""

    version: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """The changes by a decision: versions by alias (None: the alias is deleted), states of versions, and an outcome for
    every version that was considered."""

    words: tuple[VersionOutcome, ...]
    moves: Mapping[str, str | None] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """The promotion policy of a run."""

    promote: str = "auto"
    prefer: str = "smallest"
    margin: float = 0.0


Compare = Callable[[Version, Version], ChampionComparison]
"""Compares the first version with the second; called only when the result matters, because it costs a bootstrap."""


def promote_run(
    contenders: Sequence[str],
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
    policy: Policy,
    compare: Compare,
) -> Outcome:
    """Return the outcome for a run's versions, given the current aliases."""
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
            lost = VersionOutcome(number, "accepted", f"version {best} of the same run is preferred")
            words[number] = replace(words[number], outcome=alias) if number == best else lost
    free = policy.promote == "auto"
    released = [
        number
        for number in contenders
        if free and versions[number].verdict == ACCEPT and versions[number].checkpoint not in withdrawn
    ]
    return resolve_moves(tuple(words.values()), wanted, dict.fromkeys(released, RELEASED), versions, aliases)


def stand(
    version: Version, champion: Version | None, withdrawn: Collection[str], policy: Policy, compare: Compare
) -> VersionOutcome:
    """Return the outcome for a version before ties are broken: "eligible" if it may become champion, "unsure" if it
    cannot be told whether it is worse."""
    number = version.number
    if champion is not None and number == champion.number:
        return VersionOutcome(number, "champion", "the version is already the champion")
    if version.verdict != ACCEPT:
        return VersionOutcome(number, "refused", f"the gate's verdict is {version.verdict}")
    if policy.promote == "never":
        return VersionOutcome(number, "held", "the recipe sets gate.promote: never")
    if version.checkpoint in withdrawn:
        return VersionOutcome(number, "held", "it was rolled back manually; only a manual promotion can restore it")
    if champion is None:
        return VersionOutcome(number, "eligible", "accepted, and there was no champion")
    if version.checkpoint == champion.checkpoint:
        said = f"the same weights as the champion's, version {champion.number}"
        return (
            VersionOutcome(number, "held", said)
            if version.rows == champion.rows
            else VersionOutcome(number, "eligible", f"{said}, evaluated again")
        )
    if policy.prefer == "fastest" and (version.row.unsteady or champion.row.unsteady):
        return unsteady_outcome(version, champion)
    if policy.prefer == "fastest" and (apart := timed_otherwise(version.row, champion.row)):
        said = f"it and the champion, version {champion.number}, were timed {apart}; decide manually (limbeck promote)"
        return VersionOutcome(number, "unsure", said)
    ours, theirs = (cost_by(one.row, policy.prefer) for one in (version, champion))
    if ours > theirs:
        return VersionOutcome(
            number,
            "accepted",
            f"the champion, version {champion.number}, is preferred: it is {THAN[policy.prefer]}",
        )
    return no_worse(version, champion, policy, compare(version, champion), costs_less=ours < theirs)


def unsteady_outcome(version: Version, champion: Version) -> VersionOutcome:
    """Return the outcome if the fastest is preferred and a speed is unsteady: the champion stays if it is the version's
    speed; a person decides if only the champion's is unsteady."""
    if version.row.unsteady:
        return VersionOutcome(
            version.number,
            "accepted",
            f"its speed is unsteady and the recipe prefers the fastest: the champion, version {champion.number}, stays",
        )
    return VersionOutcome(
        version.number,
        "unsure",
        f"the speed of the champion, version {champion.number}, is unsteady; decide manually (limbeck promote)",
    )


AS = {"smallest": "as small as", "fastest": "as fast as", "best": "beside"}


def no_worse(
    version: Version, champion: Version, policy: Policy, comparison: ChampionComparison, *, costs_less: bool
) -> VersionOutcome:
    """Return the outcome of the quality comparison of a version with the champion. A version that costs less replaces
    it if it is not certainly worse; any other one, if it is certainly better: scores on selection rows decide between
    versions of one run alone, because another run may have had other rows, or have learned from these."""
    whom = f"the champion, version {champion.number}"
    if comparison.gain is None:
        return VersionOutcome(
            version.number, "unsure", f"not compared with {whom}: {comparison.why}; decide manually (limbeck promote)"
        )
    gain = comparison.gain
    said = f"{gain.value:+.4g} [{gain.low:+.4g}, {gain.high:+.4g}] to {whom}{comparison.on}"
    if gain.high < -policy.margin:
        return VersionOutcome(
            version.number, "refused", f"certainly worse by more than {format_figure(policy.margin)}: {said}"
        )
    if costs_less:
        better = f"{THAN[policy.prefer]} than {whom}, and not certainly worse: {said}"
        return VersionOutcome(version.number, "eligible", better)
    if gain.low > 0:
        return VersionOutcome(version.number, "eligible", f"{AS[policy.prefer]} {whom}, and certainly better: {said}")
    stays = f"{AS[policy.prefer]} {whom}, and not certainly better: {said}"
    return VersionOutcome(version.number, "accepted", stays)


def promote_by_hand(
    version: Version,
    alias: str,
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
    compare: Compare,
    *,
    force: bool,
) -> Outcome:
    """Return the outcome of a promotion by a person; only ``force`` overrides the gate's verdict and the comparison."""
    if aliases.get(alias) == version.number:
        return Outcome((VersionOutcome(version.number, alias, f"the version already has the alias {alias}"),))
    trouble = None if force or alias == "challenger" else objection(version, alias, versions, aliases, compare)
    if trouble is not None:
        return Outcome((VersionOutcome(version.number, "refused", trouble),))
    states = {} if alias == "challenger" else {version.number: RELEASED}
    return resolve_moves(
        (VersionOutcome(version.number, alias, "promoted manually"),),
        {alias: version.number},
        states,
        versions,
        aliases,
    )


def objection(
    version: Version, alias: str, versions: Mapping[str, Version], aliases: Mapping[str, str], compare: Compare
) -> str | None:
    """Return the objection to a promotion by hand, or None."""
    if version.verdict != ACCEPT:
        return f"the gate's verdict is {version.verdict or 'missing'}"
    champion = versions.get(aliases.get("champion", ""))
    if alias != "champion" or champion is None or champion.checkpoint == version.checkpoint:
        return None
    comparison = compare(version, champion)
    if comparison.changed:
        return comparison.why
    gain = comparison.gain
    if gain is None or gain.high >= 0:
        return None
    return (
        f"it is certainly worse than the champion, version {champion.number}: {gain.value:+.4g} "
        f"[{gain.low:+.4g}, {gain.high:+.4g}]{comparison.on}"
    )


def roll_back(versions: Mapping[str, Version], aliases: Mapping[str, str]) -> Outcome | str:
    """Return the outcome that restores the previous champion and withdraws the present one, or a sentence if there is
    no previous champion."""
    before, now = aliases.get("previous"), aliases.get("champion")
    if before is None or before not in versions:
        return "no alias previous: there is no earlier champion"
    if before == now:
        return f"champion and previous are both version {now}: there is no earlier champion"
    word = VersionOutcome(
        before,
        "champion",
        f"rolled back manually from version {now}" if now else "rolled back manually; there was no champion",
    )
    states = {before: RELEASED} | ({now: WITHDRAWN} if now else {})
    return resolve_moves((word,), {"champion": before}, states, versions, aliases)


def resolve_moves(
    words: tuple[VersionOutcome, ...],
    wanted: Mapping[str, str],
    states: Mapping[str, str],
    versions: Mapping[str, Version],
    aliases: Mapping[str, str],
) -> Outcome:
    """Return the wanted moves with all that follow from them: ``previous``, the removal of ``challenger`` from the new
    champion, the smallest and the fastest version."""
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
        counted = that_count(released, prefer, aliases.get(alias), after.get(champion or ""))
        target[alias] = wanted.get(alias) or best_of(counted, prefer, aliases.get(alias))
    order = sorted(target, key=ORDER.index)
    moves = {alias: target[alias] for alias in order if target[alias] != aliases.get(alias)}
    return Outcome(words, moves, {number: state for number, state in states.items() if versions[number].state != state})


def that_count(
    versions: Sequence[Version], prefer: str, holder: str | None, champion: Version | None = None
) -> list[Version]:
    """Return the versions among which a preference decides: for the fastest, those of steady speed that were timed as
    the champion was, or if there are none, the holder of the alias."""
    if prefer != "fastest":
        return list(versions)
    steady = [version for version in versions if not version.row.unsteady]
    alike = [one for one in steady if champion is None or not timed_otherwise(one.row, champion.row)]
    return alike or [version for version in versions if version.number == holder]


def best_of(versions: Sequence[Version], prefer: str, holder: str | None) -> str | None:
    """Return the preferred version's number, or None if there is none; among equals the holder of the alias keeps
    it, else the newest is taken."""
    measure = measure_for(version.row for version in versions)
    best = min(
        versions,
        key=lambda version: (preference(version.row, prefer, measure), version.number != holder, -int(version.number)),
        default=None,
    )
    return None if best is None else best.number


ORDER = ("previous", "champion", "champion-small", "champion-fast", "challenger")
"""Order of the moves. The old champion becomes ``previous`` before the new one takes its place, so that an interruption
in between loses no version."""
