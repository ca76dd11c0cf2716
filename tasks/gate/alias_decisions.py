"""Decisions on the aliases of a registered model, made from the registry's state under a lock of the store.

The lock is a lease of the store, so that all workers that share the store exclude each other, on any machine; within it
the home's own lock blocks registrations. The aliases are read after the lock was taken, so candidates are compared with
the current champion, even if it was promoted while their run was under way.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

from tasks.errors import DataError, EvaluationChanged, RegistryError
from tasks.gate.criteria import Champion
from tasks.gate.decided import AliasDecision, DeletedVersion, RunDecision
from tasks.gate.gate_inputs import GateInputs, tag_of_figures, verdict_tags
from tasks.gate.promotion import (
    ChampionComparison,
    Compare,
    Outcome,
    Policy,
    Version,
    promote_by_hand,
    promote_run,
    roll_back,
)
from tasks.gate.requests import deletable_version, requested_version
from tasks.gate.row import GateRow
from tasks.gate.unseen_rows import unseen_by_both
from tasks.gate.verdicts import ACCEPT, INFEASIBLE, Decision
from tasks.ports.store.artifacts import Store
from tasks.ports.store_documents import LeaseNote
from tasks.ports.tracking.registry import DecisionReasons, HistoryWord, Registry, RegistryState, lock_key
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.versions import only_one
from tasks.scoring.evaluation import Evaluation, paired_gain, read_evaluation

Result = TypeVar("Result")


async def under_lock(store: Store, tracker: Tracker, name: str, work: Callable[[Registry], Result]) -> Result:
    """Run ``work`` on a registered model, exclusively among all machines that share the store."""
    key = lock_key(name)
    note: LeaseNote = {"stage": f"promotion of {name}", "key": key, "inputs": {}}
    identity = await asyncio.to_thread(store.identity)
    async with store.lease(key, note) as lease:

        def locked() -> Result:
            with only_one(f"{tracker.uri} {name}"):
                return work(Registry(tracker, name, lease, identity))

        working = asyncio.ensure_future(asyncio.to_thread(locked))
        try:
            return await asyncio.shield(working)
        finally:
            await asyncio.wait([working])  # a thread cannot be cancelled: the lock is held until it has ended


def decide_run(gate_inputs: GateInputs, registry: Registry, numbers: Mapping[str, str], run: str) -> RunDecision:
    """Judge a run's registered candidates, record the decision and move the aliases; the caller holds the lock."""
    gate, standing = gate_inputs.recipe.gate, registry.read()
    with tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
        places = {number: partial(gate_inputs.evaluation, name) for name, number in numbers.items()}
        reader = Reader(registry, places, Path(folder))
        champion, theirs = (
            reader.champion(standing) if any(one.reference == "champion" for one in gate.criteria) else (None, None)
        )
        if champion is not None:
            champion = beside(champion, gate_inputs, theirs)
        decisions = gate_inputs.decide(champion, theirs)
        rows = {number: gate_inputs.row_of(name) for name, number in numbers.items()}
        versions = versions_of(standing, {number: decisions[name] for name, number in numbers.items()}, rows)
        policy = Policy(gate.promote, gate.prefer, gate.margin)
        outcome = promote_run(
            list(numbers.values()),
            versions,
            standing.aliases,
            policy,
            reader.comparer(gate_inputs.recipe.scoring.confidence),
        )
    # a version that was found again has the speeds of its first run, which may have been unsteady
    judged = {
        number: {**verdict_tags(decisions[name]), **tag_of_figures(rows[number])} for name, number in numbers.items()
    }
    news = commit(
        registry,
        standing,
        outcome,
        versions,
        judged,
        kind="run",
        recipe=gate_inputs.recipe.name,
        run=run,
        policy=gate.promote,
    )
    after = {**standing.aliases, **outcome.moves}
    return {**summary(outcome, after, versions), "decisions": decisions, "news": news}


def beside(champion: Champion, gate_inputs: GateInputs, theirs: Evaluation | None) -> Champion:
    """Return the champion with the rows on which a run's candidates can be compared with it. All candidates of a run
    are evaluated on the same rows and learn from the same rows."""
    if theirs is None:
        return replace(champion, comparable=False)
    same = theirs.rows == gate_inputs.rows_sha256
    try:
        common = unseen_by_both(gate_inputs.answers("teacher"), theirs)
    except DataError as error:
        return replace(champion, comparable=False, why=f"cannot be compared: {error}")
    why = "was trained on some of the evaluation rows" if same else "was evaluated on other rows"
    return replace(champion, comparable=same and common.whole, why=why, on=common.row_scope)


class Reader:
    """Reads evaluations by version, each once: those of the run from its workspace, others from the registry."""

    def __init__(self, registry: Registry, places: Mapping[str, Callable[[], Path]], workspace: Path) -> None:
        self.registry, self.places, self.workspace = registry, places, workspace
        self.known: dict[str, Evaluation] = {}

    def evaluation(self, number: str) -> Evaluation:
        """Read the evaluation of a version."""
        if number not in self.known:
            place = self.places[number]() if number in self.places else self.registry.evaluation(number, self.workspace)
            self.known[number] = read_evaluation(place)
        return self.known[number]

    def champion(self, standing: RegistryState) -> tuple[Champion | None, Evaluation | None]:
        """Return the current champion in the form that criteria read, with its evaluation if it can be read."""
        number = standing.aliases.get("champion", "")
        if number not in standing.versions:
            return None, None
        tags, theirs = standing.versions[number], None
        try:
            theirs = self.evaluation(number)
        except (DataError, RegistryError):
            return Champion(
                number, tags.get("checkpoint.sha256", ""), figures_of(tags).replaced(metrics={}), comparable=False
            ), None
        return Champion(
            number, tags.get("checkpoint.sha256", ""), GateRow.model_validate(theirs.about["figures"])
        ), theirs

    def comparer(self, confidence: float) -> Compare:
        """Return a function that compares two versions row by row."""

        def compare(version: Version, champion: Version) -> ChampionComparison:
            try:
                common = unseen_by_both(self.evaluation(version.number), self.evaluation(champion.number))
                return ChampionComparison(
                    paired_gain(common.ours.about["headline"], common.ours, common.theirs, confidence),
                    on=common.row_scope,
                )
            except (DataError, RegistryError) as error:
                return ChampionComparison(None, str(error), changed=isinstance(error, EvaluationChanged))

        return compare


def versions_of(
    standing: RegistryState,
    decisions: Mapping[str, Decision] | None = None,
    rows: Mapping[str, GateRow] | None = None,
) -> dict[str, Version]:
    """Return the registry's versions in the form that decisions read; those just judged have their new verdict and
    figures."""
    fresh = {number: decision.verdict for number, decision in (decisions or {}).items()}
    return {
        number: Version(
            number,
            tags.get("candidate", ""),
            tags.get("checkpoint.sha256", number),
            fresh.get(number) or verdict_of(tags),
            (rows or {}).get(number) or figures_of(tags),
            tags.get("promotion.state", ""),
            tags.get("rows.sha256", ""),
        )
        for number, tags in standing.versions.items()
    }


def verdict_of(tags: Mapping[str, str]) -> str:
    """Return the verdict on a version; the two older verdicts are mapped to two of the present four."""
    old = {"accepted": ACCEPT, "refused": INFEASIBLE}
    return str(tags.get("gate.verdict") or old.get(tags.get("gate", ""), ""))


def figures_of(tags: Mapping[str, str]) -> GateRow:
    """Return the figures by which versions are preferred; for an old version the rounded ones in its tags."""
    if "figures" in tags:
        return GateRow.model_validate(json.loads(tags["figures"]))
    size, quality = number_in(tags.get("size_mb")), number_in(tags.get("quality"))
    return GateRow(
        bytes=None if size is None else size * 1e6,
        latency_ms=number_in(tags.get("latency_ms")),
        speedup=number_in(tags.get("speedup")),
        headline=quality,
        quality=quality,
    )


def number_in(text: Any) -> float | None:
    """Return a tag's text as a number; None if it is not one."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def commit(
    registry: Registry,
    standing: RegistryState,
    outcome: Outcome,
    versions: Mapping[str, Version],
    judged: Mapping[str, Mapping[str, str]] | None = None,
    *,
    kind: str,
    **said: Unpack[DecisionReasons],
) -> bool:
    """Record a decision, then tag the versions, then move the aliases (``previous`` first); return whether the decision
    differs from the last one."""
    words: list[HistoryWord] = [
        {
            "version": word.version,
            "candidate": versions[word.version].candidate,
            "verdict": versions[word.version].verdict,
            "outcome": word.outcome,
            "reason": word.reason,
        }
        for word in outcome.words
    ]
    moves = {alias: [standing.aliases.get(alias), after] for alias, after in outcome.moves.items()}
    tags: dict[str, dict[str, str]] = {number: dict(found) for number, found in (judged or {}).items()}
    news = bool(moves or outcome.states) or not is_repeated(standing, words)
    if news:
        registry.record(standing, kind, moves=moves, words=words, **said)
        for word in outcome.words:
            tags.setdefault(word.version, {}).update(
                {"promotion.outcome": word.outcome, "promotion.reason": word.reason}
            )
    for number, state in outcome.states.items():
        tags.setdefault(number, {})["promotion.state"] = state
    new_champion, before = outcome.moves.get("champion"), standing.aliases.get("champion")
    if new_champion is not None and before is not None:
        tags.setdefault(new_champion, {})["gate.replaced"] = before
    for number, found in tags.items():
        registry.tag(number, found, standing.versions[number])
    for alias, after in outcome.moves.items():
        registry.move(alias, after)
    return news


def is_repeated(standing: RegistryState, words: Sequence[HistoryWord]) -> bool:
    """Return whether the last decision was that of a run and identical: a repeated run adds no new decision."""
    if not standing.history or standing.history[-1]["kind"] != "run":
        return False

    def seen(given: Sequence[HistoryWord]) -> list[tuple[str, str, str]]:
        return [(word["version"], word["outcome"], word["verdict"]) for word in given]

    return seen(standing.history[-1].get("words", [])) == seen(words)


def summary(outcome: Outcome, aliases: Mapping[str, str | None], versions: Mapping[str, Version]) -> AliasDecision:
    """Return a decision as plain values."""
    champion = aliases.get("champion")
    return {
        "moves": dict(outcome.moves),
        "words": [{"version": word.version, "outcome": word.outcome, "reason": word.reason} for word in outcome.words],
        "aliases": {alias: number for alias, number in sorted(aliases.items()) if number is not None},
        "champion": {"version": champion, "candidate": versions[champion].candidate}
        if champion is not None and champion in versions
        else None,
    }


def promote_here(registry: Registry, version: str | None, alias: str, force: bool, reason: str) -> AliasDecision:
    """Decide on a promotion by hand; the caller holds the lock."""
    standing = registry.read()
    number = requested_version(registry, standing, version)
    versions = versions_of(standing)
    with tempfile.TemporaryDirectory(prefix="limbeck-") as folder:
        compare = Reader(registry, {}, Path(folder)).comparer(0.95)
        outcome = promote_by_hand(versions[number], alias, versions, standing.aliases, compare, force=force)
    if outcome.moves or outcome.states or outcome.words[0].outcome == "refused":
        commit(registry, standing, outcome, versions, kind="promote", to=alias, forced=force, because=reason)
    return summary(outcome, {**standing.aliases, **outcome.moves}, versions)


def roll_back_here(registry: Registry, reason: str) -> AliasDecision:
    """Decide on a rollback; the caller holds the lock."""
    standing = registry.read()
    if not standing.versions:
        raise RegistryError(registry.tracker.unknown_model(registry.name))
    versions = versions_of(standing)
    outcome = roll_back(versions, standing.aliases)
    if isinstance(outcome, str):
        raise RegistryError(f"{registry.name} cannot be rolled back: {outcome}; see limbeck show {registry.name}")
    commit(registry, standing, outcome, versions, kind="rollback", because=reason)
    return summary(outcome, {**standing.aliases, **outcome.moves}, versions)


def delete_here(registry: Registry, version: str, reason: str) -> DeletedVersion:
    """Delete a version without alias; the caller holds the lock."""
    standing = registry.read()
    number = deletable_version(registry, standing, version)
    candidate = standing.versions[number].get("candidate", "")
    registry.record(
        standing,
        "delete",
        moves={},
        because=reason,
        words=[
            {
                "version": number,
                "candidate": candidate,
                "verdict": verdict_of(standing.versions[number]),
                "outcome": "deleted",
                "reason": reason,
            }
        ],
    )
    registry.delete(number)
    return {"name": registry.name, "version": number, "candidate": candidate}
