"""Words of a sentence: the text of a row is its words with a space between two of them, and each word has one tag.

A word is answered at its first piece, as in Devlin et al. 2018, BERT, arXiv:1810.04805, section 5.3; where windows
overlap, in the one in which that piece stands farthest from an edge. Shape letter: T tokens of a window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.task_types.texts.cells import WordsOfList
from tasks.task_types.units import Units

BETWEEN_WORDS = " "
"""Stands between two words."""
EMPTY_WORD = "\u00a0"
"""A space within a word, which does not divide it; alone, an empty word."""
UNLABELLED = -1
"""The target of a word without a tag."""
PUNCTUATION = re.compile(r"[^\w\s@#]")
"""A sign that is a word of its own at the beginning or at the end of a written word; not the first sign of a mention or
of a topic."""
WRITTEN_WORD = re.compile(r"\S+")
WORD_OF_LIST = re.compile(r"[^ ]+")


def number_of_words(text: str) -> int:
    """Return the number of words of a row."""
    return text.count(BETWEEN_WORDS) + 1


def first_pieces(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return by window the number of the word that each token answers [T], -1 for none, from the places of its tokens
    in the text [T, 2]."""
    word_of = np.cumsum([sign == BETWEEN_WORDS for sign in text])
    starts, candidates = dict[int, int](), list[tuple[int, int, int, int, int]]()
    for number, places_T2 in enumerate(windows):
        last, seen = len(places_T2) - 1, set[int]()
        for at, (start, end) in enumerate(places_T2.tolist()):
            word = -1 if start == end or text[end - 1] == BETWEEN_WORDS else int(word_of[end - 1])
            if word < 0 or word in seen:  # a special token, a space alone, or a further piece
                continue
            seen.add(word)
            starts[word] = min(start, starts.get(word, start))
            candidates.append((word, start, min(at, last - at), number, at))
    best = dict[int, tuple[int, int, int]]()
    for word, start, inside, number, at in candidates:
        # A window that begins inside of a word does not have its first piece.
        if start == starts[word] and (word not in best or inside > best[word][0]):
            best[word] = (inside, number, at)
    found = [np.full(len(places_T2), -1, dtype=np.int64) for places_T2 in windows]
    for word, (_, number, at) in best.items():
        found[number][at] = word
    return found


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the beginning and the end of each word of a written text: between spaces, with signs at its ends as words
    of their own, unless a table divides the words."""
    spans = list[tuple[int, int]]()
    if isinstance(text, WordsOfList):
        return [found.span() for found in WORD_OF_LIST.finditer(text)]
    for found in WRITTEN_WORD.finditer(text):
        start, end = found.span()
        before, after = list[tuple[int, int]](), list[tuple[int, int]]()
        while end - start > 1 and PUNCTUATION.match(text[start]):
            before.append((start, start + 1))
            start += 1
        while end - start > 1 and PUNCTUATION.match(text[end - 1]):
            after.append((end - 1, end))
            end -= 1
        spans += [*before, (start, end), *reversed(after)]
    return spans


def as_words(text: str) -> str:
    """Return a written text as the text of a row."""
    return BETWEEN_WORDS.join(text[start:end] for start, end in word_spans(text))


def tags_of(label: str | None) -> list[int]:
    """Return the numbers of the tags of a stored label or a prediction."""
    return [int(tag) for tag in label.split()] if label else []


def word_targets(label: Any, words: int) -> list[int]:
    """Return the tag of each word; -1 where a row has no tags."""
    return tags_of(label) or [UNLABELLED] * words


SENTENCE = Units(count=number_of_words, places=first_pieces, targets=word_targets, prepared=as_words)
