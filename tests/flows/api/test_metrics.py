"""Limbeck's metrics as modules of ``evaluate``, through evaluate's own functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flows.api import metric, metrics_module
from flows.recipes.metric_types import METRIC_TYPES
from tasks.errors import RecipeError
from tasks.metrics.metrics import METRICS, METRICS_OF_SCORES
from tasks.task_types.types import OF_GROUPS
from tests.architecture.sources import ROOT
from tests.command_line import Command

RANDOM = np.random.default_rng(0)
OF_VALUES = ("pearson", "spearman", "pearson_spearman", "mse")
ANSWERS = np.array(["none", "0 9 aa bb", "4 9 bb"])
"""No answer, one of two words, and one of the second word."""
CLASSES_N, LABELS_N = RANDOM.integers(0, 3, (2, 301))
VALUES_N, TRUTH_N = RANDOM.normal(size=(2, 301)) * [[1.0], [1e3]]


@pytest.fixture(autouse=True, scope="module")
def own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """``evaluate.load`` copies modules into a folder of the user's; here of the tests, one for all: a process imports
    the package around the copies once."""
    import evaluate

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


def inputs_of(name: str) -> dict[str, np.ndarray]:
    """Return inputs of a metric by the names that evaluate's users write."""
    if name in METRICS_OF_SCORES:
        return {"prediction_scores": VALUES_N, "references": LABELS_N % 2}
    if name in OF_VALUES:
        return {"predictions": VALUES_N, "references": TRUTH_N}
    if name.startswith("entity_"):
        return {"predictions": tag_texts(CLASSES_N), "references": tag_texts(LABELS_N)}
    if name.endswith("perplexity") or name == "bits_per_byte":
        counts = 1 + LABELS_N, 10 + CLASSES_N  # words and bytes
        return {"predictions": documents(abs(VALUES_N), counts[0]), "references": documents(*counts, abs(TRUTH_N))}
    if name == "average_precision":
        return {"predictions": lists_of(VALUES_N), "references": lists_of(LABELS_N % 2)}
    if name.startswith("squad_") or METRIC_TYPES[name] == "string":
        return {"predictions": ANSWERS[CLASSES_N], "references": ANSWERS[LABELS_N]}
    return {"predictions": CLASSES_N, "references": LABELS_N}


def tag_texts(tags_N: np.ndarray) -> np.ndarray:
    """Return sentences of two words, as texts of tag numbers."""
    return np.array([f"{tag} {2 * (tag // 2)}" for tag in tags_N])


def documents(*columns: np.ndarray) -> np.ndarray:
    """Return the numbers of each document as a text."""
    return np.array([" ".join(map(str, one)) for one in zip(*columns, strict=True)])


def lists_of(values_N: np.ndarray) -> np.ndarray:
    """Return each value, a 1 and a 0 as the texts of one query."""
    return np.array([f"{value} 1 0" for value in values_N])


@pytest.mark.parametrize("name", [name for name in (*METRICS, *METRICS_OF_SCORES) if name not in OF_GROUPS])
def test_a_loaded_metric_gives_the_figure_of_scoring_to_the_last_digit(name: str) -> None:
    """In batches, as in an evaluation loop, and at once."""
    import evaluate

    given, definition = inputs_of(name), {**METRICS, **METRICS_OF_SCORES}[name]
    expected = definition(*given.values())
    loaded = evaluate.load(metrics_module(), name)
    for start in range(0, 301, 64):
        loaded.add_batch(**{which: values[start : start + 64] for which, values in given.items()})
    assert loaded.compute() == {name: expected}
    assert metric(name).compute(**{which: values.tolist() for which, values in given.items()}) == {name: expected}
    assert loaded.description == definition.description


def test_several_metrics_are_combined_like_others_of_evaluate() -> None:
    import evaluate

    both = evaluate.combine([metric("macro_f1"), metric("accuracy")])
    assert set(both.compute(**inputs_of("accuracy"))) == {"macro_f1", "accuracy"}


def test_copied_metrics_give_the_same_figures_without_limbeck(tmp_path: Path, command: Command) -> None:
    """Elsewhere ``evaluate.load`` would advise to install packages of the names of ours, which are another's."""
    import evaluate

    done = command("metrics", "copy", str(tmp_path / "plain"))
    module = tmp_path / "plain" / "limbeck_metric.py"
    assert done.status == 0 and f'evaluate.load("{module}", NAME)' in done.output
    trees = [ast.parse(path.read_text()) for path in module.parent.iterdir()]
    names = {name.partition(".")[0] for tree in trees for name in imported_at_once(tree)}
    beside = {path.stem for path in module.parent.iterdir()}
    assert names - sys.stdlib_module_names - beside == {"datasets", "evaluate", "numpy"}
    for name in ("accuracy", "entity_f1", "micro_f1", "auroc", "pearson_spearman", "mse"):
        given, definition = inputs_of(name), {**METRICS, **METRICS_OF_SCORES}[name]
        assert evaluate.load(str(module), name).compute(**given) == {name: definition(*given.values())}
    for words, said in ((tmp_path / "plain", "exists already"), (tmp_path / "no" / "plain", "does not exist")):
        assert said in command("metrics", "copy", str(words)).error
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("acuracy",), "did you mean 'accuracy'"),
        (("no such",), "there are accuracy, "),
        ((), "name a metric, as in"),
        (("group_f1",), "judges groups of rows"),
    ],
)
def test_a_wrong_name_is_answered_with_the_known_ones(words: tuple[str, ...], said: str) -> None:
    import evaluate

    with pytest.raises(RecipeError, match=said):
        evaluate.load(metrics_module(), *words)
    if words:
        with pytest.raises(RecipeError, match=said):
            metric(*words)


def test_no_process_imports_evaluate_unless_a_user_asks_for_it() -> None:
    """It takes seconds; every command and every scoring would pay them."""
    everywhere = {path for room in ("flows", "tasks") for path in (ROOT / room).rglob("*.py")}
    modules = {"evaluate", "flows.recipes.limbeck_metric"}
    found = {path for path in everywhere if modules & set(imported_at_once(ast.parse(path.read_text())))}
    assert found == {Path(metrics_module())}


def imported_at_once(tree: ast.Module) -> list[Any]:
    """Return the modules that a file imports when it is imported itself: outside of functions, and
    not for a checker of types alone."""
    found, waiting = [], [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)
    return found
