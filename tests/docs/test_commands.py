"""Commands, recipes, settings and code in the READMEs: they exist, take the options that are shown, and the quick ones
run."""

from __future__ import annotations

import importlib.util
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from flows.cli.app import app
from flows.deploy.pools import POOLS, read_site
from flows.run.recipe_file import SHELF, read_yaml
from tasks.recipe.recipe import Recipe
from tests import databases
from tests.command_line import Command
from tests.docs.readmes import PAGES, READMES, ROOT, blocks, commands_of, mentioned, name_of, ours, text_of

FRONT = ROOT / "README.md"
OTHERS = {
    "cp",
    "eval",
    "export",
    "helm",
    "kubectl",
    "make",
    "opentelemetry-instrument",
    "pip",
    "podman-compose",
    "prefect",
    "promtool",
    "python",
}
"""Programs of others, and of the shell, that a command may begin with."""
QUICK = ("shelf", "init", "plan", "models", "runs", "verify", "gc")
SHOWN = [words for path in PAGES for words in ours(commands_of(text_of(path)))]
"""Every command of ours in a block, in the order of the pages."""
MENTIONED = [words for path in PAGES for words in ours(list(mentioned(text_of(path))))]
RUNS = sorted({tuple(words) for words in SHOWN if words[0] == "run" and not words[1].endswith(".yaml")})


@cache
def help_of(name: str) -> str:
    """Return what a command says of itself."""
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0, f"there is no command {name}"
    return done.stdout


def targets() -> set[str]:
    """Return the targets of the Makefile."""
    named = re.findall(r"^([\w ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return {name for names in named for name in names.split()}


@pytest.mark.parametrize("path", READMES, ids=name_of)
def test_every_command_is_known(path: Path) -> None:
    for words in [*commands_of(text_of(path)), *mentioned(text_of(path))]:
        assert words[0].removeprefix(".venv/bin/") in {"limbeck", *OTHERS} or words[0].startswith("("), words
        if words[0] == "make":
            assert words[1] in targets(), words
        if words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), words


def test_the_front_page_shows_the_main_job_and_how_its_model_is_used() -> None:
    first = commands_of(text_of(FRONT))
    assert first[:2] == [["make", "demo"], ["make", "test"]]
    assert {words[0] for words in ours(first)} >= {"run", "init", "plan", "pull", "predict"}


@pytest.mark.parametrize("name", sorted({words[0] for words in [*SHOWN, *MENTIONED]}))
def test_commands_take_the_options_shown(name: str) -> None:
    for words in [*SHOWN, *MENTIONED]:
        if words[0] == name:
            assert all(word.split("=")[0] in help_of(name) for word in words if word.startswith("--")), words


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_recipes_shown_are_valid_with_the_settings_shown(words: tuple[str, ...]) -> None:
    kept = words[1 : words.index("--json")] if "--json" in words else words[1:]
    done = CliRunner().invoke(app, ["validate", *kept])
    assert done.exit_code == 0 and "is valid" in done.output, done.output


def test_quick_commands_run_in_the_order_shown(
    tmp_path: Path, tiny_bert: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those about rows of one's own; a plan of a recipe of the shelf would ask the hub for its data. The janitor, which
    starts a Prefect server, is run in `flows/run/test_interrupted.py`."""
    rows = "".join(
        f"{text} {number},{label}\n"
        for number in range(40)
        for text, label in (("a good film", "yes"), ("a bad film", "no"))
    )
    (tmp_path / "mine.csv").write_text("text,label\n" + rows)
    shutil.copytree(tiny_bert, tmp_path / "bert")
    quick = [words for words in SHOWN if words[0] in QUICK and (words[0] != "plan" or words[1] == "mine.yaml")]
    chosen = {" ".join(words): words for words in sorted(quick, key=lambda words: QUICK.index(words[0]))}
    assert {words[0] for words in quick} == set(QUICK)
    home = tmp_path / "home"
    databases.prepare(home)
    monkeypatch.setenv("LIMBECK_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    for words in chosen.values():
        fitting = ("teacher.model=bert", "students.half.layers=2", "students.half-without-teacher.layers=2")
        extra = [word for setting in fitting for word in ("--set", setting)] if words[0] == "plan" else []
        done = command(*words, *extra)
        assert done.status == 0, f"{words}: {done.error}"


# --- recipes, settings and code ---------------------------------------------------------------------------------------


def test_recipes_that_are_named_are_on_the_shelf() -> None:
    shelf = {path.stem for path in SHELF.glob("*.yaml")}
    named = {
        name for path in READMES for name in re.findall(r"`((?:sst2|mrpc|stsb|mnli|glue)-[a-z-]+)`", text_of(path))
    }
    assert named and named <= shelf


@pytest.mark.parametrize("path", [path for path in READMES if blocks(text_of(path), "yaml")], ids=name_of)
def test_parts_of_recipes_and_site_files_are_legal(path: Path, tmp_path: Path) -> None:
    for block in blocks(text_of(path), "yaml"):
        given = YAML(typ="safe").load(block)
        if set(given) <= set(POOLS):
            (tmp_path / "site.yaml").write_text(block)
            assert read_site(tmp_path / "site.yaml")
            continue
        values = dict(read_yaml(SHELF / f"{recipe_around(given)}.yaml"))
        Recipe.model_validate({**values, **{name: with_changes(values, name, part) for name, part in given.items()}})


def recipe_around(part: dict[str, Any]) -> str:
    """Return the recipe of the shelf of which a part of a recipe may be a part."""
    sets = part.get("data", {}).get("judge", {}).values()
    if any(one.get("kind") == "choices" for one in sets):
        return "next-words-small"
    if any(one.get("kind") == "retrieval" for one in sets):
        return "embedder-small"
    return "mnli-judged" if sets else "sst2-tinybert"


def with_changes(values: dict[str, object], name: str, part: object) -> object:
    """Return a section of a recipe with what a part shows of it."""
    there = values.get(name)
    return {**there, **part} if isinstance(there, dict) and isinstance(part, dict) else part


def test_snippets_of_python_can_be_read() -> None:
    found = [block for path in READMES for block in blocks(text_of(path), "python")]
    assert found and all(compile(block, "README", "exec") for block in found)


def test_variables_that_are_named_are_read_somewhere() -> None:
    sources = [path for place in ("flows", "tasks", "infra", "tests/benchmarks", "tests/flows") for path in
               (ROOT / place).rglob("*") if path.suffix in (".py", ".yaml")]  # fmt: skip
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    for path in READMES:
        for name in re.findall(r"LIMBECK_[A-Z_]+[A-Z]", text_of(path)):
            assert name in code, f"{name_of(path)}: {name}"


def test_the_demo_s_output_is_about_the_models_that_it_makes() -> None:
    shown = next(block for block in blocks(text_of(FRONT), "text") if " teacher " in block)
    recipe = Recipe.model_validate(read_yaml(SHELF / "demo.yaml"))
    made = ["teacher", *(one.name for one in recipe.planned)]
    lines = [line.split() for line in shown.splitlines() if " M " in line]
    assert [words[0] for words in lines] == made
    assert "--seeds" in shown and "--seeds" in help_of("demo")


def test_the_suite_s_output_is_in_the_words_of_the_suite() -> None:
    from tests import conftest, postgres

    shown = next(block for block in blocks(text_of(FRONT), "text") if "PostgreSQL" in block)
    words = "".join(Path(str(module.__file__)).read_text() for module in (conftest, postgres))
    for line in shown.splitlines():
        assert all(part in words for part in line.strip("= ").split(" was ")), line
