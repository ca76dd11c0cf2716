"""The list of knobs: complete, current as a file for editors, and right about every recipe of the shelf."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from flows.run.knob_list import SCHEMA_FILE, all_knobs, knobs_under, recipe_schema, schema_text
from flows.run.recipe_file import SHELF
from tasks.recipe.recipe import Recipe
from tests.command_line import command_line

RECIPES = sorted(SHELF.glob("*.yaml"))
CHECK = Draft202012Validator(recipe_schema())


def test_the_file_for_editors_is_what_the_code_gives() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run: python -m tests.docs"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_shelf_has_the_schema(path: Path) -> None:
    assert not list(CHECK.iter_errors(json.loads(json.dumps(YAML(typ="safe").load(path)))))


@pytest.mark.parametrize(
    "wrong", [{"teachr": {}}, {"teacher": {"batch_size": 0}}, {"students": [{"name": "half", "layers": "six"}]}]
)
def test_the_schema_refuses_what_a_run_would_refuse(wrong: dict[str, object]) -> None:
    assert list(CHECK.iter_errors({"name": "mine", "task": "sst2", **wrong}))


def test_every_knob_has_a_sentence_and_every_section_its_knobs() -> None:
    assert {knob.path for knob in all_knobs() if "." not in knob.path} == set(Recipe.model_fields)
    assert all(knob.sentence and knob.limits for knob in all_knobs())
    [layers] = knobs_under("students.layers")
    assert (layers.path, layers.default) == ("students[].layers", "required") and "at most 1,000" in layers.limits
    assert knobs_under("data.judge.source")[0].path == "data.judge.<name>.source"


def test_commands_about_knobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    listed = command_line(monkeypatch, capsys)("knobs").output
    assert "layer_dropping" in listed and str(SCHEMA_FILE) in listed
    shown = command_line(monkeypatch, capsys)("knobs", "scoring").output
    assert "scoring.resamples" in shown and "at least 100" in shown and "teacher." not in shown
    ended = command_line(monkeypatch, capsys)("knobs", "data.sourc")
    assert ended.status == 1 and ended.error == (
        "limbeck: there is no section and no knob 'data.sourc'; did you mean data.source?\n"
    )


def test_a_recipe_of_the_shelf_is_printed_with_its_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = command_line(monkeypatch, capsys)("shelf", "sst2-tinybert").output
    path = SHELF / "sst2-tinybert.yaml"
    assert printed == f"# {path}\n{path.read_text(encoding='utf-8')}"
    ended = command_line(monkeypatch, capsys)("shelf", "sst2-tinybrt")
    assert ended.status == 1 and "did you mean 'sst2-tinybert'?" in ended.error


def test_init_links_the_schema_and_its_recipe_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(60)))
    assert command_line(monkeypatch, capsys)("init", str(tmp_path / "mine.csv")).status == 0
    text = (tmp_path / "mine.yaml").read_text(encoding="utf-8")
    assert text.startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")
    assert not list(CHECK.iter_errors(YAML(typ="safe").load(text)))
