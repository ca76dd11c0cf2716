"""What a pulled model is made of: which files of a stored package it holds, what they hash to, and what is never let through.

The digest is taken over the folder as a user gets it, so that a changed config or tokenizer is noticed like a changed weight; it is made from the
same list of files when a model is registered, when it has arrived in MLflow, and when somebody pulls it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.errors import RegistryError
from tasks.ports.fingerprint import hash_file
from tasks.ports.store.artifacts import digest_of, is_safe, may_carry_code

PARTS = {"model": "", "components/tokenizer": "", "evaluation": "evaluation/"}
"""Folders of a package, and where their files lie in a pulled folder."""
PLAIN = {".safetensors", ".json", ".txt", ".model", ".md", ".onnx", ".parquet"}
"""Kinds of files that a model folder needs."""
VOCABULARIES = ("tokenizer.json", "vocab.json", "added_tokens.json")
"""Files whose keys are words, not settings."""
CODE_KEYS = {"auto_map", "custom_pipelines", "transformers_weights", "trust_remote_code"}
"""Settings by which transformers would load a model's own code, or other weights than those that were judged."""
KERNEL_KEYS = {"attn_implementation", "_attn_implementation", "experts_implementation"}
"""Settings that name a kernel; one with a slash in its name is fetched from a hub and run."""


def files_of(package: Path) -> dict[str, Path]:
    """Return the files of a pulled folder by their name there; refuse links, code, and what no model folder needs."""
    for path in sorted(package.rglob("*")):
        if path.is_symlink() or may_carry_code(path.name):
            raise RegistryError(f"the stored model holds {path.name}, which may carry code; nothing was written")
    found: dict[str, Path] = {}
    for part, place in PARTS.items():
        for path in sorted(path for path in (package / part).rglob("*") if path.is_file()):
            enter(found, place + path.relative_to(package / part).as_posix(), path)
    if (package / "README.md").is_file():
        enter(found, "README.md", package / "README.md")
    if not {"config.json", "model.safetensors"} <= found.keys() or not any(name.startswith(("tokenizer", "vocab")) for name in found):
        raise RegistryError("the stored model is not whole: it lacks its config, weights or tokenizer; nothing was written")
    return found


def enter(found: dict[str, Path], name: str, path: Path) -> None:
    """Note a file under its name in the pulled folder."""
    if name in found:
        raise RegistryError(f"the stored model holds two files that would be {name}; nothing was written")
    if not is_safe(name) or path.suffix.lower() not in PLAIN:
        raise RegistryError(f"the stored model holds {name}, which is no kind of file that a model needs; nothing was written")
    found[name] = path


def folder_digest(files: Mapping[str, Path]) -> str:
    """Return the digest of a folder as it is pulled: names, sizes and bytes of every file."""
    return digest_of({name: {"size": path.stat().st_size, "sha256": hash_file(path, remember=False)} for name, path in files.items()})


def write_folder(files: Mapping[str, Path], folder: Path) -> Path:
    """Copy a package's files to the folder that a user gets."""
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    return folder


def require_no_code(files: Mapping[str, Path]) -> None:
    """Refuse settings by which a library would run code, or load weights, that nobody judged."""
    for name, path in files.items():
        if path.suffix == ".json" and "/" not in name and name not in VOCABULARIES:
            for key, value in settings_of(name, path):
                if key in CODE_KEYS or (key in KERNEL_KEYS and "/" in str(value)):
                    raise RegistryError(f"the stored model asks for code or weights of its own ({key} in {name}), which are never loaded; nothing was written")


def settings_of(name: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every setting of a JSON file, inner ones too."""
    try:
        yield from pairs_in(json.loads(path.read_text()))
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"{name} of the stored model is not JSON; nothing was written") from error


def pairs_in(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested mappings."""
    for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ():
        if isinstance(key, str):
            yield key, inner
        yield from pairs_in(inner)


def require_judged(files: Mapping[str, Path], tags: Mapping[str, str], shown: str) -> None:
    """Refuse a model that is not, byte for byte, the one that the gate judged; versions of older releases have a digest of their weights alone."""
    weights = hash_file(files["model.safetensors"], remember=False)
    if weights != tags.get("model.sha256"):
        raise RegistryError(f"the weights of {shown} are not those that were judged; nothing was written")
    if "model.folder.sha256" in tags and folder_digest(files) != tags["model.folder.sha256"]:
        raise RegistryError(f"the files of {shown} are not those that were judged: config, tokenizer, card or another file was changed; nothing was written")
