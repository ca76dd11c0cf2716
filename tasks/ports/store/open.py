"""The choice of a store by its address: a folder, or an S3 bucket."""

from __future__ import annotations

from pathlib import Path

from tasks.ports.store.artifacts import Store
from tasks.ports.store.folder import FolderStore


def whole_address(address: str) -> str:
    """Return the canonical address of a store, independent of the working folder of the process."""
    return address.rstrip("/") if "://" in address else str(Path(address).expanduser().resolve())


def open_store(address: str, cache: Path) -> Store:
    """Open ``s3://bucket/prefix`` with a cache folder, or a folder by its path; boto3 is imported only for a bucket."""
    if "://" not in address:
        return FolderStore(Path(address).expanduser().resolve())
    from tasks.ports.store.s3 import S3Store

    return S3Store(address, cache)
