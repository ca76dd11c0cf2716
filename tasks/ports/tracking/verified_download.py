"""The files of a pulled model: their selection from a stored package, their digest, and the files that are refused.

The digest covers the folder as the user receives it, so a changed config or tokenizer is detected just as a changed
weight is. It is computed from the same list of files at registration, after the upload to MLflow, and at every pull.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import DataError, EvaluationChanged, RegistryError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.files.bounded_json import read_json
from tasks.ports.files.model_files import CHAT_TEMPLATE, MARIAN_PIECES, SENTENCEPIECE
from tasks.ports.files.model_settings import LARGEST_FILE, WORD_FILES, foreign
from tasks.ports.store.artifacts import digest_of, is_safe, may_carry_code

PARTS = {"model": "", "components/tokenizer": "", "evaluation": "evaluation/"}
"""Folders of a package, and the prefixes of their files in a pulled folder."""
EVALUATION, EVALUATION_TAG = "evaluation", "evaluation.sha256"
PLAIN = {".safetensors", ".json", ".txt", ".md", ".onnx", ".parquet", ".pte"}
ALLOWED_NAMES = {*SENTENCEPIECE, *MARIAN_PIECES, CHAT_TEMPLATE}
"""Suffixes of the files of a model folder, and names of others."""


def files_of(package: Path) -> dict[str, Path]:
    """Return the files of a pulled folder by their relative path; refuse links, code, and unexpected kinds of files."""
    for path in sorted(package.rglob("*")):
        if path.is_symlink() or may_carry_code(path.name):
            raise RegistryError(f"the stored model holds {path.name}, which may contain code; nothing was written")
    found: dict[str, Path] = {}
    for part, place in PARTS.items():
        for path in sorted(path for path in (package / part).rglob("*") if path.is_file()):
            add_file(found, place + path.relative_to(package / part).as_posix(), path)
    if (package / "README.md").is_file():
        add_file(found, "README.md", package / "README.md")
    if not {"config.json", "model.safetensors"} <= found.keys() or not any(
        name.startswith(("tokenizer", "vocab", *SENTENCEPIECE)) for name in found
    ):
        raise RegistryError(
            "the stored model is incomplete: it lacks its config, weights or tokenizer; nothing was written"
        )
    return found


def add_file(found: dict[str, Path], name: str, path: Path) -> None:
    """Add a file to ``found`` under its name in the pulled folder, after checks of name and kind."""
    if name in found:
        raise RegistryError(f"the stored model holds two files for {name}; nothing was written")
    if not is_safe(name) or (path.suffix.lower() not in PLAIN and path.name not in ALLOWED_NAMES):
        raise RegistryError(f"the stored model holds {name}, which is not a file of a model; nothing was written")
    found[name] = path


def folder_digest(files: Mapping[str, Path]) -> str:
    """Return the digest of a pulled folder, over names, sizes and bytes of all files."""
    return digest_of(
        {name: {"size": path.stat().st_size, "sha256": hash_file(path, remember=False)} for name, path in files.items()}
    )


def evaluation_digest(files: Mapping[str, Path]) -> str | None:
    """Return the digest of the evaluation among a folder's files, or None if there is none."""
    found = {name: path for name, path in files.items() if name.startswith(PARTS[EVALUATION])}
    return folder_digest(found) if found else None


def require_judged_evaluation(folder: Path, package: Callable[[], Path], tags: Mapping[str, str], shown: str) -> None:
    """Refuse an evaluation that is not byte for byte the registered one. A checksum beside it would prove nothing,
    because an attacker could change both files.

    Versions that were registered before evaluations had a digest are compared with the digest of their whole
    ``package``, which is then fetched. Raises EvaluationChanged, or DataError if the registry has no digest at all.
    """
    ours = {f"{PARTS[EVALUATION]}{path.name}": path for path in sorted(folder.iterdir())}
    if any(path.is_symlink() or not path.is_file() for path in ours.values()):
        raise EvaluationChanged(
            f"the evaluation of {shown} contains an entry that is not a regular file; it is not used"
        )
    if EVALUATION_TAG in tags:
        same = evaluation_digest(ours) == tags[EVALUATION_TAG]
    elif "model.folder.sha256" in tags:
        others = {name: path for name, path in files_of(package()).items() if not name.startswith(PARTS[EVALUATION])}
        same = folder_digest(others | ours) == tags["model.folder.sha256"]
    else:
        raise DataError(
            f"{shown} was registered without a digest of its evaluation, so it is not compared; run its recipe "
            f"again, or promote by hand"
        )
    if not same:
        raise EvaluationChanged(
            f"the evaluation of {shown} differs from the registered one: its files were changed; it is not used"
        )


def write_folder(files: Mapping[str, Path], folder: Path) -> Path:
    """Copy a package's files to the user's folder and return it."""
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    return folder


def require_no_code(files: Mapping[str, Path]) -> None:
    """Refuse settings that would make a library run code or load weights that were never evaluated."""
    for name, path in files.items():
        if path.suffix == ".json" and "/" not in name and name not in WORD_FILES:
            for key in foreign(settings_of(name, path)):
                raise RegistryError(
                    f"the stored model refers to its own code or weights ({key} in {name}), which are never loaded; "
                    f"nothing was written"
                )


def settings_of(name: str, path: Path) -> Any:
    """Return the content of a JSON settings file."""
    try:
        return read_json(path, LARGEST_FILE)
    except ValueError as error:
        raise RegistryError(f"{name} of the stored model is not JSON ({error}); nothing was written") from error


def require_judged(files: Mapping[str, Path], tags: Mapping[str, str], shown: str) -> None:
    """Refuse a model that is not byte for byte the one that the gate evaluated; versions of older releases have only a
    digest of their weights."""
    weights = hash_file(files["model.safetensors"], remember=False)
    if weights != tags.get("model.sha256"):
        raise RegistryError(f"the weights of {shown} are not the evaluated ones; nothing was written")
    if "model.folder.sha256" in tags and folder_digest(files) != tags["model.folder.sha256"]:
        raise RegistryError(
            f"the files of {shown} are not the evaluated ones: config, tokenizer, card or another file was changed; "
            f"nothing was written"
        )
