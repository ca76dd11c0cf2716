"""A further task type is a folder and six lines: "how many words has the text" is registered from here alone, and goes
from a table to a pulled model that predicts.

``word_count/`` beside this file stands for the folder in ``tasks/task_types/``; ``LINES`` are all other changes.
"""

from __future__ import annotations

import ast
import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tasks
from tests import package_copies
from tests.flows.test_compress import FAST
from tests.tiny import WORDS

TYPE = Path(__file__).parent / "word_count"
DICTS = {
    "readers": ("READERS: dict[str, Reader] = {", "rows", "READER"),
    "heads": ("HEADS: dict[str, Head] = {", "head", "HEAD"),
    "answers": ("ANSWERS: dict[str, Answers] = {", "answers", "ANSWERS"),
    "views": ("VIEWS: dict[str, View] = {", "view", "VIEW"),
    "graphs": ("GRAPHS: dict[str, Graph] = {", "graph", "GRAPH"),
}
"""The dict of each room: where it begins, the file of the type and its constant."""
DATA = """WORD_COUNT = TaskType(
    name="word-count",
    description="The number of words of each text.",
    hub_task="text-classification",
    auto_class="AutoModelForSequenceClassification",
    columns=(TEXT, NUMBER),
    outputs=VALUES,
    metrics=("pearson", "mse"),
    headline="pearson",
)

"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages in which the type is registered."""
    folder = package_copies.copy_packages(tmp_path_factory.mktemp("tree"))
    place = folder / "tasks" / "task_types"
    shutil.copytree(TYPE, place / "word_count", ignore=shutil.ignore_patterns("__pycache__"))
    for module, (start, part, constant) in DICTS.items():
        written = f"from tasks.task_types.word_count.{part} import {constant} as WORD_COUNT"
        edited(place / f"{module}.py", ("\n\n" + start, f"\n{written}\n\n{start}" + '"word-count": WORD_COUNT, '))
    start = "TASK_TYPES: dict[str, TaskType] = {"
    edited(place / "types.py", (start, DATA + start + '"word-count": WORD_COUNT, '))
    return folder


def edited(file: Path, change: tuple[str, str]) -> None:
    """Replace one passage of a file."""
    text = file.read_text()
    assert text.count(change[0]) == 1, f"{file.name} has {change[0]!r} {text.count(change[0])} times"
    file.write_text(text.replace(*change))


def write_table(folder: Path) -> Path:
    """Write texts of 2 to 9 words, each with the number of its words."""
    draw = random.Random(0)
    texts = {" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(400)}
    lines = ["text,words", *(f"{text},{len(text.split())}" for text in sorted(texts))]
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    return folder / "train.csv"


def recipe_for(bert: Path, table: Path) -> dict[str, Any]:
    """Return a recipe of every stage that asks the task type."""
    training = {**FAST, "steps": 200, "learning_rate": 5e-3, "batch_size": 16}
    return {
        "name": "words",
        "task": {
            "name": "words",
            "kind": "word-count",
            "label": "words",
            "metrics": ["pearson", "mse"],
            "headline": "pearson",
        },
        "data": {"source": str(table), "selection_rows": 30, "validation_share": 0.2},
        "teacher": {"model": str(bert), **training},
        "task_distillation": {"prediction": training},
        "students": [{"name": "half", "layers": 2, "stages": []}],
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "exports": {"parity_rows": 16, "formats": ["onnx"]},
        "gate": {
            "split": "validation",
            "criteria": [{"metric": "parameters", "at_most": 1e9}],
            "register_as": "word-counter",
        },
        "resources": {"cores": 2, "threads_alone": 1},
    }


class Limbeck:
    """The command line of the copy, in a home of its own."""

    def __init__(self, tree: Path, folder: Path, prefect_url: str) -> None:
        self.tree, self.folder, self.prefect_url = tree, folder, prefect_url

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        return package_copies.limbeck(self.tree, self.folder / "home", self.prefect_url, *words)

    def __call__(self, *words: str) -> str:
        """Run a command that succeeds; return its output."""
        done = self.run(*words)
        assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
        return done.stdout


@pytest.fixture(scope="module")
def limbeck(tree: Path, tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Iterator[Limbeck]:
    """The command line of the copy."""
    from prefect.settings import PREFECT_API_URL

    yield Limbeck(tree, tmp_path_factory.mktemp("words"), str(PREFECT_API_URL.value()))


@pytest.fixture(scope="module")
def result(limbeck: Limbeck, tiny_bert: Path) -> dict[str, Any]:
    """One run: encode, teacher, teacher's answers, student, scores, gate, export, registration."""
    recipe = limbeck.folder / "words.yaml"
    recipe.write_text(json.dumps(recipe_for(tiny_bert, write_table(limbeck.folder))))
    limbeck("run", str(recipe), "--json", str(limbeck.folder / "out.json"))
    return dict(json.loads((limbeck.folder / "out.json").read_text()))


def test_a_type_is_a_folder_and_six_lines() -> None:
    parts = {file.stem for file in TYPE.glob("*.py")} - {"__init__"}
    assert parts == {"rows", "head", "answers", "view", "graph"}
    assert len(DICTS) + 1 == 6


MOST_PLACES = 9
"""Places in which a type stands, its own folder counting as one."""
SHARED = {"types", *DICTS}


@pytest.mark.parametrize("name", ["choices", "multi-label", "spans", "retrieval", "ranking", "masked-words"])
def test_a_type_stands_in_few_places(name: str) -> None:
    """Its data, the five dicts, and where it alone has a thing: its thresholds, its templates; every file of our code
    that states its name, or imports from its folder, is one."""
    folder, root = name.replace("-", "_"), Path(tasks.__file__).parents[1]
    files = [file for room in ("tasks", "flows", "deployments") for file in (root / room).rglob("*.py")]
    others = [file for file in files if file.parent.name != folder]
    found = {file for file in others if stands_in(file, name, f"tasks.task_types.{folder}.")}
    assert {root / "tasks" / "task_types" / f"{one}.py" for one in SHARED} <= found
    assert len(found) + 1 <= MOST_PLACES, sorted(str(file.relative_to(root)) for file in found)


def stands_in(file: Path, name: str, package: str) -> bool:
    """Tell whether a file's code states the name of a type, or imports from its folder."""
    text = file.read_text()
    if f'"{name}"' not in text and package not in text:
        return False
    nodes = list(ast.walk(ast.parse(text)))
    imports = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    named = any(isinstance(node, ast.Constant) and node.value == name for node in nodes)
    return named or any(one.startswith(package) for one in imports)


@pytest.mark.slow
def test_teacher_and_student_are_trained_and_scored_by_the_type(result: dict[str, Any]) -> None:
    models = {model["name"]: model["metrics"]["validation"] for model in result["models"]}
    assert set(models) == {"teacher", "half", "half-onnx"}
    for metrics in models.values():
        assert set(metrics) == {"pearson", "mse"}
        assert metrics["pearson"]["value"] > 0.2  # the number of words is learned
    exported, checkpoint = (models[name]["mse"]["value"] for name in ("half-onnx", "half"))
    assert exported == pytest.approx(checkpoint)


@pytest.mark.slow
def test_the_page_speaks_of_counts(result: dict[str, Any], limbeck: Limbeck) -> None:
    pages = [file.read_text() for file in (limbeck.folder / "home").rglob("report.html")]
    assert pages and all("How often counts are exact" in page for page in pages)


@pytest.mark.slow
def test_the_pulled_model_and_its_export_predict_counts(result: dict[str, Any], limbeck: Limbeck) -> None:
    limbeck("pull", "word-counter", str(limbeck.folder / "model"))
    card = (limbeck.folder / "model" / "README.md").read_text()
    assert "pipeline_tag: text-classification" in card and "logits.exp()" in card
    texts = limbeck.folder / "texts.txt"
    texts.write_text("the film\nthe film was very good and not bad\n")
    found = [
        [json.loads(line)["words"] for line in limbeck("predict", str(folder), str(texts)).splitlines()]
        for folder in (limbeck.folder / "model", limbeck.folder / "model" / "onnx")
    ]
    assert found[0] == found[1] and found[0][0] < found[0][1]


@pytest.mark.slow
def test_a_label_that_is_no_count_is_one_sentence(limbeck: Limbeck, tiny_bert: Path) -> None:
    table, recipe = limbeck.folder / "bad.csv", limbeck.folder / "bad.yaml"
    table.write_text("text,words\n" + "".join(f"the film {number},-1\n" for number in range(60)))
    recipe.write_text(json.dumps(recipe_for(tiny_bert, table)))
    done = limbeck.run("run", str(recipe))
    assert done.returncode and "is no count; give a whole number, at least 0" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
