"""Pieces of a passage: windows, targets, the best legal answer, thresholds, losses, and equal outputs for training,
checkpoints and graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tasks.metrics.of_answers import NO_ANSWER, coded_answer
from tasks.scoring.windows import outputs_of_checkpoint_units
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.heads import HEADS
from tasks.task_types.interfaces import TableRows
from tasks.task_types.spans.head import by_window, true_places
from tasks.task_types.spans.passage import (
    ALWAYS_ANSWERS,
    BEST,
    BEST_CANDIDATES,
    END,
    FOUND_ANSWER,
    MOST_PIECES,
    PIECES_OF_PASSAGE,
    START,
    answer_of_passage,
    best_answers,
    pieces_of_passage,
    targets_of_pieces,
)
from tasks.task_types.spans.rows import READER
from tasks.task_types.spans.thresholds import threshold_of_none
from tasks.task_types.units import SUMMARY, place_units, ragged_array
from tasks.training.data.encoded import collate, encode_windows
from tasks.training.data.rows import Task, load_tokenizer
from tasks.training.models.students import load_classifier
from tasks.training.selection import all_outputs
from tests.task_types.spans.tables import asked

CPU = torch.device("cpu")
WINDOWS = [
    np.asarray([(-2, -2), (-1, -1), (-1, -1), (0, 4), (5, 7), (-1, -1)]),
    np.asarray([(-2, -2), (-1, -1), (-1, -1), (5, 7), (8, 11), (-1, -1)]),
]
TEXT = "Rome is old"


def located() -> np.ndarray:
    """Return the places of the units of two windows."""
    return place_units(PIECES_OF_PASSAGE, TEXT, WINDOWS)[1]


def test_units_are_the_first_token_and_the_pieces_of_the_passage() -> None:
    assert [found.tolist() for found in pieces_of_passage(TEXT, WINDOWS)] == [
        [0, -1, -1, 1, 2, -1],
        [3, -1, -1, 4, 5, -1],
    ]
    assert located()[:, 2].tolist() == [0, 0, 0, 1, 1, 1] and located()[0, 0] == SUMMARY


def test_a_window_without_the_whole_answer_has_none() -> None:
    old = targets_of_pieces(coded_answer(5, 11, "is old"), located())
    assert old[:, 0].tolist() == [1, 0, 0, 0, 1, 0] and old[:, 1].tolist() == [1, 0, 0, 0, 0, 1]
    none = targets_of_pieces(NO_ANSWER, located())
    assert none[:, 0].tolist() == none[:, 1].tolist() == [1, 0, 0, 1, 0, 0]
    assert (targets_of_pieces("", located())[:, :2] == -1).all()


def test_an_answer_inside_of_a_piece_is_the_piece() -> None:
    found = targets_of_pieces(coded_answer(1, 3, "om"), located())
    assert found[:, 0].tolist() == [0, 1, 0, 1, 0, 0]


def test_characters_without_a_piece_at_an_edge_are_no_part_of_an_answer(tiny_bert: Path) -> None:
    """A tokenizer has no piece for a character of control; the answer is whole without it."""
    question, passage = "where?", "\x02Rome was old\x02"
    for answer in ("\x02Rome", "old\x02"):
        labels = [coded_answer(passage.index(answer), passage.index(answer) + len(answer), answer)]
        encoded = encode_windows(load_tokenizer(tiny_bert), [question], 20, PIECES_OF_PASSAGE, [passage], labels)
        windows = encoded.windows
        assert windows is not None and windows.targets_UK is not None
        assert windows.targets_UK[:, 0].tolist()[0] == 0 and windows.targets_UK[1:, :2].sum() == 2


def outputs(start: list[float], end: list[float]) -> dict[str, np.ndarray]:
    return {"start_logits": np.asarray(start, np.float32), "end_logits": np.asarray(end, np.float32)}


def test_the_best_answer_is_legal_and_none_needs_every_window() -> None:
    found = best_answers(outputs([1, 0, 9, 4, 0, 2], [1, 8, 0, 4, 0, 3]), located())
    assert found[0].tolist() == [-1, -1, 2.0], "none is as likely as in the window where it is least so"
    assert found[1].tolist() == [5, 7, 9.0], "an end before the beginning is no answer, however likely"


def test_an_answer_has_no_white_space_at_its_ends() -> None:
    """Pieces of some tokenizers begin with the space before a word: " Paris" was an answer, one character too early."""
    text = "it is Paris  ."
    places_U3 = np.asarray([[*([SUMMARY] * 2), 0], [0, 2, 0], [2, 5, 0], [5, 11, 0], [11, 13, 0], [13, 14, 0]])
    start_U, end_U = np.asarray([0.0, 0, 0, 9, 0, 0]), np.asarray([0.0, 0, 0, 9, 8, 0])
    found = answer_of_passage({START: start_U, END: end_U}, places_U3, text, {})
    assert found[FOUND_ANSWER] == coded_answer(6, 11, "Paris")
    listed = [tuple(one) for one in found[BEST_CANDIDATES][1:, :2].astype(int).tolist()]
    assert listed[0] == (6, 11) and len(set(listed)) == len(listed)
    assert all(text[start:end] == text[start:end].strip() for start, end in listed)


def test_an_answer_is_not_too_long() -> None:
    pieces = [(SUMMARY, SUMMARY), *((2 * at, 2 * at + 1) for at in range(MOST_PIECES + 5))]
    places_U3 = place_units(PIECES_OF_PASSAGE, "", [np.asarray(pieces)])[1]
    start, end = np.zeros(len(pieces)), np.zeros(len(pieces))
    start[1], end[-1] = 50, 50
    best = best_answers(outputs(start.tolist(), end.tolist()), places_U3)[1]
    assert (best[1] - best[0] + 1) / 2 <= MOST_PIECES


@pytest.mark.parametrize(("threshold", "answer"), [(None, NO_ANSWER), (3.0, "0 4 "), (ALWAYS_ANSWERS, "0 4 ")])
def test_the_stated_threshold_decides_between_none_and_the_best(threshold: float | None, answer: str) -> None:
    given = outputs([5, 3, 0, 5, 0, 0], [5, 5, 0, 5, 0, 0])
    stated = {} if threshold is None else {"limbeck_null_threshold": threshold}
    found = answer_of_passage(given, located(), TEXT, stated)
    assert found[FOUND_ANSWER].startswith(answer) and found[BEST].startswith("0 4 ")


def test_a_threshold_is_chosen_where_none_is_right_most_often() -> None:
    right = coded_answer(0, 4, "Rome")
    labels_N, margins = np.asarray([right, right, NO_ANSWER, NO_ANSWER]), [-3.0, 1.0, 2.0, 5.0]
    candidates = ragged_array([np.asarray([[-1, -1, margin], [0, 4, 0.0]]) for margin in margins])
    given = {BEST: np.asarray([right] * 4), BEST_CANDIDATES: candidates}
    assert threshold_of_none(given, labels_N, "squad_f1") == 1.5
    assert threshold_of_none(given, np.asarray([right] * 4), "squad_f1") == ALWAYS_ANSWERS


# --- a tiny model -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tiny_bert: Path) -> Any:
    return load_classifier(tiny_bert, Task("tiny", "spans", None, "", True, HEADS["spans"]), CPU).eval()


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Any]]:
    found = asked(5)
    found["question"][0] = "film " * 40  # cut, so that every window has room for the passage
    return found


def labels_of(rows: dict[str, list[Any]]) -> list[str]:
    """Return the labels of rows as they are stored."""
    columns = {"text": rows["question"], "pair": rows["context"], "label": rows["answers"]}
    return [str(label) for label in READER.labels(TableRows("rows", {}, columns), None)]


def test_training_and_scoring_read_the_same_windows(model: Any, tiny_bert: Path, rows: dict[str, list[Any]]) -> None:
    tokenizer, names = load_tokenizer(tiny_bert), ["start_logits", "end_logits"]
    questions, passages = rows["question"], rows["context"]
    encoded = encode_windows(tokenizer, questions, 20, PIECES_OF_PASSAGE, passages, labels_of(rows))
    ours = all_outputs(model, HEADS["spans"].outputs, encoded, tokenizer.pad_token_id, precision="fp32")
    units = GRAPHS["spans"].units
    assert units is not None
    theirs = outputs_of_checkpoint_units(model, tokenizer, questions, names, 20, units, together=4, pairs=passages)
    assert encoded.windows is not None and len(encoded.windows.row_F) > len(passages), "some are read in windows"
    for name in names:
        for one, other in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    assert (ours[FOUND_ANSWER] == theirs[FOUND_ANSWER]).all()
    for answer, passage in zip(ours[BEST], passages, strict=True):
        start, end = map(int, answer.split()[:2])
        assert answer == coded_answer(start, end, passage[start:end])


def test_the_loss_is_that_of_transformers(model: Any, tiny_bert: Path, rows: dict[str, list[Any]]) -> None:
    """Where every token is legal, as in transformers' loss, but for those that are not of the passage."""
    tokenizer, labels = load_tokenizer(tiny_bert), labels_of(rows)
    encoded = encode_windows(tokenizer, rows["question"], 20, PIECES_OF_PASSAGE, rows["context"], labels)
    assert encoded.windows is not None and encoded.windows.targets_UK is not None
    batch = collate(encoded, range(len(encoded.lengths_N)), tokenizer.pad_token_id, CPU)
    found = model(**batch.inputs(model))
    targets = torch.from_numpy(encoded.windows.targets_UK)[batch.at_B]
    ours = HEADS["spans"].label_loss(
        batch.answers({name: found[name] for name in ("start_logits", "end_logits")}), targets
    )
    total = 0.0
    for name, column in (("start_logits", 0), ("end_logits", 1)):
        units_BT = torch.full(batch.ids_BT.shape, -1).flatten()
        units_BT[batch.answered_K] = torch.arange(len(batch.at_B))
        illegal_BT = (units_BT < 0).view(batch.ids_BT.shape)
        true_BT = torch.zeros(batch.ids_BT.shape)
        true_BT.flatten()[batch.answered_K] = targets[:, column].float()
        total = total + F.cross_entropy(found[name].masked_fill(illegal_BT, -1e4), true_BT.argmax(1))
    torch.testing.assert_close(ours.mean(), total / 2)


def test_a_student_that_answers_as_its_teacher_has_nothing_to_learn() -> None:
    head, targets = HEADS["spans"], torch.tensor([[1, 1, 0], [0, 0, 0], [0, 0, 4], [1, 1, 4], [0, 0, 4]])
    theirs = {name: torch.randn(5) for name in ("start_logits", "end_logits")}
    knobs = {"temperature": 2.0, "formula": "default"}

    def loss(ours: dict[str, torch.Tensor], hard_weight: float) -> float:
        return head.teacher_loss(ours, theirs, targets, hard_weight=hard_weight, **knobs).mean().item()

    assert loss(theirs, 0) == pytest.approx(0, abs=1e-6)
    moved = {name: values + torch.tensor([3.0, 3.0, 7.0, 7.0, 7.0]) for name, values in theirs.items()}
    assert loss(moved, 0) == pytest.approx(0, abs=1e-5), "windows are compared by themselves"
    assert loss({**theirs, "end_logits": theirs["end_logits"].flip(0)}, 0) > 0.001
    assert loss(theirs, 1) == pytest.approx(head.label_loss(theirs, targets).mean().item())
    assert by_window(theirs["start_logits"], targets).shape == (2, 3)
    assert true_places(targets, 0).tolist() == [0, 1]
    unlabelled = torch.cat([torch.full((5, 2), -1), targets[:, 2:]], 1)
    assert head.label_loss(theirs, unlabelled).mean().item() == 0
