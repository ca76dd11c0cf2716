"""The build of the distribution ``limbeck-models`` (PEP 517): this folder under the name ``limbeck_models``, which
imports nothing else of the repository. ``pip install ./tasks/modeling`` and ``pip wheel`` call it; it needs no library.

Its wheel has the same bytes on every machine.
"""

from __future__ import annotations

import tomllib
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

DISTRIBUTED_AS, IMPORTED_AS, ROOM = "limbeck-models", "limbeck_models", "tasks.modeling"
NOT_PACKED = {"packing.py"}
FIRST_LINES = """
from limbeck_models.names import VERSION as __version__
from limbeck_models.registration import register_classes

register_classes()
"""
"""What the import of the package does."""
EARLIEST = (1980, 1, 1, 0, 0, 0)


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    """Write the wheel into a folder; return its name. It is called in this folder."""
    files = packed(Path.cwd())
    version = version_in(files[f"{IMPORTED_AS}/names.py"])
    about = f"{IMPORTED_AS}-{version}.dist-info"
    files |= {f"{about}/METADATA": metadata(Path.cwd(), version), f"{about}/WHEEL": WHEEL}
    lines = [f"{name},sha256={recorded_digest(body)},{len(body.encode())}" for name, body in sorted(files.items())]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""])
    name = f"{IMPORTED_AS}-{version}-py3-none-any.whl"
    with ZipFile(Path(wheel_directory) / name, "w", ZIP_DEFLATED) as archive:
        for path, body in sorted(files.items()):
            archive.writestr(ZipInfo(path, EARLIEST), body)
    return name


WHEEL = f"Wheel-Version: 1.0\nGenerator: {DISTRIBUTED_AS}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def packed(folder: Path) -> dict[str, str]:
    """Return the package's files by their paths in the wheel; imports of this room become those of the package."""
    files = {}
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if place.as_posix() not in NOT_PACKED and "build" not in place.parts:
            files[f"{IMPORTED_AS}/{place.as_posix()}"] = path.read_text(encoding="utf-8").replace(ROOM, IMPORTED_AS)
    files[f"{IMPORTED_AS}/__init__.py"] += FIRST_LINES
    return files


def version_in(source: str) -> str:
    """Return the version that the names state."""
    line = next(line for line in source.splitlines() if "VERSION = " in line)
    return line.split('"')[-2]


def metadata(folder: Path, version: str) -> str:
    """Return the wheel's description of itself."""
    stated = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = "".join(f"Requires-Dist: {one}\n" for one in stated["dependencies"])
    return (
        f"Metadata-Version: 2.4\nName: {DISTRIBUTED_AS}\nVersion: {version}\nSummary: {stated['description']}\n"
        f"License-Expression: {stated['license']}\nRequires-Python: {stated['requires-python']}\n{needed}"
    )


def recorded_digest(body: str) -> str:
    """Return the digest of a file as a wheel records it."""
    return urlsafe_b64encode(sha256(body.encode()).digest()).rstrip(b"=").decode()
