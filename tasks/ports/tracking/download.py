"""Download of a registered version: find it, check its location and digests, write it as one plain folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import unquote

from tasks.errors import RegistryError
from tasks.ports.files.onnx_safety import EXPORT_TAGS, require_plain_graph
from tasks.ports.files.sources import nearest
from tasks.ports.tracking.client import Client, every, local_folder, summary_line
from tasks.ports.tracking.verified_download import files_of, require_judged, require_no_code, write_folder


class FetchedVersion(TypedDict):
    """A registered version whose files were written into a folder."""

    name: str
    version: str
    description: str
    refused: list[str] | None
    """The gate's reasons; None for an accepted version."""


class VersionFiles(Client):
    """The files of registered versions."""

    def download(self, name: str, alias: str | int, folder: Path) -> FetchedVersion:
        """Write a registered version as one flat Hugging Face folder after a check of its digests; a folder that is
        not empty is refused."""
        folder = folder.resolve()
        if folder.exists() and not folder.is_dir():
            raise RegistryError(f"{folder} is a file; name a new folder")
        if folder.exists() and any(folder.iterdir()):
            raise RegistryError(f"{folder} is not empty; name a new folder")
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        with self.asking(f"fetch {name}@{alias}"):
            version = self.find_version(name, str(alias))
            place = local_folder(self.require_own(version), self.served)
            if place is not None:
                files_of(place)  # before the copy, because a copy would follow links
            try:
                files = files_of(self.fetch(f"models:/{name}/{version.version}", temporary / "fetched"))
                require_no_code(files)
                require_judged_exports(files, version)
                require_judged(files, version.tags, f"{name} version {version.version}")
                flat = write_folder(files, temporary / "flat")
                if folder.exists():
                    folder.rmdir()
                flat.rename(folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return {
            "name": name,
            "version": str(version.version),
            "description": summary_line(version.description),
            "refused": json.loads(version.tags.get("gate.reasons", "[]")) if is_refused(version.tags) else None,
        }

    def require_own(self, version: Any) -> str:
        """Return the artifact location of a version's files.

        Refuse a location outside of the folders of its experiment and of this tracker, because a registry entry can be
        edited to point anywhere.
        """
        named = re.fullmatch(r"models:/(m-\w+)", version.source)
        model = self.client.get_logged_model(named[1]) if named else None
        own = self.client.get_experiment(model.experiment_id).artifact_location.rstrip("/") + "/" if model else ""
        place = unquote(model.artifact_location if model else version.source)
        if not model or not place.startswith(unquote(own)) or ".." in place.split("/"):
            raise RegistryError(
                f"{version.name} version {version.version} points at {place}, outside the files of its experiment; "
                f"nothing was fetched"
            )
        if self.artifact_root is not None and not any(
            place.startswith(root) for root in self.roots(self.artifact_root)
        ):
            raise RegistryError(
                f"{version.name} version {version.version} points at {place}, where this MLflow stores no models; "
                f"nothing was fetched"
            )
        return str(model.artifact_location)

    def roots(self, own: Path) -> Iterator[str]:
        """Yield the allowed roots of this tracker's files: in this home, on the server, or beside the server's default
        experiment."""
        yield from (unquote(own.resolve().as_uri()) + "/", f"{own.resolve()}/", "mlflow-artifacts:/")
        default = self.client.get_experiment("0").artifact_location.rstrip("/").rpartition("/")[0]
        if "://" in default or default.startswith("/"):
            yield unquote(default) + "/"

    def fetch(self, address: str, target: Path) -> Path:
        """Download a model in MLflow's own layout."""
        import mlflow.artifacts

        target.mkdir(parents=True)
        return Path(mlflow.artifacts.download_artifacts(address, dst_path=str(target), tracking_uri=self.uri))

    def find_version(self, name: str, alias: str) -> Any:
        """Return a version by alias or number; the error for an unknown one lists the known ones."""
        from mlflow.exceptions import MlflowException

        try:
            aliases = {key: str(value) for key, value in self.client.get_registered_model(name).aliases.items()}
        except MlflowException as error:
            raise RegistryError(self.unknown_model(name)) from error
        if not alias.isdigit() and alias not in aliases:
            listed = ", ".join(sorted(aliases)) or "none: the gate refused every candidate"
            raise RegistryError(f"{name} has no alias {alias!r}{nearest(alias, aliases) or f'; it has {listed}'}")
        number = alias if alias.isdigit() else aliases[alias]
        known = {
            str(version.version): version
            for version in every(self.client.search_model_versions, filter_string=f"name = '{name}'")
        }
        if number not in known:
            raise RegistryError(f"{name} has no version {number}; it has {', '.join(sorted(known, key=int)) or 'none'}")
        return known[number]

    def has_model(self, name: str) -> bool:
        """Return whether a model of this name is registered."""
        return any(model.name == name for model in every(self.client.search_registered_models))

    def unknown_model(self, name: str) -> str:
        """Return the message for an unknown model, with a list of the known ones."""
        known = sorted(model.name for model in every(self.client.search_registered_models))
        hint = nearest(name, known) or f"; known are {', '.join(known) or 'none: run a recipe first'}"
        return f"there is no registered model {name!r}{hint}"


def is_refused(tags: Mapping[str, str]) -> bool:
    """Return whether the gate refused a version."""
    return tags.get("gate") == "refused"


def require_judged_exports(files: Mapping[str, Path], version: Any) -> None:
    """Refuse graphs that are not byte for byte those that passed the parity check, graphs without a check, and graphs
    that read other files."""
    tags = {name: tag for tag, name in EXPORT_TAGS.items()}
    graphs = [name for name in files if name.endswith((".onnx", ".pte"))]
    for name in {*graphs, *(name for name, tag in tags.items() if tag in version.tags)}:
        require_plain_graph(
            files.get(name), version.tags.get(tags.get(name, "")), name, f"{version.name} version {version.version}"
        )
