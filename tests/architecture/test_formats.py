"""Each file format is written and read by one module: its file names stand there as literals, and nowhere else.

The exceptions are what is left to do: a list may only become shorter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, of_every, parsed

FORMATS: dict[str, tuple[str, ...]] = {
    "tasks.ports.rows.row_files": ("*.parquet", "task.json", "before.json"),
    "tasks.ports.rows.document_files": ("documents.parquet",),
    "tasks.ports.rows.demo_language": ("train.parquet", "validation.parquet"),
    "tasks.prepare_rows": ("leaks.json",),
    "tasks.task_types.embedding.modules": ("config_sentence_transformers.json", "modules.json"),
    "tasks.search.latency_table": ("latency.json",),
    "tasks.training.answers": ("answers.safetensors",),
    "tasks.training.data.substitutes": ("candidates.parquet",),
    "tasks.training.data.contributions": ("contributions.json",),
    "tasks.training.data.corpora": ("index.json", "offsets.npy", "tokens.raw"),
    "tasks.training.pretraining.sentences": (
        "sentence_tokens.raw",
        "sentence_offsets.npy",
        "documents.npy",
        "sentences.json",
    ),
    "tasks.training.objectives.signals": ("index.json",),
    "tasks.training.objectives.signal_files": (
        "hidden.raw",
        "scores.raw",
        "token_scales.raw",
        "unit_scales.raw",
        "head_scales.raw",
    ),
    "tasks.training.writing.text_blocks": ("texts.parquet",),
    "tasks.training.checkpoints": ("state.json", "state.safetensors"),
    "tasks.training.dropping": ("similarity.json",),
    "tasks.training.models.supernet": ("norms.safetensors", "supernet.json"),
    "tasks.training.shrinking.supernet": ("shape_scores.json",),
    "tasks.engine.checkpoint_files": ("whole.json",),
    "tasks.engine.fork_server": ("job.json",),
    "tasks.scoring.predictions": ("predictions.parquet",),
    "tasks.scoring.evaluation": ("evaluation.json", "predictions.parquet", "learned.parquet"),
    "tasks.scoring.inspection_files": ("inspection.json", "texts.json"),
    "tasks.scoring.jobs": ("scorecard.json", "speed.json", "comparison.json"),
    "tasks.scoring.further.figures": ("further_metric.json",),
    "tasks.scoring.further.pooled": ("pooled.json",),
    "tasks.scoring.further.resamples": ("resamples.parquet",),
    "tasks.ports.own_metrics": ("metric.json",),
    "tasks.scoring.speed.texts": ("text_figures.json",),
    "tasks.scoring.packing": ("packed.json",),
    "tasks.scoring.onnx_models": ("onnx.json",),
    "tasks.ports.code.fingerprint": ("hashes.json",),
    "tasks.ports.store.folder": ("manifest.json",),
    "tasks.ports.tracking.runs": ("run/ledger.json", "run/recipe.json", "run/stages.json", "run/*.json"),
    "tasks.ports.tracking.run_files": ("run/result.json",),
    "tasks.ports.tracking.tracker": ("run/sweep.json",),
    "flows.publish.results_folder": ("literature.json",),
    "flows.cli.reproduce": ("recipe.json", "result.json"),
    "flows.api.__init__": ("answer.json",),
    "flows.home": ("servers.json",),
    "flows.stack.settings": ("stack.json", "secrets.json", "workers.json"),
    "flows.stack.backup": ("contents.json",),
}
"""The module that writes and reads a format, and the names of its files; ``*`` is what is filled in."""
TWO_FORMATS = {"predictions.parquet", "index.json"}
"""Names that files of two formats have."""
LEFT: dict[str, tuple[str, ...]] = {
    "flows.publish.report": ("run/*.json",),
    "flows.run.environment": ("stack.json",),
    "flows.stack.backup": ("secrets.json",),
    "tasks.ports.files.onnx_safety": ("onnx.json",),
    "tasks.ports.rows.table_files": ("state.json",),
    "tasks.ports.tracking.history": ("run/*.json",),
}
"""Modules that name a file of another module's format."""
OF_MODELS = re.compile(
    r"(\*|model|(.*_)?config|.*token.*|vocab|model\.safetensors\.index|dataset_(dict|infos?))\.(json|safetensors)"
)
"""Files that Hugging Face's libraries define."""
CONFIG, CONFIG_READERS = (
    "config.json",
    {
        "flows.branches.teacher",
        "flows.score_version",
        "tasks.exports.package",
        "tasks.modeling.registration",
        "tasks.architectures.judged_inputs",
        "tasks.ports.files.model_files",
        "tasks.ports.files.model_settings",
        "tasks.ports.files.sources",
        "tasks.ports.tracking.verified_download",
        "tasks.preflight",
        "tasks.scoring.speed.flops",
        "tasks.training.dropping",
    },
)
"""Modules that name a model's config by themselves."""
OUT_FILE = "OUT.json"
"""An example in the help of commands."""
PARQUET = {
    "flows.inference.predictions",
    "tasks.ports.rows.table_files",
    "tasks.ports.rows.row_files",
    "tasks.ports.rows.document_files",
    "tasks.training.data.substitutes",
    "tasks.training.writing.text_blocks",
    "tasks.scoring.predictions",
    "tasks.scoring.evaluation",
    "tasks.scoring.further.resamples",
}
"""Modules that call pyarrow's Parquet functions; ``tables`` reads and writes tables of users."""
FILE = re.compile(r"(run/)?[\w*]+\.(parquet|json|safetensors|npy|raw)")


def module_of(path: Path) -> str:
    """Return the name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def literals(tree: ast.AST) -> Iterator[str]:
    """Yield the strings in a piece of code, with ``*`` for what is filled in; docstrings are none of them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "*" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from literals(node)


def files_named(tree: ast.AST) -> set[str]:
    """Return the names of files of ours that stand in a piece of code."""
    last = (one if one.startswith("run/") else one.rpartition("/")[2] for one in literals(tree))
    return {name for name in last if FILE.fullmatch(name) and not OF_MODELS.fullmatch(name) and name != OUT_FILE}


@cache
def named_in(path: Path) -> frozenset[str]:
    """Return the names of files of ours that stand in a module."""
    return frozenset(files_named(parsed(path)))


def imports_parquet(tree: ast.AST) -> bool:
    """Tell whether a module imports pyarrow's Parquet functions, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(one.name == "pyarrow.parquet" for one in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            node.module == "pyarrow.parquet"
            or (node.module == "pyarrow" and any(one.name == "parquet" for one in node.names))
        ):
            return True
    return False


@of_every(SOURCES)
def test_a_file_of_a_format_is_named_by_the_module_of_the_format_alone(path: Path) -> None:
    module = module_of(path)
    others = named_in(path) - {*FORMATS.get(module, ()), *LEFT.get(module, ())}
    assert not others, f"read and write {sorted(others)} by their module, or enter a new format in FORMATS"


def test_the_table_of_formats_has_nothing_that_is_not_there() -> None:
    found = {module_of(path): named_in(path) for path in SOURCES}
    for table in (FORMATS, LEFT):
        for module, names in table.items():
            assert set(names) <= found[module], f"{module} no longer names {sorted(set(names) - found[module])}"


def test_no_further_module_reads_the_config_of_a_model() -> None:
    assert {module_of(path) for path in SOURCES if CONFIG in literals(parsed(path))} == CONFIG_READERS


def test_a_format_has_a_name_of_its_own() -> None:
    names = [name for names in FORMATS.values() for name in names]
    assert {name for name in names if names.count(name) > 1} == TWO_FORMATS


def test_parquet_is_read_and_written_by_the_modules_of_its_formats() -> None:
    assert {module_of(path) for path in SOURCES if imports_parquet(parsed(path))} == PARQUET


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('path = folder / "task.json"', {"task.json"}),
        ('path = folder / f"{split}.parquet"', {"*.parquet"}),
        ('path = f"{folder}/state.json"', {"state.json"}),
        ('path = "run/result.json"', {"run/result.json"}),
        ('"""Reads ``task.json``."""', set()),
        ('text = "write task.json by hand"', set()),
        ('path = folder / "config.json"', set()),
        ('suffixes = {".parquet"}', set()),
    ],
)
def test_names_are_found_in_code(code: str, found: set[str]) -> None:
    assert files_named(ast.parse(code)) == found


@pytest.mark.parametrize(
    "code", ["import pyarrow.parquet as pq", "from pyarrow import parquet", "def f():\n    import pyarrow.parquet"]
)
def test_imports_of_parquet_are_found(code: str) -> None:
    assert imports_parquet(ast.parse(code)) and not imports_parquet(ast.parse("import pyarrow as pa"))
