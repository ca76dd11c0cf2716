"""What a person types, and the sentence that answers a mistake."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flows.deploy.pools import read_site
from flows.recipes.starter import starter_recipe
from flows.run.judging_sources import sources_of_sets
from flows.run.recipe_file import load_recipe
from tasks.errors import DataError, RecipeError
from tests.command_line import Command

ROOT = Path(__file__).resolve().parents[3]


def limbeck(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flows.cli", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["teacher.epocs=3"], r"unknown key 'epocs' in teacher; did you mean 'epochs'\?"),
        (["teacher.epochs=-1"], r"^--set teacher\.epochs: must be greater than 0 \(given: -1\)$"),
        (["task=sst3"], "did you mean 'sst2'"),
        (["students.3x385.seeds=[0]"], "the entry '3x385' does not exist"),
        (["students.3x384.seeds=[0,0]"], "repeat; give each seed once"),
        (
            ["augmentation.masked_lm=null", "augmentation.word_vectors=null"],
            "augmentation needs masked_lm or word_vectors",
        ),
        (["general_distillation=null", "students.4x312.stages=[general]"], "which the recipe does not have"),
        (["students.3x384.stages=[general]"], "general distillation computes its own start"),
        (
            ["students.3x384.signal=labels", "students.3x384.stages=[intermediate]"],
            "learns from labels only, but uses",
        ),
        (["task_distillation.prediction.seed=1"], "unknown key 'seed'"),
        (["nonsense"], "--set takes a.b=value"),
        (
            ["gate.criteria=[{metric: speeed, at_least: 1}]"],
            r"unknown metric 'speeed'; did you mean 'speedup'\? legal are .*accuracy",
        ),
        (
            ["gate.criteria=[{metric: accuracy, test: superiority}]"],
            "a test compares a metric of the task with relative_to",
        ),
        (["gate.promote=always"], "gate.promote"),
        (["a=[1,"], r"--set a: '\[1,' is not YAML"),
        (
            ["teacher.steps=" + "[" * 5000],
            "--set teacher.steps: .* is not YAML: its lists and sections are nested more than 40 deep",
        ),
        (["teacher.steps=[" + "[]," * 200_000], "it holds more than 20,000 values|is not YAML"),
        (["teacher.steps=" + "9" * 10_000], "--set teacher.steps: .* is not YAML"),
        (["a." * 5000 + "b=1"], "a path of at most 40 steps"),
        (["teacher.steps=true"], r"teacher\.steps: true is not a number; write a number \(given: True\)"),
        (["data.seed=false"], r"data\.seed: false is not a number"),
        (["teacher.steps='3'"], r"teacher\.steps: '3' is text, not a number; write it without quotes"),
        (["teacher.learning_rate='1e-3'"], "is text, not a number"),
        (["teacher.learning_rate=.inf"], r"teacher\.learning_rate"),
        (["students.3x384.seeds=[0,true]"], "true is not a number"),
        (["data.synthetic='no'"], r"data\.synthetic: 'no' is not a boolean; write true or false"),
        (["students.3x384.layers=1000000000000"], "layers"),
        (
            ["students.3x384.hidden=65536", "students.3x384.feed_forward=1000000"],
            r"make a model of 4\.4e\+11 parameters",
        ),
        (["data.selection_rows=1000000000000"], "at most 4,294,967,295 is legal"),
        (["data.judge.imdb={}"], "a judging set has rows of its own; name their source, or a split"),
        (["data.judge.imdb.sorce=x"], r"unknown key 'sorce' in data\.judge\.imdb; did you mean 'source'\?"),
        (
            ["data.judge.validation.source=x"],
            r"data\.judge\.validation has the name of a split or a model of this recipe",
        ),
        (
            ["data.judge.imdb={source: x, pair: y}"],
            r"data\.judge\.imdb names a second text, and the task sst2 has only one text",
        ),
        (
            ["data.judge.imdb={source: x, overlaps: purge}", "data.purge=false"],
            r"data\.judge\.imdb\.overlaps is purge, and data\.purge is false",
        ),
        (
            ["data.judge.imdb={source: x, overlaps: drop}"],
            r"data\.judge\.imdb\.overlaps: must be 'keep', 'leave-out' or 'purge'",
        ),
        (["data.judge.Im DB.source=x"], r"data\.judge\.Im DB: must be a name of small letters"),
        (
            ["data.judge.imdb.source=x", "gate.criteria=[{metric: retained, at_least: 0.9, worst_of: [imbd]}]"],
            r"gate: worst_of names 'imbd', which is not a judging set of data\.judge; did you mean 'imdb'\? legal are "
            r"holdout, imdb",
        ),
        (
            ["gate.criteria=[{metric: bytes, at_most: 1, worst_of: [holdout]}]"],
            "criterion 'bytes': worst_of compares a metric of the task, or retained",
        ),
    ],
)
def test_mistakes_are_sentences(settings: list[str], sentence: str) -> None:
    with pytest.raises((RecipeError), match=sentence):
        recipe = load_recipe("sst2-tinybert", settings)
        assert recipe


LAUGHS = "".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x]\n", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12))]
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "more than 20,000 values"),
        ("a: " + "[" * 5000, "nested more than 40 deep"),
        ("a: " + "[" * 1_000_000, "at most 1,000,000 are read"),
        ("- " * 5000, "nested more than 40 deep"),
        ("a: [" + "[]," * 300_000 + "]", "more than 20,000 values"),
        ("a: &a [*a]", "refers to a value that contains it"),
        ("a: 2001-99-99", "month must be in"),
    ],
    ids=[
        "billion laughs",
        "five thousand lists",
        "a million brackets",
        "lists of lines",
        "very many lists",
        "a circle",
        "no date",
    ],
)
def test_yaml_that_would_hold_a_process_up_is_refused_in_seconds(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r.yaml").write_text(text)
    began = time.monotonic()
    with pytest.raises(RecipeError, match=said) as refused:
        load_recipe(str(tmp_path / "r.yaml"))
    with pytest.raises(RecipeError, match=said):
        read_site(tmp_path / "r.yaml")
    assert time.monotonic() - began < 20 and len(str(refused.value)) < 1000 and "\n" not in str(refused.value)


def test_numbers_that_are_equal_are_the_same_knob_and_names_that_look_like_numbers_stay() -> None:
    recipe = load_recipe(
        "sst2-tinybert", ["teacher.steps=3.0", "teacher.learning_rate=1", "task={name: mine, labels: ['1', '2']}"]
    )
    assert (recipe.teacher.steps, recipe.teacher.learning_rate, recipe.spec.labels) == (3, 1.0, ("1", "2"))


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
        ("sst2-tinybert", "teacher.model=own/model", "teacher.licence"),
        ("sst2-tinybert", "corpus.source=own", "corpus.licence"),
        ("sst2-tinybert", "augmentation.masked_lm=own/model", "augmentation.masked_lm_licence"),
        ("demo", "data.source=own", "data.licence"),
        ("kd-ensemble", "ensemble.teachers.0.model=own/model", "ensemble.teachers.0.licence"),
        ("demo", "transfer.source=own", "transfer.licence"),
    ],
)
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
    path.write_text(
        "name: mine\ntask: sst2\nteacher:\n  model: x\n  learning_rat: 1\nstudents: [{name: a, layers: 1}]\n"
    )
    with pytest.raises(
        RecipeError, match=r"r\.yaml, line 5: unknown key 'learning_rat' in teacher; did you mean 'learning_rate'\?"
    ):
        load_recipe(str(path))


def test_a_starter_recipe_is_valid(tmp_path: Path, tiny_rows: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(starter_recipe(str(tiny_rows), path).text)
    recipe = load_recipe(str(path))
    assert recipe.spec.labels == ("negative", "positive") and recipe.data.source == str(tiny_rows)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([], r"r\.yaml, line 2: task\.kind: unknown task type 'clasification'; did you mean 'classification'\?"),
        (["task.kind=regresion"], r"--set task\.kind: unknown task type 'regresion'; did you mean 'regression'\?"),
        (["task=sst2", "students=null"], r"^--set students: must be a list$"),
        (["task=sst2", "students.a.seeds=[x]"], r"--set students\.a\.seeds: .*'x' is text, not a number"),
        (["task=sst2", "data.faulty_rows=dorp"], r"must be 'refuse' or 'drop'; did you mean 'drop'\?"),
        (["task=sst2", "name=null"], r"^--set name: must be a text$"),
    ],
)
def test_a_mistake_is_one_sentence_at_its_true_place(settings: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "name: x\ntask: {name: mine, kind: clasification}\nstudents: [{name: a, layers: 2}]\n"
    )
    with pytest.raises(RecipeError, match=sentence) as refused:
        load_recipe(str(tmp_path / "r.yaml"), settings)
    assert "\n" not in str(refused.value) and "nput should" not in str(refused.value)


def test_a_recipe_that_lacks_everything_has_no_line(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("name: x\n")
    with pytest.raises(RecipeError, match=r"r\.yaml: task: is missing; add it"):
        load_recipe(str(tmp_path / "r.yaml"))


def test_an_unknown_command_is_answered_with_the_nearest(command: Command) -> None:
    done = command("rnu")
    assert done.status == 2 and "Did you mean 'run'?" in done.error


def test_an_unknown_recipe_and_command(tmp_path: Path) -> None:
    done = limbeck("run", "sst2-tinybrt")
    assert done.returncode == 1 and "did you mean 'sst2-tinybert'" in done.stderr and "Traceback" not in done.stderr
    assert limbeck("rnu").returncode == 2


def test_a_missing_folder_stops_before_anything_is_spent() -> None:
    done = limbeck("plan", "sst2-tinybert", "--set", "data.source=./nowhere/sst2")
    assert (
        done.returncode == 1
        and "there is no file or folder './nowhere/sst2'" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_an_unknown_hub_id_offline_is_one_sentence() -> None:
    done = limbeck(
        "plan", "sst2-tinybert", "--set", "teacher.model=nobody/nothing", "--set", f"data.source={ROOT}/deployments"
    )
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


def test_mnli_brings_its_mismatched_rows_where_they_are(tmp_path: Path) -> None:
    for name in ("train", "validation_matched", "validation_mismatched"):
        (tmp_path / f"{name}.csv").write_text("premise,hypothesis,label\nit rains,it is wet,neutral\n")
    folder, alone = f"data.source={tmp_path}", ["data.judge={}", "gate.criteria.0.worst_of=[holdout,mismatched]"]
    recipe = load_recipe("mnli-judged", [folder, *alone])
    assert [*recipe.judging_sets] == ["mismatched"] and sources_of_sets(recipe)["judge:mismatched"].uri.endswith(
        "validation_mismatched.csv"
    )
    without = load_recipe("mnli-judged", [folder, "data.judge={mismatched: null}", "gate.criteria.0.worst_of=[]"])
    assert without.judging_sets == {} and load_recipe("sst2-tinybert").judging_sets == {}
    (tmp_path / "validation_mismatched.csv").unlink()
    assert sources_of_sets(load_recipe("mnli-judged", [folder, alone[0], "gate.criteria.0.worst_of=[]"])) == {}
    with pytest.raises(
        DataError,
        match=r"data\.judge\.mismatched: .* holds no validation_mismatched; set split to one of train, "
        r"validation_matched",
    ):
        sources_of_sets(recipe)
