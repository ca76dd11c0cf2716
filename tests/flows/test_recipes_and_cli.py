"""What a person types, and the sentence that answers a mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.recipe_file import load_recipe, starter_recipe
from tasks.errors import RecipeError

ROOT = Path(__file__).resolve().parents[2]


def limbeck(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flows.cli", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["teacher.epocs=3"], r"unknown key 'epocs' in teacher; did you mean 'epochs'\?"),
        (["teacher.epochs=-1"], r"teacher\.epochs: input should be greater than 0 \(given: -1\)"),
        (["task=sst3"], "did you mean 'sst2'"),
        (["students.3x385.seeds=[0]"], "there is no entry '3x385'"),
        (["students.3x384.seeds=[0,0]"], "repeat; give each seed once"),
        (["augmentation.masked_lm=null", "augmentation.word_vectors=null"], "augmentation needs masked_lm or word_vectors"),
        (["general_distillation=null", "students.4x312.stages=[general]"], "which the recipe does not have"),
        (["students.3x384.stages=[general]"], "general distillation makes a start of its own"),
        (["students.3x384.signal=labels", "students.3x384.stages=[intermediate]"], "learns from labels alone, but takes"),
        (["task_distillation.prediction.seed=1"], "unknown key 'seed'"),
        (["nonsense"], "--set takes a.b=value"),
        (["gate.criteria=[{metric: speeed, at_least: 1}]"], "unknown metric 'speeed'; legal are retained.*accuracy"),
        (["gate.criteria=[{metric: accuracy, test: superiority}]"], "a test compares a metric of the task with relative_to"),
        (["gate.promote=always"], "gate.promote"),
    ],
)
def test_mistakes_are_sentences(settings: list[str], sentence: str) -> None:
    with pytest.raises((RecipeError), match=sentence):
        recipe = load_recipe("sst2-tinybert", settings)
        assert recipe


def test_a_student_may_bring_a_phase_that_the_recipe_has_not() -> None:
    own = ["task_distillation.intermediate=null", "students.3x384.stages=[intermediate]"]
    with pytest.raises(RecipeError, match="which the recipe does not have"):
        load_recipe("mrpc-small", own)
    recipe = load_recipe("mrpc-small", [*own, "students.3x384.intermediate={epochs: 1}"])
    (student,) = (student for student in recipe.students if student.name == "3x384")
    assert recipe.takes(student, "intermediate")


@pytest.mark.parametrize(
    ("name", "source", "licence"),
    [
        ("sst2-tinybert", "teacher.model=own/model", "teacher.licence"), ("sst2-tinybert", "corpus.source=own", "corpus.licence"),
        ("sst2-tinybert", "augmentation.masked_lm=own/model", "augmentation.masked_lm_licence"), ("demo", "data.source=own", "data.licence"),
        ("kd-ensemble", "ensemble.teachers.0.model=own/model", "ensemble.teachers.0.licence"), ("demo", "transfer.source=own", "transfer.licence"),
    ],
)  # fmt: skip
def test_the_licence_of_a_source_does_not_pass_to_another(name: str, source: str, licence: str) -> None:
    """A card that states the shelf's licence for somebody's own source would be worse than one that states none."""

    def stated(*sets: str) -> Any:
        values: Any = load_recipe(name, sets).model_dump(mode="json")
        for step in licence.split("."):
            values = values[int(step) if step.isdigit() else step]
        return values

    assert stated() != "unknown" and stated(source) == "unknown"
    assert stated(source, f"{licence}=mit") == "mit" and stated(f"{licence}=mit", source) == "mit"


def test_the_line_of_a_mistake_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: mine\ntask: sst2\nteacher:\n  model: x\n  learning_rat: 1\nstudents: [{name: a, layers: 1}]\n")
    with pytest.raises(RecipeError, match=r"r\.yaml, line 5: unknown key 'learning_rat' in teacher; did you mean 'learning_rate'\?"):
        load_recipe(str(path))


def test_a_starter_recipe_is_valid(tmp_path: Path, tiny_rows: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(starter_recipe(tiny_rows, path))
    recipe = load_recipe(str(path))
    assert recipe.spec.labels == ("negative", "positive") and recipe.data.source == str(tiny_rows)


def test_an_unknown_recipe_and_command(tmp_path: Path) -> None:
    done = limbeck("run", "sst2-tinybrt")
    assert done.returncode == 1 and "did you mean 'sst2-tinybert'" in done.stderr and "Traceback" not in done.stderr
    assert limbeck("rnu").returncode == 2


def test_a_missing_folder_stops_before_anything_is_spent() -> None:
    done = limbeck("plan", "sst2-tinybert", "--set", "data.source=./nowhere/sst2")
    assert done.returncode == 1 and "there is no file or folder './nowhere/sst2'" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_hub_id_offline_is_one_sentence() -> None:
    done = limbeck("plan", "sst2-tinybert", "--set", "teacher.model=nobody/nothing", "--set", f"data.source={ROOT}/deployments")
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
