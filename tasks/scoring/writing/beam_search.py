"""Beam search over the words that a model writes of one source, in numpy: the likeliest words, or several texts that
are continued side by side.

Texts are those of ``generate`` of transformers with the same settings: of the texts that ended, and of those that
became as long as allowed, the one with the largest log-likelihood divided by a power of its length. Graves 2012,
"Sequence Transduction with Recurrent Neural Networks", arXiv:1211.3711; the division, Wu et al. 2016,
arXiv:1609.08144. Shape letters: K texts side by side, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tasks.scoring.memory import WritingRules
from tasks.task_types.units import Writing


class Writer(Protocol):
    """A model that has read a source, and reads texts of it side by side, word after word."""

    def next_words(self, words_K: Sequence[int]) -> np.ndarray:
        """Read one further word of each text; return the logits of the one behind it [K, V]."""

    def keep(self, texts_K: Sequence[int]) -> None:
        """Go on with copies of these texts, by their places."""


@dataclass(frozen=True)
class Beam:
    """A text that is being written: its log-likelihood, its words, and the place of the text that it continues."""

    score: float
    words: tuple[int, ...]
    parent: int = 0


def likeliest_text(writer: Writer, rules: WritingRules, writing: Writing, before: Sequence[int] = ()) -> list[int]:
    """Return the words of the text that is found, without those that end it; ``before`` are words that stand before
    it, of a text that is continued."""
    before = before or (rules["begin"],)
    running, finished = [Beam(0.0, ())], list[Beam]()
    while running:
        last = [beam.words[-1] if beam.words else before[-1] for beam in running]
        best = continuations(running, writer.next_words(last), rules, writing, before)
        found = [beam for beam in best[: writing.beams] if has_ended(beam, rules, writing)]
        finished += [with_length_divided(beam, writing) for beam in found]
        finished = sorted(finished, key=score_of, reverse=True)[: writing.beams]
        running = [beam for beam in best if not has_ended(beam, rules, writing)][: writing.beams]
        if not running or is_settled(finished, running[0], writing):
            break
        writer.keep([beam.parent for beam in running])
    return [word for word in finished[0].words if word not in rules["ends"]]


def score_of(beam: Beam) -> float:
    """Return the score of a beam."""
    return beam.score


def has_ended(beam: Beam, rules: WritingRules, writing: Writing) -> bool:
    """Tell whether a text goes no further: its last word ends it, or it has become as long as allowed."""
    return beam.words[-1] in rules["ends"] or len(beam.words) == writing.most


def with_length_divided(beam: Beam, writing: Writing) -> Beam:
    """Return a finished text with the score by which finished ones are compared."""
    return Beam(beam.score / len(beam.words) ** writing.length_penalty, beam.words)


def is_settled(finished: Sequence[Beam], running: Beam, writing: Writing) -> bool:
    """Tell whether no text that is still written is expected to become better than the finished ones: with one beam
    when it ends, else by the score that the best running text would have if it ended now."""
    if writing.beams == 1:
        return bool(finished)
    return len(finished) == writing.beams and with_length_divided(running, writing).score <= finished[-1].score


def continuations(
    running: Sequence[Beam], logits_KV: np.ndarray, rules: WritingRules, writing: Writing, before: Sequence[int]
) -> list[Beam]:
    """Return the likeliest texts with one word more, best first: enough of them that, whichever end, as many go on as
    there are beams."""
    totals_KV = np.stack(
        [
            beam.score + log_likelihoods(logits_V, beam.words, rules, writing, before)
            for beam, logits_V in zip(running, logits_KV, strict=True)
        ]
    )
    wanted = min(totals_KV.size, writing.beams * (1 + len(rules["ends"])))
    flat = totals_KV.ravel()
    near = np.argpartition(-flat, wanted - 1)[:wanted]
    order = near[np.argsort(-flat[near], kind="stable")]
    places = [divmod(int(one), totals_KV.shape[1]) for one in order if np.isfinite(flat[one])]
    return [Beam(float(totals_KV[text, word]), (*running[text].words, word), text) for text, word in places]


def log_likelihoods(
    logits_V: np.ndarray, words: Sequence[int], rules: WritingRules, writing: Writing, before: Sequence[int]
) -> np.ndarray:
    """Return the logarithm of the probability of each word behind some words, and those before them [V]; minus infinity
    for those that the rules exclude there."""
    found_V, read = logits_V.astype(np.float32), [*before, *words]
    if writing.beams > 1:  # transformers' beams are penalized by log-likelihoods, its likeliest words by logits
        found_V = log_softmax(found_V)
    found_V = less_likely(found_V, read, rules.get("repetition_penalty", 1.0))
    if writing.beams == 1:
        found_V = log_softmax(found_V)
    found_V[[*rules["never"], *words_that_repeat(read, rules["no_repeat"])]] = -np.inf
    if len(words) < writing.least:
        found_V[rules["ends"]] = -np.inf
    if not words and rules["first"] is not None:
        found_V = only(rules["first"], len(found_V))
    if len(words) == writing.most - 1 and rules["last"] is not None:
        found_V = only(rules["last"], len(found_V))
    return log_softmax(found_V) if rules["normalized"] else found_V


def less_likely(scores_V: np.ndarray, words: Sequence[int], penalty: float) -> np.ndarray:
    """Return scores in which those of some words are divided by a penalty, or multiplied if they are negative.

    Keskar et al. 2019, "CTRL", arXiv:1909.05858, section 4.1; transformers multiplies negative ones.
    """
    found_V, seen = scores_V.copy(), sorted({*words})
    found_V[seen] = np.where(found_V[seen] < 0, found_V[seen] * penalty, found_V[seen] / penalty)
    return found_V


def only(word: int, words: int) -> np.ndarray:
    """Return the log-likelihoods [V] of a word that is certain."""
    found_V = np.full(words, -np.inf, np.float32)
    found_V[word] = 0.0
    return found_V


def log_softmax(logits_V: np.ndarray) -> np.ndarray:
    """Return the logarithms of probabilities [V] from logits."""
    above_V = logits_V - logits_V.max()
    shares_V: np.ndarray = above_V - np.log(np.exp(above_V).sum())
    return shares_V


def words_that_repeat(words: Sequence[int], size: int) -> list[int]:
    """Return the words by which a run of so many words would occur a second time; none for 0."""
    if not size or len(words) < size:
        return []
    tail = words[len(words) - size + 1 :]
    starts = range(len(words) - size + 1)
    return [words[at + size - 1] for at in starts if words[at : at + size - 1] == tail]
