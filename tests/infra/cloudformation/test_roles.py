"""A role is least only if it is enough: everything that a worker asks of S3 is in its role, and what is not in it is
what only upkeep needs.

The store works on a real S3 server; what it asks is written down on the way and held against the policies of the
templates.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.engine.checkpoint_files import write_marker
from tasks.ports.code.fingerprint import key_of
from tasks.ports.store import bucket as bucket_module
from tasks.ports.store.bucket import PART
from tasks.ports.store.s3 import S3Store
from tests.infra.cloudformation.templates import load_templates, many, statements, words
from tests.s3_server import BUCKET, S3Server

NEEDS = {
    "PutObject": ("s3:PutObject",),
    "GetObject": ("s3:GetObject",),
    "HeadObject": ("s3:GetObject",),
    "DeleteObject": ("s3:DeleteObject",),
    "ListObjectsV2": ("s3:ListBucket",),
    "CreateMultipartUpload": ("s3:PutObject",),
    "UploadPart": ("s3:PutObject",),
    "CompleteMultipartUpload": ("s3:PutObject",),
    "AbortMultipartUpload": ("s3:AbortMultipartUpload",),
    "ListParts": ("s3:ListMultipartUploadParts",),
    "ListMultipartUploads": ("s3:ListBucketMultipartUploads",),
    "CopyObject": ("s3:GetObject", "s3:PutObject"),
    "UploadPartCopy": ("s3:GetObject", "s3:PutObject"),
}
"""The permissions that S3 asks for each operation."""
ON_THE_BUCKET = ("s3:ListBucket", "s3:ListBucketMultipartUploads")
Asked = set[tuple[str, str]]


@pytest.fixture
def asked(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """What the store asks: pairs of permission and name."""
    found: Asked = set()
    new_client = bucket_module.new_client

    def note(params: dict[str, Any], model: Any, **more: Any) -> None:
        found.update((action, "" if action in ON_THE_BUCKET else params["Key"]) for action in NEEDS[model.name])

    def noted(settings: Mapping[str, str]) -> Any:
        client = new_client(settings)
        client.meta.events.register("before-parameter-build.s3", note)
        return client

    monkeypatch.setattr(bucket_module, "new_client", noted)
    yield found


def allowed(role: str, action: str, name: str) -> bool:
    """Tell whether a role's policies let it do something to an object, or to the bucket where there is no name."""
    for owner, statement in statements(load_templates()):
        if owner == role and action in many(statement["Action"]):
            for resource in many(statement["Resource"]):
                pattern = words(resource).rpartition(":::")[2]
                place = re.sub(r"^\{import [^}]*\}[^/]*\}", "BUCKET", pattern) if pattern.startswith("{") else pattern
                if re.fullmatch(re.escape(place).replace(r"\*", ".*"), f"BUCKET/{name}" if name else "BUCKET"):
                    return True
    return False


def make(folder: Path, number: int) -> Path:
    """Write what a stage makes: a small file and one that goes up in parts."""
    made = folder / f"made-{number}"
    made.mkdir()
    (made / "small.json").write_text("{}")
    (made / "large.json").write_bytes(b" " * (PART + number))
    return made


async def work(store: S3Store, folder: Path) -> None:
    """Do what workers do: look, take a lease, leave and find a checkpoint, publish, publish again by force, fetch."""
    explanation = {"stage": "test", "inputs": {}, "folder": str(folder)}
    key = key_of(explanation)
    store.check()
    assert store.find(key) is None
    async with store.lease(key, {"stage": "test"}) as lease:
        async with store.checkpoints(key, lambda line: None) as checkpoints:
            for step in ("step-000000001", "step-000000002", "step-000000003"):
                (checkpoints / step).mkdir(parents=True)
                (checkpoints / step / "state.json").write_text(step)
                write_marker(checkpoints / step, of=checkpoints.name)
                await asyncio.sleep(2.5)
        for number in (1, 2):
            store.publish(
                key,
                kind="rows",
                folder=make(folder, number),
                facts={},
                stage="test",
                explanation=explanation,
                lease=lease,
            )
    for _ in range(2):
        async with store.lease(key, {"stage": "test"}):
            pass
    again = S3Store(store.bucket.address, folder / "elsewhere")
    found = again.find(key)
    assert found is not None and again.folder(found).is_dir() and list(again.manifests()) and again.running() == []


def test_a_worker_may_do_what_it_does(asked: Asked, tmp_path: Path) -> None:
    store = S3Store(f"s3://{BUCKET}/store", tmp_path / "cache")
    asyncio.run(work(store, tmp_path))
    assert {action for action, _ in asked} >= {
        "s3:PutObject",
        "s3:GetObject",
        "s3:DeleteObject",
        "s3:ListBucket",
        "s3:ListBucketMultipartUploads",
    }
    assert {name.split("/")[1] for action, name in asked if action == "s3:DeleteObject"} == {
        "leases",
        "checkpoints",
        "temporary",
        "manifests",
    }
    for role in ("TaskRole", "CpuWorkerRole", "UpkeepRole"):
        assert [each for each in sorted(asked) if not allowed(role, *each)] == [], role
    for role in ("MlflowRole", "DispatcherRole", "InstanceRole", "ExecutionRole"):
        assert not any(allowed(role, *each) for each in asked if each[1]), role


def test_the_janitor_may_remove_what_it_finds(asked: Asked, tmp_path: Path) -> None:
    """It was refused what had been set aside: a week after a stage was published by force it failed every hour, before
    it came to anything else."""
    store = S3Store(f"s3://{BUCKET}/store", tmp_path / "cache")
    asyncio.run(work(store, tmp_path))
    asked.clear()
    assert any("quarantine/" in name for name in store.leftovers(0.0, (), dry=False))
    assert [each for each in sorted(asked) if not allowed("CpuWorkerRole", *each)] == []


def test_only_upkeep_removes_artifacts(asked: Asked, tmp_path: Path) -> None:
    store = S3Store(f"s3://{BUCKET}/store", tmp_path / "cache")
    asyncio.run(work(store, tmp_path))
    asked.clear()
    for digest in store.artifacts():
        store.quarantine(digest)
    store.leftovers(0.0, (), dry=False)
    assert [each for each in sorted(asked) if not allowed("UpkeepRole", *each)] == []
    refused = {(action, name.split("/")[1]) for action, name in asked if not allowed("TaskRole", action, name)}
    assert refused >= {("s3:DeleteObject", "objects"), ("s3:DeleteObject", "quarantine")} and {
        action for action, _ in refused
    } == {"s3:DeleteObject"}
