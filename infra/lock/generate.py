"""Write the locks beside this file: every package that Limbeck needs, pinned, with the sha256 of each file that an index serves for it.

    python infra/lock/generate.py [--upgrade]       (`make lock`, in an environment of its own; without --upgrade, pins that still fit stay)

- ``stack.txt``: what a run, the servers of a team and the images need.
- ``test.txt``: what tests need besides, and what chooses among the shapes of large spaces.
- ``cuda.txt``: the libraries that PyPI's torch for Linux asks for, and the one that counts the energy of GPUs. A torch for processors asks for
  none of them, and no marker tells the two builds apart, so they are a file of their own.
- ``cpu.txt``: torch for processors alone. An index may serve it under the same pin, so torch's entry in ``stack.txt`` has the hashes of both
  builds; pip prefers a file whose hash an index tells to one in a folder, so whoever wants this build asks for it by name first.
- ``dispatcher.txt`` and ``sbom.txt``: environments of their own in images, the first with Prefect's workers for ECS and Kubernetes, the second
  with the program that lists the packages of an image.

uv resolves for Linux and macOS and every Python that we support at once, from PyPI, and installs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.markers import Marker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LOCKS = "stack", "test", "cpu", "cuda"
SEPARATE = {
    "dispatcher": (ROOT / "deployments" / "pools" / "requirements.txt").read_text(),
    "sbom": "cyclonedx-bom>=7.5,<8\n",
}
"""Requirements of environments of their own, by the name of their lock; they share no package with ``LOCKS``."""
EXTRAS = "stack", "test", "energy", "search"
CUDA = re.compile(r"nvidia-|cuda-|triton")
PYTORCH_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
PLATFORMS = [
    {"sys_platform": name, "platform_system": system} for name, system in (("linux", "Linux"), ("darwin", "Darwin"))
]
PYTHONS = "3.11.0", "3.12.0", "3.13.0", "3.14.0"
COMPILE = (
    "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--default-index", "https://pypi.org/simple", "--python-version", "3.11",
    "--fork-strategy", "fewest",
)  # fmt: skip
"""uv's command. Each package has one version for all Pythons: a lock has one entry for each name."""
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def entries(text: str) -> dict[str, str]:
    """Split a lock into its entries, by the name of the package. Raises ValueError where a name has two: versions that
    differ by Python or platform."""
    found = re.findall(r"^[A-Za-z0-9][^#\n]*?(?:\\\n.*?)*(?=\n\S|\Z)", text, re.MULTILINE | re.DOTALL)
    by_name = {entry.split("==")[0]: entry.rstrip() for entry in found}
    if len(by_name) < len(found):
        twice = [name for name in by_name if sum(entry.split("==")[0] == name for entry in found) > 1]
        raise ValueError(f"a lock has one version of each package, and this has several of {', '.join(twice)}")
    return by_name


def is_ours(entry: str) -> bool:
    """Whether a package is installed on any platform and Python that we support."""
    marker = re.search(r";(.*?) \\", entry.split("\n")[0])
    if marker is None:
        return True
    places = [
        platform | {"python_version": python[:4], "python_full_version": python}
        for platform in PLATFORMS
        for python in PYTHONS
    ]
    return any(Marker(marker[1]).evaluate(place) for place in places)


def resolve(seed: str, *options: str, project: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Resolve the requirements of a project and those of our build; pins of the seed that still fit stay."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return compiled(seed, "\n".join(build), *options, str(project))


def compiled(seed: str, wanted: str, *options: str) -> dict[str, str]:
    """Resolve requirements that are given as text, and those that options name."""
    with tempfile.TemporaryDirectory() as folder:
        (source := Path(folder) / "wanted.in").write_text(wanted)
        (lock := Path(folder) / "lock.txt").write_text(seed)
        command = [*COMPILE, "--universal", "--generate-hashes", *options, "--output-file", str(lock), str(source)]
        subprocess.run(command, check=True, cwd=folder)
        return {name: entry for name, entry in entries(lock.read_text()).items() if is_ours(entry)}


def former_lock(name: str) -> dict[str, str]:
    """Return the entries of a lock as it is."""
    path = HERE / f"{name}.txt"
    return entries(path.read_text()) if path.exists() else {}


def newest(project: Path) -> dict[str, str]:
    """Return the newest version of each requirement of a project, whatever the others require."""
    words = [*COMPILE, "--no-deps", *(f"--extra={name}" for name in EXTRAS), str(project)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=project.parent)
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", done.stdout, re.MULTILINE))


def cpu_builds(version: str, former: str) -> Iterator[str]:
    """Yield the sha256 of torch's builds for processors: PyTorch's own, that of this machine's pip, and those that the former lock knew."""
    if former.startswith(f"torch=={version}+cpu "):
        yield from HASH.findall(former)
    try:
        with urllib.request.urlopen(PYTORCH_INDEX, timeout=20) as page:
            yield from re.findall(
                rf"torch-{re.escape(version)}(?:%2B|\+)cpu-[^\"#]*\.whl#sha256=([0-9a-f]{{64}})", page.read().decode()
            )
    except OSError as error:
        print(
            f"{PYTORCH_INDEX} cannot be reached ({error}): of its builds the lock has those that it had",
            file=sys.stderr,
        )
    with tempfile.TemporaryDirectory() as folder:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--dest",
            folder,
            f"torch=={version}+cpu",
        ]
        subprocess.run(pip, check=False, stderr=subprocess.DEVNULL)  # most indexes have none
        for wheel in Path(folder).glob("*.whl"):
            with wheel.open("rb") as opened:
                yield hashlib.file_digest(opened, "sha256").hexdigest()


def hashed(requirement: str, hashes: Iterable[str]) -> str:
    """Return an entry."""
    return " \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


def locks(
    former: Mapping[str, Mapping[str, str]],
    *,
    upgrade: bool,
    project: Path = ROOT / "pyproject.toml",
    packages: Sequence[str] = (),
) -> dict[str, dict[str, str]]:
    """Return the entries of each lock; the named packages are upgraded, or all of them."""
    pins = [entry for lock in ("stack", "test", "cuda") for entry in former[lock].values()]
    extras = (f"--extra={name}" for name in EXTRAS)
    newer = (f"--upgrade-package={name}" for name in packages)
    everything = resolve("" if upgrade else "\n".join(pins), *extras, *newer, project=project)
    stack = resolve("\n".join(everything.values()), "--extra", "stack", project=project)
    torch = everything["torch"].split(" \\\n")[0]
    cpu = set(cpu_builds(torch.removeprefix("torch=="), former["cpu"].get("torch", "")))
    everything["torch"] = hashed(torch, {*HASH.findall(everything["torch"]), *cpu})
    places = {name: "cuda" if CUDA.match(name) else "stack" if name in stack else "test" for name in everything}
    found = {lock: {name: entry for name, entry in everything.items() if places[name] == lock} for lock in LOCKS}
    return found | {"cpu": {"torch": hashed(f"{torch}+cpu", cpu)}}


def main() -> None:
    """Write the locks."""
    options = argparse.ArgumentParser(prog="infra/lock/generate.py")
    options.add_argument(
        "--upgrade", action="store_true", help="take the newest versions that fit, instead of those of the lock"
    )
    options.add_argument(
        "--only", choices=sorted(SEPARATE), action="append", help="one of the separate environments, and nothing else"
    )
    given = options.parse_args()
    if not given.only:
        for lock, found in locks({lock: former_lock(lock) for lock in LOCKS}, upgrade=given.upgrade).items():
            write(lock, found)
    for lock in given.only or SEPARATE:
        seed = "" if given.upgrade else "\n".join(former_lock(lock).values())
        write(lock, compiled(seed, SEPARATE[lock]))


def write(lock: str, found: Mapping[str, str]) -> None:
    """Write a lock, and say so."""
    lines = ["# Written by `make lock`; see infra/lock/generate.py.", *found.values()]
    path = HERE / f"{lock}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(found)} packages")


if __name__ == "__main__":
    main()
