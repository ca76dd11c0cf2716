"""Bills of materials: every image lists what it is made of, and an environment that is not the lock's has no bill."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "infra" / "lock"
SBOM = runpy.run_path(str(LOCK / "sbom.py"))
TOOL = ROOT / ".venv-sbom" / "bin" / "python"
IMAGES = sorted(
    path
    for path in (ROOT / "infra" / "containers").glob("Containerfile.*")
    if path.suffix != ".dockerignore" and "pip install" in path.read_text()
)


@pytest.fixture(scope="module")
def pins() -> dict[str, Any]:
    """What the locks of the CPU image pin on this platform."""
    found: dict[str, Any] = SBOM["locked"]((LOCK / f"{name}.txt").read_text() for name in ("stack", "cpu"))
    return found


def components(pins: dict[str, Any]) -> list[dict[str, str]]:
    """Return what cyclonedx-py says of an environment that is the lock's."""
    listed = [(pin.name, next(iter(pin.specifier)).version) for pin, _ in pins.values()]
    return [{"name": name, "version": version} for name, version in [*listed, ("pip", "26.1"), ("limbeck", "0.1.0")]]


def test_a_package_that_is_not_the_locks_has_no_bill(pins: dict[str, Any]) -> None:
    installed = components(pins)
    assert list(SBOM["differences"](installed, pins)) == []
    other = [one | {"version": "0.0.1"} if one["name"] == "safetensors" else one for one in installed]
    assert list(SBOM["differences"](other, pins)) == [
        f"safetensors is 0.0.1 in the environment; the lock has {pins['safetensors'][0].specifier}"
    ]
    missing = [one for one in installed if one["name"] != "prefect"]
    assert list(SBOM["differences"](missing, pins)) == ["prefect is in the lock and not in the environment"]
    stranger = [*installed, {"name": "left.pad", "version": "1.3"}]
    assert list(SBOM["differences"](stranger, pins)) == ["left-pad 1.3 is in the environment and in no lock"]


def test_a_bill_has_the_hashes_of_the_lock_and_the_packages_below(pins: dict[str, Any]) -> None:
    made = SBOM["with_hashes"]({"name": "torch", "version": "2.13.0+cpu"}, pins)
    (files,) = made["externalReferences"]
    assert [one["content"] for one in files["hashes"]] == pins["torch"][1], "of this build, and not of PyPI's"
    system = {"ID": "debian", "VERSION_ID": "12"}
    (library,) = SBOM["system_components"]("libstdc++6\t1:12.2.0-14+deb12u1\tamd64\n", system)
    assert library["purl"] == "pkg:deb/debian/libstdc++6@1%3A12.2.0-14%2Bdeb12u1?arch=amd64&distro=debian-12"


def test_there_are_images() -> None:
    assert [path.suffix for path in IMAGES] == [".cpu", ".dispatcher", ".gpu"]


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_every_image_lists_what_is_installed_in_it(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    installed = {lock for line in re.findall(r"/opt/limbeck/bin/pip install [^&\n]*", text) for lock in locks_of(line)}
    (listed,) = re.findall(r"infra/lock/sbom\.py (/opt/limbeck .*)", text)
    assert set(re.findall(r"--lock (\w+)\.txt", listed)) == installed and "--system" in listed
    last = text.split("\nFROM ")[-1]
    assert "COPY --from=build /opt/limbeck /opt/limbeck\nCOPY --from=sbom /sbom.cdx.json /opt/sbom.cdx.json" in last
    assert "!infra/lock/sbom.py" in path.with_name(f"{path.name}.dockerignore").read_text().splitlines()


def locks_of(command: str) -> list[str]:
    """Return the locks of an installation."""
    return re.findall(r"-r infra/lock/(\w+)\.txt", command)


@pytest.mark.slow
@pytest.mark.skipif(not TOOL.is_file(), reason="NO CYCLONEDX HERE: `make sbom` sets an environment up for it")
def test_the_bill_of_this_environment_names_every_locked_package(tmp_path: Path) -> None:
    """By cyclonedx-py itself, and valid by its schema."""
    cuda = any("nvidia" in line for line in distribution("torch").requires or [])
    names = ["stack", "test", "cuda" if cuda else "cpu"]
    output = tmp_path / "sbom.cdx.json"
    words = [word for name in names for word in ("--lock", f"{name}.txt")]
    command = [str(TOOL), str(LOCK / "sbom.py"), sys.prefix, "--name", "limbeck", *words, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bom = json.loads(output.read_text())
    addresses = {part["purl"].split("@")[0] for part in bom["components"] if "purl" in part}
    pins = SBOM["locked"]((LOCK / f"{name}.txt").read_text() for name in names)
    assert {f"pkg:pypi/{name}" for name in pins} <= addresses
    assert sum("licenses" in part for part in bom["components"]) > 0.8 * len(pins)
