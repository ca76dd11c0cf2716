"""The model that a user names for predictions: a folder, a registered version that is not pulled, or a hub id."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tasks.errors import ModelError
from tasks.ports.files.sources import looks_like_path, resolve_model
from tasks.ports.tracking.download import FetchedVersion
from tasks.scoring.onnx_models import is_export

VERSION_NAME = re.compile(r"[^/@]+(@[^/@]+)?")
"""``NAME``, ``NAME@alias`` or ``NAME@version``; an owner's model on the hub has a slash."""
VERSION_ADDRESS = re.compile(r"models:/+(?P<model>[^/@]+)[/@](?P<which>[^/@]+)")
"""``models:/NAME/version`` or ``models:/NAME@alias``, as MLflow names a version."""


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder, and a sentence about the version that it was fetched from; empty for a folder of the user."""

    path: Path
    note: str = ""


def split_version(named: str) -> tuple[str, str]:
    """Return the name of a registered model, and the alias or version that a user named with it; empty if none."""
    if (address := VERSION_ADDRESS.fullmatch(named)) is not None:
        return address["model"], address["which"]
    model, _, which = named.partition("@")
    return model, which


@contextlib.contextmanager
def opened_model(named: str, new_tracker: Callable[[], Any]) -> Iterator[ModelFolder]:
    """Yield the folder of a named model; a registered version is fetched into a temporary folder, after a check of its
    digests. ``new_tracker`` is called for a registered version only."""
    if Path(named).expanduser().is_dir():
        yield checked_folder(Path(named).expanduser())
    elif VERSION_ADDRESS.fullmatch(named) or (VERSION_NAME.fullmatch(named) and not looks_like_path(named)):
        with tempfile.TemporaryDirectory(prefix="limbeck-model-") as place:
            yield fetched_version(known_tracker(new_tracker(), named), named, Path(place) / "model")
    elif looks_like_path(named):
        hint = folder_hint(named) or (
            "; name a folder written by `limbeck pull`, or a registered model as NAME@champion"
        )
        raise ModelError(f"there is no folder {named!r}{hint}")
    else:
        yield ModelFolder(Path(resolve_model(named, None).uri))


def known_tracker(tracker: Any, named: str) -> Any:
    """Return the tracker; raise ModelError if no model has this name and a folder nearly has it."""
    if tracker.has_model(split_version(named)[0]) or not (hint := folder_hint(named)):
        return tracker
    raise ModelError(f"there is neither a folder nor a registered model {named!r}{hint}")


def folder_hint(named: str) -> str:
    """Return a hint with the folder whose name is nearest, or an empty text."""
    place = Path(named).expanduser()
    if not place.parent.is_dir():
        return ""
    near = get_close_matches(place.name, [one.name for one in place.parent.iterdir() if one.is_dir()], 1)
    return f"; did you mean the folder {place.parent / near[0]}?" if near else ""


def checked_folder(folder: Path) -> ModelFolder:
    """Return a folder of the user's after a check that it is safe to load; an export has no settings to check."""
    if not is_export(folder):
        resolve_model(str(folder), None)
    return ModelFolder(folder)


def fetched_version(tracker: Any, named: str, folder: Path) -> ModelFolder:
    """Fetch a registered version, by default the champion."""
    name, alias = split_version(named)
    found = tracker.download(name, alias or "champion", folder)
    return ModelFolder(folder, f"{found['name']} version {found['version']}{refusal_of(found)}")


def refusal_of(found: FetchedVersion) -> str:
    """Return the gate's refusal of a fetched version with its reasons; empty for an accepted version."""
    if found["refused"] is None:
        return ""
    return f" was REFUSED by the gate: {'; '.join(found['refused']) or 'no reason is recorded'}"
