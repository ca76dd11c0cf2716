"""A newcomer's first commands in a terminal: a table of their own, and the questions of ``init``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flows.run.recipe_file import load_recipe
from tests.flows.cli.terminal import typed_in_a_terminal
from tests.tiny import WORDS

LIMBECK = Path(sys.executable).with_name("limbeck")
QUESTIONS = [
    ("Which column holds the labels? [verdict/shop]", "verdict"),
    ("Is title a second text beside review?", "no"),
    ("Which column holds the texts?", ""),
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
        [LIMBECK, *words], answers or [], folder=place, environment=clean_environment(place)
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
