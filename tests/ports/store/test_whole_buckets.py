"""Whole buckets, on a real S3 server where there is one: made once, asked for what the store needs, copied out and
in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.errors import StoreError
from tasks.ports.store.bucket import Bucket
from tasks.ports.store.bucket_admin import honours_conditions, load_objects, make_bucket, save_objects
from tests.s3_server import S3Server


def test_a_bucket_goes_out_and_in_unchanged(s3_server: S3Server, tmp_path: Path) -> None:
    settings = s3_server.environment()
    for name in ("whole-one", "whole-two", "whole-one"):  # one that is there already is no error
        make_bucket(name, settings)
    one, two = (Bucket(f"s3://{name}", settings=settings) for name in ("whole-one", "whole-two"))
    bodies = {
        "objects/a/weights": bytes(range(256)) * 70_000,
        "manifests/a.json": b"{}",
        "leases/a/now": b"busy",
        "objects/empty": b"",
    }
    for name, body in bodies.items():
        one.write(name, body)
    saved = dict(save_objects("s3://whole-one", tmp_path / "saved", settings, leave_out=("leases",)))
    assert set(saved) == set(bodies) - {"leases/a/now"}
    assert load_objects(tmp_path / "saved", "s3://whole-two", settings) == 3
    assert {entry.name: two.read(entry.name) for entry in two.entries("")} == {name: bodies[name] for name in saved}


def test_a_server_that_honours_conditions_is_known(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = s3_server.environment()
    make_bucket("whole-conditions", settings)
    assert honours_conditions("s3://whole-conditions", settings)
    assert not Bucket("s3://whole-conditions", settings=settings).entries("")

    def careless(bucket: Bucket, name: str, body: bytes) -> bool:
        """What a server does that ignores If-None-Match."""
        bucket.write(name, body)
        return True

    monkeypatch.setattr(Bucket, "create", careless)
    assert not honours_conditions("s3://whole-conditions", settings)


def test_a_bucket_that_cannot_be_made_is_one_sentence(s3_server: S3Server) -> None:
    with pytest.raises(StoreError, match="could not be created"):
        make_bucket("whole-three", s3_server.environment() | {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
