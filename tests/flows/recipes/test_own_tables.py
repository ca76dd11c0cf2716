"""Tables as people have them, through the command line: how they are read, and what ``init`` makes of them."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import pytest

from flows.branches.search.shapes import of_a_search
from flows.cli.shared import announce_databases
from flows.home import Home
from flows.run.recipe_file import load_recipe
from tasks.catalog import TaskSpec
from tasks.ports.rows.prepared import divided_rows
from tasks.ports.rows.tables import read_table
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import RowsSlice
from tests.command_line import Command
from tests.families import write_tiny

WORDS = "film slow clever story old sailor never came home bright small town again river stone window".split()
COUNT = 120


def texts(count: int = COUNT) -> list[str]:
    draw = random.Random(0)
    return [f"{' '.join(draw.choice(WORDS) for _ in range(8))} a{number} b{number}" for number in range(count)]


def rows(count: int = COUNT) -> list[tuple[str, str]]:
    return [(text, ("bad", "good")[number % 2]) for number, text in enumerate(texts(count))]


def lines(head: str, form: str, pairs: Sequence[tuple[str, str]]) -> str:
    return "".join([f"{head}\n" if head else "", *(f"{form.format(*pair)}\n" for pair in pairs)])


def started(command: Command, path: Path, *options: str) -> tuple[Recipe, str]:
    """Return the recipe that ``init`` writes, and its output."""
    target = path.parent / "mine.yaml"
    done = command("init", str(path), "-o", str(target), *options)
    assert done.status == 0, done.error
    return load_recipe(str(target)), done.output


def prepared_of(recipe: Recipe) -> dict[str, int]:
    """Return the number of rows of each split of a recipe's data."""
    knobs = RowsSlice(**dict(recipe.data), task=recipe.spec)
    return divided_rows(Path(recipe.data.source), knobs)[2].rows


def semicolons(path: Path) -> Path:
    path.write_text(lines("id;text;label", "1;{0}, and so, on;{1}", rows()))
    return path


def array(path: Path) -> Path:
    path.write_text(json.dumps([{"text": text, "label": label} for text, label in rows()], indent=1))
    return path


def nested(path: Path) -> Path:
    path.write_text(json.dumps({"version": 1, "data": [{"text": text, "label": label} for text, label in rows()]}))
    return path


def latin(path: Path) -> Path:
    path.write_text(lines("text,label", "{0} café naïve,{1}", rows()), encoding="latin-1")
    return path


def utf_16(path: Path) -> Path:
    path.write_text(lines("text,label", "{0} café,{1}", rows()), encoding="utf-16")
    return path


def zipped(path: Path) -> Path:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows())
    return path


def several_lines(path: Path) -> Path:
    path.write_text(lines("text,label", '"{0}\n\nsecond, paragraph","{1}"', rows()))
    return path


def trailing(path: Path) -> Path:
    path.write_text(lines("text,label", "{0},{1},", rows()))
    return path


def swallowing(path: Path) -> Path:
    pairs = [(f'"{text}' if number in (20, 100) else text, label) for number, (text, label) in enumerate(rows())]
    path.write_text(lines("text\tlabel", "{0}\t{1}", pairs))
    return path


def saved(path: Path) -> Path:
    table = datasets.Dataset.from_dict({"text": texts(), "label": [label for _, label in rows()]})
    table.class_encode_column("label").save_to_disk(str(path))
    return path


def arrow(path: Path) -> Path:
    folder = saved(path.parent / "saved")
    (folder / "data-00000-of-00001.arrow").rename(path)
    return path


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("a.csv", semicolons, "UTF-8, separated by semicolons"),
        ("a.json", array, "UTF-8, JSON; 120 rows"),
        ("n.json", nested, "JSON, rows in 'data'; 120 rows"),
        ("l.csv", latin, "Windows-1252, separated by commas"),
        ("u.csv", utf_16, "UTF-16, separated by commas"),
        ("z.jsonl.gz", zipped, "UTF-8, JSON; 120 rows"),
        ("m.csv", several_lines, "120 rows in 240 lines: some texts stand on several lines"),
        ("t.csv", trailing, "separated by commas, cells may be quoted; 120 rows"),
        ("q.tsv", swallowing, "separated by tabs, quotes are part of the text; 120 rows"),
        ("saved", saved, "a saved dataset; 120 rows"),
        ("a.arrow", arrow, "Arrow; 120 rows"),
    ],
)
def test_a_table_is_read_whole_and_said_how(
    name: str, write: Callable[[Path], Path], said: str, tmp_path: Path, command: Command
) -> None:
    recipe, output = started(command, write(tmp_path / name))
    assert said in output and recipe.spec.kind == "classification"
    assert recipe.spec.labels in (("bad", "good"), None)
    assert sum(prepared_of(recipe).values()) == COUNT


def test_a_text_called_nothing_is_a_text(tmp_path: Path) -> None:
    """pandas would read NA and null as missing."""
    (tmp_path / "a.csv").write_text("text,label\nNA,null\nnull,None\n,x\n")
    table, _ = read_table(tmp_path / "a.csv")
    assert table.to_pydict() == {"text": ["NA", "null", None], "label": ["null", "None", "x"]}


# --- init -------------------------------------------------------------------------------------------------------------


def test_a_column_with_one_value_is_no_label(tmp_path: Path, command: Command) -> None:
    """Tweets about airlines: each is in English."""
    head = "tweet_id,lang,airline_sentiment,airline_sentiment_confidence,airline,text,user_timezone"
    feelings = ("negative", "neutral", "positive")
    (tmp_path / "tweets.csv").write_text(
        lines(head, "{0}", [])
        + "".join(
            f'{10**17 + number},en,{feelings[number % 3]},0.{number % 7},Delta,"@delta {text}",Eastern Time (US)\n'
            for number, text in enumerate(texts())
        )
    )
    recipe, output = started(command, tmp_path / "tweets.csv")
    assert (recipe.spec.text, recipe.spec.pair, recipe.spec.label) == ("text", None, "airline_sentiment")
    assert recipe.spec.labels == feelings and "label: airline_sentiment, by its name" in output


def test_many_whole_numbers_are_amounts_unless_they_are_asked_to_be_classes(tmp_path: Path, command: Command) -> None:
    pairs = [(text, str(number % 101)) for number, text in enumerate(texts(404))]
    (tmp_path / "scores.csv").write_text(lines("text,score", "{0},{1}", pairs))
    assert started(command, tmp_path / "scores.csv")[0].spec.kind == "regression"
    (tmp_path / "mine.yaml").unlink()
    assert len(started(command, tmp_path / "scores.csv", "--task", "classification")[0].spec.labels or ()) == 101


@pytest.mark.parametrize("column", ["Review: text (EN)", "yes", "#1", "Überschrift 'a' \"b\"", "- x", "{a}"])
def test_any_name_of_a_column_makes_a_legal_recipe(column: str, tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({column: text, "label": label}) + "\n" for text, label in rows())
    )
    assert started(command, tmp_path / "a.jsonl")[0].spec.text == column


def test_the_first_of_two_texts_is_not_called_the_longest(tmp_path: Path, command: Command) -> None:
    rows = [f"what is {n} here?,the long passage of number {n} says it in many words,{n % 2}" for n in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["question,passage,label", *rows]) + "\n")
    done = command("init", str(tmp_path / "a.csv"), "--output", str(tmp_path / "a.yaml"))
    assert done.status == 0 and "text: question, the first of the two columns with the longest texts" in done.output
    assert "pair: passage, a second text" in done.output


def test_a_file_without_a_header_gets_names(tmp_path: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text(lines("", "{0},{1}", rows()))
    recipe, output = started(command, tmp_path / "a.csv")
    assert recipe.data.format.columns == ("text", "label") and "its first line looks like a row" in output
    assert sum(prepared_of(recipe).values()) == COUNT
    unnamed = command("validate", str(tmp_path / "mine.yaml"), "--set", "data.format.columns=[]")
    assert unnamed.status == 1 and "its first line looks like a row" in unnamed.error


def test_unequal_classes_are_decided_by_a_metric_that_counts_them_alike(tmp_path: Path, command: Command) -> None:
    pairs = [(text, "spam" if number % 10 == 0 else "ham") for number, text in enumerate(texts())]
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", pairs))
    recipe, output = started(command, tmp_path / "a.csv")
    assert recipe.spec.headline == "macro_f1" and "balanced_accuracy" in recipe.spec.metrics
    assert recipe.scoring.metrics == ("auroc",) and "decided by macro_f1; auroc is reported, too" in output


def test_the_student_is_smaller_than_its_teacher(tmp_path: Path, tiny_bert: Path, command: Command) -> None:
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", rows()))
    recipe, output = started(command, tmp_path / "a.csv", "--teacher", str(tiny_bert))
    layers = json.loads((tiny_bert / "config.json").read_text())["num_hidden_layers"]
    assert recipe.students[0].layers == layers // 2 and f"of the teacher's {layers} layers" in output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--text", "txet"], "--text: a.csv has no column 'txet'; it has text, label; did you mean 'text'?"),
        (["--task", "regresion"], "unknown task type 'regresion'; did you mean 'regression'?"),
        (["--task", "regression"], "which fit no regression; name another column by --label"),
        (["--teacher", "./nowhere"], "there is no file or folder './nowhere'"),
    ],
)
def test_a_wrong_wish_is_a_sentence_and_nothing_is_written(
    options: list[str], sentence: str, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", rows()))
    done = command("init", str(tmp_path / "a.csv"), *options)
    assert done.status == 1 and sentence in done.error and not list(tmp_path.glob("*.yaml"))


# --- faulty rows ------------------------------------------------------------------------------------------------------


def test_faulty_rows_are_all_reported_at_once_and_refused_or_left_out(tmp_path: Path, command: Command) -> None:
    pairs = [("" if number in (3, 50) else text, label) for number, (text, label) in enumerate(rows())]
    pairs[7], pairs[20] = (pairs[7][0], "rare"), (pairs[20][0], f"{pairs[20][1]},more")
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", pairs))
    recipe, output = started(command, tmp_path / "a.csv")
    told = [
        "a.csv: 1 line does not have 2 cells like the first line (line 22 has 3)",
        "a.csv, row 4: the text in column 'text' is empty (2 rows; also row 50)",
        "a.csv: too few different rows of class 'rare' (1 row): 4 are needed, one for each of train, validation, "
        "selection, holdout",
    ]
    assert recipe.data.faulty_rows == "drop" and all(line in output for line in told)
    assert sum(prepared_of(recipe).values()) == COUNT - 4
    refused = command("validate", str(tmp_path / "mine.yaml"), "--set", "data.faulty_rows=refuse")
    assert refused.status == 1 and all(line in refused.error for line in told)


def test_every_split_has_the_classes_in_the_proportions_of_the_table(tmp_path: Path) -> None:
    pairs = [(text, "abcd"[min(number % 20, 3)]) for number, text in enumerate(texts(1000))]
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", pairs))
    knobs = RowsSlice(task=TaskSpec(name="mine"), selection_rows=60, holdout_rows=100)
    splits, names, _ = divided_rows(tmp_path / "a.csv", knobs)
    assert names == list("abcd")
    for rows_of_split in splits.values():
        counts = Counter(rows_of_split.labels)
        assert all(abs(counts[number] / len(rows_of_split) - 0.05) < 0.02 for number in range(3))


@pytest.mark.parametrize(
    ("name", "body", "sentence"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.csv", b"\x00\x01\x02" * 100, "a.csv is not a text file"),
        ("a.pkl", b"\x80\x04.", "a.pkl is not a table that can be read; name a file that ends with .csv"),
        ("a.csv.gz", b"text,label\n", "a.csv.gz is not a whole gzip file"),
        (
            "a.jsonl",
            b'{"text": "a", "label": 1}\n{"text":',
            "a.jsonl, line 2 is not JSON: Expecting value at character 9; correct it",
        ),
        ("a.jsonl", b'{"text": "a", "label": 1}\n\n[1]\n', "a.jsonl, line 3 is no object with the columns of a row"),
        ("a.json", b'{"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 0}}', "a.json holds columns and no rows"),
        ("a.json", b'{"columns": ["text"], "index": [0], "data": [["a"]]}', "write it with to_json(..., orient='re"),
        ("a.parquet", b"PAR1 no", "a.parquet cannot be read"),
        ("a.csv", b"text,text,label\na,b,c\n", "a.csv has several columns 'text'"),
    ],
)
def test_a_file_that_is_no_table_is_one_sentence(
    name: str, body: bytes, sentence: str, tmp_path: Path, command: Command
) -> None:
    (tmp_path / name).write_bytes(body)
    done = command("init", str(tmp_path / name))
    assert done.status == 1 and sentence in done.error and done.error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_folder_with_a_script_runs_nothing(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (folder / "train.csv").write_text(lines("text,label", "{0},{1}", rows()))
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: plain\n  data_files: train.csv\n---\n")
    recipe, _ = started(command, folder)
    assert sum(prepared_of(recipe).values()) == COUNT
    with_config = command("validate", str(tmp_path / "mine.yaml"), "--set", "data.config=plain")
    assert with_config.status == 1 and "Dataset scripts are no longer supported" in with_config.error
    assert not (tmp_path / "ran").exists()


def test_a_configuration_is_that_of_the_folder_or_of_its_readme(tmp_path: Path, command: Command) -> None:
    folder = tmp_path / "sets"
    for config, count in (("small", 60), ("large", 120)):
        (folder / config).mkdir(parents=True)
        (folder / config / "train.csv").write_text(lines("text,label", "{0},{1}", rows(count)))
    (folder / "odd.csv").write_text(lines("text,label", "{0},{1}", rows(90)))
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: odd\n  data_files: odd.csv\n"
        "- config_name: l\n  data_files: large/train.csv\n---\n"
    )
    recipe, _ = started(command, folder / "large" / "train.csv")
    for config, count in (("small", 60), ("odd", 90), ("l", 120)):
        data = recipe.data.model_copy(update={"source": str(folder), "config": config})
        assert sum(prepared_of(recipe.model_copy(update={"data": data})).values()) == count
    options = ["--set", f"data.source={folder}", "--set", "data.config=huge"]
    unknown = command("validate", str(folder / "large" / "mine.yaml"), *options)
    assert unknown.status == 1 and "has no such configuration; known are odd, l" in unknown.error


# --- before a run -----------------------------------------------------------------------------------------------------


@pytest.fixture
def checked(tmp_path: Path, tiny_bert: Path, command: Command) -> Callable[..., str]:
    """Return a function that changes a starter recipe, and returns what validate, plan and run all say about it."""
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", rows()))
    (tmp_path / "bert").mkdir()
    for path in tiny_bert.iterdir():
        (tmp_path / "bert" / path.name).write_bytes(path.read_bytes())
    assert command("init", str(tmp_path / "a.csv"), "--teacher", str(tmp_path / "bert")).status == 0

    def check(*settings: str) -> str:
        words = [word for setting in settings for word in ("--set", setting)]
        said = {command(name, str(tmp_path / "a.yaml"), *words).error for name in ("validate", "plan")}
        assert len(said) == 1, said
        return said.pop()

    return check


def test_a_right_recipe_is_valid_with_its_rows(checked: Callable[..., str], tmp_path: Path, command: Command) -> None:
    assert "preparing" not in checked()
    done = command("validate", str(tmp_path / "a.yaml"))
    assert done.status == 0 and "rows: " in done.output and "a.csv: UTF-8, separated by commas" in done.output


def test_validate_counts_the_rows_that_the_purge_takes_as_the_plan_does(
    checked: Callable[..., str], tmp_path: Path, command: Command
) -> None:
    longer = [(f"{text} again", label) for text, label in rows(60)]
    (tmp_path / "a.csv").write_text(lines("text,label", "{0},{1}", rows(60) + longer))
    said = command("validate", str(tmp_path / "a.yaml")).output.splitlines()
    removed = [line for line in said if "training rows (" in line and "were removed, because their text" in line]
    assert len(removed) == 1 and not removed[0].startswith("0 ")
    assert removed[0] in " ".join(command("plan", str(tmp_path / "a.yaml")).output.split())


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("task.metrics=[acuracy]", "task.metrics names 'acuracy'"),
        ("task.text=txet", "a.csv has no text column 'txet'"),
        ("data.source=./nowhere.csv", "there is no file or folder './nowhere.csv'"),
        ("task.labels=[good, awful]", "the label 'bad' is not one of good, awful"),
        ("layer_dropping={strategies: [tpo], drop: [1]}", "unknown layer-dropping strategy 'tpo'; did you mean 'top'?"),
        ("students.0.layers=9", "has 9 layers and its teacher 4"),
        ("data.judge.more={source: ./nowhere.csv}", "there is no file or folder './nowhere.csv'"),
    ],
)
def test_a_mistake_is_found_before_anything_is_computed(
    setting: str, sentence: str, checked: Callable[..., str]
) -> None:
    assert sentence in checked(setting)


def test_cut_off_weights_and_a_missing_tokenizer_are_found(checked: Callable[..., str], tmp_path: Path) -> None:
    weights = tmp_path / "bert" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors is not a whole file of weights" in checked()
    weights.write_bytes(whole)
    for name in ("tokenizer.json", "vocab.txt"):
        (tmp_path / "bert" / name).unlink(missing_ok=True)
    assert "has no tokenizer" in checked()


def test_a_home_without_databases_is_told_so(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for one in (Home(tmp_path).create(), home):
        announce_databases(one)
    assert capsys.readouterr().err == (f"preparing the databases of {tmp_path}, once; this takes some seconds\n"), (
        "the other home has them"
    )


def test_empty_tables_say_what_comes_next(home: Home, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMBECK_HOME", str(home.root))
    assert "no runs yet; start one: limbeck demo" in command("runs").output
    assert "no registered models yet" in command("models").output
    assert "no runs yet, so there is no leaderboard; start one: limbeck demo" in command("leaderboard").output


@pytest.mark.parametrize(
    ("layers", "starts"), [(4, ("teacher", "contribution", "random")), (1, ("random", "embeddings"))]
)
def test_a_recipe_with_trials_tries_ways_that_its_student_can_take(
    layers: int, starts: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    model = write_tiny("bert", tmp_path / "bert", num_hidden_layers=layers)
    recipe, _ = started(command, semicolons(tmp_path / "rows.csv"), "--search", "--teacher", str(model))
    assert recipe.search is not None and recipe.search.recipes is not None
    trials = recipe.search.recipes
    assert trials.shape.layers == recipe.students[0].layers and trials.starts == starts
    assert of_a_search(recipe) is recipe


def test_a_recipe_of_models_that_write_has_a_short_decoder_and_no_trials(command: Command, tmp_path: Path) -> None:
    table = [{"source": text, "target": text.upper()} for text in texts()]
    (tmp_path / "both.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table))
    recipe, said = started(command, tmp_path / "both.jsonl", "--task", "seq2seq")
    assert {(one.layers, one.decoder_layers) for one in recipe.students} == {(3, 1)}
    assert "and one of its decoder, where writing takes its time" in said
    done = command(
        "init", str(tmp_path / "both.jsonl"), "--task", "seq2seq", "--search", "-o", str(tmp_path / "no.yaml")
    )
    assert done.status != 0 and "leave --search out" in done.error and not (tmp_path / "no.yaml").exists()
