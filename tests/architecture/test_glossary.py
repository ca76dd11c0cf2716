"""Words of the glossary: identifiers have the terms of the field, not the words that were in use before.

``glossary_left.txt`` has the old words that are still there, one a line. It may only become shorter: a word that is
found and not listed fails, and so does one that is listed and not found. After a renaming, write it anew by

    python -m tests.architecture.test_glossary > tests/architecture/glossary_left.txt
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, SOURCES, parsed

LEFT = Path(__file__).with_name("glossary_left.txt")
A_VERB = "a verb with its object"
GLOSSARY = {
    "Parcel": "Artifact",
    "Bench": "StageContext",
    "class Frame": "StageSpec",
    "door": "stage task",
    "enter": "run_stage",
    "Goods": "SharedArtifacts",
    "Purse": "RunBudget",
    "Onlooker": "RunOptions, CancelSignal",
    "drive.py": "runner.py",
    "upkeep.py": "history.py, maintenance.py",
    "account.py": "run_metadata.py",
    "announcements.py": "events.py",
    "dispatch.py": "remote.py",
    "dispatching.py": "remote.py",
    "contrasts": "baseline_comparison",
    "contrasts.py": "baseline_comparison.py",
    "against": "baseline_comparison",
    "against.py": "baseline_comparison.py",
    "inspections": "error_analysis",
    "inspections.py": "error_analysis.py",
    "look": "error_analysis",
    "brought.py": "uploaded_sources.py",
    "travelling.py": "checkpoint_sync.py",
    "whole_buckets.py": "bucket_admin.py",
    "handling": "runtime_knob",
    "leaks.py": "data_leakage.py",
    "pulled.py": "verified_download.py",
    "graphs.py": "onnx_safety.py",
    "words.py": "messages.py",
    "page_words.py": "format.py",
    "page_answer.py": "headline.py",
    "page_parts.py": "sections.py",
    "Course": "TrainingSpec",
    "Cast": "TeacherStudent",
    "Lesson": "DistillationContext",
    "lesson.py": "context.py",
    "Crew": "ProcessGroup",
    "together.py": "distributed.py",
    "speaks": "is_main_process",
    "relating.py": "relations.py",
    "matching.py": "layers.py",
    "triple.py": "distilbert.py",
    "replacing.py": "theseus.py",
    "heads.py": "mlm_heads.py",
    "Varied": "AugmentedRows",
    "variants.py": "augmented_rows.py",
    "newest": "augmented_rows",
    "used_rows.py": "sparse_embedding.py",
    "admit": "activate",
    "settle": "flush_decay",
    "stepped": "after_step",
    "thrift": "cpu_optimisations",
    "prove": "check_capture",
    "def gone": A_VERB,
    "def far": A_VERB,
    "def plus": A_VERB,
    "def wanted": A_VERB,
    "def shown": A_VERB,
    "def told": A_VERB,
    "def said": A_VERB,
    "def plain": A_VERB,
    "def part": A_VERB,
    "def cut": A_VERB,
    "def narrow": A_VERB,
    "def weigh": "score_split",
    "def judge": "quantize_and_score",
    "def judging": "evaluate_gate",
    "crown": "log_best_candidate",
    "story": "log_stages",
    "class Standing": "RegistryState",
    "class Ways": "DeployOptions",
    "class Line": "Change",
    "class Word": "VersionOutcome",
    "class Against": "ChampionComparison, BaselineComparison",
    "nobody_knows": "unknown_gain",
    "invite": "print_run_link",
    "products.py": "matmul_libraries.py",
    "decisions.py": "alias_decisions.py",
}
"""Old words and new ones. ``x.py`` is a module, ``class X`` and ``def x`` only a class or a function. ``Xyz`` is also a
part of an identifier (``xyz_of``, ``XyzKey``); other words are identifiers of any kind."""
STORED = {"against": ("tasks/results/row.py", "tasks/report/results/results_file.py")}
"""Old words that are keys of stored files, and the modules that read and write these files."""


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield what a piece of code defines: classes and functions (by their kind, too), arguments and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from (f"class {node.name}", node.name)
            yield from (
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            )
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (f"def {node.name}", node.name)
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def parts_of(name: str) -> set[str]:
    """Return the words of an identifier, capitalised."""
    return {word.capitalize() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def old_words(names: set[str]) -> set[str]:
    """Return the old words that stand among identifiers."""
    parts = {word for name in names if " " not in name for word in parts_of(name)}
    return {word for word in GLOSSARY if word in names or (word[0].isupper() and word in parts)}


def found() -> set[str]:
    """Return the old words in the names of modules and rooms, and in what they define."""
    # There, heads and graphs are those of a task type.
    named = [path for path in SOURCES if path.parent.name != "task_types"]
    modules = {f"{path.stem}.py" for path in named} | {f"{path.parent.name}.py" for path in named}
    names = {
        name
        for path in SOURCES
        for name in identifiers(parsed(path))
        if path.relative_to(ROOT).as_posix() not in STORED.get(name, ())
    }
    return old_words(modules | names)


def left() -> list[str]:
    """Return the words of the list."""
    return LEFT.read_text().splitlines()


def test_no_old_word_comes_back() -> None:
    back = sorted(found() - set(left()))
    assert not back, "; ".join(f"{word}: say {GLOSSARY[word]}" for word in back)


def test_a_word_that_is_gone_is_off_the_list() -> None:
    gone = sorted(set(left()) - found())
    assert not gone, f"take these lines out of {LEFT.relative_to(ROOT)}: {', '.join(gone)}"


def test_the_list_is_sorted_and_has_words_of_the_glossary() -> None:
    assert left() == sorted(set(left())) and set(left()) <= set(GLOSSARY)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def keys_of(parcel: Artifact): pass", {"Parcel"}),
        ("class KeyedParcel: pass", {"Parcel"}),
        ("class Frame: pass", {"class Frame"}),
        ("def part(tensors): pass", {"def part"}),
        ("def run(part): pass", set()),
        ("class Context:\n    speaks: bool", {"speaks"}),
        ("self.thrift = True", {"thrift"}),
        ("def broadcast(values): pass", set()),
        ("parcel = 1", set()),
    ],
)
def test_old_words_are_found_in_definitions(code: str, words: set[str]) -> None:
    assert old_words(set(identifiers(ast.parse(code)))) == words


if __name__ == "__main__":
    print("\n".join(sorted(found())))
