"""Words, figures and code of every task type: a page, a card and an MLflow model ask the view of their type alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.catalog import TaskSpec
from tasks.metrics.of_answers import coded_answer
from tasks.ports.tracking.packer import Packer
from tasks.report.page.error_analysis import CHARTS, analysis_of, disagreement_section
from tasks.results.run import RunResult
from tasks.task_types.answers import ANSWERS
from tasks.task_types.stored import type_of, type_of_result
from tasks.task_types.types import TASK_TYPES
from tasks.task_types.views import VIEWS
from tests.forked import start_fork
from tests.report.figures import row, written
from tests.task_types.configs import CONFIGS, write_model
from tests.task_types.test_answers import OF_WORDS, ONE_ANSWER, drawn, truth

NAMES = sorted(VIEWS)
LIKE_ANOTHER = ("regression", "retrieval")
"""Types that MLflow's package treats as it does one that is tested by default, classification or embedding."""


def analysed(name: str) -> dict[str, Any]:
    """Return the error analysis of a student beside its teacher, from drawn outputs."""
    answers = ANSWERS[name]
    ours, theirs = (answers.read(drawn(name, seed)) for seed in (1, 2))
    labels_N = truth(name) if name in OF_WORDS else answers.decide(drawn(name, 3))
    ids_N = np.arange(len(labels_N))
    return {**answers.alone(ours, labels_N, 10), "apart": answers.apart(ours, theirs, labels_N, ids_N, 3)}


def result_of(name: str, **changes: Any) -> RunResult:
    """Return a run's result with one error analysis."""
    found = row("half", inspection=analysed(name))
    return RunResult.model_validate(written(models=[found]) | {"task_type": name} | changes)


def test_every_task_type_has_a_view() -> None:
    assert set(VIEWS) == set(TASK_TYPES)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_finds_every_figure_chart_and_count_in_the_error_analysis(name: str) -> None:
    """A name that the analysis does not have would be a dash on every page."""
    view, found, result = VIEWS[name], analysed(name), result_of(name)
    assert {one.name for one in view.figures} <= {*found} and view.card_figure in view.figures
    assert (view.chart in CHARTS or not view.chart) and (view.matrix in found or not view.matrix)
    assert {*view.counted} | {"rows"} == {*found["apart"]["counts"]}
    assert {*view.examples} == {*found["apart"]["examples"]}
    shown = analysis_of(result, result.models[0])
    assert [title for title, _ in shown.figures][: len(view.figures)] == [one.title for one in view.figures]
    assert len(shown.figures) > len(view.figures) or not view.by_class
    assert all(figure != "—" for _, figure in shown.figures) and ("<svg" in (shown.chart or "")) == bool(view.chart)
    assert bool(shown.confusion) == bool(view.matrix)
    apart = disagreement_section(result, result.models[0], {})
    assert apart is not None and [title for title, _ in apart.lines] == list(view.counted.values())
    assert apart.lists[0].title == view.examples["surest"]


SHOWN: dict[str, tuple[tuple[str, ...], str, str, str, str]] = {
    "tokens": (("the good film",), "0 1 0", "0 0 1", "good", "film"),
    "spans": (
        ("which film", "it was good and poor"),
        coded_answer(16, 20, "poor"),
        coded_answer(7, 11, "good"),
        "poor",
        "good",
    ),
}
"""A row's texts, a student's answer and its teacher's, which is right, and the words that both stand for."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_row_on_which_a_student_differs_is_shown_with_its_text_and_both_answers(name: str) -> None:
    """The students of these types' chains find their teacher's very answers, so that their pages show no such row."""
    texts, ours, theirs, student, teacher = SHOWN[name]
    right = np.asarray([theirs])
    apart = ANSWERS[name].apart({"answer": np.asarray([ours])}, {"answer": right}, right, np.asarray([5]), 3)
    found = row("half", inspection={**analysed(name), "apart": apart})
    result = RunResult.model_validate(written(models=[found]) | {"task_type": name})
    section = disagreement_section(result, result.models[0], {"5": texts})
    assert section is not None and [one.title for one in section.lists] == [VIEWS[name].examples["surest"]]
    (shown,) = section.lists[0].rows
    assert shown.id == 5 and shown.texts == list(texts)
    assert student in shown.student.answer and teacher not in shown.student.answer
    assert teacher in shown.teacher.answer and teacher in shown.label


def test_answers_are_written_by_name_or_as_numbers() -> None:
    classes, values = VIEWS["classification"].answer, VIEWS["regression"].answer
    assert classes(1, ["no", "yes"]) == "yes" and classes(7, ["no", "yes"]) == "7.00"
    assert values(2.5, []) == "2.50" and values(math.nan, []) == values(None, []) == "—"


@pytest.mark.parametrize("name", ONE_ANSWER)
def test_the_code_of_the_card_prints_the_prediction(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines are run as a user runs them, on a model of the type, with one text and with two."""
    import transformers

    folder = write_model(tmp_path, name)
    code = VIEWS[name].code
    given = {
        "model": getattr(transformers, TASK_TYPES[name].auto_class).from_pretrained(folder),
        "tokenizer": transformers.AutoTokenizer.from_pretrained(folder),
    }
    for pairs in (False, True):
        exec(code.checkpoint.format(text=code.text(pairs)), dict(given))
        printed = capsys.readouterr().out.strip()
        if name == "classification":
            assert printed.startswith("LABEL_")
        elif name == "multi-label":
            assert printed.startswith("[")
        else:
            assert np.isfinite(json.loads(printed)).all()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LIKE_ANOTHER else []) for name in ONE_ANSWER]
)
def test_an_mlflow_model_has_the_pipeline_and_the_signature_of_its_type(name: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", name)
    metrics = TASK_TYPES[name].metrics
    task = TaskSpec(name="tiny", kind=name, pair="other", metrics=metrics, headline=metrics[0])  # type: ignore[arg-type]
    with Packer(tmp_path / "work", start_fork) as packer:
        package = packer.pack(folder, "package", card="# card", task=task)
    from mlflow.models import Model

    stored = Model.load(str(package))
    assert stored.flavors["transformers"]["task"] == TASK_TYPES[name].hub_task
    assert stored.signature is not None and stored.signature.outputs is not None
    assert stored.signature.outputs.input_names() == list(VIEWS[name].example_answer)
    assert json.loads((package / "input_example.json").read_text()) == VIEWS[name].example(True)


# --- the type of what somebody else wrote -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ONE_ANSWER if TASK_TYPES[name].problem_type])
def test_a_config_states_its_type_and_is_guessed_by_its_labels_only_without(name: str) -> None:
    many = CONFIGS[name]["num_labels"]
    labels = {str(number): str(number) for number in range(many)}
    assert type_of({"problem_type": TASK_TYPES[name].problem_type}) == name
    guessed = "classification" if name == "multi-label" else name  # nothing but the statement tells the two apart
    assert type_of({"id2label": labels}) == type_of({"num_labels": many, "problem_type": None}) == guessed


def test_the_stated_type_wins_over_the_number_of_labels() -> None:
    assert type_of({"problem_type": "single_label_classification", "num_labels": 1}) == "classification"
    assert type_of({"problem_type": "regression", "num_labels": 3}) == "regression"
    assert type_of({}) == "classification", "a config without labels has two"
    assert type_of({"problem_type": "multi_label_classification", "num_labels": 4}) == "multi-label"
    assert type_of({"problem_type": "token_classification", "num_labels": 4}) == "classification"


def test_a_result_of_an_older_release_is_told_by_its_metric() -> None:
    assert type_of_result("regression", "accuracy") == "regression"
    assert type_of_result("", "f1") == "classification" and type_of_result("", "mse") == "regression"
    assert type_of_result("", "retired") == "classification"
