"""The encoding of a text file, and a UTF-8 copy of a file in another encoding, or of a compressed one."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.errors import DataError

BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Byte order marks, with which a file states its encoding."""
CALLED = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252", "latin-1": "Latin-1"}
BYTES_AT_ONCE = 2**20
LARGEST_EXPANDED = 64 * 2**30
"""Bytes that a compressed file may have when it is expanded; a few kilobytes can expand to any number of them."""


@contextmanager
def as_plain_text(path: Path, encoding: str | None) -> Iterator[tuple[Path, str]]:
    """Yield a UTF-8 file with the text of ``path``, which is the file itself if it is one already, and the name of its
    encoding. Raises DataError for files that are no text."""
    with TemporaryDirectory(prefix="limbeck-table-") as folder:
        found = encoding or encoding_of(path)
        if found == "utf-8" and path.suffix != ".gz":
            yield path, CALLED[found]
            return
        copy = Path(folder) / plain_name(path)
        transcode(path, found, copy)
        yield copy, CALLED.get(found, found)


def plain_name(path: Path) -> str:
    """Return the name of a file without the ending of its compression."""
    return path.name.removesuffix(".gz")


@contextmanager
def open_expanded(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading bytes; a gzip file is expanded. Raises DataError for a damaged one."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path.name} is not a whole gzip file; compress it again") from error


def byte_parts(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in parts. Raises DataError for a compressed file that is too large."""
    size = 0
    with open_expanded(path) as file:
        while part := file.read(BYTES_AT_ONCE):
            size += len(part)
            if size > LARGEST_EXPANDED:
                raise DataError(
                    f"{path.name} expands to more than {LARGEST_EXPANDED // 2**30} GiB; divide it into shards"
                )
            yield part


def encoding_of(path: Path) -> str:
    """Return the encoding of a file: the one of its mark, UTF-8 if all of it is, else Western European. Raises
    DataError for a file that is no text."""
    decoder, is_utf8, is_windows = codecs.getincrementaldecoder("utf-8")(), True, True
    for number, part in enumerate(byte_parts(path)):
        mark = next((mark for mark in BYTE_ORDER_MARKS if number == 0 and part.startswith(mark)), None)
        if mark is not None:
            return BYTE_ORDER_MARKS[mark]
        if b"\0" in part:
            raise DataError(
                f"{path.name} is not a text file, or in UTF-16 without a mark; save it as UTF-8, or state its encoding "
                f"in data.format.encoding"
            )
        is_utf8 = is_utf8 and decodes(decoder, part)
        is_windows = is_windows and not any(byte in part for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D))
    is_utf8 = is_utf8 and decodes(decoder, b"", last=True)
    return "utf-8" if is_utf8 else "cp1252" if is_windows else "latin-1"


def decodes(decoder: codecs.IncrementalDecoder, part: bytes, *, last: bool = False) -> bool:
    """Tell whether the next part of a file can be decoded."""
    try:
        decoder.decode(part, last)
    except UnicodeDecodeError:
        return False
    return True


def transcode(path: Path, encoding: str, copy: Path) -> None:
    """Write the text of a file as UTF-8. Raises DataError if it is not in this encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with copy.open("wb") as file:
            for part in byte_parts(path):
                file.write(decoder.decode(part).encode())
            file.write(decoder.decode(b"", True).encode())
    except UnicodeError as error:
        raise DataError(f"{path.name} is not in the encoding {encoding}; correct data.format.encoding") from error
