"""The reviewed snapshot of the cloud's templates: every fact of every resource, parameter, condition and output; and of
the files beside them (``other_files.py``): containers, Kubernetes, alarms and work pools.

One file a template lies in ``snapshot/``, with one section a resource: why the resource is there, the reason of the
last change, and its facts, one a line. A template that says anything else is not deployed: the test is red until a
person has read the difference and has accepted it with a reason:

    python -m tests.infra.cloudformation.template_snapshot                               # show the differences
    python -m tests.infra.cloudformation.template_snapshot --accept "Why they are right"

A fact is a path and the JSON of what stands there. Lists and mappings that fit on a line are one fact; so a statement
of a policy or a rule of a security group is read at once.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

from tests.infra.cloudformation.other_files import GROUPS, file_facts, file_texts
from tests.infra.cloudformation.templates import FOLDER, ORDER, STAGES, Templates, load_templates

SNAPSHOT = Path(__file__).with_name("snapshot")
BOOKS = (*ORDER, "parameters", *GROUPS)
"""The files of the snapshot."""
WIDTH = 150
"""Characters of the JSON that stands on one line."""
LEFT_OUT = {
    "Description": "tells people what a template, a parameter, a role or an output is for; AWS decides nothing by it",
    "AlarmDescription": "the text of the e-mail that an alarm sends",
    "AssertDescription": "the message of a refused deployment",
}
"""Fields without a fact, and the reason. They are left out only where they hold plain text."""
NAMED = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True)
class Section:
    """What is known of one resource, or of one other part of a template."""

    why: str
    changed: str
    facts: tuple[str, ...]


Sections = dict[str, Section]


# --- facts ------------------------------------------------------------------------------------------------------------


def facts_of(value: Any, path: str = "") -> Iterator[str]:
    """Yield the facts of a value, in the order of its keys."""
    text = json.dumps(value, sort_keys=True, default=str)
    if not value or not isinstance(value, dict | list) or (path and len(text) <= WIDTH):
        yield f"{path} = {text}"
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            yield from facts_of(value[name], f"{path}.{key_name(name)}" if path else key_name(name))
    else:
        for number, item in enumerate(value):
            yield from facts_of(item, f"{path}[{number}]")


def key_name(name: Any) -> str:
    """Return a key as a part of a path; one that could be taken for a longer path is quoted."""
    return name if isinstance(name, str) and NAMED.fullmatch(name) else json.dumps(name, default=str)


def without_descriptions(value: Any) -> Any:
    """Return a value without the fields of ``LEFT_OUT``."""
    if isinstance(value, dict):
        return {
            name: without_descriptions(inner)
            for name, inner in value.items()
            if not (name in LEFT_OUT and isinstance(inner, str))
        }
    return [without_descriptions(inner) for inner in value] if isinstance(value, list) else value


def parts_of(templates: Templates, parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every part of the templates that has a section, by its name, and the files of parameters."""
    for stack, template in templates.items():
        for name, part in template.items():
            if name == "Resources":
                yield from ((f"{stack}/{resource}", content) for resource, content in part.items())
            elif name != "Description":
                yield f"{stack}/{name}", {name: part}
    for stage, values in parameters.items():
        yield f"parameters/{stage}", values


def facts(templates: Templates, parameters: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the facts of all templates and files of parameters, by section."""
    found = parts_of(templates, parameters)
    return {name: tuple(facts_of(without_descriptions(part))) for name, part in found}


def facts_now() -> dict[str, tuple[str, ...]]:
    """Return the facts of the templates and of the files beside them, as they are."""
    parameters = {stage: json.loads((FOLDER / f"{stage}.json").read_text()) for stage in STAGES}
    return facts(load_templates(), parameters) | file_facts(file_texts(), facts_of)


# --- the snapshot's files ---------------------------------------------------------------------------------------------


def read() -> Sections:
    """Read the snapshot."""
    return {
        f"{stack}/{name}": section
        for stack in BOOKS
        if (SNAPSHOT / f"{stack}.txt").is_file()
        for name, section in parsed((SNAPSHOT / f"{stack}.txt").read_text())
    }


def parsed(text: str) -> Iterator[tuple[str, Section]]:
    """Yield the sections of one file."""
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        told = dict(line.strip("# ").split(": ", 1) for line in lines if line.startswith("  # "))
        listed = tuple(line.strip() for line in lines if not line.startswith("  # "))
        yield head, Section(told["why"], told.get("changed", ""), listed)


def written(sections: Sections, stack: str) -> str:
    """Return the file of one stack."""
    blocks = []
    for name, section in sections.items():
        if name.startswith(f"{stack}/"):
            told = [f"  # why: {section.why}", *([f"  # changed: {section.changed}"] if section.changed else [])]
            blocks.append("\n".join([name.split("/", 1)[1], *told, *(f"  {fact}" for fact in section.facts)]))
    return "\n\n".join(blocks) + "\n"


def accepted(known: Sections, found: Mapping[str, tuple[str, ...]], reason: str) -> Sections:
    """Return the snapshot with everything that differs accepted for one reason."""
    return {
        name: known[name]
        if name in known and known[name].facts == listed
        else Section(known[name].why if name in known else reason, reason if name in known else "", listed)
        for name, listed in found.items()
    }


def differences(known: Sections, found: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return every line in which the templates and the snapshot differ, with the name of its section."""
    lines = []
    for name in dict.fromkeys([*known, *found]):
        before, after = (known[name].facts if name in known else ()), found.get(name, ())
        if before != after or (name in known) != (name in found):
            changed = list(unified_diff(before, after, n=0, lineterm=""))[2:]
            lines += [f"{name}: {line}" for line in changed if not line.startswith("@@")] or [f"{name}: is new or gone"]
    return lines


def main() -> int:
    """Show the differences, or accept them with a reason."""
    asked = argparse.ArgumentParser(prog="python -m tests.infra.cloudformation.template_snapshot")
    asked.add_argument("--accept", metavar="REASON", help="write the differences to the snapshot, with this reason")
    reason = asked.parse_args().accept
    known, found = read(), facts_now()
    told = differences(known, found)
    print("\n".join(told) or "the templates are as reviewed")
    if reason is None:
        return int(bool(told))
    if len(reason.split()) < 4 or "\n" in reason:
        print("--accept: give a sentence, on one line, that says why the differences are right", file=sys.stderr)
        return 2
    sections = accepted(known, found, reason)
    for stack in BOOKS:
        (SNAPSHOT / f"{stack}.txt").write_text(written(sections, stack))
    return 0


if __name__ == "__main__":
    sys.exit(main())
