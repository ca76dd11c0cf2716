"""The model that a user names for predictions: a folder, a registered version that is not pulled, or a hub id."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import ModelError
from tasks.ports.files.sources import looks_like_path, resolve_model
from tasks.ports.tracking.download import FetchedVersion
from tasks.scoring.onnx_models import is_export

VERSION_NAME = re.compile(r"[^/@]+(@[^/@]+)?")
"""``NAME``, ``NAME@alias`` or ``NAME@version``; an owner's model on the hub has a slash."""


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder, and a sentence about the version that it was fetched from; empty for a folder of the user."""

    path: Path
    note: str = ""


@contextlib.contextmanager
def opened_model(named: str, new_tracker: Callable[[], Any]) -> Iterator[ModelFolder]:
    """Yield the folder of a named model; a registered version is fetched into a temporary folder, after a check of its
    digests. ``new_tracker`` is called for a registered version only."""
    if Path(named).expanduser().is_dir():
        yield checked_folder(Path(named).expanduser())
    elif VERSION_NAME.fullmatch(named) and not looks_like_path(named):
        with tempfile.TemporaryDirectory(prefix="limbeck-model-") as place:
            yield fetched_version(new_tracker(), named, Path(place) / "model")
    elif looks_like_path(named):
        raise ModelError(
            f"there is no folder {named!r}; name a folder written by `limbeck pull`, or a registered model as "
            f"NAME@champion"
        )
    else:
        yield ModelFolder(Path(resolve_model(named, None).uri))


def checked_folder(folder: Path) -> ModelFolder:
    """Return a folder of the user's after a check that it is safe to load; an export has no settings to check."""
    if not is_export(folder):
        resolve_model(str(folder), None)
    return ModelFolder(folder)


def fetched_version(tracker: Any, named: str, folder: Path) -> ModelFolder:
    """Fetch a registered version, by default the champion."""
    name, _, alias = named.partition("@")
    found = tracker.download(name, alias or "champion", folder)
    return ModelFolder(folder, f"{found['name']} version {found['version']}{refusal_of(found)}")


def refusal_of(found: FetchedVersion) -> str:
    """Return the gate's refusal of a fetched version with its reasons; empty for an accepted version."""
    if found["refused"] is None:
        return ""
    return f" was REFUSED by the gate: {'; '.join(found['refused']) or 'no reason is recorded'}"
