"""The bucket under faults: a network that fails for a while costs time, never bytes; what cannot pass is one
sentence."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.engine.checkpoint_files import read_marker, write_marker
from tasks.errors import StoreError
from tasks.ports.code.fingerprint import key_of
from tasks.ports.store import bucket as bucket_module
from tasks.ports.store.artifacts import digest_of
from tasks.ports.store.bucket import PART, Bucket
from tasks.ports.store.checkpoint_sync import SyncedCheckpoints
from tasks.ports.store.manifests import new_manifest
from tasks.ports.store.s3 import S3Store, manifest_name, object_name
from tests.chaos import Chaos, chaos_before
from tests.s3_server import BUCKET, S3Server


@pytest.fixture
def chaos(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chaos]:
    with chaos_before(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setattr(bucket_module, "READ", 2.0)
        yield proxy


@pytest.fixture
def bucket(chaos: Chaos, tmp_path: Path) -> Bucket:
    return Bucket(f"s3://{BUCKET}/{tmp_path.name}", patience=30)


def write_file(path: Path, size: int) -> str:
    body = os.urandom(size)
    path.write_bytes(body)
    return hashlib.sha256(body).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART - 7])
def test_files_come_back_as_they_went(bucket: Bucket, tmp_path: Path, size: int) -> None:
    sha = write_file(tmp_path / "there", size)
    bucket.upload(tmp_path / "there", "file", sha)
    assert bucket.has("file", size, sha)
    bucket.download("file", tmp_path / "back", size)
    assert digest(tmp_path / "back") == sha


def test_a_file_that_is_there_is_not_sent_again(bucket: Bucket, chaos: Chaos, tmp_path: Path) -> None:
    sha = write_file(tmp_path / "there", PART + 1)
    bucket.upload(tmp_path / "there", "file", sha)
    before = chaos.sent
    bucket.upload(tmp_path / "there", "file", sha)
    assert chaos.sent - before < 10_000


def test_an_interrupted_upload_goes_on_where_it_stopped(
    bucket: Bucket, chaos: Chaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = write_file(tmp_path / "there", 4 * PART)
    send = bucket.client.upload_part

    def only_two(**part: object) -> object:
        if part["PartNumber"] in (3, 4):
            raise KeyboardInterrupt
        return send(**part)

    monkeypatch.setattr(bucket.client, "upload_part", only_two)
    with pytest.raises(KeyboardInterrupt):
        bucket.upload(tmp_path / "there", "file", sha)
    bucket.pool.shutdown(wait=True)
    assert bucket.read("file") is None

    other, before = Bucket(bucket.address), chaos.sent
    other.upload(tmp_path / "there", "file", sha)
    assert chaos.sent - before < 2.5 * PART
    other.download("file", tmp_path / "back", 4 * PART)
    assert digest(tmp_path / "back") == sha


def test_parts_are_joined_by_the_tags_that_the_server_gave(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a key of KMS encrypts a bucket, as ours on AWS, a part's tag is not its md5; no server here does that, so
    its tags are changed on the way."""
    sha, client = write_file(tmp_path / "there", 2 * PART), bucket.client
    send, join = client.upload_part, client.complete_multipart_upload

    def tagged(**part: Any) -> Any:
        return {"ETag": send(**part)["ETag"][::-1]}

    def joined(MultipartUpload: Any, **where: Any) -> Any:
        return join(
            MultipartUpload={"Parts": [part | {"ETag": part["ETag"][::-1]} for part in MultipartUpload["Parts"]]},
            **where,
        )

    monkeypatch.setattr(client, "upload_part", tagged)
    monkeypatch.setattr(client, "complete_multipart_upload", joined)
    bucket.upload(tmp_path / "there", "file", sha)
    bucket.download("file", tmp_path / "back", 2 * PART)
    assert digest(tmp_path / "back") == sha


@pytest.mark.parametrize("fault", ["busy", "hang", "cut", "deaf"])
def test_faults_that_pass_lose_nothing(bucket: Bucket, chaos: Chaos, tmp_path: Path, fault: str) -> None:
    sha = write_file(tmp_path / "there", 2 * PART + 5)
    setattr(chaos, fault, 3)
    bucket.upload(tmp_path / "there", "file", sha)
    setattr(chaos, fault, 3)
    bucket.download("file", tmp_path / "back", 2 * PART + 5)
    assert digest(tmp_path / "back") == sha
    bucket.write("small", b"x" * 5000)
    setattr(chaos, fault, 2)
    assert bucket.read("small") == b"x" * 5000


def test_a_server_that_is_away_for_a_while_is_waited_for(bucket: Bucket, chaos: Chaos) -> None:
    bucket.write("small", b"still here")
    chaos.down = True
    threading.Timer(5, lambda: setattr(chaos, "down", False)).start()
    assert bucket.read("small") == b"still here"


def test_a_server_that_stays_away_is_one_sentence(bucket: Bucket, chaos: Chaos) -> None:
    chaos.down, bucket.patience = True, 2
    with pytest.raises(StoreError, match="could not read small: ") as caught:
        bucket.read("small")
    assert "\n" not in str(caught.value)


def test_of_many_who_create_one_wins(bucket: Bucket) -> None:
    for round_ in range(5):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda number, name=f"race-{round_}": bucket.create(name, b"%d" % number), range(8)))
        assert sum(won) == 1
        assert bucket.read(f"race-{round_}") == b"%d" % won.index(True)


def test_a_winner_whose_answer_was_lost_still_knows(bucket: Bucket, chaos: Chaos) -> None:
    bucket.read("warm up the connection")
    chaos.deaf = 1
    assert bucket.create("mine", b"token")
    assert not bucket.create("mine", b"another token")


def test_no_credentials_no_bucket_wrong_secret(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="there is no such bucket"):
        Bucket("s3://nobody-made-this").write("x", b"")
    if s3.kind == "radosgw":  # moto believes every secret
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(StoreError, match="the secret key is wrong"):
            Bucket(f"s3://{BUCKET}").write("x", b"")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(StoreError, match="(?i)credentials"):
        Bucket(f"s3://{BUCKET}").write("x", b"")


@pytest.mark.parametrize(
    "address",
    [
        "gs://bucket/x",
        "s3://",
        "http://bucket/x",
        "s3://bucket/../other",
        "s3://user:password@bucket/x",
        "s3://bucket/x?y=z",
    ],
)
def test_addresses_that_are_no_store(address: str) -> None:
    with pytest.raises(StoreError, match="is not a store; write s3://BUCKET"):
        Bucket(address)


def test_old_interrupted_uploads_can_be_removed(bucket: Bucket) -> None:
    bucket.begin("file", "0" * 64)
    assert bucket.stale_uploads(3600) == []
    assert bucket.stale_uploads(-1) == ["file"]
    assert bucket.unfinished("file") is None


def test_interrupted_uploads_are_found_on_every_page(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one", "three", "two"]
    for name in names:
        bucket.begin(name, "0" * 64)
    whole, sizes = bucket.client._make_api_call, []

    def two_on_a_page(operation: str, given: dict[str, Any]) -> Any:
        if operation == "ListMultipartUploads":
            given = {**given, "MaxUploads": 2}
            sizes.append(2)
        return whole(operation, given)

    monkeypatch.setattr(bucket.client, "_make_api_call", two_on_a_page)
    assert bucket.unfinished("two") and bucket.stale_uploads(-1) == names and len(sizes) > 2


def test_a_network_that_fails_is_no_damage(
    bucket: Bucket, chaos: Chaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3Store(bucket.address, tmp_path / "cache", patience=10)
    body = b"rows"
    inventory = {"a.txt": {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}}
    key = key_of({"stage": "make"})
    manifest = new_manifest(key, "rows", digest_of(inventory), inventory, {}, "make", {"stage": "make"}, 1.0)
    store.bucket.write(object_name(manifest["sha256"], "a.txt"), body)
    store.bucket.write(manifest_name(key), json.dumps(manifest).encode())

    def fails(*given: object) -> None:
        raise StoreError("the network is down")

    with monkeypatch.context() as patched:
        patched.setattr(store.bucket, "download", fails)
        with pytest.raises(StoreError, match="network"):
            store.damage(manifest)
    assert S3Store(bucket.address, tmp_path / "cache").damage(manifest) is None, "it must still be there, and whole"


@pytest.mark.parametrize("step", ["..", "../../other", "step-1", ""])
def test_a_checkpoint_that_climbs_touches_nothing(bucket: Bucket, tmp_path: Path, step: str) -> None:
    body = b"planted"
    marker = {"inventory": {"state.json": {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}}}
    bucket.write(f"checkpoints/key/{step}/state.json", body)
    bucket.write(f"checkpoints/key/{step}/whole.json", json.dumps(marker).encode())
    (tmp_path / "mine" / "other").mkdir(parents=True)
    (tmp_path / "mine" / "other" / "kept").write_text("kept")
    SyncedCheckpoints(bucket, "checkpoints/key/", tmp_path / "mine" / "key").download(lambda text: None)
    assert [path.name for path in (tmp_path / "mine").rglob("*") if path.is_file()] == ["kept"]


def test_a_damaged_checkpoint_does_not_stand_before_its_successors(bucket: Bucket, tmp_path: Path) -> None:
    marker = {"inventory": {"state.json": {"size": 7, "sha256": "0" * 64}}}
    bucket.write("checkpoints/key/step-000000500/state.json", b"damaged")
    bucket.write("checkpoints/key/step-000000500/whole.json", json.dumps(marker).encode())
    travelling = SyncedCheckpoints(bucket, "checkpoints/key/", tmp_path / "key")
    travelling.download(lambda text: None)
    assert travelling.remote() == [] and not list((tmp_path / "key").glob("step-*"))


def write_checkpoint(folder: Path, step: int, *, whole: bool) -> None:
    """Write a checkpoint, or what a crash left of one."""
    place = folder / f"step-{step:09d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text("{}")
    write_marker(place, of=folder.name)
    if not whole:
        (place / "state.json").write_text("{")


def test_a_torn_checkpoint_is_neither_uploaded_nor_taken_for_newer_than_a_whole_one(
    bucket: Bucket, tmp_path: Path
) -> None:
    here, there = tmp_path / "here" / "key", tmp_path / "there" / "key"
    write_checkpoint(here, 100, whole=True)
    write_checkpoint(here, 200, whole=False)
    first = SyncedCheckpoints(bucket, "checkpoints/key/", here)
    first.send_new(set())
    assert first.remote() == ["step-000000100"]
    write_checkpoint(there, 300, whole=False)
    told: list[str] = []
    SyncedCheckpoints(bucket, "checkpoints/key/", there).download(told.append)
    assert len(told) == 1 and read_marker(there / "step-000000100", of="key") is not None


@pytest.mark.parametrize(
    "marker",
    [
        b"{",
        b"[]",
        b"null",
        b'{"inventory": []}',
        b'{"inventory": {}}',
        b'{"of": "key", "inventory": {}}',
        b'{"inventory": 1}',
    ],
)
def test_a_checkpoint_whose_marker_is_damaged_is_removed(bucket: Bucket, tmp_path: Path, marker: bytes) -> None:
    bucket.write("checkpoints/key/step-000000500/state.json", b"{}")
    bucket.write("checkpoints/key/step-000000500/whole.json", marker)
    travelling = SyncedCheckpoints(bucket, "checkpoints/key/", tmp_path / "key")
    travelling.download(lambda text: None)
    assert travelling.remote() == [] and not list((tmp_path / "key").glob("*"))
