"""Metrics of a machine's owner: modules of ``evaluate`` that were registered by a command, and are code that runs here.

A registered metric is a folder ``metrics/NAME`` of the home, which only its owner can read: a copy of the files, and
``metric.json`` with what was stated of them and their digest. A recipe can name a metric, as ``own/NAME``, and never
bring one. The files are checked against the digest before each use, and are not read from the place that they were
copied from.
"""

from __future__ import annotations

import json
import keyword
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.errors import RecipeError
from tasks.recipe.judging import OWN_METRIC

FOLDER, STATEMENT, FILES = "metrics", "metric.json", "files"
MOST_BYTES, MOST_FILES = 2**20, 50
SKIPPED = ("__pycache__", ".git", ".DS_Store")
"""Entries of a folder that are not copied."""
ADD = "limbeck metrics add PATH"


class RegisteredMetric(BaseModel):
    """What was stated of a registered metric, and found out by its trial."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    task: str
    """The type of its tasks."""
    better: Literal["higher", "lower"]
    about: str
    """One sentence for users."""
    reads: Literal["predictions", "prediction_scores"]
    """The input of the module beside ``references``: predictions, or the score of each row."""
    two_classes: bool = False
    """Whether it is for tasks of two classes alone: its trial with three ended in an error."""
    resamples: int = Field(ge=100)
    """The most bootstrap resamples of an interval; it is called once a model for each."""
    sha256: str
    """The digest of its files."""
    source: str
    """The place that its files were copied from."""

    @property
    def lower_is_better(self) -> bool:
        """Whether it is an error."""
        return self.better == "lower"


def is_name(name: str) -> bool:
    """Tell whether a metric can have a name, which is also that of a module."""
    return OWN_METRIC.fullmatch(f"own/{name}") is not None and not keyword.iskeyword(name)


def metric_folder(home: Path, name: str) -> Path:
    """Return the folder of a registered metric."""
    return home / FOLDER / name


def metric_files(home: Path, name: str) -> Path:
    """Return the folder of a registered metric's files."""
    return metric_folder(home, name) / FILES


def registered_metrics(home: Path) -> list[RegisteredMetric]:
    """Return what was stated of all registered metrics, by name; files are not checked."""
    folder = home / FOLDER
    names = sorted(one.name for one in folder.iterdir() if is_name(one.name)) if folder.is_dir() else []
    return [statement_of(home, name) for name in names]


def registered_metric(home: Path, name: str) -> RegisteredMetric:
    """Return what was stated of a registered metric.

    Raises RecipeError where it is not registered on this machine, where its files are not those that were registered,
    and where others could have written them.
    """
    if not is_name(name) or not metric_folder(home, name).is_dir():
        known = [one.name for one in registered_metrics(home)]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean own/{near[0]}? " if near else ""
        listed = f"registered are {', '.join(f'own/{one}' for one in known)}" if known else "none is registered"
        raise RecipeError(
            f"the metric own/{name} is not registered on this machine; {hint}{listed}; the machine's owner registers a "
            f"metric: {ADD}"
        )
    require_private(metric_folder(home, name))
    found = statement_of(home, name)
    if digest_of(metric_files(home, name)) != found.sha256:
        raise RecipeError(
            f"the files of the metric own/{name} in {metric_files(home, name)} are not those that were registered; "
            f"register it again: {ADD} --replace"
        )
    return found


def statement_of(home: Path, name: str) -> RegisteredMetric:
    """Return what was stated of a registered metric; raise RecipeError where it cannot be read."""
    path = metric_folder(home, name) / STATEMENT
    try:
        found = RegisteredMetric.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        raise RecipeError(
            f"{path} cannot be read ({type(error).__name__}); register the metric again: {ADD} --replace"
        ) from error
    if found.name != name:
        raise RecipeError(f"{path} is of the metric {found.name!r}; register the metric again: {ADD} --replace")
    return found


def require_private(folder: Path) -> None:
    """Raise RecipeError where another user owns a registered metric, or could write it: its files are run."""
    about = folder.stat()
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o022 or folder.is_symlink():
        raise RecipeError(
            f"the registered metric in {folder} belongs to another user, or others can write it; only metrics of one's "
            f"own are run: remove that folder, and register it again: {ADD}"
        )


def digest_of(folder: Path) -> str:
    """Return the digest of a folder's files with their names; of a folder without files, too. Links count as what they
    are: no file."""
    whole = sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            body = b"" if path.is_symlink() else path.read_bytes()
            whole.update(f"{path.relative_to(folder).as_posix()} {path.is_symlink()} {len(body)}\n".encode() + body)
    return whole.hexdigest()


def copy_of(source: Path, folder: Path) -> str:
    """Copy the files of a module, ``NAME.py`` or a folder ``NAME`` with ``NAME.py``, and return its name.

    Raises RecipeError for anything else, for links, and for more than a megabyte.
    """
    name = source.stem if source.is_file() else source.name
    if not (source.is_file() and source.suffix == ".py") and not (source / f"{source.name}.py").is_file():
        raise RecipeError(
            f"{source} is not a module of evaluate; name a file NAME.py, or a folder NAME that contains NAME.py"
        )
    if not is_name(name):
        raise RecipeError(
            f"{name!r} is not a name for a metric; rename it to at most 40 small letters, digits and underscores, with "
            f"a letter first"
        )
    found = [source] if source.is_file() else sorted(path for path in source.rglob("*") if not is_skipped(path, source))
    if any(path.is_symlink() for path in found):
        raise RecipeError(f"{source} contains links; a metric is copied with all that it needs: replace them by files")
    files = [path for path in found if path.is_file()]
    if len(files) > MOST_FILES or sum(path.stat().st_size for path in files) > MOST_BYTES:
        raise RecipeError(
            f"{source} has more than {MOST_FILES} files or {MOST_BYTES // 2**20} MiB; name a folder with the metric "
            f"alone"
        )
    for path in files:
        target = folder / (path.name if source.is_file() else path.relative_to(source))
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target.write_bytes(path.read_bytes())
        target.chmod(0o600)
    return name


def is_skipped(path: Path, source: Path) -> bool:
    """Tell whether an entry of a folder belongs to tools, not to the metric."""
    return any(part in SKIPPED for part in path.relative_to(source).parts)


def differs_from_source(metric: RegisteredMetric) -> bool:
    """Tell whether the files that a metric was copied from are still there, and others than the copy."""
    source = Path(metric.source)
    if not source.exists():
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            copy_of(source, Path(folder))
        except (RecipeError, OSError):
            return True
        return digest_of(Path(folder)) != metric.sha256


def new_copy(home: Path) -> Path:
    """Return a new folder beside the registered metrics, for a copy of one that is still to be tried."""
    (home / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=home / FOLDER))
    (fresh / FILES).mkdir(mode=0o700)
    return fresh


def register_metric(home: Path, fresh: Path, metric: RegisteredMetric) -> None:
    """Put a tried copy into its place, whole or not at all; an earlier one of its name is removed."""
    (fresh / STATEMENT).write_text(json.dumps(metric.model_dump(), indent=1, sort_keys=True) + "\n")
    (fresh / STATEMENT).chmod(0o600)
    place, old = metric_folder(home, metric.name), fresh.with_name(fresh.name.replace("new", "old"))
    with suppress(FileNotFoundError):
        place.rename(old)
    fresh.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def forget_metric(home: Path, name: str) -> None:
    """Remove a registered metric. Raises RecipeError where it is not registered."""
    if not is_name(name) or not metric_folder(home, name).is_dir():
        registered_metric(home, name)
    shutil.rmtree(metric_folder(home, name))
