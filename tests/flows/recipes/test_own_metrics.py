"""Metrics beside the task's: AUROC, and modules of ``evaluate`` that the machine's owner registers, through the command
line and a run."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import sklearn.metrics
from pydantic import ValidationError

from flows.api import metric
from flows.cli.runner import planned_records, run_recipe
from flows.home import Home
from flows.recipes.own_metrics import limbeck_metrics
from tasks.engine.events import EngineOrder
from tasks.engine.job import Job
from tasks.errors import RecipeError
from tasks.ports.own_metrics import digest_of, metric_files, metric_folder
from tasks.ports.rows.row_files import read_split
from tasks.ports.store.open import open_store
from tasks.recipe.recipe import Recipe
from tasks.scoring.further.trial import TrialFacts, try_metric
from tasks.scoring.predictions import read_predictions
from tests.command_line import Command
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import recipe_for

MODULE = """
import datasets
import evaluate
import numpy as np

class Mine(evaluate.Metric):
    def _info(self):
        kind = datasets.Value("{kind}")
        features = datasets.Features({{"{reads}": kind, "references": kind}})
        return evaluate.MetricInfo(description="mine", citation="", features=features)

    def _compute(self, {reads}, references):
        found, true = np.asarray({reads}), np.asarray(references)
        {body}
"""
RECALL = "return {'mine': float(((found == 1) & (true == 1)).sum() / max(1, (true == 1).sum()))}"
CRITERIA = [
    {"metric": "parameters", "at_most": 1e9},
    {"metric": "own/mine", "at_least": 0.0, "worst_of": ["validation", "other"]},
    {"metric": "auroc", "test": "non-inferiority", "relative_to": "teacher", "tolerance": 1.0},
]


def write_metric(folder: Path, body: str = RECALL, *, reads: str = "predictions", kind: str = "int64") -> Path:
    """Write a module; return its file."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(MODULE.format(body=body, reads=reads, kind=kind))
    return folder / "mine.py"


@pytest.fixture
def owner(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of a machine's owner."""
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.own_tracking_uri)
    return home


def recipe_with(bert: Path, rows: Path, *metrics: str, **changes: Any) -> Recipe:
    """Return a short recipe with further metrics."""
    scoring = {"resamples": 100, "max_length": 16, "metrics": list(metrics)}
    return recipe_for(bert, rows, **SHORT | {"scoring": scoring} | changes)


def other_rows(folder: Path) -> dict[str, str]:
    """Write the rows of a judging set; return its section of a recipe."""
    rows = [
        f"{('it was fine', 'it was poor')[one % 2]} for once {one},{('positive', 'negative')[one % 2]}"
        for one in range(12)
    ]
    (folder / "other.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return {"source": str(folder / "other.csv")}


def missing(recipe: Recipe, home: Home) -> set[str]:
    """Return the stages that a run would compute."""
    return {record.display_name for record in planned_records(recipe, home) if record.cache == "miss"}


async def try_here(module: str, order: EngineOrder, workspace: Path, listen: Any) -> TrialFacts:
    """Try a metric in this process: a new one imports ``evaluate`` for five seconds."""
    job = Job(order, silent=True)
    job.output.mkdir()
    return try_metric(job)


def test_a_metric_is_registered_used_changed_and_removed(
    owner: Home, command: Command, prefect_server: None, engines_here: None, tiny_bert: Path, tiny_rows: Path,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rows_and_set = {"data": {"source": str(tiny_rows), "selection_rows": 20, "judge": {"other": other_rows(tmp_path)}}}
    plain = recipe_with(tiny_bert, tiny_rows, **rows_and_set)
    recipe = recipe_with(
        tiny_bert,
        tiny_rows,
        "auroc",
        "macro_f1",
        "own/mine",
        **rows_and_set,
        gate={"criteria": CRITERIA, "leakage": 1.0, "split": "validation"},
    )
    file = tmp_path / "recipe.json"
    file.write_text(json.dumps(recipe.model_dump(mode="json")))
    for words in (("validate", str(file)), ("plan", str(file)), ("run", str(file))):
        refused = command(*words)
        assert refused.status == 1 and "own/mine is not registered on this machine" in refused.error
        assert "limbeck metrics add PATH" in refused.error and refused.error.count("\n") == 1

    module = write_metric(tmp_path / "own")
    added = command("metrics", "add", str(module), "--about", "Recall.")
    assert added.status == 0 and "registered own/mine for classification" in added.output
    kept = metric_folder(owner.root, "mine")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept, kept / "files")} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.rglob("*.*")} == {0o600}
    assert "own/mine" in command("metrics", "list").output and command("validate", str(file)).status == 0

    run_recipe(plain, home=owner)
    stages = {"score-metric/auroc", "score-metric/macro_f1", "score-own-metric/mine"}
    stages |= {f"{stage} on other" for stage in stages}
    assert missing(recipe, owner) == stages, "the models are not asked again"
    result = run_recipe(recipe, home=owner)
    store = open_store(owner.store, owner.cache)
    by_name = {record.display_name: record.artifact for record in planned_records(recipe, owner)}
    places = {"": ("prepare-rows", "score-model/"), " on other": ("prepare-judging-set/other", "score-judging-set/")}
    for where, (prepared, scored) in places.items():
        rows = read_split(store.folder(by_name[prepared]), "validation")
        for model in result["models"]:
            card = store.folder(by_name[f"{scored}{model['name']}{where}"])
            own = next(one for one in read_predictions(card) if (one.split, one.seed) == ("validation", 0)).in_order(
                rows.ids
            )
            scores = own.outputs["logits"][:, 1].astype(float) - own.outputs["logits"][:, 0]
            found = model["judged"]["other"]["metrics"] if where else model["metrics"]["validation"]
            trusted = {
                "auroc": sklearn.metrics.roc_auc_score(rows.labels_N, scores),
                "own/mine": sklearn.metrics.recall_score(rows.labels_N, own.predictions_N),
                "macro_f1": sklearn.metrics.f1_score(rows.labels_N, own.predictions_N, average="macro"),
            }
            assert {name: found[name]["value"] for name in trusted} == pytest.approx(trusted)
            assert all(one["low"] <= one["value"] <= one["high"] for one in found.values())
            for name in ("accuracy", "f1", "macro_f1"):
                same = metric(name).compute(predictions=own.predictions_N, references=rows.labels_N)
                assert same == {name: found[name]["value"]}, "evaluate gives the figure of the card, to the last digit"
            same = metric("auroc").compute(prediction_scores=scores, references=rows.labels_N)
            assert same == {"auroc": found["auroc"]["value"]}
    reasons = " ".join(result["models"][1]["reasons"])
    assert "own/mine" in reasons and "auroc" in reasons and "unknown" not in reasons
    assert "on other, the worst of this and validation" in reasons or "on validation, the worst of" in reasons

    (metric_files(owner.root, "mine") / "mine.py").write_text(module.read_text() + "\n# edited\n")
    refused = command("plan", str(file))
    assert refused.status == 1 and "are not those that were registered" in refused.error
    write_metric(tmp_path / "own", RECALL + "  # another")
    again = command("metrics", "add", str(module))
    assert again.status == 1, "an edited one is not taken for the registered one"
    monkeypatch.setattr("flows.recipes.own_metrics.run_engine", try_here)  # the first trial had a process of its own
    assert command("metrics", "add", str(module), "--replace").status == 0
    assert missing(recipe, owner) == {"score-own-metric/mine", "score-own-metric/mine on other"}
    assert missing(plain, owner) == set()
    write_metric(tmp_path / "own")
    assert "has changed since" in command("validate", str(file)).output
    assert command("metrics", "remove", "own/mine").status == 0
    assert "is not registered" in command("metrics", "remove", "mine").error and not kept.exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 1 / 0", "raised ZeroDivisionError on 200 rows: division by zero"),
        ("return {'other': 1.0}", r"returns a dict with \['other'\]; return a dict with the figure under its name"),
        ("return {'mine': float('nan')}", "is nan on some rows"),
        ("return {'mine': found}", "returns ndarray under mine; return one number"),
        (f"print('hello'); {RECALL}", r"prints \('hello'\)"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "wants the network or another process"),
        (f"import os\n        try: os.system('true')\n        except OSError: pass\n        {RECALL}", "process"),
        ("import random; return {'mine': random.random()}", "for the same rows; draw nothing"),
        ("return {'mine': float(found[:50].mean())}", "depends on the order of rows"),
        ("raise SystemExit", "raised SystemExit"),
    ],
)  # fmt: skip
def test_a_broken_metric_fails_its_trial_in_one_sentence(tmp_path: Path, body: str, said: str) -> None:
    tried(write_metric(tmp_path / "files", body).parent, tmp_path, said)


def test_a_module_without_a_metric_fails_its_trial_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "mine.py").write_text("x = 1\n")
    tried(tmp_path / "files", tmp_path, "has 0 classes derived from evaluate.Metric")


def tried(files: Path, tmp_path: Path, said: str) -> None:
    """Try a metric as its engine does; it must be refused in one sentence that says this."""
    knobs = {"name": "mine", "sha256": digest_of(files), "task_type": "classification"}
    job = Job(
        {"job": "try-metric", "knobs": knobs, "inputs": {"metric": str(files)}, "output": str(tmp_path / "out")},
        silent=True,
    )
    job.output.mkdir()
    with pytest.raises(RecipeError, match=said) as caught:
        try_metric(job)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("import torch\n", (), "imports torch; it may import the standard library"),
        ("from .beside import x\n", (), "put all of its code into mine.py"),
        ("def (", (), "is not Python"),
        ("x = 1\n", ("--better", "more"), "--better is 'more'; write one of higher, lower"),
        ("x = 1\n", ("--task", "clasification"), "did you mean 'classification'?"),
    ],
)
def test_what_is_no_metric_is_refused_and_leaves_nothing(
    owner: Home, command: Command, tmp_path: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    refused = command("metrics", "add", str(tmp_path / "mine.py"), *words)
    assert refused.status == 1 and said in refused.error and refused.error.count("\n") == 1
    assert not list(owner.root.glob("metrics/*"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scoring": {"metrics": ["auroc", "auroc"]}}, "contain duplicates"),
        ({"scoring": {"metrics": ["auc"]}}, "did you mean 'auroc'"),
        ({"scoring": {"metrics": ["own/../../x"]}}, "legal are"),
        ({"scoring": {"metrics": ["accuracy"]}}, "a metric of the task already"),
        ({"task": {"name": "tiny", "metrics": ["accuracy", "own/mine"]}}, "move it to scoring.metrics"),
        ({"task": {"name": "tiny", "metrics": ["auroc"], "headline": "auroc"}}, "chooses no checkpoint"),
        ({"task": {"name": "t", "labels": ["a", "b", "c"]}, "scoring": {"metrics": ["auroc"]}}, "is for two classes"),
        (
            {
                "scoring": {"metrics": ["auroc"]},
                "gate": {
                    "split": "validation",
                    "criteria": [
                        {"metric": "auroc", "test": "superiority", "relative_to": "champion"},
                    ],
                },
            },
            "remove relative_to: champion",
        ),
    ],
)
def test_recipes_that_name_them_wrongly_are_refused(
    tiny_bert: Path, tiny_rows: Path, changes: dict[str, Any], said: str
) -> None:
    values = recipe_with(tiny_bert, tiny_rows).model_dump(mode="json")
    with pytest.raises(ValidationError, match=said):
        Recipe.model_validate(values | changes)


def test_a_metric_of_several_task_types_is_listed_with_all_of_them() -> None:
    types = {name: types for name, types, *_ in limbeck_metrics()}
    assert types["pearson"] == "regression, embedding" and types["auroc"] == types["f1"] == "classification"
