"""Registered models in MLflow: new versions, aliases, scores of versions."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypedDict

from tasks.catalog import TaskSpec
from tasks.errors import RegistryError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.file_locks import take_lock
from tasks.ports.files.onnx_safety import EXPORT_TAGS
from tasks.ports.tracking.client import every, legal, local_folder, summary_line
from tasks.ports.tracking.download import VersionFiles
from tasks.ports.tracking.packer import Packer
from tasks.ports.tracking.run_context import SCORES_RUN, shared_tags
from tasks.ports.tracking.runs import RunLog
from tasks.ports.tracking.verified_download import (
    EVALUATION_TAG,
    evaluation_digest,
    files_of,
    folder_digest,
    require_judged,
)

LOCK_SECONDS = 600.0  # longer than any registration
LONGEST_DESCRIPTION = 5000  # characters of a description that MLflow's databases store


class NewVersion(TypedDict):
    """A version of a registered model, and whether it was created now."""

    version: str
    new: bool


class Versions(VersionFiles, RunLog):
    """The registry behind a run."""

    def register(
        self,
        name: str,
        candidate: str,
        folder: Callable[[], Path],
        *,
        card: str,
        tags: Mapping[str, str],
        description: str,
        task: TaskSpec,
        packer: Packer,
        alias: str | None,
        beside: Mapping[str, Callable[[], Path]] | None = None,
        files: Callable[[], Mapping[str, Path]] = dict,
    ) -> NewVersion:
        """Register a checkpoint folder as a new version, unless a version with the same weights and exports and the
        same verdict on the same rows exists.

        These functions are called only for a new version: ``folder``; ``files``, which are copied into the model's
        folder by relative path; and those of ``beside``, whose folders are copied next to the model by name.
        """
        require_legal_name(name)
        with self.asking(f"register {candidate}"), only_one(f"{self.uri} {name}"):
            known = self.known_version(name, tags)
            version = known or self.new_version(
                name, candidate, folder(), card, dict(tags), description, task, packer, beside or {}, files()
            )
            if alias:
                self.move_alias(name, alias, version)
            return {"version": version, "new": known is None}

    def known_version(self, name: str, tags: Mapping[str, str]) -> str | None:
        """Return the version with the same checkpoint, exports, and verdict on the same rows, or None; criteria that
        depend on the champion are ignored."""
        found = self.client.search_model_versions(
            f"name = '{name}' and tags.`checkpoint.sha256` = '{tags['checkpoint.sha256']}'"
        )
        same = [
            version
            for version in found
            if same_judgement(version.tags, tags) and all(version.tags.get(tag) == tags.get(tag) for tag in EXPORT_TAGS)
        ]
        return str(max(same, key=lambda version: int(version.version)).version) if same else None

    def new_version(
        self,
        name: str,
        candidate: str,
        folder: Path,
        card: str,
        tags: dict[str, str],
        description: str,
        task: TaskSpec,
        packer: Packer,
        beside: Mapping[str, Callable[[], Path]],
        files: Mapping[str, Path],
    ) -> str:
        """Package, upload, check and register a model."""
        about = version_description(description, card)
        tags |= {"model.sha256": hash_file(folder / "model.safetensors")}
        package = packer.pack(folder, candidate, card=card, task=task, files=files)
        try:
            for part, place in beside.items():
                shutil.copytree(place(), package / part)
            whole = files_of(package)
            judged = evaluation_digest(whole)
            tags |= {"model.folder.sha256": folder_digest(whole)} | ({EVALUATION_TAG: judged} if judged else {})
            model = self.upload(candidate, package, tags, packer.workspace / f"{candidate}.stored", about)
        finally:
            shutil.rmtree(package, ignore_errors=True)  # several full-size models could fill the disk
        self.require_registered(name, tags)
        version = self.client.create_model_version(
            name, f"models:/{model}", self.parent, tags=tags, description=about, model_id=model
        )
        return str(version.version)

    def upload(self, candidate: str, package: Path, tags: Mapping[str, str], workspace: Path, about: str) -> str:
        """Upload a package, described by ``about``, read it back and return the model's id; a model that arrives
        damaged is set to FAILED and never registered."""
        from mlflow.entities import LoggedModelOutput

        model = self.client.create_logged_model(
            self.experiment_id,
            name=candidate,
            source_run_id=self.parent,
            tags={"candidate": candidate, **shared_tags(self.tags), "mlflow.note.content": about},
        )
        try:
            self.client.log_model_artifacts(model.model_id, str(package))
            require_judged(files_of(self.stored_package(model, workspace)), tags, f"{candidate}, as stored in MLflow,")
        except BaseException:
            with contextlib.suppress(Exception):
                self.client.finalize_logged_model(model.model_id, "FAILED")
            raise
        self.client.finalize_logged_model(model.model_id, "READY")
        self.client.log_outputs(self.parent, models=[LoggedModelOutput(model.model_id, step=0)])
        return str(model.model_id)

    def stored_package(self, model: Any, workspace: Path) -> Path:
        """Return a package from the artifact store: its folder if it is on this machine, else a download."""
        place = local_folder(model.artifact_location, self.served)
        if place is not None:
            return place
        import mlflow.artifacts

        workspace.mkdir(parents=True, exist_ok=True)
        return Path(
            mlflow.artifacts.download_artifacts(
                f"models:/{model.model_id}", dst_path=str(workspace), tracking_uri=self.uri
            )
        )

    def require_registered(self, name: str, tags: Mapping[str, str]) -> None:
        """Create the registered model unless it exists, with the task and the teacher of its first version."""
        from mlflow.exceptions import MlflowException

        try:
            about = {tag: tags[tag] for tag in ("task", "teacher") if tags.get(tag)}
            made_for = f" of {about['teacher']} for {about['task']}" if len(about) == 2 else ""
            self.client.create_registered_model(
                name,
                tags=about,
                description=f"Small models{made_for}, computed by Limbeck. The alias champion is the version to use: "
                f"`limbeck pull {name}@champion my-model`",
            )
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def note_scores(self, name: str, number: str, figures: Mapping[str, float], tags: Mapping[str, str]) -> str:
        """Log the scores of a registered version, as tags of the version and in a child of the run that trained it;
        return the id of the child run."""
        from mlflow.entities import RunTag

        with self.asking(f"record the scores of {name} version {number}"):
            maker = self.client.get_run(self.find_version(name, number).run_id)
            named = {"limbeck": SCORES_RUN, "mlflow.parentRunId": maker.info.run_id, **shared_tags(maker.data.tags)}
            named |= {"score.of": f"{name} version {number}"}
            run: str = self.client.create_run(
                maker.info.experiment_id, run_name=f"score {name} {number}", tags=named
            ).info.run_id
            self.send(run, metrics=[(figure, value, 0) for figure, value in figures.items()])
            self.client.log_batch(run, tags=[RunTag(legal(tag), value) for tag, value in tags.items()])
            self.client.set_terminated(run)
            for tag, value in tags.items():
                self.client.set_model_version_tag(name, number, legal(tag), value)
        return run

    def move_alias(self, name: str, alias: str, version: str) -> None:
        """Point an alias at a version, unless it already does; the caller holds the lock."""
        current = {key: str(value) for key, value in self.client.get_registered_model(name).aliases.items()}
        if current.get(alias) != version:
            self.client.set_registered_model_alias(name, alias, version)

    def versions(self, name: str) -> list[dict[str, str]]:
        """Return the versions of one registered model, newest first."""
        found = [row for row in self.models() if row["name"] == name]
        if not found:
            raise RegistryError(self.unknown_model(name))
        return found

    def models(self) -> list[dict[str, str]]:
        """Return every registered version with its tags and aliases: models by name, versions newest first."""
        with self.asking("list the models"):
            aliases: dict[tuple[str, str], list[str]] = {}
            for model in every(self.client.search_registered_models):
                for alias, number in sorted(model.aliases.items()):
                    aliases.setdefault((model.name, str(number)), []).append(alias)
            found = sorted(
                every(self.client.search_model_versions), key=lambda version: (version.name, -int(version.version))
            )
            return [
                {
                    **version.tags,
                    "name": version.name,
                    "version": str(version.version),
                    "description": summary_line(version.description),
                    "alias": ", ".join(aliases.get((version.name, str(version.version)), [])),
                }
                for version in found
            ]


def version_description(line: str, card: str) -> str:
    """Return a version's description: its line for lists of versions, then the model card without its header, as far
    as MLflow's databases can store it."""
    body = card.partition("\n---\n")[2] if card.startswith("---\n") else card
    whole = f"{line}\n\n{body.strip()}"
    more = "\n\nThe card continues in README.md of the model's folder."
    if len(whole) <= LONGEST_DESCRIPTION:
        return whole
    return whole[: LONGEST_DESCRIPTION - len(more)].rpartition("\n")[0] + more


def require_legal_name(name: str) -> None:
    """Refuse a name that is not usable in MLflow's addresses (models:/NAME@alias) or searches."""
    if not re.fullmatch(r"[\w][\w .-]*", name):
        raise RegistryError(
            f"{name!r} cannot name a registered model; use letters, digits, '.', '_' and '-' in gate.register_as"
        )


def same_judgement(known: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Return whether two versions of one checkpoint have the same verdict on the same rows, read to the same length, by
    the criteria that do not depend on the champion. A package says how long texts were that judged, and cuts there."""
    word, rows = ("gate.alone", "gate"), ("rows.sha256", "judging_sets.sha256", "scoring.max_length")
    alone, ours = ((tags.get(word[0]) or tags.get(word[1])) for tags in (known, given))
    return alone == ours and all(known.get(tag) == given.get(tag) for tag in rows)


@contextlib.contextmanager
def only_one(what: str) -> Iterator[None]:
    """Hold a lock in this home folder; the kernel releases it when its holder dies."""
    folder = Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser() / "cache" / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    refusal = RegistryError(
        "another process has been registering under this name for ten minutes; stop it and try again"
    )
    with (folder / sha256(what.encode()).hexdigest()[:16]).open("w") as handle:
        take_lock(handle, LOCK_SECONDS, refusal)
        yield
