"""Administration of buckets for ``limbeck up``, ``doctor`` and ``backup``: create one, test for the features that the
store needs, copy to a folder and back.

``python -m tasks.ports.store.bucket_admin NAME`` creates a bucket from inside a container; the environment there has
the usual AWS settings.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tasks.errors import StoreError
from tasks.ports.code.fingerprint import hash_file
from tasks.ports.store.bucket import Bucket
from tasks.ports.store.bucket_errors import code_of, reason_of

HASTE = 10.0  # time limit in seconds for a server while a person waits
THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


def make_bucket(name: str, settings: Mapping[str, str]) -> None:
    """Create a bucket unless it exists."""
    from botocore.exceptions import BotoCoreError, ClientError

    bucket = Bucket(f"s3://{name}", patience=HASTE, settings=settings)
    try:
        bucket.client.head_bucket(Bucket=name)
        return
    except (BotoCoreError, ClientError):
        pass  # missing, or no access: the next call reports the reason
    region = bucket.client.meta.region_name
    where = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    try:
        bucket.client.create_bucket(Bucket=name, **where)
    except (BotoCoreError, ClientError) as error:
        if code_of(error) not in THERE:
            raise StoreError(
                f"the bucket {name} could not be created: {reason_of(error)}; create it yourself, or name others "
                f"with --buckets"
            ) from error


def honours_conditions(address: str, settings: Mapping[str, str]) -> bool:
    """Return whether a PUT with ``If-None-Match: *`` is refused for an existing object; without that, two workers could
    both commit."""
    bucket, name = Bucket(address, patience=HASTE, settings=settings), f"temporary/probe-{uuid.uuid4().hex}"
    if not bucket.create(name, b"first"):
        return False
    try:
        return not bucket.create(name, b"second") and bucket.read(name) == b"first"
    finally:
        bucket.delete(name)


def save_objects(
    address: str, folder: Path, settings: Mapping[str, str], leave_out: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Copy the objects of a bucket into a folder; yield name and sha256 of each."""
    bucket = Bucket(address, settings=settings)
    for entry in bucket.entries(""):
        if entry.name.split("/")[0] in leave_out:
            continue
        path = folder / entry.name
        if ".." in Path(entry.name).parts or entry.name.startswith("/") or entry.name.endswith("/"):
            raise StoreError(
                f"{address} has an object named {entry.name!r}, which cannot be a file; remove it, or back the "
                f"bucket up by other means"
            )
        bucket.download(entry.name, path, entry.size)
        yield entry.name, hash_file(path, remember=False)


def load_objects(folder: Path, address: str, settings: Mapping[str, str]) -> int:
    """Copy the files of a folder into a bucket; return their number."""
    bucket = Bucket(address, settings=settings)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        bucket.upload(path, path.relative_to(folder).as_posix(), hash_file(path, remember=False))
    return len(files)


if __name__ == "__main__":
    make_bucket(sys.argv[1], {})
