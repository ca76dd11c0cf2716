"""Write a software bill of materials (CycloneDX) of a Python environment, and refuse one that is not the lock's.

    python infra/lock/sbom.py .venv --name limbeck --lock stack.txt --lock cpu.txt [--system] --output sbom.cdx.json

cyclonedx-py lists the packages with their licences and dependencies; it runs in an environment of its own
(``sbom.txt``), so that it does not list itself. Added here are the sha256 of each package from the lock and, with
``--system``, the Debian packages under the environment. Exit status 1, and no file, if a package of the lock is missing
or has another version, or if a package is installed that no lock knows.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
UNLOCKED = "limbeck", "pip", "setuptools"
"""Our own package, and what a new environment has before anything is installed."""
Component = dict[str, Any]
Locked = dict[str, tuple[Requirement, list[str]]]


def locked(texts: Iterable[str]) -> Locked:
    """Return the pins of locks that count on this platform, with their sha256, by name; a later lock wins."""
    found: Locked = {}
    for text in texts:
        for entry in re.findall(r"^[A-Za-z0-9].*(?:\n    .*)*", text, re.MULTILINE):
            pin = Requirement(entry.split(" \\\n")[0])
            if pin.marker is None or pin.marker.evaluate():
                found[canonicalize_name(pin.name)] = pin, re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)
    return found


def differences(components: Iterable[Component], pins: Locked) -> Iterator[str]:
    """Yield a sentence for each difference between what is installed and what the lock says."""
    installed = {canonicalize_name(component["name"]): component["version"] for component in components}
    for name, (pin, _) in pins.items():
        if name not in installed:
            yield f"{pin.name} is in the lock and not in the environment"
        elif not pin.specifier.contains(installed[name], prereleases=True):
            yield f"{pin.name} is {installed[name]} in the environment; the lock has {pin.specifier}"
    for name in sorted(set(installed) - set(pins) - set(UNLOCKED)):
        yield f"{name} {installed[name]} is in the environment and in no lock"


def with_hashes(component: Component, pins: Locked) -> Component:
    """Return a component with the sha256 of the files that an index serves for it; one of them was installed."""
    _, hashes = pins.get(canonicalize_name(component["name"]), (None, []))
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{component['name']}/{component['version']}/",
        "comment": "one of these files was installed",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in hashes],
    }
    return component | {"externalReferences": [*component.get("externalReferences", []), *([files] if hashes else [])]}


def system_components(listed: str, system: dict[str, str]) -> Iterator[Component]:
    """Yield the packages of ``dpkg-query``, one a line: name, version, architecture, separated by tabs."""
    for line in listed.splitlines():
        name, version, architecture = line.split("\t")
        place = f"arch={architecture}&distro={system['ID']}-{system['VERSION_ID']}"
        address = f"pkg:deb/{system['ID']}/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?{place}"
        yield {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def below_the_environment() -> list[Component]:
    """Return Python itself and the packages of the system."""
    query = ["dpkg-query", "--show", "--showformat=${Package}\t${Version}\t${Architecture}\n"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    version = platform.python_version()
    python = {"type": "application", "bom-ref": f"python@{version}", "name": "python", "version": version}
    return [
        python | {"purl": f"pkg:generic/python@{version}"},
        *system_components(listed, platform.freedesktop_os_release()),
    ]


def listed_packages(environment: Path, name: str) -> dict[str, Any]:
    """Return what cyclonedx-py says of an environment."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--no-validate"]
    done = subprocess.run([*command, str(environment)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cyclonedx-py could not read {environment}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    found["metadata"]["component"] = {"type": "container", "name": name, "bom-ref": name}
    return found


def valid(bom: dict[str, Any]) -> str:
    """Return the text of a bill, checked against the schema of CycloneDX."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(bom, indent=1, sort_keys=True) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.from_version(bom["specVersion"])).validate_str(text)
    if wrong is not None:
        sys.exit(f"the bill of materials is no valid CycloneDX: {wrong}")
    return text


def main(words: Sequence[str] | None = None) -> int:
    """Write the bill, or say why the environment is not the lock's."""
    asked = argparse.ArgumentParser(prog="infra/lock/sbom.py", description="List what an environment is made of.")
    asked.add_argument("environment", type=Path, help="folder of a virtual environment")
    asked.add_argument("--name", required=True, help="name of the image or program")
    asked.add_argument("--lock", action="append", required=True, help="a file of infra/lock; a later one wins")
    asked.add_argument("--system", action="store_true", help="list the Debian packages of this machine, too")
    asked.add_argument("--output", type=Path, required=True, help="file to write")
    given = asked.parse_args(words)
    pins = locked((HERE / name).read_text() for name in given.lock)
    bom = listed_packages(given.environment, given.name)
    wrong = list(differences(bom["components"], pins))
    if wrong:
        print("\n".join(["this environment is not that of the lock:", *wrong]), file=sys.stderr)
        return 1
    below = below_the_environment() if given.system else []
    bom["components"] = [*(with_hashes(component, pins) for component in bom["components"]), *below]
    given.output.write_text(valid(bom))
    print(f"{given.output}: {len(bom['components'])} components, {len(pins)} of them of the lock")
    return 0


if __name__ == "__main__":
    sys.exit(main())
