"""The facts of the files beside the templates that say what runs, as whom and from where: containers, Kubernetes, the
alarms of servers, and the work pools.

They belong to the reviewed snapshot (``template_snapshot.py``). A file of YAML or JSON has the facts of its values, any
other has its lines. Only what can be nothing but a comment or an empty line is left out: the directives of a
Containerfile count, and so does what follows a line that is continued, or stands in a file with a here-document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.infra.cloudformation.templates import FOLDER

ROOT = FOLDER.parents[1]
GROUPS = {
    "containers": ("infra/compose.yaml", "infra/containers/*"),
    "kubernetes": ("infra/kubernetes/*.y*ml", "infra/kubernetes/*.json"),
    "monitoring": ("infra/monitoring/alarms.yml", "infra/monitoring/prometheus.yml"),
    "pools": ("deployments/pools/*.json",),
}
"""Which files each file of the snapshot is about."""
NOT_DEPLOYED = (
    "infra/*.md",
    "infra/kubernetes/README.md",
    "infra/lock/*",
    "infra/monitoring/alarms-test.yml",
    "infra/monitoring/dashboard.json",
)
"""Files of ``infra`` outside of the snapshot: texts, the locked packages, which have hashes and tests of their own, the
tests of the alarms, and the dashboard, which only shows."""
FORM_TEXTS = ("description", "title")
"""Texts of a pool's form, which decide nothing. They are left out only where they are plain text."""
DIRECTIVE = re.compile(r"#!|#\s*(syntax|escape|check)\s*=", re.IGNORECASE)
FactsOf = Callable[[Any], Iterator[str]]


def file_texts() -> dict[str, str]:
    """Return the text of every file, by its path in the repository."""
    paths = (path for patterns in GROUPS.values() for pattern in patterns for path in sorted(ROOT.glob(pattern)))
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths if path.is_file()}


def file_facts(texts: Mapping[str, str], facts_of: FactsOf) -> dict[str, tuple[str, ...]]:
    """Return the facts of files, by section."""
    contents = ((path, content_of(path, text)) for path, text in texts.items())
    return dict(section for path, content in contents for section in sections_of(path, content, facts_of))


def content_of(path: str, text: str) -> Any:
    """Return what the snapshot has of a file: the value of YAML or JSON, or the lines that count."""
    if path.endswith(".json"):
        return json.loads(text)
    if path.endswith((".yaml", ".yml")):
        return yaml.load(text, yaml.CSafeLoader)  # noqa: S506 - a safe loader
    return tuple(lines_that_count(text, (";", "#") if path.endswith(".ini") else ("#",)))


def sections_of(path: str, content: Any, facts_of: FactsOf) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sections of one file: one for a file, and of compose.yaml one for each service."""
    name = f"{group_of(path)}/{Path(path).name}"
    if isinstance(content, tuple):
        yield name, content
        return
    if path.endswith(".json"):
        content = without_form_texts(content)
    elif "services" in content:
        for service, part in content["services"].items():
            yield f"{name} {service}", tuple(facts_of(part))
        # What services share (x-...) stands in each of them.
        content = {key: part for key, part in content.items() if key != "services" and not key.startswith("x-")}
    yield name, tuple(facts_of(content))


def group_of(path: str) -> str:
    """Return the file of the snapshot to which a file belongs."""
    return next(group for group, patterns in GROUPS.items() if any(Path(path).match(one) for one in patterns))


def lines_that_count(text: str, comments: tuple[str, ...]) -> Iterator[str]:
    """Yield the lines of a file, without comments and empty lines where they can be nothing else."""
    before = ""
    for line in text.splitlines():
        bare = line.strip()
        says_nothing = not bare or (bare.startswith(comments) and not DIRECTIVE.match(bare))
        if not says_nothing or before.endswith("\\") or "<<" in text:
            yield f"| {line}".rstrip() if line == line.rstrip() else f"| {line!r}"
        before = line


def without_form_texts(value: Any) -> Any:
    """Return a pool's file without the texts of its form."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if not (name in FORM_TEXTS and isinstance(inner, str))}
        return {name: without_form_texts(inner) for name, inner in kept.items()}
    return [without_form_texts(inner) for inner in value] if isinstance(value, list) else value
