"""Mistakes of a first hour, through the command line: each ends with one sentence and a status, and leaves nothing
behind in the folder or in the home."""

from __future__ import annotations

import shlex
import shutil
import socket
from pathlib import Path

import pytest

from flows.home import Home
from tests.command_line import Command, Done
from tests.scoring.small import write_classifier
from tests.tiny import write_tiny_rows

TOO_SHORT, NO_TEXT = "3 is not in the range 8<=x<=8192", "the input holds no text"


@pytest.fixture(scope="module")
def folder(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a newcomer has it after ``limbeck init``: rows, a teacher, a small model and a recipe."""
    from flows.recipes.starter import Wishes, starter_recipe

    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(tiny_bert, folder / "bert")
    write_classifier(folder / "my-model")
    write_tiny_rows(folder)
    (folder / "broken.py").write_text("print(\n")
    (folder / "notes.yaml").write_text("shopping: [milk, bread]\n")
    (folder / "gone.csv").symlink_to("nowhere.csv")
    recipe = starter_recipe(str(folder / "train.csv"), folder / "train.yaml", Wishes(teacher=str(folder / "bert")))
    (folder / "train.yaml").write_text(recipe.text)
    return folder


@pytest.fixture
def mistaken(folder: Path, home: Home, command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in that folder; it asserts that a command fails in one sentence, and writes nothing."""
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    monkeypatch.chdir(folder)

    def run(*words: str, piped: str | None = None) -> Done:
        before = things_in(folder, home.root)
        done = command(*words, piped=piped)
        assert done.status in (1, 2) and "Traceback" not in done.error and not done.output
        said = done.error.strip().splitlines()
        assert len(said) == 1 if done.status == 1 else said[-1].startswith("Error: "), done.error
        assert things_in(folder, home.root) == before
        return done

    return run


def things_in(folder: Path, home: Path) -> set[Path]:
    """Return everything in a folder, and the files of a home but caches, locks and databases, which any command may
    make."""
    caches = {"cache", "prefect", "mlflow.db", "logs"}
    kept = {path for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"}
    return {*folder.rglob("*"), *(path for path in kept if not caches & set(path.relative_to(home).parts[:1]))}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        # a command, an option, a name
        ("rnu train.yaml", "No such command 'rnu'. Did you mean 'run'?"),
        ("run train.yaml --foce finetune-teacher", "No such option: --foce (Possible options: --force)"),
        ("run", "Missing argument 'RECIPE'"),
        ("run trian.yaml", "the recipe 'trian.yaml' does not exist; did you mean 'train.yaml'? name a YAML file"),
        ("run sst2-tinybret", "does not exist; did you mean 'sst2-tinybert'? name a YAML file, or a recipe of the"),
        ("plan bert", "'bert' is a folder; name a recipe: a YAML file, or a name that `limbeck shelf` lists"),
        ("validate notes.yaml", "notes.yaml is not a recipe, which is a YAML file that starts with name: and task:"),
        ("validate train.csv", "train.csv is a table and no recipe; `limbeck init train.csv` writes a recipe for it"),
        ("run train.csv", "train.csv is a table and no recipe; `limbeck init train.csv` writes a recipe for it"),
        ("validate bert/model.safetensors", "is not readable YAML: it is not UTF-8 text"),
        ("shelf sst2-tinybret", "did you mean 'sst2-tinybert'?"),
        ("knobs teachr", "did you mean teacher?"),
        ("knobs teacher.lr", "no knob 'teacher.lr'; did you mean teacher.learning_rate?"),
        ("knobs lr", "did you mean pretraining.learning_rate or teacher.learning_rate"),
        ("run train.yaml --force finetune-techer", "no stage 'finetune-techer'; did you mean 'finetune-teacher'? its"),
        # a knob, its value
        ("run train.yaml --set teacher.modle=bert", "unknown key 'modle' in teacher; did you mean 'model'?"),
        (
            "run train.yaml --set teacher.steps=many",
            "teacher.steps: 'many' is text, not a number; write a number",
        ),
        ("run train.yaml --set \"teacher.steps='7'\"", "'7' is text, not a number; write it without quotes"),
        ("run train.yaml --set teacher.steps=-3", "--set teacher.steps: must be at least 1 (given: -3)"),
        ("run train.yaml --set teacher.steps", "--set takes a.b=value, not 'teacher.steps'"),
        ("run train.yaml --set students.haf.layers=2", "the entry 'haf' does not exist; known are half"),
        ("run train.yaml --set gate.criteria.0.metric=retaind", "unknown metric 'retaind'; did you mean 'retained'?"),
        ("run train.yaml --set teacher.learning_rate=2e5", "--set teacher.learning_rate: must be at most 1 (given:"),
        (
            "run train.yaml --set teacher.floor=85",
            "--set teacher.floor: teacher.floor is 85, and accuracy is at most 1; state it",
        ),
        ("run train.yaml --set gate.criteria.0.at_least=95", "retained is 95, and scores are shares of 1; write 0.95"),
        (
            "run train.yaml --set 'gate.criteria=[{metric: accuracy, at_least: -2, of_teacher: true, by: difference}]'",
            "at_least of accuracy is -2, and scores are shares of 1; write -0.02 for -2 %",
        ),
        ("run train.yaml --set task.text=label", "the task's columns are label, label; name another for each of text,"),
        ("validate train.yaml --set task.pair=text", "the task's columns are text, text, label; name another for each"),
        # a file or a folder
        ("run train.yaml --set teacher.model=./brt", "there is no file or folder './brt'; did you mean bert?"),
        ("run train.yaml --set data.source=https://example.com/a.csv", "is an address; download it"),
        ("init gone.csv", "'gone.csv' is a link to 'nowhere.csv', which is not there"),
        ("init ./bert", "./bert holds a model and no rows; name your rows, and the model by --teacher ./bert"),
        ("init bert/model.safetensors", "model.safetensors is not a table that can be read"),
        ("init train.csv", "train.yaml already exists; name another file with --output"),
        ("init train.csv -o nowhere/a.yaml", "nowhere' for a.yaml does not exist"),
        ("init train.csv -o a.yaml --label text", "the column 'text' has 240 different values, which fit no classif"),
        ("init train.csv -o a.yaml --text text --label text", "name a column of its own by each"),
        ("run train.yaml --json nowhere/a.json", "nowhere' for a.json does not exist"),
        # a prediction
        ("predict my-model texts.csv", "the file 'texts.csv' does not exist"),
        ("predict my-model bert", "'bert' is a folder; give one text as"),
        ("predict my-model train.csv --text txet", "train.csv has no column 'txet'; it has text, label; did you mean"),
        ("predict my-model train.csv -o a.xlsx", "a.xlsx cannot be written; name a file that ends in .csv"),
        ("predict my-model train.csv -o train.csv", "train.csv is the table to predict, which would be replaced"),
        ("predict my-model ./train.csv -o ../newcomer0/train.csv", "is the table to predict, which would be replaced"),
        ("predict my-model 'the film' --max-length 3", TOO_SHORT),
        ("predict bert 'the film was good'", "lacks the weights"),
        # the registry, past runs
        ("pull nosuch out", "there is no registered model 'nosuch'"),
        ("show nosuch", "there is no registered model 'nosuch'"),
        ("report --output nowhere/a.html", "nowhere' for a.html does not exist"),
        ("explain zzzz", "zzzz"),
        ("sweep train.yaml --strategies tpo --dry-run", "did you mean 'top'?"),
        ("sweep train.yaml --dry-run --json out.json", "--json writes the results of a run, and --dry-run has none"),
        ("sweep train.yaml --drop x --dry-run", "--drop takes whole numbers with commas, for example 1,2,3, not 'x'"),
        ("sweep train.yaml --drop 0,1 --dry-run", "--drop '0,1' removes no layer; give numbers from 1"),
        ("sweep train.yaml --seeds 1,1 --dry-run", "--seeds '1,1' repeats an entry; list each once"),
        ("resume", "there is no unfinished run; see limbeck runs"),
        ("gc --keep-days soon", "'soon' is not a number"),
        ("runs --limit many", "'many' is not a number"),
        ("compare abc abc", "abc abc is one run; name two or more"),
        ("metrics add broken.py", "broken.py of the metric broken is not Python: '(' was never closed in line 1"),
        ("users lst", "No such command 'lst'. Did you mean 'list'?"),
        ("users list", "is not up; start it with limbeck up"),
        ("users add 'Ann Lee'", "'Ann Lee' is no name of an account: up to 63 of a-z"),
        ("users password Ann", "'Ann' is no name of an account"),
        ("workers add 'GPU 1' a.json", "'GPU 1' is no name of an account"),
        ("workers add gpu1 train.csv", "train.csv exists already; name a new file"),
        ("workers add gpu1 nowhere/a.json", "the folder nowhere for a.json does not exist"),
        ("workers add gpu1", "Missing argument 'FILE'"),
        ("worker nowhere.json", "nowhere.json; name the file that limbeck workers add has written"),
        ("worker train.csv", "train.csv is not a file written by limbeck workers add"),
        ("predict my-modle 'a film'", "nor a registered model 'my-modle'; did you mean the folder my-model?"),
        ("predict ./my-modle 'a film'", "there is no folder './my-modle'; did you mean the folder my-model?"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(words: str, sentence: str, mistaken: Command) -> None:
    assert sentence in mistaken(*shlex.split(words)).error


@pytest.fixture(scope="module")
def small_champion(home: Home) -> str:
    """A registered model with one version, the champion; its package is nowhere."""
    from mlflow import MlflowClient

    client, name = MlflowClient(f"sqlite:///{home.root}/mlflow.db"), "small-film"
    client.create_registered_model(name)
    client.create_model_version(name, str(home.root / "mlartifacts" / "nowhere"))
    client.set_registered_model_alias(name, "champion", "1")
    return name


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("promote small-fim 1", "there is no registered model 'small-fim'; did you mean 'small-film'?"),
        ("promote small-film", "small-film has no challenger; name a version, it has 1"),
        ("promote small-film 9", "small-film has no version 9; it has 1"),
        ("promote small-film chmpion", "small-film has no version chmpion; did you mean 'champion'?"),
        ("promote small-film 1 --to chmpion", "is not an alias that can be assigned; did you mean 'champion'?"),
        ("promote small-film 1 --force", "give the reason with --reason, for the history"),
        ("promote small-film@champion", "names one version; write the name of the model alone: small-film"),
        ("rollback small-film", "small-film cannot be rolled back: no alias previous: there is no earlier champion"),
        ("rollback small-fim", "there is no registered model 'small-fim'; did you mean 'small-film'?"),
        ("delete small-film 1", "small-film version 1 is champion: a version with an alias cannot be deleted"),
        ("delete small-film 9", "small-film has no version 9; it has 1"),
        ("pull small-film@chmpion out", "small-film has no alias 'chmpion'; did you mean 'champion'?"),
        ("show small-film@9", "small-film has no version 9; it has 1"),
        ("show models:/small-film/9", "small-film has no version 9; it has 1"),
        ("pull models:/small-film@chmpion out", "small-film has no alias 'chmpion'; did you mean 'champion'?"),
        ("predict models:/small-fim/1 'a film'", "there is no registered model 'small-fim'; did you mean"),
        ("push small-film@chmpion ann/small", "small-film has no alias 'chmpion'; did you mean 'champion'?"),
        ("push small-film ann/small --upload", "ann/small cannot be written"),
        ("push small-film small", "'small' is not the name of a repository at the Hugging Face Hub"),
        ("predict small-fim 'a film'", "there is no registered model 'small-fim'; did you mean 'small-film'?"),
    ],
)
def test_a_mistake_about_a_registered_model_is_found_before_a_server_starts(
    words: str, sentence: str, small_champion: str, mistaken: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(home: Home) -> None:
        raise AssertionError("a Prefect server was started")

    monkeypatch.setattr("flows.servers.local.prefect_for_a_run", refused)
    assert sentence in mistaken(*shlex.split(words)).error


def test_a_broken_pipe_of_json_names_its_line(mistaken: Command) -> None:
    assert "line 2 of the input is not JSON" in mistaken("predict", "my-model", piped='{"text": "a"}\n{bad\n').error
    assert NO_TEXT in mistaken("predict", "my-model", piped="\n").error


def test_a_teacher_that_is_cut_off_is_found_before_a_run(folder: Path, mistaken: Command) -> None:
    weights = folder / "bert" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    try:
        for name in ("validate", "plan", "run"):
            assert "model.safetensors is not a whole file of weights" in mistaken(name, "train.yaml").error
    finally:
        weights.write_bytes(whole)


def test_an_empty_variable_is_the_usual_home_and_not_this_folder(
    home: Home, tmp_path: Path, mistaken: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".limbeck").symlink_to(home.root)
    for name, value in (("HOME", str(tmp_path)), ("LIMBECK_HOME", ""), ("LIMBECK_STORE", "")):
        monkeypatch.setenv(name, value)
    assert "there is no registered model 'nosuch'" in mistaken("show", "nosuch").error


def test_a_taken_port_is_one_sentence(mistaken: Command) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = mistaken("ui", "--prefect-port", port).error
    assert f"port {port} for Prefect is used by another program" in said and "--prefect-port" in said


def test_predictions_come_without_the_bars_and_reports_of_a_library(
    folder: Path, home: Home, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    transformers.logging.enable_progress_bar()
    transformers.logging.set_verbosity_warning()
    done = command("predict", str(folder / "my-model"), "the film was good")
    assert done.status == 0 and done.error == ""
