"""What is edited during a run is never stored under the digest of what was there before."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tasks.contracts import Artifact
from tasks.errors import ArtifactDamaged, DataError, ModelError
from tasks.ports.files import sources
from tasks.ports.files.copies import copy_hashed
from tasks.ports.files.sources import data_files, digest_of, resolve_corpus, resolve_file, resolve_model
from tasks.ports.store.artifacts import take_inventory
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.inputs import HeldInputs
from tasks.ports.store.uploaded_sources import find_uploaded, upload_source

WEIGHTS, CONFIG = "model.safetensors", "config.json"
BODY = b"text\nfirst line\nsecond line\n"


def write_model(folder: Path) -> Path:
    """Write the least that counts as a model."""
    folder.mkdir(parents=True)
    save_file({"weight": np.arange(6, dtype=np.float32)}, folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps({"model_type": "bert", "vocab_size": 40}))
    (folder / "vocab.txt").write_text("\n".join(f"word{number}" for number in range(30)))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path.resolve() / "store")


def rewrite(path: Path) -> None:
    """Change a byte in place; size and inode stay."""
    with path.open("r+b") as stream:
        first = stream.read(1)
        stream.seek(0)
        stream.write(bytes([first[0] ^ 1]))


def replace(path: Path) -> None:
    """Put another file in a file's place by a rename."""
    other = path.with_name(".new")
    other.write_bytes(path.read_bytes()[::-1])
    os.replace(other, path)


EDITS: dict[str, Callable[[Path], Any]] = {
    "an edit in place": rewrite,
    "an edit that keeps its time": lambda path: (
        before := path.stat(),
        rewrite(path),
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns)),
    ),
    "a replacement": replace,
    "a cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a longer file": lambda path: path.write_bytes(path.read_bytes() + b"more\n"),
    "a deletion": lambda path: path.unlink(),
}


def resolved(kind: str, folder: Path) -> tuple[Artifact, Path]:
    """Write a source of some kind; return its artifact and the file that is edited."""
    if kind == "model":
        model = write_model(folder / "model")
        return resolve_model(str(model), None), model / WEIGHTS
    (folder / "texts").mkdir(parents=True)
    (folder / "texts" / "train.csv").write_bytes(BODY)
    found = (
        resolve_file(str(folder / "texts" / "train.csv"))
        if kind == "file"
        else resolve_corpus(str(folder / "texts"), None)
    )
    return found, folder / "texts" / "train.csv"


def digest_under(place: Path) -> str:
    """Return the digest of what a stage would read."""
    return digest_of(take_inventory(place if place.is_dir() else place.parent, "any"))


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("kind", ["model", "folder of rows", "file"])
def test_a_source_edited_before_a_stage_reads_it_is_refused_in_a_sentence(
    store: FolderStore, tmp_path: Path, kind: str, edit: str
) -> None:
    source, path = resolved(kind, tmp_path)
    EDITS[edit](path)
    with pytest.raises(
        DataError, match=r"was changed or deleted since this run began; nothing was computed from it; run again$"
    ):
        HeldInputs(store, [source])
    assert not list((store.root / "sources" / "objects").glob("*/*"))


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("kind", ["model", "folder of rows", "file"])
def test_a_source_edited_while_a_stage_works_does_not_reach_it(
    store: FolderStore, tmp_path: Path, kind: str, edit: str
) -> None:
    source, path = resolved(kind, tmp_path)
    held = HeldInputs(store, [source])
    EDITS[edit](path)
    assert held.folder(source).is_file() == (kind == "file") and digest_under(held.folder(source)) == source.sha256
    held.require_unchanged()
    assert digest_under(HeldInputs(store, [source]).folder(source)) == source.sha256, (
        "later stages of the run read the same copy"
    )


def test_an_edit_that_is_reverted_does_not_matter(store: FolderStore, tmp_path: Path) -> None:
    source, path = resolved("model", tmp_path)
    rewrite(path)
    rewrite(path)
    held = HeldInputs(store, [source])
    rewrite(path)
    assert digest_under(held.folder(source)) == source.sha256
    rewrite(path)
    held.require_unchanged()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("added_tokens.json", True),
        ("spm.model", True),
        ("adapter_config.json", False),
        ("pytorch_model.bin", False),
        ("more/config.json", False),
    ],
)
def test_a_file_added_to_a_model_during_the_run_is_refused_or_never_seen(
    store: FolderStore, tmp_path: Path, name: str, counts: bool
) -> None:
    source, path = resolved("model", tmp_path)
    (path.parent / name).parent.mkdir(exist_ok=True)
    (path.parent / name).write_text("{}")
    if counts:
        with pytest.raises(DataError, match="run again"):
            HeldInputs(store, [source])
    else:
        assert sorted(path.name for path in HeldInputs(store, [source]).folder(source).rglob("*")) == [
            CONFIG,
            WEIGHTS,
            "vocab.txt",
        ]


@pytest.mark.parametrize("revert", [True, False])
def test_an_edit_while_the_copy_is_made_is_found_in_the_copy(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revert: bool
) -> None:
    source, path = resolved("model", tmp_path)

    def edited_meanwhile(original: Path, target: Path) -> str:
        if original != path:
            return copy_hashed(original, target)
        rewrite(path)
        digest = copy_hashed(original, target)
        if revert:
            rewrite(path)
        return digest

    monkeypatch.setattr(sources, "copy_hashed", edited_meanwhile)
    with pytest.raises(DataError, match="was changed or deleted"):
        HeldInputs(store, [source])


def test_a_stage_whose_input_in_the_store_is_edited_publishes_nothing(store: FolderStore, tmp_path: Path) -> None:
    source, _ = resolved("model", tmp_path)
    for edit in (rewrite, replace, lambda path: (rewrite(path), rewrite(path))):
        held = HeldInputs(store, [source])
        edit(held.folder(source) / WEIGHTS)
        with pytest.raises(ArtifactDamaged, match="nothing was published; run again"):
            held.require_unchanged()
    assert digest_under(HeldInputs(store, [source]).folder(source)) == source.sha256, "a damaged copy is made again"


def test_a_copy_is_made_once_and_goes_when_nobody_uses_it(store: FolderStore, tmp_path: Path) -> None:
    source, path = resolved("model", tmp_path)
    copied = HeldInputs(store, [source]).folder(source)
    shutil.rmtree(path.parent)  # a copy is there: the original is not needed any more
    assert HeldInputs(store, [source]).folder(source) == copied
    assert store.leftovers(-1, (), dry=False) == [] and copied.is_dir(), "this process uses it"
    os.close(store.sources.held[source.sha256])  # as when the process ends
    os.utime(copied, (0, 0))
    again = FolderStore(store.root)
    assert again.leftovers(3600, (), dry=True) == again.leftovers(3600, (), dry=False) == [f"sources/{source.sha256}"]
    assert not copied.exists()


def test_errors_name_what_the_user_named_and_not_the_copy(store: FolderStore, tmp_path: Path) -> None:
    source, path = resolved("model", tmp_path)
    held = HeldInputs(store, [source])
    with pytest.raises(ModelError) as said, held.in_words():
        raise ModelError(f"{held.folder(source)} and {held.folder(source).name} have no head")
    assert str(said.value) == f"{path.parent} and model have no head"


def test_a_model_in_the_cache_of_the_hub_is_links_and_works(store: FolderStore, tmp_path: Path) -> None:
    root = tmp_path / "hub" / "models--owner--name"
    model, snapshot = write_model(tmp_path / "plain"), root / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for number, path in enumerate(sorted(model.iterdir())):
        shutil.move(path, root / "blobs" / str(number))
        (snapshot / path.name).symlink_to(Path("../../blobs") / str(number))
    source = resolve_model(str(snapshot), None)
    held = HeldInputs(store, [source])
    assert digest_under(held.folder(source)) == source.sha256 and not any(
        path.is_symlink() for path in held.folder(source).iterdir()
    )


def test_a_corpus_is_read_without_the_files_that_no_key_knows(store: FolderStore, tmp_path: Path) -> None:
    source, path = resolved("folder of rows", tmp_path)
    (path.parent / "README.txt").write_text("not a text of the corpus")
    assert [path.name for path in HeldInputs(store, [source]).folder(source).iterdir()] == ["train.csv"]
    assert set(data_files(path.parent)) == {"train.csv"}


def test_a_folder_with_a_file_of_its_own_name_is_read_whole(store: FolderStore, tmp_path: Path) -> None:
    folder = tmp_path / "reviews.csv"  # as some archives unpack
    folder.mkdir()
    for name in ("reviews.csv", "test.csv"):
        (folder / name).write_text(f"text\n{name}\n")
    source = resolve_corpus(str(folder), None)
    asyncio.run(upload_source(store, source))
    brought = find_uploaded(store, source.sha256)
    assert brought is not None
    for one in (source, brought):
        place = HeldInputs(store, [one]).folder(one)
        assert place.is_dir() and digest_under(place) == source.sha256


@pytest.mark.parametrize("name", ["store", "my store of Zoë, 50%25"])
@pytest.mark.parametrize("kind", ["model", "folder of rows", "file"])
def test_a_source_that_was_brought_for_a_worker_is_read_from_the_store_as_what_it_is(
    tmp_path: Path, kind: str, name: str
) -> None:
    store = FolderStore(tmp_path / name)
    source, path = resolved(kind, tmp_path)
    asyncio.run(upload_source(store, source))
    shutil.rmtree(path.parent)
    found = find_uploaded(FolderStore(store.root), source.sha256)
    assert found is not None and found.sha256 == source.sha256
    place = HeldInputs(store, [found]).folder(found)
    assert place.is_file() == (kind == "file") and digest_under(place) == source.sha256
    assert store.folder(found).is_dir(), "a worker reads facts there, as the requesting run does"
    assert not list((store.root / "sources" / "objects").glob("*/*")), "no second copy is made"


def test_a_source_that_changes_before_it_is_brought_is_not_published(store: FolderStore, tmp_path: Path) -> None:
    source, path = resolved("file", tmp_path)
    rewrite(path)
    with pytest.raises(DataError, match="run again"):
        asyncio.run(upload_source(store, source))
    assert not list(store.manifests())
