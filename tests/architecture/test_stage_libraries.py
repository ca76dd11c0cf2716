"""A stage's key has the version of every library that its code imports: derived from the code, not from a list."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tasks.ports.code.fingerprint import library_versions
from tasks.stage.keys import OF_WRITTEN_TEXTS, further_libraries

ROOT = Path(__file__).resolve().parents[2]
FRAME = (
    "tasks.stage",
    "tasks.recipe",
    "tasks.contracts",
    "tasks.engine.job",
    "tasks.catalog",
    "tasks.errors",
    "tasks.engine.environment",
)
"""What every stage mentions and nothing is computed by."""
IMPLIED = {
    # transformers reads tokenizers by one library, SentencePiece models by another, and weights by a third.
    "transformers": {"tokenizers", "sentencepiece", "safetensors"},
    # torch writes graphs by these two.
    "torch.onnx": {"onnxscript", "onnx-ir", "onnx"},
    "onnxruntime.quantization": {"onnx"},
}
"""Libraries that another one loads for what is asked of it."""
OPTIONAL = {"sentencepiece", "executorch", "torchao"}
"""Libraries without which a stage works, or says how to install them."""
INSTALLED = packages_distributions()
Defined = tuple[str, str]


@cache
def tree_of(module: str) -> ast.Module | None:
    """Parse a module of ours; None for anything else."""
    path = ROOT.joinpath(*module.split("."))
    files = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return ast.parse(files[0].read_text()) if module.startswith("tasks") and files else None


def imported(nodes: Iterable[ast.AST]) -> dict[str, tuple[str, str]]:
    """Return what import statements bind: local name to module and name in it; no name stands for the module itself."""
    found: dict[str, tuple[str, str]] = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: (node.module or "", one.name) for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0]: (one.name, "") for one in node.names}
    return found


@cache
def top_of(module: str) -> tuple[dict[str, ast.stmt], dict[str, tuple[str, str]]]:
    """Return what a module of ours defines at its top level, and what it imports there."""
    tree = tree_of(module)
    assert tree is not None
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            defined |= {
                name.id: node
                for name in ast.walk(node)
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
    return defined, imported(tree.body)


@cache
def used_by(module: str, name: str) -> frozenset[Defined]:
    """Return what a definition mentions, as module and name; of an imported name, where it comes from."""
    defined, at_the_top = top_of(module)
    if name not in defined:
        return frozenset([at_the_top[name]] if name in at_the_top else [])
    nodes = list(ast.walk(defined[name]))
    inside = imported(nodes)
    names, found = at_the_top | inside, set(inside.values())
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            found.add((".".join(filter(None, names[node.value.id])), node.attr))
        elif isinstance(node, ast.Name):
            found.add(names.get(node.id, (module, node.id)))
    return frozenset(found)


def imported_by(roots: Iterable[Defined]) -> set[str]:
    """Return the foreign modules that the code behind some definitions imports, wherever it does."""
    waiting, seen, foreign = list(roots), set[Defined](), set[str]()
    while waiting:
        module, name = waiting.pop()
        if module.startswith(FRAME) or (module, name) in seen:
            continue
        seen.add((module, name))
        if module.split(".")[0] != "tasks":
            foreign.add(".".join(filter(None, (module, name))))
        elif tree_of(module) is not None:
            waiting += used_by(module, name)
    return foreign


def stages() -> list[Any]:
    """Return the specification of every stage."""
    files = [path for path in sorted((ROOT / "tasks").glob("*.py")) if "\n@stage(" in path.read_text()]
    stage_tasks = [
        stage_task
        for file in files
        for stage_task in vars(importlib.import_module(f"tasks.{file.stem}")).values()
        if hasattr(stage_task, "spec")
    ]
    return [stage_task.spec for stage_task in stage_tasks]


def job_of(spec: Any) -> list[Defined]:
    """Return the functions that an engine's job begins with."""
    tree = tree_of(f"{spec.module}.jobs")
    assert tree is not None
    [family] = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "JOBS"
    ]
    [job] = [
        value for key, value in zip(family.keys, family.values, strict=True) if ast.literal_eval(key) == spec.engine
    ]
    return [(f"{spec.module}.jobs", inner.id) for inner in ast.walk(job) if isinstance(inner, ast.Name)]


@cache
def needed_by(spec: Any) -> set[str]:
    """Return the libraries that a stage's body and its engine's job import, by the names under which they are
    installed."""
    roots = [(spec.body.__module__, spec.body.__name__), *(job_of(spec) if spec.engine else [])]
    foreign, installed = imported_by(roots), INSTALLED
    found = {
        installed[name.split(".")[0]][0].lower().replace("_", "-")
        for name in foreign
        if name.split(".")[0] in installed
    }
    return found.union(
        *(added for name, added in IMPLIED.items() if any(f"{one}.".startswith(f"{name}.") for one in foreign))
    )


@pytest.mark.parametrize("spec", stages(), ids=lambda spec: spec.name)
def test_a_stage_is_keyed_by_the_version_of_every_library_that_it_imports(spec: Any) -> None:
    # pydantic checks and changes no number; the version of ExecuTorch is on the card of a program, which is an input
    needed = needed_by(spec) - {"pydantic", *({"executorch"} if spec.engine != "export-program" else ())}
    assert needed, "every stage reads or computes something by a library"
    keyed = {*spec.libraries, *OF_WRITTEN_TEXTS}  # the latter by knobs, see below
    assert needed <= keyed, f"{spec.name} lacks {sorted(needed - keyed)}"
    missing = [
        name for name, known in library_versions(spec.libraries).items() if known == "none" and name not in OPTIONAL
    ]
    assert not missing, f"{missing}: no library is installed under these names"


def test_libraries_that_judge_written_texts_are_keyed_for_these_alone() -> None:
    for values in ({"task_type": "seq2seq"}, {"metric": "rouge_l"}, {"task": {"metrics": ["chrf", "bleu"]}}):
        assert further_libraries(values) == OF_WRITTEN_TEXTS
    assert further_libraries({"task_type": "next-words", "metrics": ["accuracy"], "steps": 3, "pair": None}) == ()


def test_the_tokenizers_version_is_in_the_key_of_all_stages_that_tokenize() -> None:
    found = {spec.name for spec in stages() if "tokenizers" in needed_by(spec)}
    assert {
        "prepare-corpus",
        "finetune-teacher",
        "answer-rows",
        "augment-text",
        "score-model",
        "export-onnx",
        "quantize-onnx",
    } <= found
    assert not {"prepare-rows", "contrast-models", "inspect-answers"} & found
