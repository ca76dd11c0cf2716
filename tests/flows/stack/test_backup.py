"""A backup is whole or is refused, and never overwrites anything; restoring a real stack is in test_live.py."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path

import pytest

from flows.home import Home
from flows.stack import backup
from flows.stack.settings import Settings, Stack
from tasks.errors import StackError
from tasks.ports.code.fingerprint import hash_file


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    (folder / "store").mkdir(parents=True)
    (folder / "store" / "weights").write_bytes(b"weights")
    settings = asdict(Settings(s3="radosgw"))
    contents = {
        "made": "now",
        "versions": {},
        "settings": settings,
        "files": {"store/weights": hash_file(folder / "store" / "weights", remember=False)},
    }
    (folder / backup.CONTENTS).write_text(json.dumps(contents))
    return folder


def test_a_whole_one_is_read(saved: Path) -> None:
    assert set(backup.checked(saved, saved)["files"]) == {"store/weights"}


@pytest.mark.parametrize(
    "harm", [lambda path: path.write_bytes(b"weighty"), lambda path: path.unlink()], ids=["changed", "missing"]
)
def test_a_damaged_one_is_refused_before_anything_is_made(saved: Path, tmp_path: Path, harm) -> None:  # noqa: ANN001
    harm(saved / "store" / "weights")
    with pytest.raises(StackError, match="damaged: store/weights"):
        backup.restore(Home(tmp_path / "home"), saved, {}, print)
    assert not (tmp_path / "home").exists()


def test_what_is_no_back_up_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file.tar.gz").write_bytes(b"not one")
    for source in (tmp_path / "nothing", tmp_path / "file.tar.gz", tmp_path):
        with pytest.raises(StackError, match="written by limbeck backup|is not a backup"):
            backup.restore(Home(tmp_path / "home"), source, {}, print)


def test_a_file_that_climbs_out_is_refused(saved: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "planted.tar", "w") as archive:
        archive.add(saved / "store" / "weights", arcname="../../planted")
    with pytest.raises(StackError, match="is not a (file of a )?backup"), backup.opened(tmp_path / "planted.tar"):
        pass
    assert not list(tmp_path.parent.glob("planted"))


def test_a_link_is_refused(saved: Path, tmp_path: Path) -> None:
    (saved / "store" / "elsewhere").symlink_to("/etc")
    with tarfile.open(tmp_path / "planted.tar", "w") as archive:
        archive.add(saved / "store" / "elsewhere", arcname="store/elsewhere")
    with pytest.raises(StackError, match="store/elsewhere is not a file"), backup.opened(tmp_path / "planted.tar"):
        pass


def test_a_home_that_has_a_stack_is_not_overwritten(saved: Path, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "home" / "stack")
    stack.root.mkdir(parents=True)
    stack.save()
    with pytest.raises(StackError, match="already has a stack"):
        backup.restore(Home(tmp_path / "home"), saved, {}, print)


def test_buckets_are_not_restored_into_folders() -> None:
    with pytest.raises(StackError, match="restore buckets into buckets"):
        backup.likeness(asdict(Settings(s3="radosgw")), {"s3": "folder"})
    assert backup.likeness(asdict(Settings(s3="radosgw")), {"s3": "https://s3.example"})["s3"] == "https://s3.example"


def test_a_stack_that_is_down_cannot_be_backed_up(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="is not up"):
        backup.backup(Home(tmp_path), tmp_path / "target", print)


def test_a_packed_one_is_its_owner_s_alone(saved: Path, tmp_path: Path) -> None:
    backup.pack(saved, tmp_path / "saved.tar.gz")
    assert (tmp_path / "saved.tar.gz").stat().st_mode & 0o077 == 0
    with backup.opened(tmp_path / "saved.tar.gz") as folder:
        assert backup.checked(folder, folder)["made"] == "now"
