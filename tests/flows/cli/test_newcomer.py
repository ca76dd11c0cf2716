"""A newcomer's first hour in a terminal: a table of their own, the questions of ``init``, a champion, and predictions
in a notebook."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.run.recipe_file import load_recipe
from tests.flows.cli.terminal import typed_in_a_terminal
from tests.tiny import WORDS

ROOT = Path(__file__).resolve().parents[3]
LIMBECK = Path(sys.executable).with_name("limbeck")
QUESTIONS = [
    ("Which column holds the labels? [verdict/shop]", "verdict"),
    ("Is title a second text beside review?", "no"),
    ("Which column holds the texts?", ""),
]
LONG = 1200.0  # seconds; a run on a busy machine
SHORT = [
    "--set=speed={seconds: 0.2, length: 16}",
    "--set=scoring={resamples: 100, max_length: 32}",
    "--set=gate.criteria=[{metric: parameters, at_most: 0.95, of_teacher: true}]",
]
"""Small steps; the gate asks for fewer parameters alone, since a teacher of 16 hidden units learns nothing in them."""
CELLS = [
    "from flows.api import plan, predict, pull, report",
    "print('stages:', len(plan('mine.yaml').stages))",
    "print(predict('mine-bert@champion', ['the film was good', 'the meal was bad']))",
    "folder = pull('mine-bert@champion', 'from-the-notebook')\nprint(predict(folder, 'the film was good'))",
    "print('page:', report(output='report.html'))",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """An empty home, and a table whose columns have no usual name."""
    (tmp_path / "home").mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    rows = ["review,title,verdict,shop"]
    for number in range(240):
        filler = " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 5))
        verdict = ("bad", "good")[number % 2]
        rows.append(
            f"the {filler} {number} was {verdict} in the end,some title {number},{verdict},{'AB'[number // 7 % 2]}"
        )
    (folder / "mine.csv").write_text("\n".join(rows) + "\n")
    return folder


def clean_environment(place: Path) -> dict[str, str]:
    """The environment of a person who has set nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"HOME": str(place.parent / "home"), "HF_HUB_OFFLINE": "1"}


def in_terminal(place: Path, *words: str | Path, answers: list[tuple[str, str]] | None = None) -> str:
    """Type a command, answer its questions, and return what is displayed; it has to succeed."""
    status, shown = typed_in_a_terminal(
        [LIMBECK, *words], answers or [], folder=place, environment=clean_environment(place), patience=LONG
    )
    assert status == 0 and "Traceback" not in shown, shown
    return shown


def test_a_newcomer_answers_questions_and_has_a_recipe(place: Path, tiny_bert: Path) -> None:
    teacher = place / "bert"
    teacher.symlink_to(tiny_bert)
    shown = in_terminal(place, "init", "mine.csv", "--teacher", "bert", answers=QUESTIONS)
    assert "label: verdict" in shown and "wrote mine.yaml; next: limbeck validate mine.yaml" in shown
    recipe = load_recipe(str(place / "mine.yaml"))
    assert (recipe.spec.text, recipe.spec.pair, recipe.spec.label) == ("review", None, "verdict")
    assert {path.name for path in place.iterdir()} == {"mine.csv", "mine.yaml", "bert"}
    assert not list((place.parent / "home").rglob("*.db")), "init needs no database"


@pytest.mark.slow
def test_a_newcomer_has_a_champion_and_predicts_in_a_notebook(place: Path, tiny_bert: Path) -> None:
    """All commands are real, in an empty home, with servers of their own."""
    (place / "bert").symlink_to(tiny_bert)
    in_terminal(place, "init", "mine.csv", "--teacher", "bert", answers=QUESTIONS)
    assert "mine is valid: task mine, students half" in in_terminal(place, "validate", "mine.yaml", *SHORT)
    assert "stages would run" in in_terminal(place, "plan", "mine.yaml", *SHORT)
    shown = in_terminal(place, "models")
    assert "preparing the databases of" in shown and "no registered models yet" in shown
    assert "preparing" not in in_terminal(place, "runs")
    shown = in_terminal(place, "run", "mine.yaml", *SHORT)
    assert "1 new model version registered" in shown and "mine-bert@champion is half, version 1" in shown
    assert "mine-bert" in in_terminal(place, "models") and "mine" in in_terminal(place, "runs")
    assert "mine-bert version 1" in in_terminal(place, "pull", "mine-bert@champion", "small")
    predicts_in_a_terminal(place)
    predicts_in_a_notebook(place)
    again = in_terminal(place, "run", "mine.yaml", *SHORT)
    assert "0 new model versions" in again and "champion stays half, version 1" in again
    left = {"mine.csv", "mine.yaml", "bert", "small", "out.csv", "mine.ipynb", "from-the-notebook", "report.html"}
    assert {path.name for path in place.iterdir()} == left


def predicts_in_a_terminal(place: Path) -> None:
    """Predict one text by the registered name, and the whole table by the pulled folder."""
    shown = in_terminal(place, "predict", "mine-bert@champion", "the film was good")
    assert [json.loads(line)["label"] in ("good", "bad") for line in shown.splitlines() if line[:1] == "{"] == [True]
    in_terminal(place, "predict", "small", "mine.csv", "--text", "review", "-o", "out.csv")
    with (place / "out.csv").open(newline="") as written:
        rows = list(csv.DictReader(written))
    assert len(rows) == 240 and list(rows[0]) == ["review", "title", "verdict", "shop", "label", "score"]
    assert {row["label"] for row in rows} <= {"good", "bad"}


def predicts_in_a_notebook(place: Path) -> None:
    """Run a notebook in a process of its own, in the newcomer's folder and home."""
    notebook = place / "mine.ipynb"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "code", "source": [cell]} for cell in CELLS]}))
    environment = clean_environment(place) | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.flows.api.cells", notebook]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert done.stdout.count("'label'") == 3 and "stages: " in done.stdout
    assert (place / "report.html").read_text().startswith("<!doctype html>")
