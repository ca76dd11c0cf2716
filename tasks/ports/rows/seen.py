"""Digests of sentences: a record of the training and evaluation texts of a model that does not contain the texts.

They are stored with a version, so that two models can be compared years later on rows that neither has seen. A sentence
(a text, or the second text of a pair) is folded as for the purge (``overlap``) and hashed to 64 bits. A digest does not
reveal an unknown text, but a reader that knows a text can find out that it was used. General text and augmented rows
have no digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from tasks.ports.rows.overlap import GREAT, GREAT_SHARE, Sentences, sentences_of
from tasks.ports.rows.row_files import has_split, read_beginnings, read_texts


def digest_of_sentence(sentence: str) -> int:
    """Return a 64-bit digest of a folded sentence, as a signed number."""
    return int.from_bytes(blake2b(sentence.encode(), digest_size=8).digest(), "big", signed=True)


def sentence_digests(rows: Iterable[Sentences]) -> list[list[int]]:
    """Return the digests of every row's sentences."""
    return [[digest_of_sentence(sentence) for sentence in row] for row in rows]


def read_sentences(folder: Path, split: str) -> list[Sentences]:
    """Read the folded sentences of a split of prepared rows, without the prompts before them."""
    return sentences_of(*read_texts(folder, split), read_beginnings(folder))


def rows_seen(folder: Path, split: str, learned: np.ndarray) -> int:
    """Count the rows of a split of which a sentence is among those that were learned from."""
    rows = sentence_digests(read_sentences(folder, split))
    asked = np.unique(np.fromiter((number for row in rows for number in row), np.int64))
    return sum(are_seen(rows, set(asked[np.isin(asked, learned)].tolist())))


def are_seen(rows: Sequence[Collection[int]], seen: Collection[int]) -> list[bool]:
    """Tell of each row's digests whether one that tells the row from others is among those that were ``seen``.

    A sentence that stands in so many rows that these are no group (``overlap.related``), such as the question of a
    template, tells nothing of a row, unless the row has no other sentence.
    """
    counts = Counter(number for row in rows for number in set(row))
    most = max(GREAT, GREAT_SHARE * len(rows))
    own = (({number for number in row if counts[number] <= most} or set(row)) for row in rows)
    known = set(seen)
    return [not known.isdisjoint(numbers) for numbers in own]


def learned_digests(folders: Sequence[Path]) -> np.ndarray:
    """Return the digests of all sentences that are learned from, each once, sorted; ``folders`` hold prepared rows."""
    found = {
        number
        for folder in folders
        if has_split(folder, "train")
        for row in sentence_digests(read_sentences(folder, "train"))
        for number in row
    }
    return np.sort(np.fromiter(found, np.int64, len(found)))
