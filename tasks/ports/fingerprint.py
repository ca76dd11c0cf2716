"""Digests: of files, of folders, of the code that a stage can reach, of the machine where it matters; and the key made of them all.

Code counts by its syntax tree, so comments, docstrings and formatting are free. Of a family of choices (a dict of functions) only the entry
that the stage's knobs name counts, so a new method does not re-run the old ones.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import file_digest, sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rfc8785

from tasks.errors import StoreError
from tasks.ports.memo import remembered

ROOT = Path(__file__).resolve().parents[2]
NEVER_COUNTED = (
    "tasks.stage", "tasks.stage_progress", "tasks.session", "tasks.engine_process", "tasks.fork_server", "tasks.contracts", "tasks.errors", "tasks.job",
    "tasks.recipe", "tasks.ports.tracker", "tasks.ports.store", "tasks.ports.fingerprint", "tasks.ports.memo", "tasks.report", "tasks.catalog",
)  # fmt: skip
KEY_SCHEMA = 1

Definition = tuple[str, str]
"""A module and the name of something defined at its top level."""


# --- files -------------------------------------------------------------------------------------------------------------------------------


class HashMemo:
    """Remembers hashes by path, size, times and inode, so that a large file is read once per host, not once per run."""

    def __init__(self, path: Path) -> None:
        self.path, self.changed, self.lock = path, False, threading.Lock()
        try:
            self.known: dict[str, list[Any]] = json.loads(path.read_text())
        except (OSError, ValueError):
            self.known = {}

    def get(self, path: Path) -> str:
        """Return the sha256 of a file."""
        state = path.stat()
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]
        found = self.known.get(str(path))
        if found and found[0] == stamp:
            return str(found[1])
        digest = hash_now(path)
        with self.lock:
            self.known[str(path)], self.changed = [stamp, digest], True
        return digest

    def save(self) -> None:
        """Write the memo; losing it only costs time."""
        if not self.changed:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(self.known))
            temporary.replace(self.path)
        except OSError:
            return


@cache
def memo() -> HashMemo:
    """Return the memo of this home folder."""
    home = Path(os.environ.get("LIMBECK_HOME", "~/.limbeck")).expanduser()
    found = HashMemo(home / "cache" / "hashes.json")
    atexit.register(found.save)
    return found


def hash_now(path: Path) -> str:
    """Read a file and return its sha256."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def hash_file(path: Path, *, remember: bool = True) -> str:
    """Return the sha256 of a file, from memory where the file has not been touched since."""
    return memo().get(path.resolve()) if remember else hash_now(path)


# --- code --------------------------------------------------------------------------------------------------------------------------------


class Module:
    """The top level of one source file: definitions by name, and what imported names mean."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.definitions, self.imports = name, {}, {}
        self.read: dict[str, tuple[str, list[Definition]]] = {}
        for node in WithoutDocstrings().visit(ast.parse(source)).body:
            self.enter(node)

    def enter(self, node: ast.stmt) -> None:
        """Note what one top-level statement defines."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            bound = [name for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            self.definitions |= {name.id: node for name in bound}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self.definitions[node.target.id] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports |= imported(node)

    def piece(self, name: str, chosen: frozenset[str]) -> tuple[str, list[Definition]]:
        """Return the shape of a definition and what of ours it mentions; of the many keys of a run, most ask for the same pieces."""
        whole = self.definitions[name]
        node = narrowed(whole, chosen)
        if node is not whole:
            return shape_of(node), list(mentioned(self, node))
        if name not in self.read:
            self.read[name] = shape_of(node), list(mentioned(self, node))
        return self.read[name]


def imported(node: ast.Import | ast.ImportFrom) -> dict[str, tuple[str, str | None]]:
    """Return what an import statement binds: local name to (module, name in it)."""
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
    return {alias.asname or alias.name: (alias.name, None) for alias in node.names}


@cache
def sources() -> dict[str, str]:
    """Return the source of every module of ours by its name, read once a process: what is hashed is what is parsed, also while someone edits."""
    files = {path.relative_to(ROOT).with_suffix("").parts: path for path in (ROOT / "tasks").rglob("*.py")}
    return {".".join(parts[:-1] if parts[-1] == "__init__" else parts): path.read_text() for parts, path in sorted(files.items())}


@cache
def load_module(name: str) -> Module | None:
    """Parse one module of ours; None for anything else."""
    source = sources().get(name)
    return None if source is None else Module(name, source)


def is_counted(module: str) -> bool:
    """Tell whether a module's code is part of keys."""
    return module.split(".")[0] == "tasks" and not any(module == name or module.startswith(name + ".") for name in NEVER_COUNTED)


def code_digest(roots: Iterable[Definition], choices: Iterable[str]) -> str:
    """Return the digest of every definition that the roots can reach; ``choices`` are the names by which families of choices are asked.

    Reading the syntax takes most of a second for a whole recipe; while no source has changed, it is read once a machine.
    """
    asked = [(module, name) for module, name in roots], sorted(choices)
    digest: str = remembered("code", [sys.version, sources_sha256(), asked], lambda: read_digest(*asked))
    return digest


@cache
def sources_sha256() -> str:
    """Return one digest of all sources."""
    return sha256(json.dumps(sources()).encode()).hexdigest()


def read_digest(roots: Iterable[Definition], choices: Iterable[str]) -> str:
    """Read the sources for a code digest."""
    wanted, chosen = list(roots), frozenset(choices)
    reached: dict[Definition, str] = {}
    while wanted:
        module_name, name = wanted.pop()
        module = load_module(module_name) if is_counted(module_name) else None
        if module is None or (module_name, name) in reached:
            continue
        if name in module.definitions:
            reached[module_name, name], mentions = module.piece(name, chosen)
            wanted.extend(mentions)
        elif name in module.imports:
            wanted.append((module.imports[name][0], module.imports[name][1] or ""))
    parts = sorted(f"{module}:{name}:{shape}" for (module, name), shape in reached.items())
    return sha256("\n".join(parts).encode()).hexdigest()


def narrowed(node: ast.stmt, chosen: frozenset[str]) -> ast.stmt:
    """Of a family of choices keep only the entries that are asked for; where none is, keep all."""
    family = getattr(node, "value", None)
    if not isinstance(family, ast.Dict) or not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in family.keys):
        return node
    pairs = [(key, value) for key, value in zip(family.keys, family.values, strict=True) if getattr(key, "value", None) in chosen]
    if not pairs:
        return node
    keys, values = zip(*pairs, strict=True)
    return ast.Expr(ast.Dict(list(keys), list(values)))


def shape_of(node: ast.AST) -> str:
    """Return a definition's syntax tree as text, without positions."""
    return ast.dump(node)


class WithoutDocstrings(ast.NodeTransformer):
    """Strikes out every string that stands alone as a statement."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop a bare string."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def mentioned(module: Module, node: ast.AST) -> Iterator[Definition]:
    """Yield the definitions of ours that a piece of code mentions."""
    names = dict(module.imports)
    for inner in ast.walk(node):
        if isinstance(inner, (ast.Import, ast.ImportFrom)):
            names |= imported(inner)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in names and names[inner.id][1] is not None:
            yield names[inner.id][0], str(names[inner.id][1])
        elif isinstance(inner, ast.Name) and inner.id in module.definitions:
            yield module.name, inner.id
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in names:
            origin, part = names[inner.value.id]
            yield (f"{origin}.{part}" if part else origin), inner.attr


# --- keys --------------------------------------------------------------------------------------------------------------------------------


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of installed libraries, local build tags left out."""
    return {name: version_of(name) for name in names}


@cache
def version_of(library: str) -> str:
    """Return a library's version, read once a process."""
    return version(library).split("+")[0]


def device_class() -> str:
    """Say on what kind of hardware the numbers are made, without importing torch."""
    if os.environ.get("LIMBECK_DEVICE") != "cpu" and Path("/dev/nvidia0").exists():
        return "cuda"
    return "cpu-bf16" if "avx512_bf16" in cpuinfo() or "amx_bf16" in cpuinfo() else "cpu-fp32"


def hardware() -> str:
    """Say which machine figures of speed belong to."""
    return f"{cpu_model()} x {os.cpu_count()} {device_class()}"


def cpu_model() -> str:
    """Return the processor's name."""
    models = [line.split(":", 1)[1].strip() for line in cpuinfo().splitlines() if line.startswith("model name")]
    return models[0] if models else "unknown"


def gpu_model() -> str | None:
    """Return the name of the GPU that stages use here, as its driver gives it; None where they use none."""
    if device_class() != "cuda":
        return None
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True, capture_output=True, text=True, timeout=20)
        return asked.stdout.strip().splitlines()[0] if asked.stdout.strip() else "unknown"
    return "unknown"


@cache
def cpuinfo() -> str:
    """Return what Linux says of the processor; elsewhere nothing."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.is_file() else ""


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return canonical JSON; what has no canonical form is an error, never "no cache"."""
    try:
        return rfc8785.dumps(dict(values))
    except (rfc8785.CanonicalizationError, TypeError, ValueError) as error:
        raise StoreError(f"the key of a stage cannot be computed: {error}") from error


def key_of(explanation: Mapping[str, Any]) -> str:
    """Return the key of a stage, 256 bits in hex."""
    return sha256(canonical({"schema": KEY_SCHEMA, **explanation})).hexdigest()


def strings_in(value: Any) -> Iterator[str]:
    """Yield every string in nested knobs: the names that choose from families."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from strings_in(inner)


def differences(now: Mapping[str, Any], then: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the fields in which two explanations of a stage differ, as sentences."""
    for name in sorted({*now, *then}):
        ours, theirs = now.get(name), then.get(name)
        if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
            yield from differences(ours, theirs, f"{path}{name}.")
        elif ours != theirs:
            yield f"{path}{name}: {short(theirs)} → {short(ours)}"


def short(value: Any) -> str:
    """Shorten a value for one line."""
    text = str(value)
    return text[:8] + "…" if len(text) == 64 and text.isalnum() else text if len(text) <= 40 else text[:39] + "…"
