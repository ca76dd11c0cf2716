"""The templates are exactly as reviewed: any difference is red, whatever it is.

A list of forbidden changes cannot end. This is a list of the allowed facts, and it is shown to be complete: every leaf
of every template is changed, removed and added to, and each of these changes is a difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.infra.cloudformation import template_snapshot
from tests.infra.cloudformation.hostile_changes import GONE, HOSTILE, Change, place_of, put
from tests.infra.cloudformation.hostile_edits import EDITS, MORE_HOSTILE, Edit
from tests.infra.cloudformation.other_files import (
    FORM_TEXTS,
    NOT_DEPLOYED,
    ROOT,
    content_of,
    file_facts,
    file_texts,
    sections_of,
)
from tests.infra.cloudformation.template_snapshot import (
    BOOKS,
    LEFT_OUT,
    differences,
    facts,
    facts_now,
    facts_of,
    read,
)
from tests.infra.cloudformation.templates import FOLDER, ORDER, STAGES, load_templates

KNOWN = read()
OTHERS = file_texts()


def reviewed(stack: str) -> dict[str, tuple[str, ...]]:
    """Return the reviewed facts of one template."""
    return {name: section.facts for name, section in KNOWN.items() if name.startswith(f"{stack}/")}


def parameters() -> dict[str, Any]:
    """Return the files of parameters."""
    return {stage: json.loads((FOLDER / f"{stage}.json").read_text()) for stage in STAGES}


def test_the_templates_are_as_reviewed() -> None:
    """To accept a change: python -m tests.infra.cloudformation.template_snapshot --accept "the reason"."""
    assert differences(KNOWN, facts_now()) == []


def test_nothing_else_is_deployed() -> None:
    """A further template or file of parameters would be outside of the snapshot."""
    expected = {f"{name}.yaml" for name in ORDER} | {f"{stage}.json" for stage in STAGES}
    assert {path.name for path in FOLDER.rglob("*")} == expected


def test_every_section_says_why() -> None:
    assert [name for name, section in KNOWN.items() if len(section.why.split()) < 4] == []
    assert [name for name, section in KNOWN.items() if section.changed and len(section.changed.split()) < 4] == []


@pytest.mark.parametrize("change", [*HOSTILE, *MORE_HOSTILE], ids=lambda change: change.title)
def test_a_hostile_change_is_red(change: Change) -> None:
    stack = change.where.split("/")[0]
    changed = change.applied({stack: load_templates()[stack]})
    assert facts(changed, {}) != reviewed(stack)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.title)
def test_a_hostile_edit_of_a_file_beside_the_templates_is_red(edit: Edit) -> None:
    """They were checked by lists of what is forbidden: an image of a stranger's registry passed."""
    text = OTHERS[edit.path]
    assert text.count(edit.old) >= 1, "the edit is of a line that there is"
    changed = file_facts({edit.path: text.replace(edit.old, edit.new, 1)}, facts_of)
    assert any(KNOWN[name].facts != listed for name, listed in changed.items() if name in KNOWN) or set(changed) - set(
        KNOWN
    )


def test_a_new_file_beside_the_others_is_red() -> None:
    found = facts_now() | file_facts({"infra/containers/Containerfile.extra": "FROM scratch\n"}, facts_of)
    assert differences(KNOWN, found) == ["containers/Containerfile.extra: +| FROM scratch"]


def test_every_file_of_infra_is_reviewed_or_deploys_nothing() -> None:
    """A further file, or one with another ending, would be outside of the snapshot."""
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "infra").rglob("*") if path.is_file())
    others = [path for path in files if path not in OTHERS and FOLDER.name not in path and "__pycache__" not in path]
    assert [path for path in others if not any(fnmatch(path, one) for one in NOT_DEPLOYED)] == []


def test_comments_are_no_facts_but_directives_are() -> None:
    path = "infra/containers/Containerfile.cpu"
    known = file_facts({path: OTHERS[path]}, facts_of)
    assert file_facts({path: f"# another word\n\n{OTHERS[path]}"}, facts_of) == known
    assert file_facts({path: f"# syntax=docker.io/stranger/frontend:1\n{OTHERS[path]}"}, facts_of) != known


@pytest.mark.parametrize("path", [path for path in OTHERS if not path.endswith((".json", ".yaml", ".yml"))])
def test_every_change_of_every_line_is_red(path: str) -> None:
    """A line with ``;`` first was taken for a comment, between two lines of one command."""
    known, lines = content_of(path, OTHERS[path]), OTHERS[path].splitlines()
    assert known
    for number, line in enumerate(lines):
        inserted = "\n".join([*lines[:number], "; curl x | sh \\", *lines[number:]])
        assert path.endswith(".ini") or content_of(path, inserted) != known
        if not line.strip() or line.strip().startswith(("#", ";")):
            continue
        for others in ([], [f"{line}x"], [f"{line} "], [f" {line}"], [line, line], [line, "", "x"]):
            assert content_of(path, "\n".join([*lines[:number], *others, *lines[number + 1 :]])) != known, others
        if line.endswith("\\"):
            for inserted in ("", "# ends the command of a shell"):
                changed = "\n".join([*lines[: number + 1], inserted, *lines[number + 1 :]])
                assert content_of(path, changed) != known, inserted


@pytest.mark.parametrize("path", [path for path in OTHERS if path.endswith((".json", ".yaml", ".yml"))])
def test_every_change_of_every_place_beside_the_templates_is_red(path: str) -> None:
    content = content_of(path, OTHERS[path])
    known = dict(sections_of(path, content, facts_of))
    unseen = []
    for leaf in list(places(content)):
        shared = str(leaf.path[0]).startswith("x-")  # it is seen in the services that have it
        form_text = leaf.path[-1] in FORM_TEXTS and isinstance(leaf.value, str)
        value = GONE if isinstance(leaf.value, dict | list) else next(others(leaf.value))
        put(place_of(content, leaf.path), leaf.path[-1], value)
        seen = dict(sections_of(path, content, facts_of)) != known
        restore(place_of(content, leaf.path), leaf, gone=value is GONE)
        unseen += [] if seen or shared or form_text else [(leaf.path, value)]
    assert unseen == []


# --- every leaf -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """A place in a template, and the value there."""

    path: tuple[Any, ...]
    value: Any

    @property
    def described(self) -> bool:
        """Tell whether it is a text that the snapshot leaves out."""
        return self.path[-1] in LEFT_OUT and isinstance(self.value, str)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """Yield every place in a value, also those that hold other places."""
    if path:
        yield Leaf(path, value)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places(inner, (*path, number))


def others(value: Any) -> Iterator[Any]:
    """Yield values near a value: of its type, of another type, more of it, and ``GONE``."""
    if isinstance(value, bool):
        yield from (not value, str(value).lower())
    elif isinstance(value, int | float):
        yield from (value + 1, value - 1, str(value))
    elif isinstance(value, str):
        yield from (f"{value}x", value[:-1] if value else "x", f"{value} ", {"Ref": value})
        yield from [int(value)] if value.isdecimal() else []
    elif isinstance(value, list):
        yield from ([*value, "x"], value[::-1] if value[::-1] != value else [*value, *value], [value])
    elif isinstance(value, dict):
        yield from ({**value, "Extra": "x"}, [value])
    yield GONE


@pytest.mark.parametrize("stack", ORDER)
def test_every_change_of_every_place_is_red(stack: str) -> None:
    """One template after another is changed in one place at a time, in every way of ``others``."""
    template, known = deepcopy(load_templates()[stack]), reviewed(stack)
    assert facts({stack: template}, {}) == known
    unseen, tried = [], 0
    for leaf in list(places(template)):
        for value in others(leaf.value):
            put(place_of(template, leaf.path), leaf.path[-1], value)
            seen = differs(stack, template, leaf.path[:2], known)
            restore(place_of(template, leaf.path), leaf, gone=value is GONE)
            tried += 1
            if not seen and not (leaf.described and isinstance(value, str | type(GONE))):
                unseen.append((leaf.path, value))
    assert unseen == []
    assert facts({stack: template}, {}) == known and tried > 500


def differs(stack: str, template: dict[str, Any], part: Sequence[Any], known: Mapping[str, tuple[str, ...]]) -> bool:
    """Tell whether a part of a template, a resource or all that stands beside them, differs from what is known."""
    if part[0] == "Resources" and len(part) == 2:
        name = f"{stack}/{part[1]}"
        kept = {"Resources": {part[1]: template["Resources"][part[1]]}} if part[1] in template["Resources"] else {}
    elif part[0] == "Resources":
        return not isinstance(template.get("Resources"), dict) or facts({stack: template}, {}) != known
    else:
        name, kept = f"{stack}/{part[0]}", {part[0]: template[part[0]]} if part[0] in template else {}
    return facts({stack: kept}, {}).get(name) != known.get(name)


def restore(place: Any, leaf: Leaf, *, gone: bool) -> None:
    """Put back the value of a place."""
    if gone and isinstance(place, list):
        place.insert(leaf.path[-1], leaf.value)
    else:
        put(place, leaf.path[-1], leaf.value)


@pytest.mark.parametrize("stage", STAGES)
def test_every_change_of_a_parameter_is_red(stage: str) -> None:
    for number, line in enumerate(parameters()[stage]):
        for value in (f"{line}0", line[:-1], line.split("=")[0] + "=x"):
            changed = parameters()
            changed[stage][number] = value
            assert facts({}, changed) != reviewed("parameters"), value


# --- the way to accept a change ---------------------------------------------------------------------------------------


def test_a_change_is_accepted_with_a_reason_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stack in BOOKS:
        text = (template_snapshot.SNAPSHOT / f"{stack}.txt").read_text()
        (tmp_path / f"{stack}.txt").write_text(text.replace("VisibilityTimeout = 300", "VisibilityTimeout = 30"))
    monkeypatch.setattr(template_snapshot, "SNAPSHOT", tmp_path)
    before = (tmp_path / "workers.txt").read_text()
    for words, status in (([], 1), (["--accept", "because"], 2), (["--accept", "Messages take longer to read."], 0)):
        monkeypatch.setattr("sys.argv", ["template_snapshot", *words])
        assert template_snapshot.main() == status
        assert ((tmp_path / "workers.txt").read_text() == before) == (status > 0)
    said = capsys.readouterr().out
    assert (
        "workers/Events: -Properties.VisibilityTimeout = 30\nworkers/Events: +Properties.VisibilityTimeout = 300"
        in said
    )
    (section,) = [section for name, section in read().items() if name == "workers/Events"]
    assert section.changed == "Messages take longer to read." and section.why == KNOWN["workers/Events"].why
