"""What every store must keep; the S3 store joins by adding itself to ``stores``."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.contracts import Parcel
from tasks.errors import LeaseLost, StoreError
from tasks.ports.store import FolderStore

KEY = "ab" * 32
Make = Callable[..., Parcel]


@pytest.fixture(params=["folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def make(store: FolderStore, tmp_path: Path) -> Make:
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


def test_what_was_published_is_found_with_its_facts(store: FolderStore, make: Make) -> None:
    made = make()
    found = store.find(KEY)
    assert found == made and found is not None and found.facts["score"] == 0.5
    assert (store.folder(found) / "inner" / "b.txt").read_text() == "more"


def test_an_unknown_key_is_a_miss(store: FolderStore) -> None:
    assert store.find("cd" * 32) is None


def test_equal_bytes_have_equal_digests_whatever_made_them(store: FolderStore, make: Make) -> None:
    assert make(KEY).sha256 == make("cd" * 32).sha256 != make("ef" * 32, "other").sha256


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete", "remove the folder", "garble the manifest"])
def test_damage_is_a_miss_and_can_be_made_again(store: FolderStore, make: Make, damage: str) -> None:
    made = make()
    path = store.folder(made) / "a.txt"
    if damage == "flip":
        path.write_text("hellp")
    elif damage == "truncate":
        path.write_text("")
    elif damage == "delete":
        path.unlink()
    elif damage == "remove the folder":
        store.folder(made).rename(store.root / "elsewhere")
    else:
        store.manifest_path(KEY).write_text("{not json")
    assert store.find(KEY) is None
    assert make().sha256 == made.sha256
    assert store.find(KEY) == made


def test_a_manifest_that_climbs_out_is_refused(store: FolderStore, make: Make) -> None:
    made = make()
    path = store.manifest_path(KEY)
    path.write_text(path.read_text().replace('"a.txt"', '"../../a.txt"'))
    assert store.find(KEY) is None and made.kind == "rows"


def test_pickles_and_links_are_not_published(store: FolderStore, tmp_path: Path) -> None:
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


def test_two_holders_never_overlap(store: FolderStore) -> None:
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


def test_a_killed_holder_frees_its_lease(store: FolderStore) -> None:
    code = f"""
import asyncio
from pathlib import Path
from tasks.ports.store import FolderStore

async def hold():
    async with FolderStore(Path({str(store.root)!r})).lease({KEY!r}):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(hold())
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    async def take() -> None:
        async with asyncio.timeout(5), store.lease(KEY):
            pass

    asyncio.run(take())


def test_a_lost_lease_cannot_publish(store: FolderStore, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("late")

    async def go() -> None:
        async with store.lease(KEY) as lease:
            (store.root / "locks" / KEY).unlink()
            store.publish(KEY, kind="rows", folder=folder, facts={}, stage="make", explanation={}, lease=lease)

    with pytest.raises(LeaseLost):
        asyncio.run(go())
    assert store.find(KEY) is None
