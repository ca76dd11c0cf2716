"""The index of results by stage: a plan reads a few manifests however many there are.

A damaged or missing index costs time alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.ports.code.fingerprint import key_of
from tasks.ports.store import folder as folder_module
from tasks.ports.store.collect import collect_garbage
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.index.earlier import MOST_COMPARED, SUBSETS, EarlierResults, rebuild
from tasks.ports.store.index.entries import entry_from
from tasks.ports.store.s3 import S3Store
from tests.s3_server import BUCKET

AnyStore = FolderStore | S3Store


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AnyStore:
    """A store in a folder, whose disk is trusted here, and one in a bucket."""
    monkeypatch.setattr(folder_module, "sync", lambda path: None)
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    request.getfixturevalue("s3")
    return S3Store(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "cache", lease_seconds=5, patience=20)


def explained(number: int, stage: str = "make", **more: Any) -> dict[str, Any]:
    """Return the explanation of a key: one knob of two, code and an input differ from stage to stage."""
    values = {"stage": stage, "code": stage * 8, "knobs": {"seed": number, "rate": 0.5}, "inputs": {"rows": "a" * 64}}
    return values | more


def publish(store: AnyStore, tmp_path: Path, *explanations: dict[str, Any]) -> list[str]:
    """Publish a small file under the key of each explanation; return the keys."""

    async def one(explanation: dict[str, Any]) -> str:
        key, work = key_of(explanation), tmp_path / f"work-{key_of(explanation)}"
        work.mkdir(exist_ok=True)
        (work / "a.txt").write_text("hello")
        given = {"kind": "rows", "folder": work, "facts": {}, "stage": explanation["stage"], "explanation": explanation}
        async with store.lease(key) as lease:
            store.publish(key, **given, lease=lease)
        return key

    async def all_of_them() -> list[str]:
        return [await one(explanation) for explanation in explanations]

    return asyncio.run(all_of_them())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, store: AnyStore) -> Iterator[list[str]]:
    """The keys whose manifests are read from the store."""
    keys: list[str] = []
    real = store.manifest
    monkeypatch.setattr(store, "manifest", lambda key: (keys.append(key), real(key))[1])
    yield keys


def found_by(store: AnyStore, explanation: dict[str, Any]) -> list[str]:
    """Return the keys of the results that a new session compares an explanation with."""
    return [manifest["key"] for manifest in EarlierResults(store).like(explanation)]


def test_a_few_results_of_the_same_stage_are_read_and_the_newest_of_equals_come_first(
    store: AnyStore, tmp_path: Path, read: list[str]
) -> None:
    publish(store, tmp_path, *(explained(number, "other") for number in range(5)))
    keys = publish(store, tmp_path, *(explained(number) for number in range(3 * MOST_COMPARED)))
    assert read == [], "nothing is read to publish"
    asked = EarlierResults(store)
    found = [manifest["key"] for manifest in asked.like(explained(99))]
    assert set(found) <= set(keys) and len(found) == len(read) == MOST_COMPARED
    asked.like(explained(98))
    assert len(read) == MOST_COMPARED, "manifests are read once for a session"


def test_a_result_with_one_other_knob_is_among_many_that_share_less(store: AnyStore, tmp_path: Path) -> None:
    (near,) = publish(store, tmp_path, explained(1))
    far = [explained(number, code="changed", inputs={"rows": "b" * 64}) for number in range(2 * MOST_COMPARED)]
    publish(store, tmp_path, *far)
    assert found_by(store, explained(2))[0] == near
    assert len(found_by(store, explained(2))) <= MOST_COMPARED * len(SUBSETS)


def lose_index(store: AnyStore) -> None:
    """Remove all entries, as an older release would never have written them."""
    store.index.remove(store.index.names())


def test_results_without_an_entry_are_found_and_get_one(store: AnyStore, tmp_path: Path, read: list[str]) -> None:
    """A process was killed between the manifest and the entry, or the store is older than the index."""
    keys = publish(store, tmp_path, *(explained(number) for number in range(3)))
    names = set(store.index.names())
    lose_index(store)
    assert set(found_by(store, explained(9))) == set(keys) and set(store.index.names()) == names
    read.clear()
    assert not found_by(store, explained(9, "other")) and read == [], "every manifest was read once"
    assert store.find(keys[0]) is not None


def test_an_entry_without_a_result_is_never_shown_and_maintenance_removes_it(store: AnyStore, tmp_path: Path) -> None:
    kept, gone = publish(store, tmp_path, explained(1), explained(2))
    store.remove_result(gone)
    assert found_by(store, explained(9)) == [kept] and store.find(gone) is None
    assert len(store.index.names()) == 2
    collect_garbage(store, [], keep_days=1, dry=True)
    assert len(store.index.names()) == 2, "a dry run removes nothing"
    collect_garbage(store, [], keep_days=1, dry=False)
    assert [entry_from(name).key for name in store.index.names() if entry_from(name)] == [kept]
    assert publish(store, tmp_path, explained(2)) == [gone] and set(found_by(store, explained(9))) == {kept, gone}


def test_edited_entries_are_ignored_or_put_right(store: AnyStore, tmp_path: Path) -> None:
    (key,) = publish(store, tmp_path, explained(1))
    (right,) = store.index.names()
    lose_index(store)
    moved = right.replace("make/", "other/")
    store.index.add([moved, "make/rubbish", "make/2.2_5_x_y_z_" + "0" * 64])
    assert found_by(store, explained(9)) == [], "under the wrong stage it is not seen"
    assert store.find(key) is not None, "hits never depend on the index"
    rebuild(store)
    assert store.index.names() == [right] and found_by(store, explained(9)) == [key]


def test_results_of_another_release_are_shown_where_there_are_no_others(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    (old,) = publish(store, tmp_path, explained(1))
    body = json.loads(store.manifest_path(old).read_bytes()) | {"schema": 9, "explanation": {"inputs": [1]}}
    store.manifest_path(old).write_text(json.dumps(body))
    lose_index(store)
    assert found_by(store, explained(9)) == [old]
    (new,) = publish(store, tmp_path, explained(2))
    assert found_by(store, explained(9)) == [new]


def test_an_index_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    (tmp_path / "store" / "index").write_text("a file")
    (key,) = publish(store, tmp_path, explained(1))
    assert found_by(store, explained(9)) == [key] and store.find(key) is not None
