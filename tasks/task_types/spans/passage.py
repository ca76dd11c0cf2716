"""Pieces of a passage and the best answer among them: an answer begins at one piece and ends at one, or there is none.

Windows, targets and decisions are those of BERT on SQuAD (Devlin et al. 2018, arXiv:1810.04805, sections 4.2 and 4.3):
an answer that is not whole in a window is none there, and none stands at the window's first token. The score of an
answer is the sum of both logits; that of none is the smallest over all windows, as the passage has no answer only if
no window has one. Shape letters: U units of a passage, T tokens of a window, K best ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.metrics.of_answers import BETWEEN_ANSWERS, NO_ANSWER, coded_answer, span_of_answer
from tasks.task_types.units import SUMMARY, Conclusions, StatedEntries, Units

START, END = "start_logits", "end_logits"
"""The outputs of a model, in transformers."""
FOUND_ANSWER, BEST, BEST_CANDIDATES = "answer", "best_answer", "candidates"
"""What is concluded: the answer, the best one that is not none, and the best answers with their scores: first that of
none, without its threshold; places in the passage and the sum of logits [K, 3]."""
STATED_THRESHOLD = "limbeck_null_threshold"
"""The entry of a config, or of an export's card: there is no answer where the score of none is above that of the best
answer by more than this."""
ALWAYS_ANSWERS = 1000.0
"""A threshold that no score is above."""
ENDS_COMBINED, MOST_PIECES, MOST_CANDIDATES = 20, 30, 5
"""Beginnings and ends that are combined in a window, the longest answer in pieces, and the best answers that are
returned."""
WITHOUT_LABEL = -1


def pieces_of_passage(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return by window the number of each piece of the passage, and of the first token for none [T]; -1 for others."""
    found, before = list[np.ndarray](), 0
    for places_T2 in windows:
        is_unit_T = (places_T2[:, 1] > places_T2[:, 0]) | (places_T2[:, 0] == SUMMARY)
        found.append(np.where(is_unit_T, before + np.cumsum(is_unit_T) - 1, -1))
        before += int(is_unit_T.sum())
    return found


def targets_of_pieces(label: Any, places_U3: np.ndarray) -> np.ndarray:
    """Return for each unit whether the answer begins there, whether it ends there, and its window [U, 3]; -1 for rows
    without a label. Of several true answers the first one is learned."""
    found_U3 = np.zeros_like(places_U3)
    found_U3[:, 2] = places_U3[:, 2]
    if not label:
        found_U3[:, :2] = WITHOUT_LABEL
        return found_U3
    covers_U = covered_pieces(places_U3, span_of_answer(label.split(BETWEEN_ANSWERS)[0]))
    for window in np.unique(places_U3[:, 2]):
        first, last = ends_in_window(places_U3, np.flatnonzero(places_U3[:, 2] == window), covers_U)
        found_U3[first, 0] = found_U3[last, 1] = 1
    return found_U3


def covered_pieces(places_U3: np.ndarray, span: tuple[int, int] | None) -> np.ndarray:
    """Return for each unit whether it is a piece of the answer [U]."""
    if span is None:
        return np.zeros(len(places_U3), dtype=bool)
    return np.asarray((places_U3[:, 0] >= 0) & (places_U3[:, 1] > span[0]) & (places_U3[:, 0] < span[1]))


def ends_in_window(places_U3: np.ndarray, units: np.ndarray, covers_U: np.ndarray) -> tuple[int, int]:
    """Return the units of a window at which an answer begins and ends: those of none where it is not whole in there."""
    none = int(units[places_U3[units, 0] == SUMMARY][0])
    # a tokenizer may drop characters at the ends of a passage, so pieces are compared with the answer's in all windows
    here = units[covers_U[units]]
    if not len(here):
        return none, none
    is_whole = places_U3[here[0], 0] == places_U3[covers_U, 0].min()
    is_whole &= places_U3[here[-1], 1] == places_U3[covers_U, 1].max()
    return (int(here[0]), int(here[-1])) if is_whole else (none, none)


def best_answers(outputs: Mapping[str, np.ndarray], places_U3: np.ndarray) -> np.ndarray:
    """Return the score of none, and then the best answers of all windows with other places, the best first [K, 3]."""
    none, found = np.inf, dict[tuple[int, int], float]()
    start_U, end_U = (outputs[name].astype(np.float64) for name in (START, END))
    for window in np.unique(places_U3[:, 2]):
        units = np.flatnonzero(places_U3[:, 2] == window)
        is_none = places_U3[units, 0] == SUMMARY
        none = min(none, float((start_U[units] + end_U[units])[is_none].max(initial=-np.inf)))
        pieces = units[~is_none]
        for first, last in legal_pairs(start_U[pieces], end_U[pieces]):
            place = int(places_U3[pieces[first], 0]), int(places_U3[pieces[last], 1])
            score = float(start_U[pieces[first]] + end_U[pieces[last]])
            found[place] = max(score, found.get(place, -np.inf))
    best = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:MOST_CANDIDATES]
    return np.asarray([(-1, -1, none), *((*place, score) for place, score in best)], dtype=np.float64)


def legal_pairs(start_U: np.ndarray, end_U: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs of the likeliest beginnings and ends of which the end is not before the beginning, nor far away."""
    firsts, lasts = (np.argsort(-values, kind="stable")[:ENDS_COMBINED] for values in (start_U, end_U))
    apart = lasts[None] - firsts[:, None]
    rows, columns = np.nonzero((apart >= 0) & (apart < MOST_PIECES))
    return list(zip(firsts[rows].tolist(), lasts[columns].tolist(), strict=True))


def answer_of_passage(
    outputs: Mapping[str, np.ndarray], places_U3: np.ndarray, text: str, stated: StatedEntries
) -> Conclusions:
    """Return the answer by the threshold that a config or a card states, the best one that is not none, and all
    candidates. Without a stated threshold there is none where its score is above that of the best answer."""
    candidates_K3 = without_blanks(best_answers(outputs, places_U3), text)
    best = NO_ANSWER
    if len(candidates_K3) > 1:
        start, end = (int(place) for place in candidates_K3[1, :2])
        best = coded_answer(start, end, text[start:end])
    threshold = stated.get(STATED_THRESHOLD)
    above = margin_of(candidates_K3) > (threshold if isinstance(threshold, (int, float)) else 0.0)
    return {FOUND_ANSWER: NO_ANSWER if above else best, BEST: best, BEST_CANDIDATES: candidates_K3}


def without_blanks(candidates_K3: np.ndarray, text: str) -> np.ndarray:
    """Return candidates without the white space at their ends, which the pieces of some tokenizers begin with; of those
    that are then the same, the best one."""
    found = {(-1, -1): candidates_K3[0]}
    for start, end, score in candidates_K3[1:]:
        words = text[int(start) : int(end)]
        place = int(start) + len(words) - len(words.lstrip()), int(start) + len(words.rstrip())
        if words.strip():
            found.setdefault(place, np.asarray([*place, score]))
    return np.stack([*found.values()])


def margin_of(candidates_K3: np.ndarray) -> float:
    """Return by how much the score of none is above that of the best answer."""
    return float(candidates_K3[0, 2] - candidates_K3[1, 2]) if len(candidates_K3) > 1 else float("inf")


PIECES_OF_PASSAGE = Units(places=pieces_of_passage, targets_at=targets_of_pieces, conclude=answer_of_passage)
