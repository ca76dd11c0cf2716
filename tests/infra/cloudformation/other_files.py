"""The facts of the files beside the templates that say what runs, as whom and from where: containers, Kubernetes, the
alarms of servers, and the work pools.

They belong to the reviewed snapshot (``template_snapshot.py``). A file of YAML or JSON has the facts of its values, any
other has its lines without comments; the directives of a Containerfile are comments that count.
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
    "kubernetes": ("infra/kubernetes/*.yaml",),
    "monitoring": ("infra/monitoring/alarms.yml", "infra/monitoring/prometheus.yml"),
    "pools": ("deployments/pools/*.json",),
}
"""Which files each file of the snapshot is about."""
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
    return dict(section for path, text in texts.items() for section in sections_of(path, text, facts_of))


def sections_of(path: str, text: str, facts_of: FactsOf) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the sections of one file: one for a file, and of compose.yaml one for each service."""
    name = f"{group_of(path)}/{Path(path).name}"
    if path.endswith(".json"):
        yield name, tuple(facts_of(without_form_texts(json.loads(text))))
    elif path.endswith((".yaml", ".yml")):
        content: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)  # noqa: S506 - a safe loader
        if "services" in content:
            for service, part in content.pop("services").items():
                yield f"{name} {service}", tuple(facts_of(part))
            content = {key: part for key, part in content.items() if not key.startswith("x-")}
        yield name, tuple(facts_of(content))
    else:
        yield name, tuple(f"| {line}" for line in lines_that_count(text))


def group_of(path: str) -> str:
    """Return the file of the snapshot to which a file belongs."""
    return next(group for group, patterns in GROUPS.items() if any(Path(path).match(one) for one in patterns))


def lines_that_count(text: str) -> Iterator[str]:
    """Yield the lines of a file without comments and empty lines."""
    for line in map(str.strip, text.splitlines()):
        if line and (not line.startswith(("#", ";")) or DIRECTIVE.match(line)):
            yield line


def without_form_texts(value: Any) -> Any:
    """Return a pool's file without the texts of its form."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if not (name in FORM_TEXTS and isinstance(inner, str))}
        return {name: without_form_texts(inner) for name, inner in kept.items()}
    return [without_form_texts(inner) for inner in value] if isinstance(value, list) else value
