"""Overlap: whether a row repeats the text of another. This measure is used to purge train and to count leaked rows.

A learned row overlaps with a held-back row if for a pair of their sentences (each a text or a second text)
- both are equal,
- both share ``SHARED`` consecutive words,
- the learned one contains the held-back one, which has at least ``HELD`` words, or
- the held-back one contains the learned one, which has at least ``LEARNED`` words.
Sentences are compared after ``folded``: case, character width and white space between words do not matter.

Sequences of words are looked up by 64-bit hashes in sorted arrays, so that the time depends on the number of words and
not on repetitions in the texts.

Shape letters: N learned rows, S words of a batch, P places in held-back sentences, G different sequences of words.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from tasks.task_types.texts.messages import MESSAGE, spoken

Sentences = tuple[str, ...]
"""The folded texts of one row: one, or two of a pair."""
SHARED = 8  # consecutive words that two independent texts hardly ever share
HELD = 2  # words; a held-back text of one word occurs in other texts by chance
LEARNED = 3  # words; a learned fragment of one or two words reveals nothing about a sentence
NONE = np.iinfo(np.int64).max
"""Placeholder for the number of a row if there is none."""
GREAT, GREAT_SHARE = 50, 0.1  # number of rows, and share of all rows, above which overlapping rows are not a group
LONG, LONG_SHARE = 20, 0.5  # words of a passage that more rows have in common, and their largest share
BATCH = 5_000_000  # characters of one batch of lookups
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def folded(text: str | None) -> str:
    """Return a text in normal form: without differences of case, character width and white space between words. Of a
    chat, what a user and the assistant say: chats have instructions of the system in common."""
    text = spoken(text) if text and MESSAGE in text else text or ""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold().split())


def sentences_of(
    texts: Iterable[str], pairs: Iterable[str | None] | None = None, before: Sequence[str] = ()
) -> list[Sentences]:
    """Return the folded sentences of rows; a missing second text is left out, and so is a missing first text beside a
    second one. Of the prompts ``before`` a text, none counts: rows have them in common."""
    if pairs is None:
        return [(folded(without_prompt(text, before)),) for text in texts]
    both = [
        (folded(without_prompt(text, before)), folded(without_prompt(pair, before)))
        for text, pair in zip(texts, pairs, strict=True)
    ]
    return [(text, pair) if text and pair else (text or pair,) for text, pair in both]


def without_prompt(text: str | None, before: Sequence[str]) -> str | None:
    """Return a text without the prompt that it begins with, the longest of some."""
    found = [prompt for prompt in before if prompt and text and text.startswith(prompt)]
    return text[len(max(found, key=len)) :] if text and found else text


def batches(rows: Iterable[Sentences]) -> Iterator[list[Sentences]]:
    """Yield rows in batches of limited size, so that memory is bounded for texts of any length."""
    batch: list[Sentences] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(map(len, row))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class HeldBack:
    """An index of held-back rows for lookups of learned rows; it records the rows that were found."""

    def __init__(self, rows: Sequence[Sentences]) -> None:
        self.rows = len(rows)
        words = dict.fromkeys(word for row in rows for sentence in row for word in sentence.split())
        self.vocabulary = {word: number for number, word in enumerate(words, start=1)}
        places = Places(rows, self.vocabulary)
        self.wholes, self.parts = {}, {}
        for count, hashes_S in places.sequences(SHARED):
            inside_S, whole_S = places.inside(count), places.whole(count)
            self.wholes[count] = Sequences(hashes_S[whole_S], places.rows_S[whole_S])
            self.parts[count] = Sequences(hashes_S[inside_S], places.rows_S[inside_S])

    def overlaps(self, learned: Iterable[Sentences]) -> np.ndarray:
        """Return for each learned row the number of the first held-back row that it overlaps with, or ``NONE``. [N]"""
        return np.concatenate([np.zeros(0, np.int64), *(self.overlaps_of(batch) for batch in batches(learned))])

    def overlaps_of(self, batch: Sequence[Sentences]) -> np.ndarray:
        """Return the same for one batch."""
        places, first_N = Places(batch, self.vocabulary), np.full(len(batch), NONE)
        for count, hashes_S in places.sequences(SHARED):
            inside_S, whole_S = places.inside(count), places.whole(count)
            lookups = [(self.wholes[count], inside_S if count >= HELD else whole_S)]
            if count >= LEARNED:
                lookups.append((self.parts[count], whole_S if count < SHARED else inside_S))
            for sequences, chosen_S in lookups:
                np.minimum.at(first_N, places.rows_S[chosen_S], sequences.first_rows(hashes_S[chosen_S]))
        return first_N

    def found(self) -> np.ndarray:
        """Return for each held-back row whether any learned row of all lookups so far overlaps with it."""
        found = np.zeros(self.rows, bool)
        for sequences in (*self.wholes.values(), *self.parts.values()):
            found[sequences.found_rows()] = True
        return found


def related(rows: Sequence[Sentences]) -> np.ndarray:
    """Return for each row the number of its group: rows that overlap, directly or through others, are in one group;
    groups are numbered in order of appearance. [N]

    A very large group only shares a phrase that occurs everywhere, so its groups are the rows with an equal sentence.
    """
    index, edges, nodes = HeldBack(rows), [np.zeros((2, 0), np.int64)], len(rows)
    places = Places(rows, index.vocabulary)
    for count, hashes_S in places.sequences(SHARED):
        known = index.parts[count] if count == SHARED else index.wholes[count]
        chosen_S = places.inside(count) if count >= LEARNED else places.whole(count)
        sequence_S = known.numbers(hashes_S[chosen_S])
        there_S = sequence_S >= 0
        edges.append(np.stack([places.rows_S[chosen_S][there_S], nodes + sequence_S[there_S]]))
        nodes += len(known.hashes_G)
    names = components(len(rows), np.concatenate(edges, axis=1))
    great = np.bincount(names) > max(GREAT, GREAT_SHARE * len(rows))
    equal = with_equal_sentences(rows) if great.any() else names
    return numbered([(name, equal[row] if great[name] else -1) for row, name in enumerate(names.tolist())])


def with_equal_sentences(rows: Sequence[Sentences]) -> np.ndarray:
    """Return for each row the number of its group: rows with an equal sentence are in one group. [N]

    A sentence that very many rows have, such as the question of a template, joins none, unless it is a passage.
    """
    counts, most = Counter(sentence for row in rows for sentence in set(row)), max(GREAT, GREAT_SHARE * len(rows))
    few = {one for one, count in counts.items() if count <= most}
    few |= {one for one, count in counts.items() if count <= LONG_SHARE * len(rows) and len(one.split()) >= LONG}
    node_of = {sentence: len(rows) + number for number, sentence in enumerate(few)}
    edges = [(row, node_of[one]) for row, sentences in enumerate(rows) for one in set(sentences) & few]
    return components(len(rows), np.asarray(edges, np.int64).reshape(-1, 2).T)


def components(rows: int, edges_2E: np.ndarray) -> np.ndarray:
    """Return for each row, the first nodes of a graph, the number of its connected component. [N]"""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    nodes = max(rows, int(edges_2E.max(initial=-1)) + 1)
    graph = coo_array((np.ones(edges_2E.shape[1]), edges_2E), shape=(nodes, nodes))
    return np.asarray(connected_components(graph, directed=False)[1][:rows])


def numbered(names: Sequence[object]) -> np.ndarray:
    """Return the names as numbers from 0 on, in order of first appearance. [N]"""
    numbers: dict[object, int] = {}
    return np.asarray([numbers.setdefault(name, len(numbers)) for name in names], np.int64)


class Places:
    """The words of a batch of rows as one concatenated array of numbers; zero marks the end of each sentence and each
    word outside of the vocabulary."""

    def __init__(self, rows: Sequence[Sentences], vocabulary: dict[str, int]) -> None:
        number_of = vocabulary.get
        lines = [[number_of(word, 0) for word in sentence.split()] + [0] for row in rows for sentence in row]
        lengths = np.fromiter(map(len, lines), np.int64, len(lines))
        self.words_S = np.fromiter(chain.from_iterable(lines), np.int64, int(lengths.sum()))
        sentences_N = np.fromiter(map(len, rows), np.int64, len(rows))
        self.rows_S = np.repeat(np.repeat(np.arange(len(rows)), sentences_N), lengths)
        self.starts = np.cumsum(lengths) - lengths
        self.lengths = lengths - 1
        self.room_S = room(self.words_S)
        self.values = mixed(len(vocabulary) + 1)

    def sequences(self, most: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each count from 1 to ``most`` with the hashes of that many words from each place on; a hash is valid
        only at the places that ``inside`` returns."""
        values_S = self.values[self.words_S]
        hashes_S = values_S.copy()
        yield 1, hashes_S
        for count in range(2, most + 1):
            hashes_S *= FACTOR
            hashes_S[: max(0, len(hashes_S) - count + 1)] += values_S[count - 1 :]
            yield count, hashes_S

    def inside(self, count: int) -> np.ndarray:
        """Return the places at which ``count`` known words of one sentence start."""
        return np.flatnonzero(self.room_S >= count)

    def whole(self, count: int) -> np.ndarray:
        """Return the places at which a sentence of exactly ``count`` words starts, all of them known."""
        starts = self.starts[self.lengths == count]
        return starts[self.room_S[starts] == count]


class Sequences:
    """Distinct sequences of words, the rows that contain them, and whether each was found by a lookup. Places must be
    in the order of their rows."""

    def __init__(self, hashes_P: np.ndarray, rows_P: np.ndarray) -> None:
        self.hashes_G, first, self.sequence_P = np.unique(hashes_P, return_index=True, return_inverse=True)
        self.rows_P, self.first_row_G = rows_P, rows_P[first]
        self.found_G = np.zeros(len(self.hashes_G), bool)

    def first_rows(self, hashes: np.ndarray) -> np.ndarray:
        """Return the first row that contains each of these sequences, or ``NONE``; record the sequences that were
        found."""
        numbers = self.numbers(hashes)
        there = numbers >= 0
        self.found_G[numbers[there]] = True
        found = np.full(len(hashes), NONE)
        found[there] = self.first_row_G[numbers[there]]
        return found

    def numbers(self, hashes: np.ndarray) -> np.ndarray:
        """Return the number of each of these sequences, or -1 for an unknown one."""
        if not len(self.hashes_G):
            return np.full(len(hashes), -1)
        at = np.minimum(np.searchsorted(self.hashes_G, hashes), len(self.hashes_G) - 1)
        return np.where(self.hashes_G[at] == hashes, at, -1)

    def found_rows(self) -> np.ndarray:
        """Return the rows that contain a found sequence."""
        return self.rows_P[self.found_G[self.sequence_P]]


def room(words_S: np.ndarray) -> np.ndarray:
    """Return for each place the number of words from there, inclusive, to the next zero, exclusive."""
    places_S = np.arange(len(words_S))
    zeros_S = np.where(words_S == 0, places_S, len(words_S))
    return np.minimum.accumulate(zeros_S[::-1])[::-1] - places_S


def mixed(count: int) -> np.ndarray:
    """Return a well-mixed 64-bit value for each number from 0 to ``count`` - 1 (Steele et al. 2014, splitmix64)."""
    values = np.arange(1, count + 1, dtype=np.uint64) * FACTOR
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


# --- sentences that other sentences contain ---------------------------------------------------------------------------


def standing_alone(sentences: Sequence[str]) -> np.ndarray:
    """Return for each of these distinct sentences whether no other one contains it.

    All places are sorted by the words that follow (a suffix array, by doubling: Manber and Myers 1993). Places that
    start with the same sentence are then neighbours, so a comparison with two neighbours is enough.
    """
    places = Places([(sentence,) for sentence in sentences], numbers_of(sentences))
    if not len(places.words_S):
        return np.zeros(0, bool)
    order = order_by_words(places.words_S, int(places.lengths.max()))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    alone = places.lengths > 0
    for step in (-1, 1):
        near = rank[places.starts] + step
        neighbours = order[np.clip(near, 0, len(order) - 1)]
        alone &= ~begins_alike(places, neighbours)
    return alone


def contained(sentences: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return for each of these sentences whether one of the ``others`` contains it, or is equal.

    As in ``standing_alone``, with the nearest place of the others on either side in place of a neighbour.
    """
    if not sentences or not others:
        return np.zeros(len(sentences), bool)
    both = [*sentences, *others]
    places = Places([(one,) for one in both], numbers_of(both))
    order = order_by_words(places.words_S, int(places.lengths.max()))
    rank = np.empty_like(order)
    rank[order] = numbers_S = np.arange(len(order))
    of_others_S = order >= places.starts[len(sentences)]
    before_S = np.maximum.accumulate(np.where(of_others_S, numbers_S, -1))
    after_S = np.minimum.accumulate(np.where(of_others_S, numbers_S, len(order))[::-1])[::-1]
    found = np.zeros(len(both), bool)
    for near in (before_S[rank[places.starts]], after_S[rank[places.starts]]):
        is_there = (near >= 0) & (near < len(order)) & (places.lengths > 0)
        found |= is_there & begins_alike(places, order[np.clip(near, 0, len(order) - 1)])
    return found[: len(sentences)]


def numbers_of(sentences: Iterable[str]) -> dict[str, int]:
    """Return a number from 1 on for each word of the sentences."""
    words = dict.fromkeys(word for sentence in sentences for word in sentence.split())
    return {word: number for number, word in enumerate(words, start=1)}


def order_by_words(words_S: np.ndarray, longest: int) -> np.ndarray:
    """Return all places, sorted by at least the ``longest`` words that follow; equal ones are neighbours."""
    bits = int(words_S.max()).bit_length()
    length = max(1, min(longest, 62 // max(1, bits)))
    keys = np.zeros_like(words_S)
    for offset in range(length):
        keys <<= bits
        keys |= shifted(words_S, offset)
    order, ranks = ranked(keys)
    while length < longest and ranks[order[-1]] < len(order) - 1:
        order, ranks = ranked(ranks * (ranks[order[-1]] + 1) + shifted(ranks, length))
        length *= 2
    return order


def shifted(values: np.ndarray, offset: int) -> np.ndarray:
    """Return values shifted by ``offset`` places to the left, with zeros beyond the end."""
    later = np.zeros_like(values)
    if offset < len(values):
        later[: len(values) - offset] = values[offset:]
    return later


def ranked(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorting order of keys, and for each key its rank among the distinct ones, from 0 on."""
    order = np.argsort(keys)
    ordered = keys[order]
    ranks = np.empty_like(keys)
    ranks[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
    return order, ranks


def begins_alike(places: Places, others: np.ndarray) -> np.ndarray:
    """Return for each sentence whether all of its words also occur at another place, of which ``others`` has one for
    each sentence."""
    lengths, starts = places.lengths, places.starts
    alike = (others != starts) & (places.room_S[others] >= lengths)
    chosen = np.flatnonzero(alike & (lengths > 0))
    if len(chosen):
        many = lengths[chosen]
        ends = np.cumsum(many)
        within = np.arange(ends[-1]) - np.repeat(ends - many, many)
        same = (
            places.words_S[np.repeat(starts[chosen], many) + within]
            == places.words_S[np.repeat(others[chosen], many) + within]
        )
        alike[chosen] = np.logical_and.reduceat(same, ends - many)
    return alike
