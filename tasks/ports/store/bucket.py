"""The S3 client of the store: whole small objects, multipart transfers of large files, a conditional create, and
retries.

Uploads are checked by md5 and downloads by length, because a connection can be cut in the middle of a body; callers
check sha256, because a disk can flip a bit. Failures that botocore does not retry (a body that ends early, a server
that is down for half a minute) are retried here, with a time limit.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tasks.errors import StoreError
from tasks.ports.store.bucket_errors import NOT_THERE, TAKEN, Damaged, code_of, may_pass, md5, reason_of, tag_of
from tasks.ports.store_documents import UnfinishedUpload

PART = 16 * 2**20  # bytes per part of a large file
THREADS = 8  # concurrent transfers of parts
CONNECT, READ = 5.0, 30.0  # time limits in seconds for a connection and for the next bytes
PREFLIGHT = 10.0  # seconds that a store may take to respond to the check
RETRY_SECONDS = 90.0  # seconds for retries of a failing operation

Result = TypeVar("Result")
log = logging.getLogger("limbeck.store")


@dataclass(frozen=True)
class Entry:
    """One object in a listing; ``age`` is in seconds, by the bucket's own clock."""

    name: str
    size: int
    age: float


class Bucket:
    """All objects under one ``s3://bucket/prefix``; names are relative to it."""

    def __init__(
        self, address: str, *, patience: float = RETRY_SECONDS, settings: Mapping[str, str] | None = None
    ) -> None:
        self.address, self.patience = address, patience
        self.name, self.prefix = split_address(address)
        self.client = new_client(settings or {})
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="bucket")

    # --- small objects ---

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes, or None if it does not exist."""

        def once() -> bytes:
            answer = self.client.get_object(Bucket=self.name, Key=self.prefix + name)
            body: bytes = answer["Body"].read()
            if len(body) != answer["ContentLength"]:
                raise Damaged(f"{name} ended after {len(body)} of {answer['ContentLength']} bytes")
            return body

        return self.unless_missing(once, f"read {name}")

    def write(self, name: str, body: bytes) -> None:
        """Write an object and replace any earlier one."""
        self.patiently(
            lambda: self.client.put_object(Bucket=self.name, Key=self.prefix + name, Body=body, ContentMD5=md5(body)),
            f"write {name}",
        )

    def create(self, name: str, body: bytes) -> bool:
        """Write an object only if none exists; of several concurrent writers, one succeeds. A lost response to a
        successful write still counts as success."""
        try:
            self.patiently(
                lambda: self.client.put_object(
                    Bucket=self.name, Key=self.prefix + name, Body=body, ContentMD5=md5(body), IfNoneMatch="*"
                ),
                f"create {name}",
            )
        except StoreError as error:
            if code_of(error.__cause__) not in TAKEN:
                raise
            return self.read(name) == body
        return True

    def delete(self, name: str) -> None:
        """Delete an object; a missing one is no error."""
        self.patiently(lambda: self.client.delete_object(Bucket=self.name, Key=self.prefix + name), f"delete {name}")

    def copy(self, name: str, to: str) -> None:
        """Copy an object within the bucket."""
        source = {"Bucket": self.name, "Key": self.prefix + name}
        self.patiently(lambda: self.client.copy(source, self.name, self.prefix + to), f"copy {name}")

    def entries(self, prefix: str) -> list[Entry]:
        """Return the objects whose names start with ``prefix``."""
        return self.patiently(lambda: list(self.pages(prefix)), f"list {prefix}")

    def pages(self, prefix: str) -> Iterator[Entry]:
        """Yield the entries of a listing, page by page."""
        for page in self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.name, Prefix=self.prefix + prefix
        ):
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            for item in page.get("Contents", []):
                yield Entry(
                    item["Key"].removeprefix(self.prefix), item["Size"], (now - item["LastModified"]).total_seconds()
                )

    # --- files ---

    def has(self, name: str, size: int, digest: str) -> bool:
        """Return whether an object of this size and sha256 exists, according to the metadata from its upload."""
        head = self.unless_missing(
            lambda: self.client.head_object(Bucket=self.name, Key=self.prefix + name), f"look at {name}"
        )
        return head is not None and head["ContentLength"] == size and head["Metadata"].get("sha256") == digest

    def upload(self, path: Path, name: str, digest: str) -> None:
        """Upload a file, a large one in parts; parts of an interrupted upload are not sent again."""
        size = path.stat().st_size
        if self.has(name, size, digest):
            return
        if size <= PART:
            body, note = path.read_bytes(), {"sha256": digest}
            if hashlib.sha256(body).hexdigest() != digest:
                raise StoreError(f"{path.name} changed while it was stored; nothing was published")
            put = {
                "Bucket": self.name,
                "Key": self.prefix + name,
                "Body": body,
                "ContentMD5": md5(body),
                "Metadata": note,
            }
            self.patiently(lambda: self.client.put_object(**put), f"write {name}")
        else:
            self.upload_parts(path, name, size, digest)

    def upload_parts(self, path: Path, name: str, size: int, digest: str) -> None:
        """Upload a file's parts concurrently and join them."""
        where = {"Bucket": self.name, "Key": self.prefix + name}
        upload = self.patiently(lambda: self.unfinished(name) or self.begin(name, digest), f"begin {name}")
        there = self.patiently(lambda: self.parts(name, upload), f"list the parts of {name}")

        def send(number: int) -> dict[str, int | str]:
            body = read_range(path, (number - 1) * PART, PART)
            etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
            # If KMS encrypts the bucket, the ETag of a part is not its md5: the server's ETag is used, and such parts
            # are sent again.
            if there.get(number) != etag:
                part = where | {"UploadId": upload, "PartNumber": number, "Body": body, "ContentMD5": md5(body)}
                etag = self.patiently(lambda: tag_of(self.client.upload_part(**part)), f"write part {number} of {name}")
            return {"PartNumber": number, "ETag": etag}

        parts = list(self.pool.map(send, range(1, -(-size // PART) + 1)))
        self.patiently(lambda: self.complete(name, upload, parts, size, digest), f"join {name}")

    def begin(self, name: str, digest: str) -> str:
        """Start a multipart upload and return its id."""
        answer = self.client.create_multipart_upload(
            Bucket=self.name, Key=self.prefix + name, Metadata={"sha256": digest}
        )
        return str(answer["UploadId"])

    def unfinished(self, name: str) -> str | None:
        """Return the id of an interrupted upload of this name, or None; its parts are reused if their md5 matches."""
        found = [item["UploadId"] for item in self.uploads(name)[0] if item["Key"] == self.prefix + name]
        return found[-1] if found else None

    def uploads(self, start: str = "") -> tuple[list[UnfinishedUpload], datetime]:
        """Return the interrupted uploads of names that begin with ``start``, and the bucket's time."""
        pages = self.client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self.name, Prefix=self.prefix + start
        )
        found: list[UnfinishedUpload] = []
        for page in pages:
            now = parsedate_to_datetime(page["ResponseMetadata"]["HTTPHeaders"]["date"])
            found += page.get("Uploads", [])
        return found, now

    def parts(self, name: str, upload: str) -> dict[int, str]:
        """Return the uploaded parts as number to ETag, which is the quoted md5 unless KMS encrypts the bucket."""
        pages = self.client.get_paginator("list_parts").paginate(
            Bucket=self.name, Key=self.prefix + name, UploadId=upload
        )
        return {part["PartNumber"]: part["ETag"] for page in pages for part in page.get("Parts", [])}

    def complete(self, name: str, upload: str, parts: list[dict[str, int | str]], size: int, digest: str) -> None:
        """Join the parts. If the response to an earlier attempt was lost, the object exists and the upload id does
        not; that is success."""
        try:
            self.client.complete_multipart_upload(
                Bucket=self.name, Key=self.prefix + name, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except Exception as error:
            if code_of(error) != "NoSuchUpload" or not self.has(name, size, digest):
                raise

    def download(self, name: str, path: Path, size: int) -> None:
        """Download an object into a file, with concurrent ranges."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(size)

            def fetch(start: int) -> None:
                end = min(start + PART, size)
                body = self.patiently(lambda: self.read_part(name, start, end), f"read {name}")
                os.pwrite(stream.fileno(), body, start)

            list(self.pool.map(fetch, range(0, size, PART)))

    def read_part(self, name: str, start: int, end: int) -> bytes:
        """Return a byte range of an object; raise Damaged if it is shorter than requested."""
        answer = self.client.get_object(Bucket=self.name, Key=self.prefix + name, Range=f"bytes={start}-{end - 1}")
        body: bytes = answer["Body"].read()
        if len(body) != end - start:
            raise Damaged(f"{name} ended after {len(body)} of {end - start} bytes")
        return body

    # --- upkeep ---

    def check(self) -> None:
        """Raise StoreError if the bucket cannot be read and written right now."""
        probe, hasty = f"temporary/probe-{uuid.uuid4().hex}", copy(self)
        hasty.patience = min(PREFLIGHT, self.patience)
        hasty.write(probe, b"limbeck")
        if hasty.read(probe) != b"limbeck":
            raise StoreError(f"the store {self.address} does not return the bytes that were written to it")
        hasty.delete(probe)

    def remove_old(self, rooms: Sequence[str], older: float, keep: Collection[str], *, dry: bool) -> list[str]:
        """Remove objects of these prefixes that are older than ``older`` seconds, unless ``dry``; those whose second
        part of the name is in ``keep`` stay. Return the names."""
        found = [entry for room in rooms for entry in self.entries(room)]
        old = [entry.name for entry in found if entry.age > older and entry.name.split("/")[1] not in keep]
        for name in old if not dry else []:
            self.delete(name)
        return old

    def stale_uploads(self, older: float, *, dry: bool = False) -> list[str]:
        """Abort multipart uploads that started more than ``older`` seconds ago, unless ``dry``; return their
        names."""
        uploads, now = self.patiently(self.uploads, "list uploads")
        old = [item for item in uploads if (now - item["Initiated"]).total_seconds() > older]
        for item in old if not dry else []:
            where = {"Bucket": self.name, "Key": item["Key"], "UploadId": item["UploadId"]}
            self.patiently(partial(self.client.abort_multipart_upload, **where), f"abort {item['Key']}")
        return [str(item["Key"]).removeprefix(self.prefix) for item in old]

    # --- patience ---

    def unless_missing(self, once: Callable[[], Result], what: str) -> Result | None:
        """Run an operation with retries; return None for a missing object."""
        try:
            return self.patiently(once, what)
        except StoreError as error:
            if code_of(error.__cause__) in NOT_THERE:
                return None
            raise

    def patiently(self, once: Callable[[], Result], what: str) -> Result:
        """Run an operation and retry while the network or the server fails; afterwards raise StoreError with the
        reason."""
        from botocore.exceptions import BotoCoreError, ClientError
        from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

        again = Retrying(
            stop=stop_after_delay(self.patience),
            wait=wait_random_exponential(0.1, max=5),
            retry=retry_if_exception(may_pass),
            reraise=True,
        )
        try:
            return again(once)
        except Exception as error:
            if not isinstance(error, (BotoCoreError, ClientError, OSError)) and not may_pass(error):
                raise
            raise StoreError(f"the store {self.address} could not {what}: {reason_of(error)}") from error


def new_client(settings: Mapping[str, str]) -> Any:
    """Return an S3 client from the usual AWS settings, with time-outs. Checksums are our own, because not every server
    supports AWS's newest ones.

    ``settings``, by the names of AWS's environment variables, override the environment.
    """
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(
        connect_timeout=CONNECT,
        read_timeout=READ,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=2 * THREADS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        keys = {
            word.lower(): settings[word] for word in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if word in settings
        }
        session = boto3.session.Session(**keys, region_name=settings.get("AWS_DEFAULT_REGION"))
        return session.client(
            "s3",
            config=config,
            endpoint_url=settings.get("AWS_ENDPOINT_URL_S3"),
            verify=settings.get("AWS_CA_BUNDLE"),
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreError(f"S3 cannot be used with these AWS settings: {error}") from error


def split_address(address: str) -> tuple[str, str]:
    """Return bucket and prefix of ``s3://bucket/prefix``."""
    parts = urlsplit(address)
    if (
        parts.scheme != "s3"
        or not parts.netloc
        or parts.query
        or parts.fragment
        or ".." in parts.path.split("/")
        or "@" in parts.netloc
    ):
        shown = address.rsplit("@", 1)[-1]  # the part before may be a password
        raise StoreError(f"{shown!r} is not a store; write s3://BUCKET or s3://BUCKET/PREFIX, or the path of a folder")
    prefix = parts.path.strip("/")
    return parts.netloc, f"{prefix}/" if prefix else ""


def read_range(path: Path, start: int, length: int) -> bytes:
    """Return a byte range of a file."""
    with path.open("rb") as stream:
        stream.seek(start)
        return stream.read(length)
