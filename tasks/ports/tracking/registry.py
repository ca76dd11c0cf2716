"""One registered model: its state in MLflow's registry, the history of decisions about it, and the operations that
change it.

MLflow has no compare-and-swap. So a process that changes aliases holds a lease of the store (``lease``) and checks it
before every write: a worker that was considered dead and resumes writes nothing more. An alias moves by one atomic
upsert; it is never deleted and set again.

The history is one tag of the registered model for each decision, ``decision.<number>``, written before any change and
never overwritten: a JSON object with number, time, kind, moves and a remark on every version concerned. If the history
contains moves that the aliases do not have, a process was interrupted, or the registry was changed by other means;
``missing`` reports such moves.

A lease excludes only processes that use the same store. So the first decision tags the model with the store's name
(``limbeck.store``), and processes with another store are refused. Two simultaneous first decisions under two stores are
not excluded; one of the stores is refused from its second decision on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast
from urllib.parse import unquote, urlparse

from tasks.errors import DataError, RegistryError
from tasks.ports.store.artifacts import IDENTITY, Lease
from tasks.ports.tracking.client import every, summary_line
from tasks.ports.tracking.run_context import account_of_decisions
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.verified_download import EVALUATION, require_judged_evaluation
from tasks.ports.tracking.versions import require_legal_name

DECISION = "decision."
STORE = "limbeck.store"
LONGEST = 5000  # characters of a tag that MLflow's databases can store
SHORTEST = ("n", "at", "kind", "moves")
"""The facts that are left of a decision that is too long without all others."""
# maximum characters of the gate's and of a person's reason if a decision is too long for a tag
REASON, BECAUSE = (
    120,
    500,
)


class HistoryWord(TypedDict):
    """The outcome of a decision for one version."""

    version: str
    candidate: str
    verdict: str
    outcome: str
    reason: str


class DecisionReasons(TypedDict, total=False):
    """The run or the request behind a decision."""

    recipe: str
    run: str
    """Id of the run in MLflow."""
    policy: str
    to: str
    """The alias that a person named."""
    forced: bool
    because: str
    """The reason of a person."""


class DecisionFacts(DecisionReasons, total=False):
    """The facts on a decision, by its kind."""

    moves: dict[str, list[str | None]]
    """By alias the version before, and after."""
    words: list[HistoryWord]
    cut: bool
    """Whether parts were shortened or left out."""
    by: str
    """The account of MLflow; older entries have none."""


class HistoryEntry(DecisionFacts):
    """A decision in a registered model's history; ``n`` counts from 1."""

    n: int
    at: str
    kind: str


@dataclass(frozen=True)
class RegistryState:
    """The state of one registered model at one moment."""

    aliases: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    """Tags of every version by number, with its description."""
    history: Sequence[HistoryEntry]
    """Every decision, oldest first."""
    store: str = ""
    """The store whose lock protects the decisions; empty before the first decision that recorded it."""


class Registry:
    """Reads and changes one registered model; ``store`` is the name of the store whose lease is held."""

    def __init__(self, tracker: Tracker, name: str, lease: Lease | None = None, store: str = "") -> None:
        self.tracker, self.name, self.lease, self.store = tracker, name, lease, store

    def read(self) -> RegistryState:
        """Return the current state; it is empty for a model that does not exist."""
        model = self.model()
        if model is None:
            return RegistryState({}, {}, [])
        with self.tracker.asking(f"read {self.name}"):
            found = every(self.tracker.client.search_model_versions, filter_string=f"name = '{self.name}'")
            versions = {
                str(version.version): {**version.tags, "description": summary_line(version.description)}
                for version in found
            }
        aliases = {alias: str(number) for alias, number in model.aliases.items()}
        return RegistryState(aliases, versions, history_of(model.tags), model.tags.get(STORE, ""))

    def model(self) -> Any:
        """Return MLflow's registered model, or None; a model that belongs to another store's lock is refused."""
        require_legal_name(self.name)
        with self.tracker.asking(f"read {self.name}"):
            model = next(
                iter(every(self.tracker.client.search_registered_models, filter_string=f"name = '{self.name}'")), None
            )
        if model is not None:
            require_same_store(self.name, model.tags.get(STORE, ""), self.store)
        return model

    def evaluation(self, number: str, workspace: Path) -> Path:
        """Return a copy of a version's evaluation after a check, byte for byte, against the registered digest.

        Raises DataError if there is no evaluation or no digest in the registry, and EvaluationChanged if they differ.
        """
        folder = workspace / f"{EVALUATION}-{number}"
        if folder.exists():
            return folder
        shown = f"{self.name} version {number}"
        with self.tracker.asking(f"read the evaluation of {shown}"):
            version = self.tracker.find_version(self.name, number)
            if "rows.sha256" not in version.tags:
                raise DataError(f"version {number} was registered without its evaluation")
            self.tracker.require_own(version)
            place = urlparse(
                self.tracker.client.get_logged_model(version.source.removeprefix("models:/")).artifact_location
            )
            fetched = workspace / f"fetched-{number}"
            if place.scheme in ("", "file"):
                package = Path(unquote(place.path))
                shutil.copytree(package / EVALUATION, fetched, symlinks=True)
            else:
                package = workspace / f"package-{number}"
                fetched = self.tracker.fetch(f"models:/{self.name}/{number}/{EVALUATION}", fetched)
            require_judged_evaluation(fetched, lambda: self.whole(version, package), version.tags, shown)
        fetched.rename(folder)
        return folder

    def whole(self, version: Any, package: Path) -> Path:
        """Return a version's complete package: the original if the artifact store is a folder, else a download."""
        return package if package.is_dir() else self.tracker.fetch(f"models:/{self.name}/{version.version}", package)

    def record(self, standing: RegistryState, kind: str, **said: Unpack[DecisionFacts]) -> int:
        """Record a decision and return its number; the caller holds the lock, so that no two decisions get the same
        number."""
        number = max((int(entry["n"]) for entry in standing.history), default=0) + 1
        entry: HistoryEntry = {
            "n": number,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "kind": kind,
            "by": account_of_decisions(),
            **said,
        }
        with self.tracker.asking(f"record a decision on {self.name}"):
            self.assert_held()
            if self.store and not standing.store:
                self.tracker.client.set_registered_model_tag(self.name, STORE, self.store)
            self.tracker.client.set_registered_model_tag(self.name, f"{DECISION}{number:06d}", fitting(entry))
        return number

    def tag(self, number: str, tags: Mapping[str, str], known: Mapping[str, str]) -> None:
        """Set a version's tags, except those that already have the right value."""
        with self.tracker.asking(f"tag {self.name} version {number}"):
            for name, value in tags.items():
                if known.get(name) != value:
                    self.assert_held()
                    self.tracker.client.set_model_version_tag(self.name, number, name, value)

    def move(self, alias: str, number: str | None) -> None:
        """Point an alias at a version by one upsert, or delete the alias if ``number`` is None."""
        with self.tracker.asking(f"move {self.name}@{alias}"):
            self.assert_held()
            if number is None:
                self.tracker.client.delete_registered_model_alias(self.name, alias)
            else:
                self.tracker.client.set_registered_model_alias(self.name, alias, number)

    def delete(self, number: str) -> None:
        """Delete a version; the caller checks that it may be deleted."""
        with self.tracker.asking(f"delete {self.name} version {number}"):
            self.assert_held()
            self.tracker.client.delete_model_version(self.name, number)

    def assert_held(self) -> None:
        """Raise RegistryError without a lease, or LeaseLost if another worker has taken it over."""
        if self.lease is None:
            raise RegistryError(f"{self.name} may be changed only under its lock")
        self.lease.assert_held()


def lock_key(name: str) -> str:
    """Return the key of a registered model's lease.

    The key depends on the name only, because workers may use different addresses for the same MLflow. With two MLflows
    and one store, the worst case is an unnecessary wait.
    """
    return sha256(f"promotion\0{name}".encode()).hexdigest()


def require_same_store(name: str, theirs: str, ours: str) -> None:
    """Refuse a decision under another store's lock: locks of two stores do not exclude each other, so the last write
    would win."""
    if ours and theirs and ours != theirs:
        raise RegistryError(
            f"{name} uses the lock of store {theirs}, but LIMBECK_STORE names the store {ours} here (the file "
            f"{IDENTITY!r} of a store contains its name); set LIMBECK_STORE to the store that the other workers "
            f"share, or, if that store no longer exists, delete the tag {STORE} of the registered model in MLflow: "
            f"the next decision binds the model to the current store"
        )


def history_of(tags: Mapping[str, str]) -> list[HistoryEntry]:
    """Return the decisions in order; an unreadable one still counts."""
    found: list[HistoryEntry] = []
    for name in sorted(name for name in tags if name.startswith(DECISION)):
        try:
            entry = json.loads(tags[name])
        except ValueError:
            entry = None
        last = name.removeprefix(DECISION)
        number = int(last) if last.isdecimal() else 0
        known = cast(DecisionFacts, entry if isinstance(entry, dict) else {})
        found.append({"kind": "unreadable", "at": "", **known, "n": number})
    return found


def fitting(entry: HistoryEntry) -> str:
    """Return an entry as JSON that fits into a tag of MLflow: long reasons are shortened, and with very many versions
    the last remarks are left out."""
    body = as_json(entry)
    if len(body) <= LONGEST:
        return body
    words: list[HistoryWord] = [
        {**word, "reason": shortened(word["reason"], REASON)} for word in entry.get("words", [])
    ]
    because = {"because": shortened(entry["because"], BECAUSE)} if "because" in entry else {}
    while len(body) > LONGEST:
        body = as_json({**entry, **because, "words": words, "cut": True})
        if not words:
            break
        words = words[:-1]
    # A truncated body would be invalid JSON, and a history without moves could not show missing aliases.
    return (
        body
        if len(body) <= LONGEST
        else as_json({name: value for name, value in entry.items() if name in SHORTEST} | {"cut": True})
    )


def as_json(entry: Mapping[str, object]) -> str:
    """Return an entry in its stored form."""
    return json.dumps(entry, ensure_ascii=False, sort_keys=True)


def shortened(text: str, longest: int) -> str:
    """Return a text of at most ``longest`` characters; a shortened one ends with an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def missing(standing: RegistryState) -> dict[str, str]:
    """Return the aliases that exist according to the history but not in the registry, each with its version."""
    known: dict[str, str | None] = {}
    for entry in standing.history:
        known |= {alias: move[1] for alias, move in entry.get("moves", {}).items()}
    return {alias: number for alias, number in known.items() if number is not None and alias not in standing.aliases}
