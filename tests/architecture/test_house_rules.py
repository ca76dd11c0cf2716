"""The rules of the house, as tests."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import onnxruntime
import pytest

from tests.architecture.sources import ROOT, SOURCES, of_every, parsed

ADDED_TO_SYS_PATH = [Path(onnxruntime.__file__).parent / "transformers"]
"""Folders that a library adds to sys.path once it is imported, here onnxruntime.transformers: its modules are then
imported by bare names such as ``models``."""


def test_imports_go_one_way() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@of_every(sorted((ROOT / "flows").rglob("*.py")) + sorted((ROOT / "tasks").glob("*.py")))
def test_no_module_hides_a_library(path: Path) -> None:
    """A flow loaded by path puts its folder first on sys.path: a file named like a library would then be imported
    instead of it."""
    if path.stem not in ("__init__", "__main__"):
        assert path.stem not in sys.stdlib_module_names
        assert importlib.util.find_spec(path.stem) is None
        assert PathFinder.find_spec(path.stem, [str(folder) for folder in ADDED_TO_SYS_PATH]) is None


@pytest.mark.parametrize("path", sorted((ROOT / "tasks" / "methods").rglob("[a-z]*.py")), ids=lambda path: path.stem)
def test_every_method_names_its_paper(path: Path) -> None:
    assert "arXiv:" in path.read_text()


@of_every(SOURCES)
def test_nothing_that_could_run_foreign_code(path: Path) -> None:
    names = {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    text = path.read_text()
    assert "import pickle" not in text and "trust_remote_code=" not in text
    assert not names & {"unsafe_load", "torch_load"} and "torch.load(" not in text


@of_every(SOURCES)
def test_the_top_level_only_defines(path: Path) -> None:
    """Keys count the definitions that a stage can reach; a statement that changes one of them afterwards would not be
    seen."""
    defines = (
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
        ast.Import,
        ast.ImportFrom,
    )
    if path == ROOT / "tasks" / "__init__.py":
        return  # it has the package loaded from what was read of it, before any other module is
    for node in parsed(path).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_guard = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
        assert isinstance(node, defines) or is_text or is_guard, f"line {node.lineno}: {ast.unparse(node)[:60]}"
        for target in node.targets if isinstance(node, ast.Assign) else []:
            assert not isinstance(target, (ast.Attribute, ast.Subscript)), (
                f"line {node.lineno} changes what is defined elsewhere"
            )


@of_every(SOURCES)
def test_nothing_is_known_by_the_number_of_its_object(path: Path) -> None:
    """Such a number belongs to another object as soon as the first one is gone."""
    calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not [f"line {node.lineno}" for node in calls if isinstance(node.func, ast.Name) and node.func.id == "id"]


def test_help_is_light() -> None:
    code = (
        "import sys, flows.cli.app; print([m for m in ('torch','mlflow','prefect','transformers','datasets') if "
        "m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_knob_has_a_sentence() -> None:
    from tasks.recipe.knobs import Knobs

    def families(model: type) -> list[type]:
        return [model, *(inner for child in model.__subclasses__() for inner in families(child))]

    sections = {
        "data",
        "pretraining",
        "teacher",
        "corpus",
        "general_distillation",
        "augmentation",
        "transfer",
        "task_distillation",
        "students",
        "layer_dropping",
        "scoring",
        "speed",
        "gate",
        "resources",
        "ensemble",
    }
    shapes = {"layers", "hidden", "heads", "feed_forward", "vocabulary"}
    for model in families(Knobs):
        for name, field in model.model_fields.items():
            assert field.description or name in sections | shapes, f"{model.__name__}.{name}"
            assert name != "keys", f"{model.__name__}: dict() of a model takes its keys for a method"


@pytest.mark.parametrize("path", sorted((ROOT / "deployments" / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_recipes_are_valid_and_say_what_they_are(path: Path) -> None:
    from flows.run.recipe_file import load_recipe

    load_recipe(str(path))
    head = "".join(line for line in path.read_text().splitlines(keepends=True) if line.startswith("#"))
    assert all(f"# {part}: " in head for part in ("Result", "Cost", "Command"))
    for name, changes in changes_in(head):  # each names knobs that there are
        load_recipe(name or str(path), changes)


def changes_in(head: str) -> list[tuple[str, list[str]]]:
    """Return the changes by ``--set`` that a header names, those of several lines together, with the recipe of their
    command; empty for the header's own."""
    together = re.sub(r"\n#   (?=--set )", " ", head)
    commands = r"(?:limbeck (?:run|search) (\S+) )?(?:--budget \S+ )*((?:--set \S+(?: |$|\n)?)+)"
    return [
        (name, [word.rstrip(",.;)`") for word in re.findall(r"--set (\S+)", sets)])
        for name, sets in re.findall(commands, together)
    ]


def test_changes_of_a_header_are_found() -> None:
    head = "# limbeck search x --budget bytes=1MB --set a.b=1\n#   --set c=[0,1]\n# Another task: --set task=mrpc, or\n"
    assert changes_in(head) == [("x", ["a.b=1", "c=[0,1]"]), ("", ["task=mrpc"])]


def set_from_outside(path: Path) -> list[tuple[str, str]]:
    """Return module and name of every top-level value of ours that a test file assigns to."""
    tree = parsed(path)
    modules = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("flows", "tasks")
        for alias in node.names
    }
    targets = [target for node in ast.walk(tree) if isinstance(node, ast.Assign) for target in node.targets]
    return [
        (modules[target.value.id], target.attr)
        for target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in modules
    ]


def test_what_tests_set_is_there() -> None:
    """A value that was renamed would be set under its old name, without an error and without effect."""
    found = {(path, module, name) for path in (ROOT / "tests").rglob("*.py") for module, name in set_from_outside(path)}
    assert found, "tests shorten what would only be waited for"
    for path, module, name in found:
        spec = importlib.util.find_spec(module)
        assert spec is None or spec.origin is None or name in top_names(Path(spec.origin)), (
            f"{path.relative_to(ROOT)} sets {module}.{name}, which is not there"
        )


def top_names(path: Path) -> set[str]:
    """Return the names that the top level of a module binds."""
    names = set()
    for node in parsed(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)}
        names |= {node.name} if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else set()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    return names
