"""What every store must keep; in a folder and in a real bucket."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from tasks.contracts import Artifact
from tasks.engine.checkpoint_files import write_marker
from tasks.errors import ArtifactDamaged, LeaseLost, LeaseTaken, StoreError
from tasks.ports.code.fingerprint import key_of
from tasks.ports.store.artifacts import digest_of
from tasks.ports.store.cache import ArtifactCache
from tasks.ports.store.collect import CollectedGarbage, collect_garbage
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.manifests import artifact_of, seal_of
from tasks.ports.store.s3 import S3Store, manifest_name, object_name
from tests.s3_server import BUCKET


def explained(name: str, inputs: list[str] | None = None) -> dict[str, Any]:
    """Return what the key of a small result is made of."""
    return {"stage": "make", "knobs": {"name": name}, "inputs": {"rows": inputs or []}}


KEY, OTHER, THIRD = (key_of(explained(name)) for name in ("first", "other", "third"))
NAMES = {key_of(explained(name)): name for name in ("first", "other", "third")}
Make = Callable[..., Artifact]
AnyStore = FolderStore | S3Store


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> AnyStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "store")
    request.getfixturevalue("s3")
    return S3Store(f"s3://{BUCKET}/{tmp_path.name}", tmp_path / "cache", lease_seconds=5, patience=20)


def again(store: AnyStore, tmp_path: Path) -> AnyStore:
    """Return the same store as another worker on another host sees it."""
    if isinstance(store, FolderStore):
        return FolderStore(store.root)
    return S3Store(store.bucket.address, tmp_path / f"cache-{os.urandom(4).hex()}", lease_seconds=5, patience=20)


def change(store: AnyStore, made: Artifact, name: str, body: bytes | None) -> None:
    """Change a stored file behind the store's back, or delete it."""
    if isinstance(store, FolderStore):
        path = store.object_path(made.sha256) / name
        path.unlink() if body is None else path.write_bytes(body)
    elif body is None:
        store.bucket.delete(object_name(made.sha256, name))
    else:
        store.bucket.write(object_name(made.sha256, name), body)


def sealed(manifest: dict[str, Any]) -> bytes:
    """Return a manifest with a seal that fits, as one who knows the format would forge it."""
    return json.dumps(manifest | {"seal": seal_of(manifest)}).encode()


def change_manifest(store: AnyStore, change: Callable[[bytes], bytes]) -> None:
    """Change the manifest of KEY behind the store's back."""
    if isinstance(store, FolderStore):
        store.manifest_path(KEY).write_bytes(change(store.manifest_path(KEY).read_bytes()))
    else:
        store.bucket.write(manifest_name(KEY), change(store.bucket.read(manifest_name(KEY)) or b""))


def use(store: AnyStore, key: str) -> Path | None:
    """Find a result and open its files, as a stage does; what is damaged is not there."""
    try:
        found = store.find(key)
        return store.folder(found) if found else None
    except StoreError:
        assert store.find(key) is None, "what was found to be damaged must not be found again"
        return None


def test_a_store_has_one_name_that_every_worker_sees_and_no_other_store_has(store: AnyStore, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(lambda one: one.identity(), [store, *(again(store, tmp_path) for _ in range(3))]))
    assert names == {store.identity()} and len(store.identity()) == 32
    assert FolderStore(tmp_path / "another").identity() not in names
    collect_garbage(store, [], keep_days=0, dry=False)
    assert store.identity() in names


@pytest.fixture
def make(store: AnyStore, tmp_path: Path) -> Make:
    """Publish a small artifact under a key."""

    def publish(key: str = KEY, text: str = "hello", kind: str = "rows") -> Artifact:
        folder = tmp_path / f"work-{os.urandom(4).hex()}"
        (folder / "inner").mkdir(parents=True)
        (folder / "a.txt").write_text(text)
        (folder / "inner" / "b.txt").write_text("more")

        async def go() -> Artifact:
            async with store.lease(key) as lease:
                given = {
                    "kind": kind,
                    "folder": folder,
                    "facts": {"score": 0.5},
                    "stage": "make",
                    "explanation": explained(NAMES[key]),
                }
                return store.publish(key, **given, lease=lease)

        return asyncio.run(go())

    return publish


def test_what_was_published_is_found_with_its_facts(store: AnyStore, make: Make) -> None:
    made = make()
    found = store.find(KEY)
    assert found == made and found is not None and found.facts["score"] == 0.5
    assert (store.folder(found) / "inner" / "b.txt").read_text() == "more"


def test_an_unknown_key_is_a_miss(store: AnyStore) -> None:
    assert store.find(OTHER) is None


def test_equal_bytes_have_equal_digests_whatever_made_them(store: AnyStore, make: Make) -> None:
    assert make(KEY).sha256 == make(OTHER).sha256 != make(THIRD, "other").sha256


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "delete everything", "garble the manifest"])
def test_damage_is_a_miss_and_can_be_made_again(store: AnyStore, make: Make, damage: str, tmp_path: Path) -> None:
    made = make()
    if damage == "flip":
        change(store, made, "a.txt", b"hellp")
    elif damage == "truncate":
        change(store, made, "a.txt", b"")
    elif damage in ("delete", "delete everything"):
        for name in ["a.txt", "inner/b.txt"][: 1 if damage == "delete" else 2]:
            change(store, made, name, None)
    else:
        change_manifest(store, lambda body: b"{not json")
    assert use(again(store, tmp_path), KEY) is None
    assert make().sha256 == made.sha256
    other = again(store, tmp_path)
    found = other.find(KEY)
    assert found == made and (other.folder(found) / "a.txt").read_text() == "hello"


@pytest.mark.parametrize("climb", ["../../a.txt", "/a.txt", "inner/../../a.txt", "inner\\\\..\\\\a.txt"])
def test_a_manifest_that_climbs_out_is_refused(store: AnyStore, make: Make, climb: str) -> None:
    make()
    change_manifest(store, lambda body: body.replace(b'"a.txt"', f'"{climb}"'.encode()))
    assert store.find(KEY) is None


@pytest.mark.parametrize("uri", ["file:///etc", "s3://another-bucket/x", "http://169.254.169.254/"])
def test_where_files_lie_is_the_stores_word_not_the_manifests(store: AnyStore, make: Make, uri: str) -> None:
    made = make()

    def forge(body: bytes) -> bytes:
        return sealed(json.loads(body) | {"uri": uri})

    change_manifest(store, forge)
    found = store.find(KEY)
    assert found is not None and found.uri == made.uri
    forged = attrs.evolve(made, uri=uri)
    assert (store.folder(forged) / "a.txt").read_text() == "hello"


def test_pickles_and_links_are_not_published(store: AnyStore, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"\x80\x04")

    async def go(kind: str) -> None:
        async with store.lease(KEY) as lease:
            store.publish(KEY, kind=kind, folder=folder, facts={}, stage="make", explanation={}, lease=lease)

    with pytest.raises(StoreError, match="pickled"):
        asyncio.run(go("checkpoint"))
    (folder / "weights.bin").unlink()
    (folder / "link").symlink_to("/etc/hosts")
    with pytest.raises(StoreError, match="link"):
        asyncio.run(go("rows"))
    assert store.find(KEY) is None


def test_two_holders_never_overlap(store: AnyStore) -> None:
    inside, most = 0, 0

    async def worker() -> None:
        nonlocal inside, most
        async with store.lease(KEY):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    async def race() -> None:
        await asyncio.gather(*(worker() for _ in range(5)))

    asyncio.run(race())
    assert most == 1


HOLD = """
import asyncio, sys
from pathlib import Path
from tasks.ports.store.open import open_store
from tasks.ports.store import s3

async def hold():
    store = s3.S3Store(sys.argv[1], Path(sys.argv[2]), lease_seconds=5) if "://" in sys.argv[1] else open_store(sys.argv[1], Path(sys.argv[2]))
    async with store.lease(sys.argv[3]):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""  # noqa: E501


def test_a_killed_holder_frees_its_lease(store: AnyStore, tmp_path: Path) -> None:
    address = str(store.root) if isinstance(store, FolderStore) else store.bucket.address
    words = [sys.executable, "-c", HOLD, address, str(tmp_path / "other"), KEY]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"

    async def cannot_take() -> None:
        async with asyncio.timeout(7), store.lease(KEY):
            pass

    with pytest.raises(TimeoutError):
        asyncio.run(cannot_take())  # the holder lives, longer than a lease that nobody renews
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    async def take() -> None:
        async with asyncio.timeout(30), store.lease(KEY):
            pass

    asyncio.run(take())


def test_who_does_not_want_to_wait_is_told_at_once(store: AnyStore) -> None:
    async def go() -> None:
        async with store.lease(KEY):
            with pytest.raises(LeaseTaken):
                async with asyncio.timeout(4), store.lease(KEY, wait=False):
                    pass
        async with store.lease(KEY, wait=False):
            pass

    asyncio.run(go())


def test_a_lease_that_is_given_back_is_free_at_once(store: AnyStore) -> None:
    async def go() -> None:
        for _ in range(3):
            async with asyncio.timeout(4), store.lease(KEY):
                pass

    asyncio.run(go())


def test_a_lost_lease_cannot_publish(store: AnyStore, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("late")

    async def go() -> None:
        async with store.lease(KEY) as lease:
            if isinstance(store, FolderStore):
                (store.root / "locks" / KEY).unlink()
            else:
                store.bucket.write(f"leases/{KEY}/{99:012d}", b"another worker")
            store.publish(KEY, kind="rows", folder=folder, facts={}, stage="make", explanation={}, lease=lease)

    with pytest.raises(LeaseLost):
        asyncio.run(go())
    assert store.find(KEY) is None


def test_checkpoints_follow_a_stage_to_another_host(store: AnyStore, tmp_path: Path) -> None:
    told: list[str] = []

    async def first() -> None:
        async with store.checkpoints(KEY, told.append) as folder:
            for step in (1, 2, 3):
                (folder / f"step-{step:09d}").mkdir(parents=True)
                (folder / f"step-{step:09d}" / "state.safetensors").write_bytes(b"state %d" % step)
                write_marker(folder / f"step-{step:09d}", of=folder.name)

    async def second(other: AnyStore) -> bytes:
        async with other.checkpoints(KEY, told.append) as folder:
            return (folder / f"step-{3:09d}" / "state.safetensors").read_bytes()

    asyncio.run(first())
    assert asyncio.run(second(again(store, tmp_path))) == b"state 3"
    assert bool(told) is isinstance(store, S3Store)


def test_a_published_key_keeps_no_checkpoints(store: AnyStore, make: Make, tmp_path: Path) -> None:
    async def leave_one(into: AnyStore) -> list[str]:
        async with into.checkpoints(KEY, lambda text: None) as folder:
            found = [path.name for path in folder.glob("step-*")]
            (folder / "step-000000001").mkdir(parents=True, exist_ok=True)
            (folder / "step-000000001" / "state.json").write_text("{}")
            write_marker(folder / "step-000000001", of=folder.name)
            return found

    asyncio.run(leave_one(store))
    make()
    assert asyncio.run(leave_one(again(store, tmp_path))) == []


def test_two_keys_may_lead_to_the_same_bytes(store: AnyStore, make: Make, tmp_path: Path) -> None:
    one, two = make(KEY), make(OTHER)
    other = again(store, tmp_path)
    assert other.folder(one) == other.folder(two)
    assert {manifest["key"] for manifest in other.manifests()} == {KEY, OTHER}


def test_a_store_that_is_there_passes_the_check(store: AnyStore) -> None:
    store.check()


def put(store: AnyStore, tmp_path: Path, name: str, *inputs: str) -> Artifact:
    """Publish something made from other artifacts."""
    folder = tmp_path / f"work-{os.urandom(4).hex()}"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text(name)
    (folder / "inner" / "b.txt").write_text("more")
    explanation = explained(name, list(inputs))
    key = key_of(explanation)

    async def go() -> Artifact:
        async with store.lease(key) as lease:
            return store.publish(
                key, kind="rows", folder=folder, facts={}, stage="make", explanation=explanation, lease=lease
            )

    return asyncio.run(go())


def test_what_nothing_needs_goes_and_what_something_needs_stays(store: AnyStore, tmp_path: Path) -> None:
    grandparent = put(store, tmp_path, "grandparent")
    parent = put(store, tmp_path, "parent", grandparent.sha256)
    registered = put(store, tmp_path, "registered", parent.sha256)
    taken = put(store, tmp_path, "taken")
    lonely = put(store, tmp_path, "lonely", grandparent.sha256)
    (alone,) = (manifest["key"] for manifest in store.manifests() if manifest["sha256"] == lonely.sha256)

    async def go() -> tuple[CollectedGarbage, CollectedGarbage]:
        async with store.lease("ff" * 32, {"key": "ff" * 32, "inputs": {"rows": taken.sha256}}):
            dry = await asyncio.to_thread(collect_garbage, store, [registered.sha256], keep_days=0, dry=True)
            assert store.find(alone) is not None, "a dry run removes nothing"
            return dry, await asyncio.to_thread(collect_garbage, store, [registered.sha256], keep_days=0, dry=False)

    dry, real = asyncio.run(go())
    assert dry.results == real.results == [("make", alone)] and dry.artifacts == real.artifacts == [lonely.sha256]
    assert dry.bytes == lonely.bytes and real.kept == 4
    rest = [manifest["key"] for manifest in store.manifests()]
    assert len(rest) == 4 and all(use(again(store, tmp_path), key) for key in rest)
    assert store.find(alone) is None
    assert lonely.sha256 not in store.artifacts()


def test_recent_results_and_artifacts_about_to_be_named_stay(store: AnyStore, make: Make) -> None:
    made = make()
    assert collect_garbage(store, [], keep_days=1, dry=False).results == []
    store.remove_result(KEY)
    assert collect_garbage(store, [], keep_days=0, dry=False).artifacts == []
    assert collect_garbage(store, [], keep_days=0, dry=False, unnamed=-5).artifacts == [made.sha256]


def test_verify_hashes_everything_anew_and_sets_damage_aside(store: AnyStore, make: Make) -> None:
    made = make()
    (manifest,) = store.manifests()
    assert store.damage(manifest) is None
    change(store, made, "a.txt", b"hellp")
    problem = store.damage(manifest)
    assert problem and "\n" not in problem
    assert store.find(KEY) is None and list(store.manifests()) == []
    make()
    assert store.find(KEY) == made


# --- a hit is a whole, bound thing ------------------------------------------------------------------------------------


def is_quarantined(store: AnyStore) -> bool:
    """Tell whether something was set aside."""
    return (
        any((store.root / "quarantine").iterdir())
        if isinstance(store, FolderStore)
        else bool(store.bucket.entries("quarantine/"))
    )


@pytest.mark.parametrize("name", ["extra.txt", "inner/extra.json", "other/extra.txt"])
def test_a_file_too_many_is_damage_and_not_part_of_a_hit(
    store: AnyStore, make: Make, name: str, tmp_path: Path
) -> None:
    made = make()
    if isinstance(store, FolderStore):
        (store.object_path(made.sha256) / name).parent.mkdir(exist_ok=True)
    change(store, made, name, b"{}")
    assert again(store, tmp_path).find(KEY) is None and is_quarantined(store)
    assert make() == made and again(store, tmp_path).find(KEY) == made


def linked(path: Path) -> None:
    """Move something away and leave a link to it: the bytes behind the name are the same."""
    place = path.parents[1] / f"away-{os.urandom(4).hex()}"
    path.rename(place)
    path.symlink_to(place)


LINKS: dict[str, Callable[[FolderStore, Artifact], Path]] = {
    "a file": lambda store, made: store.object_path(made.sha256) / "a.txt",
    "a folder inside": lambda store, made: store.object_path(made.sha256) / "inner",
    "the artifact": lambda store, made: store.object_path(made.sha256),
    "its folder": lambda store, made: store.object_path(made.sha256).parent,
    "all objects": lambda store, made: store.root / "objects",
    "the manifest": lambda store, made: store.manifest_path(KEY),
    "its folder of manifests": lambda store, made: store.manifest_path(KEY).parent,
    "all manifests": lambda store, made: store.root / "manifests",
}


@pytest.mark.parametrize("place", LINKS)
def test_what_lies_behind_a_link_is_no_hit_and_is_made_again(
    folder_store: FolderStore, place: str, tmp_path: Path
) -> None:
    made = put(folder_store, tmp_path, "first")
    linked(LINKS[place](folder_store, made))
    again_opened = FolderStore(folder_store.root)
    assert again_opened.find(KEY) is None and is_quarantined(again_opened)
    assert put(again_opened, tmp_path, "first").sha256 == made.sha256
    assert again_opened.find(KEY) == made and again_opened.folder(made).resolve() == again_opened.folder(made)


@pytest.fixture
def folder_store(tmp_path: Path) -> FolderStore:
    return FolderStore((tmp_path / "store").resolve())


def test_lock_files_are_open_to_all_who_may_write_to_the_store(folder_store: FolderStore) -> None:
    locks = folder_store.root / "locks"
    for mode, expected in ((0o755, 0o600), (0o2770, 0o660), (0o777, 0o666)):
        locks.chmod(mode)
        asyncio.run(leased(folder_store))
        assert (locks / KEY).stat().st_mode & 0o777 == expected


async def leased(store: FolderStore) -> None:
    """Hold a lease for a moment, and look at it as an upkeep does."""
    async with store.lease(KEY, {"stage": "make", "key": KEY}):
        assert [note["key"] for note in store.running()] == [KEY]


def test_a_damaged_result_that_was_made_anew_meanwhile_is_not_set_aside(
    folder_store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(folder_store, put(folder_store, tmp_path, "first"), "a.txt", b"FIRST")
    problem = folder_store.problem

    def slow(manifest: Any, **named: Any) -> str | None:
        found = problem(manifest, **named)
        monkeypatch.undo()
        assert folder_store.find(KEY) is None  # another worker looks faster, and computes it again
        put(folder_store, tmp_path, "first")
        return found

    monkeypatch.setattr(folder_store, "problem", slow)
    assert folder_store.find(KEY) is None, "a miss: the lease that follows finds the new one"
    assert use(folder_store, KEY) is not None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["fifo", "fifo for a file", "socket", "empty folder", "a file for all"])
def test_special_files_and_empty_folders_are_damage_and_do_not_hang(
    folder_store: FolderStore, kind: str, tmp_path: Path
) -> None:
    made = put(folder_store, tmp_path, "first")
    folder = folder_store.object_path(made.sha256)
    if kind == "a file for all":
        shutil.rmtree(folder)
        folder.write_text("one")
    elif kind == "empty folder":
        (folder / "empty").mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            os.chdir(folder)  # the path of a socket may be 107 characters long
            server.bind("s")
            os.chdir(tmp_path)
    else:
        place = folder / ("a.txt" if kind == "fifo for a file" else "pipe")
        place.unlink(missing_ok=True)
        os.mkfifo(place)
    assert folder_store.find(KEY) is None and is_quarantined(folder_store)


def test_a_fifo_in_place_of_a_manifest_is_no_hit_and_does_not_hang(folder_store: FolderStore, tmp_path: Path) -> None:
    put(folder_store, tmp_path, "first")
    folder_store.manifest_path(KEY).unlink()
    os.mkfifo(folder_store.manifest_path(KEY))
    assert folder_store.find(KEY) is None and is_quarantined(folder_store)


def test_a_manifest_under_another_key_is_not_taken_and_the_artifact_that_it_names_stays(
    store: AnyStore, make: Make, tmp_path: Path
) -> None:
    make(OTHER, "a teacher that is not ours")
    body = (
        store.manifest_path(OTHER).read_bytes()
        if isinstance(store, FolderStore)
        else store.bucket.read(manifest_name(OTHER))
    )
    make(KEY)
    for planted in (body, body.replace(OTHER.encode(), KEY.encode()), sealed(json.loads(body) | {"key": KEY})):
        change_manifest(store, lambda _, planted=planted: planted)
        assert again(store, tmp_path).find(KEY) is None and is_quarantined(store)
        assert again(store, tmp_path).find(OTHER) is not None, "what was copied from is whole"
        assert make(KEY) == again(store, tmp_path).find(KEY)


def edits() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    """Return ways to spoil a manifest."""

    def plain(**changed: Any) -> Callable[[dict[str, Any]], bytes]:
        return lambda manifest: json.dumps(manifest | changed).encode()

    def without(name: str) -> Callable[[dict[str, Any]], bytes]:
        return lambda manifest: json.dumps(
            {other: value for other, value in manifest.items() if other != name}
        ).encode()

    fields = (
        "schema",
        "key_schema",
        "seal",
        "key",
        "stage",
        "kind",
        "sha256",
        "bytes",
        "facts",
        "inventory",
        "explanation",
        "made_at",
    )
    wrong = {f"{name} of another type": plain(**{name: [1]}) for name in (*fields, "used", "seconds")}
    resealed = {
        "another stage": lambda manifest: sealed(manifest | {"stage": "other"}),
        "another explanation": lambda manifest: sealed(manifest | {"explanation": {"stage": "make"}}),
        "another kind": lambda manifest: sealed(manifest | {"kind": "nothing known"}),
        "another size": lambda manifest: sealed(manifest | {"bytes": manifest["bytes"] + 1}),
    }
    texts = {
        "no JSON": b"{",
        "nothing": b"",
        "a list": b"[]",
        "null": b"null",
        "a NaN": b'{"schema": NaN}',
        "nested": b"[" * 100_000,
    }
    return {
        "facts": plain(facts={"score": 0.99}),
        "used": plain(used={"seconds": "abc"}),
        "seconds": plain(seconds=1e9),
        "time": plain(made_at=0.0),
        **resealed,
        **wrong,
        **{f"without {name}": without(name) for name in fields},
        **{name: lambda _, body=body: body for name, body in texts.items()},
    }


def test_an_edited_or_damaged_manifest_is_no_hit_and_costs_no_traceback(
    folder_store: FolderStore, tmp_path: Path
) -> None:
    made = put(folder_store, tmp_path, "first")
    whole = json.loads(folder_store.manifest_path(KEY).read_bytes())
    for name, spoil in edits().items():
        folder_store.manifest_path(KEY).write_bytes(spoil(whole))
        assert folder_store.find(KEY) is None, name
        collect_garbage(folder_store, [made.sha256], keep_days=1, dry=True)
        assert put(folder_store, tmp_path, "first") == folder_store.find(KEY), name


def of_another_release(store: AnyStore, **changed: Any) -> bytes:
    """Make the manifest of KEY one that an earlier release wrote: without the fields that bind it."""
    bound = ("key_schema", "seal")

    def older(body: bytes) -> bytes:
        return json.dumps(
            {name: value for name, value in json.loads(body).items() if name not in bound} | {"schema": 1} | changed
        ).encode()

    change_manifest(store, older)
    return (
        store.manifest_path(KEY).read_bytes()
        if isinstance(store, FolderStore)
        else store.bucket.read(manifest_name(KEY)) or b""
    )


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"used": {"seconds": "x", "cpu": "fast"}},
        {"explanation": {"inputs": [1]}},
        {"schema": 9},
        {"schema": 9, "facts": 1},
    ],
)
def test_what_another_release_stored_is_neither_taken_nor_set_aside(
    store: AnyStore, make: Make, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = make()
    body = of_another_release(store, **changed)
    assert store.find(KEY) is None and "another release" in caplog.text
    assert all(store.damage(manifest) is None for manifest in store.manifests()) and list(store.unreadable()) == []
    assert not is_quarantined(store) and not collect_garbage(store, [made.sha256], keep_days=0, dry=False).results
    assert of_another_release(store, **changed) == body and (store.folder(made) / "a.txt").read_text() == "hello"
    assert all(
        isinstance(artifact_of(manifest, "").used.get("seconds"), (int, float))
        for manifest in store.manifests()
        if "used" not in changed
    )


def test_parents_of_a_registered_model_of_another_release_stay(store: AnyStore, tmp_path: Path) -> None:
    parent = put(store, tmp_path, "parent")
    registered = put(store, tmp_path, "first", parent.sha256)
    key = key_of(explained("first", [parent.sha256]))
    path = store.manifest_path(key) if isinstance(store, FolderStore) else None
    body = json.loads(path.read_bytes() if path else store.bucket.read(manifest_name(key)) or b"")
    older = json.dumps(
        {name: value for name, value in body.items() if name not in ("key_schema", "seal")} | {"schema": 1}
    ).encode()
    path.write_bytes(older) if path else store.bucket.write(manifest_name(key), older)
    assert (
        collect_garbage(store, [registered.sha256], keep_days=0, dry=False).artifacts == []
        and parent.sha256 in store.artifacts()
    )


def test_an_artifact_that_is_damaged_between_find_and_use_is_not_handed_out(store: AnyStore, make: Make) -> None:
    made = make()
    found = store.find(KEY)
    place = store.object_path(made.sha256) if isinstance(store, FolderStore) else store.cache.path(made.sha256)
    (place / "extra.txt").write_text("planted")
    if isinstance(store, FolderStore):
        with pytest.raises(ArtifactDamaged, match="run again"):
            store.folder(found)
    else:
        assert sorted(path.name for path in store.folder(found).iterdir()) == ["a.txt", "inner"], "fetched anew"


@pytest.mark.parametrize("place", ["a file", "the artifact", "its folder", "all objects"])
def test_the_cache_of_a_bucket_does_not_follow_links(tmp_path: Path, place: str) -> None:
    cache, digest = (
        ArtifactCache(tmp_path / "cache", 10**9),
        digest_of({"a.txt": {"size": 1, "sha256": hashlib.sha256(b"a").hexdigest()}}),
    )
    fetched = []

    def fetch(folder: Path) -> None:
        fetched.append(folder)
        (folder / "a.txt").write_text("a")

    cache.folder(digest, fetch)
    inside = {
        "a file": cache.path(digest) / "a.txt",
        "the artifact": cache.path(digest),
        "its folder": cache.path(digest).parent,
    }
    linked(inside.get(place, cache.root / "objects"))
    found = cache.folder(digest, fetch)
    assert len(fetched) == 2 and found.resolve() == found and not (found / "a.txt").is_symlink()
    cache.folder(digest, fetch)
    assert len(fetched) == 2


def test_verify_finds_manifests_that_cannot_be_read(store: AnyStore, make: Make) -> None:
    make()
    change_manifest(store, lambda body: body[:-20])
    assert [key for key, problem in store.unreadable() if problem] == [KEY] and is_quarantined(store)
    assert list(store.unreadable()) == [] and store.find(KEY) is None
