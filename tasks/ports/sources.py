"""What a recipe names from outside: a folder, a file or a hub id becomes a parcel with the digest of exactly the files that count.

Nothing is ever loaded that could carry code: only safetensors weights, and no model that asks for code of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import rfc8785

from tasks.catalog import GLUE, GLUE_HUB, TaskSpec
from tasks.contracts import Parcel
from tasks.errors import DataError, LimbeckError, ModelError
from tasks.ports.fingerprint import hash_file

DATA_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".txt")
MODEL_FILES = ("config.json", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
               "vocab.json", "merges.txt", "spiece.model", "added_tokens.json")  # fmt: skip
SMALLEST = 20  # a vocabulary smaller than this was not read


def resolve_data(source: str, revision: str | None, spec: TaskSpec) -> Parcel:
    """Find labelled rows: a folder or file, a hub id, or GLUE on the hub where the source is empty."""
    if not source and spec.name not in GLUE:
        raise DataError("data.source is empty and the task is not one of GLUE's; name a folder, a file or a hub id")
    configuration = f"{spec.name}/*" if not source or source == GLUE_HUB else "*"
    patterns = [configuration + suffix for suffix in DATA_SUFFIXES]
    folder = find(source or GLUE_HUB, revision, DataError, "data", patterns)
    return parcel_of(folder / spec.name if (folder / spec.name).is_dir() and not source else folder, is_data, DataError)


def resolve_corpus(source: str, revision: str | None) -> Parcel:
    """Find general text."""
    return parcel_of(find(source, revision, DataError, "data", ["*" + suffix for suffix in DATA_SUFFIXES]), is_data, DataError)


def resolve_file(source: str) -> Parcel:
    """Find a local file or folder of any kind: word vectors, text of the user's own."""
    return parcel_of(find(source, None, DataError, None, []), is_anything, DataError)


def resolve_model(model: str, revision: str | None) -> Parcel:
    """Find a pretrained model and check that it can be loaded safely and reads its own vocabulary."""
    folder = find(model, revision, ModelError, "model", ["*.safetensors", *MODEL_FILES])
    check_model(folder)
    return parcel_of(folder, is_model, ModelError)


def find(source: str, revision: str | None, kind: type[LimbeckError], hub: str | None, patterns: list[str]) -> Path:
    """Return a local path: the one named, or the hub's files in the local cache."""
    path = Path(source).expanduser()
    if path.exists():
        return path.resolve()
    if hub is None or looks_like_path(source):
        near = get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], 1) if path.parent.is_dir() else []
        hint = f"; did you mean {path.parent / near[0]}?" if near else "; check the path"
        raise kind(f"there is no file or folder {source!r}{hint}")
    return download(source, revision, kind, hub, patterns)


def looks_like_path(source: str) -> bool:
    """Tell a path from a hub id, which is a name or owner/name."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or Path(source).suffix in (*DATA_SUFFIXES, ".gz") or os.sep * 2 in source


def download(name: str, revision: str | None, kind: type[LimbeckError], hub: str, patterns: list[str]) -> Path:
    """Return a hub repository's files, from the cache if they are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    options: dict[str, Any] = {"revision": revision, "allow_patterns": patterns, "repo_type": "dataset" if hub == "data" else "model"}
    try:
        return Path(snapshot_download(name, local_files_only=True, **options))
    except HFValidationError as error:
        raise kind(f"{name!r} is neither a file or folder here nor a legal hub id; check the spelling") from error
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(name, **options))
    except (LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise kind(f"the hub id {name!r} is not in the local cache and could not be fetched; name a local folder, or check the id and the network") from error


def parcel_of(path: Path, counts: Callable[[Path], bool], kind: type[LimbeckError]) -> Parcel:
    """Fingerprint the files that count: their names, sizes and bytes, never their times or where they lie."""
    files = files_in(path, counts)
    if not files:
        raise kind(f"{path} holds no file that can be used here; looked for {', '.join(DATA_SUFFIXES)}")
    inventory = {name: {"size": file.stat().st_size, "sha256": hash_file(file)} for name, file in files.items()}
    digest = sha256(rfc8785.dumps(inventory)).hexdigest()
    return Parcel("source", digest, str(path), sum(entry["size"] for entry in inventory.values()))


def files_in(path: Path, counts: Callable[[Path], bool]) -> dict[str, Path]:
    """Return the files of a source that count, by their names in it; a source may be one file."""
    if path.is_file():
        return {path.name: path}
    return {entry.relative_to(path).as_posix(): entry for entry in sorted(path.rglob("*")) if entry.is_file() and counts(entry)}


def files_of(source: Parcel) -> dict[str, Path]:
    """Return the files behind a source that was found before: those whose digest it bears, whichever way they were chosen."""
    path = Path(source.uri.removeprefix("file://"))
    for counts in (is_model, is_data, is_anything):
        if files_in(path, counts) and parcel_of(path, counts, DataError).sha256 == source.sha256:
            return files_in(path, counts)
    raise DataError(f"{path} has changed, or is gone, since this run found it; run again")


def is_data(path: Path) -> bool:
    """Tell whether a file is rows or text."""
    return path.suffix in DATA_SUFFIXES and path.name not in ("README.txt", "requirements.txt")


def is_model(path: Path) -> bool:
    """Tell whether a file is part of a model."""
    return path.suffix == ".safetensors" or path.name in MODEL_FILES


def is_anything(path: Path) -> bool:
    """Take any file."""
    return True


def check_model(folder: Path) -> None:
    """Refuse what cannot be loaded, or only with someone's code."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; name a folder that a Hugging Face model was saved to")
    if not list(folder.glob("*.safetensors")):
        raise ModelError(f"{folder} has no safetensors weights; pickled weights are not loaded; save the model again with safetensors")
    config = read_config(folder / "config.json")
    for name, values in (("config.json", config), ("tokenizer_config.json", read_config(folder / "tokenizer_config.json"))):
        if "auto_map" in values:
            raise ModelError(f"{folder} asks for code of its own (auto_map in {name}), which is never run; use a model of a known family")
    if "transformers_weights" in config:
        raise ModelError(f"{folder} names weights of its own choice (transformers_weights in config.json); only model.safetensors is loaded")
    expected = config.get("vocab_size")
    if not isinstance(expected, int):
        raise ModelError(f"{folder / 'config.json'} names no vocab_size; save the model again")
    check_vocabulary(folder, expected)


def read_config(path: Path) -> dict[str, Any]:
    """Read one of a model's JSON files; one that is not there says nothing."""
    try:
        return dict(json.loads(path.read_text())) if path.is_file() else {}
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path} is not a JSON object; save the model again") from error


def check_vocabulary(folder: Path, expected: int) -> None:
    """Refuse a tokenizer that makes ids which the model does not have."""
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        try:
            size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
        except Exception as error:  # the library raises a bare Exception
            raise ModelError(f"{folder / 'tokenizer.json'} cannot be read; save the tokenizer again") from error
    elif (folder / "vocab.txt").is_file():
        size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    else:
        return
    if size < SMALLEST or size > expected:
        raise ModelError(f"the tokenizer in {folder} has {size:,} tokens and the model {expected:,}; use the tokenizer that the model was trained with")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
