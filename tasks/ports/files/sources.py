"""External inputs of a recipe: a folder, a file or a hub id becomes an artifact with the digest of exactly the files
that are used.

Files that could carry code are never loaded: only safetensors weights, and no model that needs code of its own.

A source is hashed when a run starts, and a stage may read it hours later. So a stage never reads the original: it reads
a copy, hashed during the copy, that contains the files of the digest and no others (``copy_source``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

import rfc8785

from tasks.architectures.known_architectures import shape_of
from tasks.catalog import GLUE, GLUE_HUB, TaskSpec
from tasks.contracts import Artifact
from tasks.errors import DataError, LimbeckError, ModelError
from tasks.ports.code.fingerprint import hash_files
from tasks.ports.files.bounded_json import LARGEST
from tasks.ports.files.copies import copy_hashed
from tasks.ports.files.model_files import (
    HUB_PATTERNS,
    SENTENCEPIECE,
    SMALL_FILES,
    has_tokenizer,
    model_files,
    require_settings,
    sentencepiece_size,
)
from tasks.ports.files.model_settings import architecture_fact, require_plain_settings

TEXT_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".conll", ".bio")
DATA_SUFFIXES = (".parquet", ".arrow", *TEXT_SUFFIXES, *(f"{suffix}.gz" for suffix in TEXT_SUFFIXES))
CONFIGURATIONS = "README.md"
"""The file in which a dataset of the hub may declare its configurations."""
SMALLEST = 20  # tokens; a smaller vocabulary means that the file was not read correctly

Listing = Callable[[Path], dict[str, Path]]
"""Returns the files of a source that are used, by relative path."""


def is_at_hand(source: str, revision: str | None, hub: str) -> bool:
    """Tell whether a source is on this machine: a path, which may be wrong, or a hub id whose files are in the local
    cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if Path(source).expanduser().exists() or looks_like_path(source):
        return True
    try:
        snapshot_download(
            source,
            local_files_only=True,
            revision=revision,
            repo_type="dataset" if hub == "data" else "model",
        )
    except LocalEntryNotFoundError:
        return False
    except HFValidationError:
        pass  # no hub id: finding it says so
    return True


def resolve_data(source: str, revision: str | None, spec: TaskSpec) -> Artifact:
    """Return the source of labelled rows: a folder or file, a hub id, or GLUE on the hub if ``source`` is empty."""
    if not source and spec.name not in GLUE:
        raise DataError("data.source is empty and the task is not one of GLUE's; name a folder, a file or a hub id")
    configuration = f"{spec.name}/*" if not source or source == GLUE_HUB else "*"
    patterns = [*(configuration + suffix for suffix in DATA_SUFFIXES), CONFIGURATIONS]
    folder = find(source or GLUE_HUB, revision, DataError, "data", patterns)
    own = folder / spec.name
    return artifact_of(own if not source and own.is_dir() else folder, data_files, DataError)


def resolve_corpus(source: str, revision: str | None) -> Artifact:
    """Return a source of general text."""
    return artifact_of(
        find(source, revision, DataError, "data", ["*" + suffix for suffix in DATA_SUFFIXES]), data_files, DataError
    )


def resolve_file(source: str) -> Artifact:
    """Return a local file or folder of any kind as a source: word vectors, the user's own text."""
    return artifact_of(find(source, None, DataError, None, []), all_files, DataError)


def resolve_model(model: str, revision: str | None) -> Artifact:
    """Return a pretrained model as a source, after a check that it is safe to load and that its tokenizer fits."""
    folder = find(model, revision, ModelError, "model", HUB_PATTERNS)
    check_model(folder)
    return artifact_of(folder, model_files, ModelError)


def find(source: str, revision: str | None, kind: type[LimbeckError], hub: str | None, patterns: list[str]) -> Path:
    """Return a local path: the given one, or that of the hub's files in the local cache."""
    path = Path(source).expanduser()
    if is_there(path, kind):
        return path.resolve()
    if "://" in source:
        raise kind(f"{source!r} is an address; download it, and name the file or folder")
    if path.is_symlink():
        raise kind(f"{source!r} is a link to {os.readlink(path)!r}, which is not there; correct the link")
    if hub is None or looks_like_path(source):
        near = (
            get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], 1)
            if path.parent.is_dir()
            else []
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else "; check the path"
        raise kind(f"there is no file or folder {source!r}{hint}")
    return download(source, revision, kind, hub, patterns)


def is_there(path: Path, kind: type[LimbeckError]) -> bool:
    """Return whether there is such a file or folder; raise ``kind`` if its folders are closed to this user, for
    example to that of a worker."""
    try:
        return path.exists()
    except PermissionError as error:
        raise kind(
            f"{str(path)!r} is in a folder that the user of this process (number {os.geteuid()}) cannot open; let that "
            f"user enter the folders above it (chmod o+x), or put it elsewhere"
        ) from error


def folder_of_config(model: str) -> Path | None:
    """Return a folder with the config of a model on the hub, alone; None if it is not at hand."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(model, "config.json")).parent
    except (OSError, ValueError):  # the hub's errors derive from these
        return None


def shape_known(folder: Path) -> tuple[int | None, int | None]:
    """Return the layers and the width that a model's config states; None for what it does not."""
    shape = shape_of(json.loads((folder / "config.json").read_text()))
    return shape.get("layers"), shape.get("hidden")


def looks_like_path(source: str) -> bool:
    """Return whether a source looks like a path and not like a hub id, which is a name or owner/name."""
    return (
        source.startswith((".", "/", "~"))
        or source.count("/") > 1
        or Path(source).suffix in (*DATA_SUFFIXES, ".gz")
        or os.sep * 2 in source
    )


def download(name: str, revision: str | None, kind: type[LimbeckError], hub: str, patterns: list[str]) -> Path:
    """Return the local folder of a hub repository's files, from the cache if they are present."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    fetch = partial(
        snapshot_download,
        name,
        revision=revision,
        allow_patterns=patterns,
        repo_type="dataset" if hub == "data" else "model",
    )
    cached = None
    try:
        cached = Path(fetch(local_files_only=True))
        if hub != "model" or has_tokenizer(cached):
            return cached  # a model that an earlier release has downloaded may lack its tokenizer files
    except HFValidationError as error:
        raise kind(f"{name!r} is neither a file or folder here nor a legal hub id; check the spelling") from error
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(fetch())
    except (LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        if cached is not None:
            return cached
        raise kind(
            f"the hub id {name!r} is not in the local cache and could not be fetched; name a local folder, or check "
            f"the id and the network"
        ) from error


def artifact_of(path: Path, listing: Listing, kind: type[LimbeckError]) -> Artifact:
    """Return the artifact of a source's used files; its digest covers names, sizes and bytes, not times or location."""
    try:
        files = listing(path)
        if not files:
            os.listdir(path)  # a folder that is closed to this user is no empty one
            raise kind(f"{path} holds no file that can be used here; looked for {', '.join(DATA_SUFFIXES)}")
        hashes = hash_files(list(files.values()), remember=True)
        inventory: dict[str, ListedFile] = {
            name: {"size": file.stat().st_size, "sha256": digest}
            for (name, file), digest in zip(files.items(), hashes, strict=True)
        }
    except OSError as error:
        raise kind(f"{path} cannot be read ({error.strerror}); check the files in it, and run again") from error
    size = sum(entry["size"] for entry in inventory.values())
    return Artifact("source", digest_of(inventory), str(path), size, architecture_fact(path))


class ListedFile(TypedDict):
    """A file of a source in the inventory by which its digest is computed."""

    size: int
    sha256: str


def digest_of(inventory: Mapping[str, ListedFile]) -> str:
    """Return the digest of a source, which is equal to that of an artifact with the same files."""
    return sha256(
        rfc8785.dumps({name: {"size": one["size"], "sha256": one["sha256"]} for name, one in inventory.items()})
    ).hexdigest()


def data_files(path: Path) -> dict[str, Path]:
    """Return the files of a source that contain rows or text; a source may be one file of any kind."""
    return {name: file for name, file in all_files(path).items() if path.is_file() or is_data(file)}


def all_files(path: Path) -> dict[str, Path]:
    """Return all files of a source; a source may be one file."""
    if path.is_file():
        return {path.name: path}
    return {entry.relative_to(path).as_posix(): entry for entry in sorted(path.rglob("*")) if entry.is_file()}


def is_data(path: Path) -> bool:
    """Return whether a file contains rows or text, by its name."""
    if path.name == CONFIGURATIONS:
        return "configs:" in path.read_text(encoding="utf-8", errors="replace")[:100_000]
    return path.name.lower().endswith(DATA_SUFFIXES) and path.name not in ("README.txt", "requirements.txt")


def place_of(source: Artifact) -> Path:
    """Return the user's own path of a source."""
    return Path(source.uri.removeprefix("file://"))


def listing_of(source: Artifact) -> Listing:
    """Return the function whose selection of files has the source's digest. Raises DataError if the source has
    changed."""
    for listing in (model_files, data_files, all_files):
        with suppress(LimbeckError):  # not a model, or no files of this kind
            if artifact_of(place_of(source), listing, DataError).sha256 == source.sha256:
                return listing
    raise changed(source)


def copy_source(source: Artifact, folder: Path) -> None:
    """Copy the used files of a source into an empty folder, and check the copy against the source's digest.

    Raises DataError if the source has changed since the digest was computed; the copy is then invalid.
    """
    listing, inventory = listing_of(source), dict[str, ListedFile]()
    try:
        for name, path in listing(place_of(source)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            digest = copy_hashed(path, folder / name)
            inventory[name] = {"size": (folder / name).stat().st_size, "sha256": digest}
        if digest_of(inventory) != source.sha256:
            raise changed(source)
        if listing is model_files:
            check_model(folder)  # the earlier check was of the original, which may have had other content then
    except (FileNotFoundError, ModelError) as error:
        raise changed(source) from error


def changed(source: Artifact) -> DataError:
    """Return the error for a source that has changed since the start of the run."""
    return DataError(
        f"{place_of(source)} was changed or deleted since this run began; nothing was computed from it; run again"
    )


def check_model(folder: Path) -> None:
    """Refuse a model that cannot be loaded, or only with third-party code."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} has no config.json; name a folder that a Hugging Face model was saved to")
    if not list(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} has no safetensors weights; pickled weights are not loaded; save the model again with "
            f"safetensors"
        )
    config = require_plain_settings(folder)
    require_settings(folder, config)
    for name, path in model_files(folder).items():  # which refuses a weight map with illegal files
        if name.endswith(".safetensors"):
            require_whole(path)
    expected = config.get("vocab_size")
    if not isinstance(expected, int):
        raise ModelError(f"{folder / 'config.json'} names no vocab_size; save the model again")
    check_vocabulary(folder, expected)


def require_whole(path: Path) -> None:
    """Refuse weights that were cut off, as by an interrupted download."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a whole file of weights ({error}); download or save it again") from error


def check_vocabulary(folder: Path, expected: int) -> None:
    """Refuse a tokenizer with more ids than the model has, or with files that are too large."""
    for path in (folder / name for name in SMALL_FILES if (folder / name).is_file()):
        if path.stat().st_size > LARGEST:
            raise ModelError(
                f"{path} has {path.stat().st_size:,} bytes, and at most {LARGEST:,} are read; save the tokenizer again"
            )
    if (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        try:
            size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
        except Exception as error:  # the library raises a bare Exception
            raise ModelError(f"{folder / 'tokenizer.json'} cannot be read; save the tokenizer again") from error
    elif (folder / "vocab.txt").is_file():
        size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    elif pieces := next((folder / name for name in SENTENCEPIECE if (folder / name).is_file()), None):
        size = sentencepiece_size(pieces)
    elif has_tokenizer(folder):
        return
    else:
        raise ModelError(f"{folder} has no tokenizer; save the tokenizer into the same folder, as tokenizer.json")
    if size < SMALLEST or size > expected:
        raise ModelError(
            f"the tokenizer in {folder} has {size:,} tokens and the model {expected:,}; use the tokenizer that the "
            f"model was trained with"
        )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known name, or an empty text."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
