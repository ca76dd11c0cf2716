"""One registered model: what stands in MLflow's registry, the history of decisions about it, and the few ways to change
it.

MLflow has no compare-and-swap: whoever changes aliases holds the lease of the store (``lease``), and asks it again
before every write, so that one who was taken for dead and comes back writes nothing more. An alias moves by one atomic
upsert and is never deleted to be set again.

The history is one tag of the registered model for each decision, ``decision.<number>``, written before anything moves
and never written twice: a JSON object with number, time, kind, moves and a word on every version concerned. A history
that says more than the aliases do means that somebody was stopped on the way, or changed the registry by other means;
``missing`` says so.

A lease keeps out only those who ask the same store. So the first decision tags the model with the store's own name
(``limbeck.store``), and whoever comes with another store is refused. Two first decisions at one moment under two stores
are not kept apart: one of them is refused from its second on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tasks.errors import DataError, RegistryError
from tasks.ports.store.artifacts import IDENTITY, Lease
from tasks.ports.tracking.client import every
from tasks.ports.tracking.tracker import Tracker
from tasks.ports.tracking.verified_download import EVALUATION, require_judged_evaluation
from tasks.ports.tracking.versions import require_legal_name

DECISION = "decision."
STORE = "limbeck.store"
LONGEST = 5000  # what MLflow's databases keep of a tag
REASON, BECAUSE = (
    120,
    500,
)  # characters that are kept of the gate's and of a person's reason where a decision would not fit


@dataclass(frozen=True)
class Standing:
    """What the registry says of one model at one moment."""

    aliases: Mapping[str, str]
    versions: Mapping[str, Mapping[str, Any]]
    """Tags of every version by number, with its description."""
    history: Sequence[Mapping[str, Any]]
    """Every decision, the oldest first."""
    store: str = ""
    """The store under whose lock it is decided; empty before the first decision that wrote it down."""


class Registry:
    """One registered model; ``store`` is the name of the store whose lease is held."""

    def __init__(self, tracker: Tracker, name: str, lease: Lease | None = None, store: str = "") -> None:
        self.tracker, self.name, self.lease, self.store = tracker, name, lease, store

    def read(self) -> Standing:
        """Return what stands there now; a model that is not there has nothing."""
        model = self.model()
        if model is None:
            return Standing({}, {}, [])
        with self.tracker.asking(f"read {self.name}"):
            found = every(self.tracker.client.search_model_versions, filter_string=f"name = '{self.name}'")
            versions = {
                str(version.version): {**version.tags, "description": version.description or ""} for version in found
            }
        aliases = {alias: str(number) for alias, number in model.aliases.items()}
        return Standing(aliases, versions, history_of(model.tags), model.tags.get(STORE, ""))

    def model(self) -> Any:
        """Return the registered model as MLflow has it, or None; one that is decided on under another store's lock is
        refused."""
        require_legal_name(self.name)
        with self.tracker.asking(f"read {self.name}"):
            model = next(
                iter(every(self.tracker.client.search_registered_models, filter_string=f"name = '{self.name}'")), None
            )
        if model is not None:
            require_same_store(self.name, model.tags.get(STORE, ""), self.store)
        return model

    def evaluation(self, number: str, workspace: Path) -> Path:
        """Return a copy of the evaluation that travels with a version, which is the registered one to the last byte.

        Raises DataError where there is none that can be held against the registry, EvaluationChanged where it is
        another.
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
        """Return a version's whole package: where the artifact store is a folder, its own, else fetched."""
        return package if package.is_dir() else self.tracker.fetch(f"models:/{self.name}/{version.version}", package)

    def record(self, standing: Standing, kind: str, **said: Any) -> int:
        """Write a decision down; the caller holds the lock, or two decisions could take one number."""
        number = max((int(entry["n"]) for entry in standing.history), default=0) + 1
        entry = {"n": number, "at": datetime.now(UTC).isoformat(timespec="seconds"), "kind": kind, **said}
        with self.tracker.asking(f"record a decision on {self.name}"):
            self.assert_held()
            if self.store and not standing.store:
                self.tracker.client.set_registered_model_tag(self.name, STORE, self.store)
            self.tracker.client.set_registered_model_tag(self.name, f"{DECISION}{number:06d}", fitting(entry))
        return number

    def tag(self, number: str, tags: Mapping[str, str], known: Mapping[str, Any]) -> None:
        """Set a version's tags, as far as they are not what they should be."""
        with self.tracker.asking(f"tag {self.name} version {number}"):
            for name, value in tags.items():
                if known.get(name) != value:
                    self.assert_held()
                    self.tracker.client.set_model_version_tag(self.name, number, name, value)

    def move(self, alias: str, number: str | None) -> None:
        """Point an alias at a version by one upsert, or take it away for good."""
        with self.tracker.asking(f"move {self.name}@{alias}"):
            self.assert_held()
            if number is None:
                self.tracker.client.delete_registered_model_alias(self.name, alias)
            else:
                self.tracker.client.set_registered_model_alias(self.name, alias, number)

    def delete(self, number: str) -> None:
        """Delete a version; whether it may go is the caller's to ask."""
        with self.tracker.asking(f"delete {self.name} version {number}"):
            self.assert_held()
            self.tracker.client.delete_model_version(self.name, number)

    def assert_held(self) -> None:
        """Refuse to write without the lock, or when another took it over."""
        if self.lease is None:
            raise RegistryError(f"{self.name} is changed under its lock only")
        self.lease.assert_held()


def lock_key(name: str) -> str:
    """Return the key of a registered model's lease.

    The name alone: workers reach one MLflow by different addresses. Two MLflows behind one store would at worst wait
    for each other.
    """
    return sha256(f"promotion\0{name}".encode()).hexdigest()


def require_same_store(name: str, theirs: str, ours: str) -> None:
    """Refuse a decision under another store's lock: two stores do not keep each other out, and the last to write would
    win."""
    if ours and theirs and ours != theirs:
        raise RegistryError(
            f"{name} is decided on under the lock of store {theirs}, and LIMBECK_STORE names another here, {ours} "
            f"(the file {IDENTITY!r} of a store says which "
            f"it is); set LIMBECK_STORE to the store that the other workers share, or, if that is gone for good, "
            f"delete the tag {STORE} of the registered "
            "model in MLflow: the next decision binds it to its own store"
        )


def history_of(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read the decisions in order; one that somebody spoilt still counts."""
    found = []
    for name in sorted(name for name in tags if name.startswith(DECISION)):
        try:
            entry = json.loads(tags[name])
        except ValueError:
            entry = None
        last = name.removeprefix(DECISION)
        number = int(last) if last.isdecimal() else 0
        found.append({"kind": "unreadable", "at": "", **(entry if isinstance(entry, dict) else {}), "n": number})
    return found


def fitting(entry: Mapping[str, Any]) -> str:
    """Return an entry as JSON that MLflow keeps whole: long reasons are shortened, and of very many versions the last
    words are left out."""
    body = as_json(entry)
    if len(body) <= LONGEST:
        return body
    words = [{**word, "reason": shortened(word["reason"], REASON)} for word in entry.get("words", [])]
    because = {"because": shortened(entry["because"], BECAUSE)} if "because" in entry else {}
    while len(body) > LONGEST:
        body = as_json({**entry, **because, "words": words, "cut": True})
        if not words:
            break
        words = words[:-1]
    # A body that is cut anywhere is no JSON, and a history without its moves cannot say what is missing.
    return (
        body
        if len(body) <= LONGEST
        else as_json({name: entry[name] for name in ("n", "at", "kind", "moves") if name in entry} | {"cut": True})
    )


def as_json(entry: Mapping[str, Any]) -> str:
    """Return an entry as it is kept."""
    return json.dumps(entry, ensure_ascii=False, sort_keys=True)


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters; an ellipsis says that it went on."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def missing(standing: Standing) -> dict[str, str]:
    """Return the aliases that should be there by the history and are not, each with its version."""
    known: dict[str, str | None] = {}
    for entry in standing.history:
        known |= {alias: move[1] for alias, move in entry.get("moves", {}).items()}
    return {alias: number for alias, number in known.items() if number is not None and alias not in standing.aliases}
