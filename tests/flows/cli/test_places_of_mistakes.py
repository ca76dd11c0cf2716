"""A mistake is answered with its own place, before anything is computed: the line of the file, the option of the
command line, or the knob that names a source; in one sentence, without words of the library that finds it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Command
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import recipe_for

KIND = "task.kind: unknown task type 'clasification'; did you mean 'classification'? known are"
METRIC = "task.metrics names 'acuracy'; did you mean 'accuracy'?"
CRITERION = [{"metric": "acuracy", "at_least": 0.5}]
UNKNOWN = "gate.criteria: unknown metric 'acuracy'; did you mean 'accuracy'?"
ELSEWHERE = ("--set", "teacher.seed=3")
"""A setting that is right, and nothing of which may be blamed."""

MISTAKES: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "a task type": ({"task": {"kind": "clasification"}}, ELSEWHERE, "recipe.json, line {kind}: " + KIND),
    "a task type by --set": ({}, (*ELSEWHERE, "--set", "task.kind=clasification"), "limbeck: --set " + KIND),
    "a metric": ({"task": {"metrics": ["acuracy"]}}, ELSEWHERE, "recipe.json, line {metrics}: " + METRIC),
    "a metric by --set": (
        {},
        (*ELSEWHERE, "--set", "task.metrics=[acuracy]"),
        "limbeck: --set task.metrics: " + METRIC,
    ),
    "a criterion": ({"gate": {"criteria": CRITERION}}, ELSEWHERE, "recipe.json, line {criteria}: " + UNKNOWN),
    "a criterion by --set": (
        {},
        (*ELSEWHERE, "--set", f"gate.criteria={json.dumps(CRITERION)}"),
        "limbeck: --set gate.criteria: " + UNKNOWN,
    ),
    "a further metric": ({"scoring": {"metrics": ["aurok"]}}, ELSEWHERE, "did you mean 'auroc'?"),
    "a column": ({"task": {"text": "txet"}}, (), "has no text column 'txet'; it has text, label; did you mean 'text'?"),
    "a column of labels": ({"task": {"label": "lable"}}, (), "has no label column 'lable'"),
    "a class": ({"task": {"labels": ["negative", "neutral"]}}, (), "the label 'positive' is not one of"),
    "a strategy": (
        {"layer_dropping": {"strategies": ["contributon"], "drop": [1], "steps": 2}},
        (),
        "unknown layer-dropping strategy 'contributon'; did you mean 'contribution'?",
    ),
    "rows": ({"data": {"source": "nowhere.csv"}}, (), "limbeck: data.source: there is no file or folder 'nowhere.csv'"),
    "a teacher": ({"teacher": {"model": "./nowhere"}}, (), "limbeck: teacher.model: there is no file or folder"),
    "a start": ({}, ("--set", "students.half.start=./nowhere"), "limbeck: students.half.start: there is no file"),
    "a second teacher": (
        {"ensemble": {"teachers": [{"model": "./nowhere"}]}},
        (),
        "limbeck: ensemble.teachers.0.model: there is no file or folder",
    ),
    "truncated weights": ({"teacher": {"model": "truncated"}}, (), "model.safetensors is not a whole file of weights"),
    "no tokenizer": (
        {"teacher": {"model": "bare"}},
        (),
        "limbeck: teacher.model: {folder}/bare has no tokenizer; save",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two damaged models, beside a home of its own."""
    monkeypatch.setenv("LIMBECK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name in ("truncated", "bare"):
        shutil.copytree(tiny_bert, tmp_path / name)
    weights = tmp_path / "truncated" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for path in [*(tmp_path / "bare").glob("tokenizer*"), *(tmp_path / "bare").glob("vocab*")]:
        path.unlink()
    return tmp_path


def write_recipe(folder: Path, bert: Path, rows: Path, changes: dict[str, Any]) -> list[str]:
    """Write a recipe with changed sections, and return its lines; a model's name stands for its folder."""
    values = recipe_for(bert, rows, **SHORT).model_dump(mode="json", exclude_unset=True)
    for section, changed in changes.items():
        values[section] = {**(values.get(section) or {}), **changed}
    model = values["teacher"]["model"]
    values["teacher"]["model"] = str(folder / model) if model in ("truncated", "bare") else model
    (folder / "recipe.json").write_text(json.dumps(values, indent=1))
    return (folder / "recipe.json").read_text().splitlines()


@pytest.mark.parametrize("what", ["validate", "plan"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_own_place(
    folder: Path, command: Command, tiny_bert: Path, tiny_rows: Path, mistake: str, what: str
) -> None:
    changes, words, said = MISTAKES[mistake]
    lines = write_recipe(folder, tiny_bert, tiny_rows, changes)
    for name in ("kind", "metrics", "criteria"):
        line = next((number for number, text in enumerate(lines, 1) if f'"{name}":' in text), 0)
        said = said.replace(f"{{{name}}}", str(line))
    ended = command(what, "recipe.json", *words)
    assert ended.status == 1 and ended.error.count("\n") == 1, "one sentence"
    assert said.replace("{folder}", str(folder)) in ended.error and "teacher.seed" not in ended.error
    assert not any(word in ended.error for word in ("pydantic", "Value error", "validation error", "Traceback"))
