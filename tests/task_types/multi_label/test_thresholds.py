"""Thresholds are the best of all on the rows that they are tuned on, and are in the bias of the model's head."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import f1_score
from transformers import AutoModelForSequenceClassification, pipeline

from tasks.catalog import TaskSpec
from tasks.engine.job import Job
from tasks.errors import DataError
from tasks.metrics.of_label_sets import as_sets
from tasks.ports.rows.prepared import prepare_rows
from tasks.recipe.slices import RowsSlice, ThresholdSlice
from tasks.scoring.predict import outputs_of, predict_texts
from tasks.task_types.multi_label.graph import GRAPH
from tasks.task_types.multi_label.thresholds import log_odds, thresholds_of_sets
from tasks.training.data.rows import load_tokenizer, read_rows, read_task
from tasks.training.models.students import load_classifier, save_model
from tasks.training.models.thresholds import write_thresholds
from tests.families import write_tiny
from tests.tiny import WORDS

RANDOM = np.random.default_rng(3)


def drawn(rows: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-odds that tell something about the labels, but are too low."""
    true_NC = RANDOM.random((rows, labels)) < 0.3
    true_NC[0] = True
    return RANDOM.normal(size=(rows, labels)) + true_NC - 1.5, true_NC


def score(logits_NC: np.ndarray, true_NC: np.ndarray, thresholds_C: np.ndarray, average: str) -> float:
    found_NC = 1 / (1 + np.exp(-logits_NC)) > thresholds_C
    return float(f1_score(true_NC, found_NC, average=average, zero_division=0))


@pytest.mark.parametrize(("metric", "average"), [("micro_f1", "micro"), ("label_macro_f1", "macro")])
def test_no_other_thresholds_are_better_on_these_rows(metric: str, average: str) -> None:
    for _ in range(5):
        logits_NC, true_NC = drawn(12, 2)
        found_C = thresholds_of_sets(logits_NC, as_sets(true_NC), metric)
        shares_NC = np.sort(1 / (1 + np.exp(-logits_NC)), axis=0)
        cuts = [[0.001, *((column[:-1] + column[1:]) / 2), 0.999] for column in shares_NC.T]
        best = max(score(logits_NC, true_NC, np.asarray(pair), average) for pair in itertools.product(*cuts))
        assert score(logits_NC, true_NC, found_C, average) == pytest.approx(best)


def test_a_label_without_a_row_and_one_that_needs_no_change_stay_at_half() -> None:
    """A threshold that means nothing would be a threshold all the same in every prediction."""
    logits_NC = np.asarray([[3.0, -1.0], [2.0, -2.0], [-3.0, -0.5]])
    members_NC = np.asarray([[True, False], [True, False], [False, False]])
    assert thresholds_of_sets(logits_NC, as_sets(members_NC), "micro_f1").tolist() == [0.5, 0.5]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared rows whose labels are two of the words of each text."""
    folder, draw = tmp_path_factory.mktemp("sets"), np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 6)) for _ in range(200)]
    sets = [[word for word in WORDS[:2] if word in text.split()] for text in texts]
    pq.write_table(pa.table({"text": texts, "label": sets}), folder / "train.parquet")
    spec = TaskSpec(name="sets", kind="multi-label")
    prepare_rows(folder / "train.parquet", RowsSlice(task=spec, selection_rows=20, purge=False), folder / "rows")
    return folder / "rows"


def job(output: Path, base: Path, rows: Path, metric: str = "micro_f1") -> Job:
    output.mkdir()
    knobs = ThresholdSlice(task_type="multi-label", metric=metric, max_length=16).model_dump(mode="json")
    inputs = {"base": str(base), "rows": str(rows)}
    return Job({"job": "thresholds", "knobs": knobs, "inputs": inputs, "output": str(output)}, silent=True)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "xlnet"])
def test_a_plain_user_decides_as_the_tuned_model(family: str, rows: Path, tmp_path: Path) -> None:
    """Thresholds that only our code knows would be lost with the first user of the folder."""
    task, base = read_task(rows, "multi-label"), write_tiny(family, tmp_path / "base")
    model = load_classifier(base, task, torch.device("cpu"))
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.1)
    save_model(model, load_tokenizer(base), tmp_path / "trained")
    facts = write_thresholds(job(tmp_path / "tuned", tmp_path / "trained", rows))
    assert facts["selection_score"] > facts["selection_score_at_half"]  # type: ignore[operator]
    config = json.loads((tmp_path / "tuned" / "config.json").read_text())
    thresholds_C = np.asarray(config["limbeck_thresholds"])
    assert (thresholds_C != 0.5).any() and config["problem_type"] == "multi_label_classification"
    held = read_rows(rows, "selection", task.head)
    before_NC, after_NC = (
        outputs_of(tmp_path / name, held.texts, None, 16, task_type="multi-label")["logits"]
        for name in ("trained", "tuned")
    )
    np.testing.assert_allclose(after_NC + log_odds(thresholds_C), before_NC, atol=1e-4)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned")
    asked = pipeline("text-classification", plain, tokenizer=load_tokenizer(tmp_path / "tuned"), top_k=None)
    texts, names = held.texts[:5], task.labels or []
    for text, row, ours in zip(texts, before_NC, predict_texts(tmp_path / "tuned", texts, None, 16), strict=False):
        expected = [name for name, above in zip(names, row > log_odds(thresholds_C), strict=True) if above]
        theirs = sorted(one["label"] for one in asked([text])[0] if one["score"] > 0.5)
        assert theirs == sorted(expected) and ours["labels"] == "|".join(expected)
        shares = 1 / (1 + np.exp(-row))
        assert [ours[f"score_{name}"] for name in names] == pytest.approx(shares.tolist(), abs=1e-4)


def test_thresholds_want_selection_rows(rows: Path, tmp_path: Path) -> None:
    spec, table = TaskSpec(name="sets", kind="multi-label"), rows.parent / "train.parquet"
    prepare_rows(table, RowsSlice(task=spec, selection_rows=0, purge=False), tmp_path / "rows")
    base = write_tiny("bert", tmp_path / "base")
    with pytest.raises(DataError, match="thresholds are tuned on selection rows, and there are none"):
        write_thresholds(job(tmp_path / "tuned", base, tmp_path / "rows"))


def test_a_card_states_the_thresholds_and_a_score_is_the_probability_before_them() -> None:
    class Config:
        id2label, num_labels, limbeck_thresholds = {0: "a", 1: "b"}, 2, [0.2, 0.5]

    card = GRAPH.card(Config())
    assert card["thresholds"] == [0.2, 0.5] and card["limbeck_task_type"] == "multi-label"
    trained_NC = np.asarray([[log_odds(np.asarray(0.3)), -1.0]])
    found = GRAPH.predictions({"logits": trained_NC - log_odds(np.asarray([0.2, 0.5]))}, card)
    assert found == [{"labels": "a", "score_a": pytest.approx(0.3), "score_b": pytest.approx(1 / (1 + np.e))}]
