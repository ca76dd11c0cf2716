"""What every store must keep; in a folder and in a real bucket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from tasks.contracts import Parcel
from tasks.errors import LeaseLost, LeaseTaken, StoreError
from tasks.ports.store.collect import Sweep, sweep
from tasks.ports.store.folder import FolderStore
from tasks.ports.store.s3 import S3Store, manifest_name, object_name
from tests.s3_server import BUCKET

KEY = "ab" * 32
Make = Callable[..., Parcel]
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


def change(store: AnyStore, made: Parcel, name: str, body: bytes | None) -> None:
    """Change a stored file behind the store's back, or delete it."""
    if isinstance(store, FolderStore):
        path = store.object_path(made.sha256) / name
        path.unlink() if body is None else path.write_bytes(body)
    elif body is None:
        store.bucket.delete(object_name(made.sha256, name))
    else:
        store.bucket.write(object_name(made.sha256, name), body)


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
    sweep(store, [], keep_days=0, dry=False)
    assert store.identity() in names


@pytest.fixture
def make(store: AnyStore, tmp_path: Path) -> Make:
    """Publish a small artifact under a key."""

    def publish(key: str = KEY, text: str = "hello", kind: str = "rows") -> Parcel:
        folder = tmp_path / f"work-{os.urandom(4).hex()}"
        (folder / "inner").mkdir(parents=True)
        (folder / "a.txt").write_text(text)
        (folder / "inner" / "b.txt").write_text("more")

        async def go() -> Parcel:
            async with store.lease(key) as lease:
                return store.publish(key, kind=kind, folder=folder, facts={"score": 0.5}, stage="make", explanation={"knobs": {"x": 1}}, lease=lease)

        return asyncio.run(go())

    return publish


def test_what_was_published_is_found_with_its_facts(store: AnyStore, make: Make) -> None:
    made = make()
    found = store.find(KEY)
    assert found == made and found is not None and found.facts["score"] == 0.5
    assert (store.folder(found) / "inner" / "b.txt").read_text() == "more"


def test_an_unknown_key_is_a_miss(store: AnyStore) -> None:
    assert store.find("cd" * 32) is None


def test_equal_bytes_have_equal_digests_whatever_made_them(store: AnyStore, make: Make) -> None:
    assert make(KEY).sha256 == make("cd" * 32).sha256 != make("ef" * 32, "other").sha256


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
        return json.dumps({**json.loads(body), "uri": uri}).encode()

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
"""


def test_a_killed_holder_frees_its_lease(store: AnyStore, tmp_path: Path) -> None:
    address = str(store.root) if isinstance(store, FolderStore) else store.bucket.address
    words = [sys.executable, "-c", HOLD, address, str(tmp_path / "other"), KEY]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
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
            return found

    asyncio.run(leave_one(store))
    make()
    assert asyncio.run(leave_one(again(store, tmp_path))) == []


def test_two_keys_may_lead_to_the_same_bytes(store: AnyStore, make: Make, tmp_path: Path) -> None:
    one, two = make(KEY), make("cd" * 32)
    other = again(store, tmp_path)
    assert other.folder(one) == other.folder(two)
    assert {manifest["key"] for manifest in other.manifests()} == {KEY, "cd" * 32}


def test_a_store_that_is_there_passes_the_check(store: AnyStore) -> None:
    store.check()


def put(store: AnyStore, tmp_path: Path, key: str, *inputs: str) -> Parcel:
    """Publish something made from other artifacts."""
    folder = tmp_path / f"work-{os.urandom(4).hex()}"
    folder.mkdir()
    (folder / "a.txt").write_text(key)

    async def go() -> Parcel:
        async with store.lease(key) as lease:
            explanation = {"inputs": {"rows": list(inputs)}}
            return store.publish(key, kind="rows", folder=folder, facts={}, stage="make", explanation=explanation, lease=lease)

    return asyncio.run(go())


def test_what_nothing_needs_goes_and_what_something_needs_stays(store: AnyStore, tmp_path: Path) -> None:
    grandparent = put(store, tmp_path, "aa" * 32)
    parent = put(store, tmp_path, "bb" * 32, grandparent.sha256)
    registered = put(store, tmp_path, "cc" * 32, parent.sha256)
    taken = put(store, tmp_path, "dd" * 32)
    lonely = put(store, tmp_path, "ee" * 32, grandparent.sha256)

    async def go() -> tuple[Sweep, Sweep]:
        async with store.lease("ff" * 32, {"key": "ff" * 32, "inputs": {"rows": taken.sha256}}):
            dry = await asyncio.to_thread(sweep, store, [registered.sha256], keep_days=0, dry=True)
            assert store.find("ee" * 32) is not None, "a dry run removes nothing"
            return dry, await asyncio.to_thread(sweep, store, [registered.sha256], keep_days=0, dry=False)

    dry, real = asyncio.run(go())
    assert dry.results == real.results == [("make", "ee" * 32)] and dry.artifacts == real.artifacts == [lonely.sha256]
    assert dry.bytes == lonely.bytes and real.kept == 4
    assert all(use(again(store, tmp_path), letter * 64) for letter in "abcd")
    assert store.find("ee" * 32) is None
    assert lonely.sha256 not in store.artifacts()


def test_recent_results_and_artifacts_about_to_be_named_stay(store: AnyStore, make: Make) -> None:
    made = make()
    assert sweep(store, [], keep_days=1, dry=False).results == []
    store.remove_result(KEY)
    assert sweep(store, [], keep_days=0, dry=False).artifacts == []
    assert sweep(store, [], keep_days=0, dry=False, unnamed=-5).artifacts == [made.sha256]


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
