"""The README cannot lie: its commands exist, take the options that it shows, and the quick ones run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines() if line.strip()]
COMMANDS = [shlex.split(line, comments=True) for line in LINES]
OURS = [words[1:] for words in COMMANDS if words[0] == ".venv/bin/limbeck"]
QUICK = {"shelf", "init", "plan", "models", "runs", "janitor", "verify", "gc"}


def limbeck(*words: str, cwd: Path, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "LIMBECK_"))
    }
    environment |= {"LIMBECK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", *words], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_every_command_is_ours_or_make() -> None:
    targets = {
        name
        for names in re.findall(r"^([\w ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for name in names.split()
    }
    assert len(OURS) >= 12
    for words in COMMANDS:
        assert words[0] == ".venv/bin/limbeck" or (words[0] == "make" and words[1] in targets), words


@pytest.mark.parametrize("name", sorted({words[0] for words in OURS}))
def test_commands_take_the_options_shown(name: str) -> None:
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0
    for words in OURS:
        if words[0] == name:
            assert all(word in done.stdout for word in words if word.startswith("--"))


@pytest.mark.parametrize("words", [words for words in OURS if words[0] == "run"], ids=lambda words: str(len(words)))
def test_recipes_shown_are_valid_with_the_settings_shown(words: list[str], tmp_path: Path) -> None:
    kept = words[1 : words.index("--json")] if "--json" in words else words[1:]
    done = limbeck("validate", *kept, cwd=tmp_path, home=tmp_path)
    assert done.returncode == 0 and "is valid" in done.stdout, done.stderr


def test_quick_commands_run_in_the_order_shown(tmp_path: Path, tiny_bert: Path) -> None:
    rows = "".join(
        f"{text} {number},{label}\n"
        for number in range(40)
        for text, label in (("a good film", "yes"), ("a bad film", "no"))
    )
    (tmp_path / "mine.csv").write_text("text,label\n" + rows)
    shutil.copytree(tiny_bert, tmp_path / "bert")
    for words in [words for words in OURS if words[0] in QUICK]:
        fitting = ("teacher.model=bert", "students.half.layers=2", "students.half-without-teacher.layers=2")
        extra = [word for setting in fitting for word in ("--set", setting)] if words[0] == "plan" else []
        done = limbeck(*words, *extra, cwd=tmp_path, home=tmp_path / "home")
        assert done.returncode == 0, f"{words}: {done.stderr}"


def test_recipes_that_the_readme_names_are_on_the_shelf() -> None:
    shelf = {path.stem for path in (ROOT / "deployments" / "recipes").glob("*.yaml")}
    named = set(re.findall(r"`((?:sst2|mrpc|stsb)-[a-z-]+)`", README))
    assert named and named <= shelf


def test_the_shelf_shown_is_the_shelf() -> None:
    from flows.run.recipe_file import SHELF, read_yaml

    rows = [
        f"| `{path.stem}` | {read_yaml(path)['about']} |"
        for path in sorted(SHELF.glob("*.yaml"), key=lambda path: path.stem)
    ]
    assert [line for line in README.splitlines() if line in rows] == rows


def test_tables_of_results_are_printed_from_their_files() -> None:
    from flows.publish.results_folder import table_of

    tables = re.findall(r"<!-- table: (\S+) -->\n(.*?)\n<!-- end of table -->", README, re.DOTALL)
    printed = [(name, table_of(ROOT / "deployments" / "results", name)) for name, _ in tables]
    assert tables and tables == printed, (
        "run: limbeck results deployments/results --table FILE, and put what it prints between the two marks"
    )
    assert README[: README.index("\n|")].endswith(f"<!-- table: {tables[0][0]} -->"), (
        "the first table of all is one of them"
    )


def test_the_gate_shown_is_legal() -> None:
    from ruamel.yaml import YAML

    from tasks.recipe.judging import Gate

    shown = [block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if block.startswith("gate:")]
    assert shown and all(Gate.model_validate(YAML(typ="safe").load(block)["gate"]).criteria for block in shown)
