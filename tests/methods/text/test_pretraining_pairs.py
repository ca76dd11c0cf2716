"""Pairs of segments and n-grams compared with the shared oracles, and what the reference's two defects would do."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tasks.methods.text.ngrams import begins_word, drawn_ngrams, shown_tokens, tokens_to_predict, words_between
from tasks.methods.text.sentence_order import segment_pairs
from tests.methods.oracles import Oracle, reads

SENTENCES = np.array([1, 2, 3, 5, 9, 9])  # of the documents of the oracle, each sentence of 8 tokens
OFFSETS_S = np.arange(SENTENCES.sum() + 1) * 8
ENDS = np.cumsum(SENTENCES)
DOCUMENTS_D2 = np.stack([ENDS - SENTENCES, ENDS], 1)
ROOM = 29  # of 32 tokens, without the special ones


@reads("sentence_order", "token_boundary")
def test_words_begin_where_the_references_do(oracle: Oracle) -> None:
    content = oracle.content
    assert begins_word(content["inputs"]["tokens"]) == [bool(one) for one in content["expected"]["boundary"]]


@reads("sentence_order", "how_many_are_predicted")
def test_as_many_tokens_are_predicted_as_by_the_reference(oracle: Oracle) -> None:
    content = oracle.content
    lengths = content["inputs"]["lengths"]
    assert [tokens_to_predict(length, 0.15, 20) for length in lengths] == content["expected"]["counts"]


@reads("sentence_order", "n_grams")
def test_runs_are_as_long_as_the_references(oracle: Oracle) -> None:
    expected, random, count = oracle.content["expected"], np.random.default_rng(0), 5000
    words = [words_between([True] * 63, 1, 31), words_between([True] * 63, 32, 62)]
    runs, sizes, ids = Counter[int](), set[int](), np.arange(100, 163)
    kinds: Counter[str] = Counter()
    for _ in range(count):
        chosen = np.array(drawn_ngrams(words, tokens_to_predict(63, 0.15, 20), 3, random))
        sizes.add(len(chosen))
        runs.update(len(run) for run in np.split(chosen, np.flatnonzero(np.diff(chosen) > 1) + 1))
        shown = shown_tokens(ids[chosen], 4, np.arange(1000, 2000), random)
        kinds.update(
            "mask" if new == 4 else "same" if new == old else "random"
            for new, old in zip(shown, ids[chosen], strict=True)
        )
    assert {str(size) for size in sizes} == set(expected["tokens_predicted"])
    for length, share in expected["runs_of_neighbours"].items():
        assert runs[int(length)] / runs.total() == pytest.approx(share, abs=0.015)
    shares = {"mask": "share_mask", "same": "share_unchanged", "random": "share_random"}
    for kind, name in shares.items():
        assert kinds[kind] / kinds.total() == pytest.approx(expected[name], abs=0.01)


@reads("sentence_order", "sentence_order")
def test_no_pair_is_of_two_texts_and_half_are_swapped(oracle: Oracle) -> None:
    """Of the reference's pairs of these documents, 39 % are of two texts and labelled swapped."""
    shares = oracle.content["expected"]["shares"]
    assert shares["other text, label 1"] > 0.35 and shares["in order, label 0"] == pytest.approx(0.3, abs=0.01)
    labels = []
    for seed in range(200):
        pairs = segment_pairs(OFFSETS_S, DOCUMENTS_D2, "sop", ROOM, np.random.default_rng(seed))
        first, second = document_of(pairs.first_N2), document_of(pairs.second_N2)
        assert (first == second).all(), "the topic would betray the order"
        assert ((pairs.first_N2[:, 0] > pairs.second_N2[:, 0]) == (pairs.labels_N == 1)).all()
        labels.extend(pairs.labels_N.tolist())
    assert np.mean(labels) == pytest.approx(0.5, abs=0.03)


def document_of(ends_N2: np.ndarray) -> np.ndarray:
    """Return the document of each segment, which is checked to lie in one."""
    found = [
        np.searchsorted(OFFSETS_S[DOCUMENTS_D2[:, 1]], edge, side="right")
        for edge in (ends_N2[:, 0], ends_N2[:, 1] - 1)
    ]
    assert (found[0] == found[1]).all()
    return np.asarray(found[0])


@pytest.mark.parametrize("order", ["none", "sop", "nsp"])
def test_segments_fit_and_a_document_of_one_sentence_is_left_out(order: str) -> None:
    for seed in range(50):
        pairs = segment_pairs(OFFSETS_S, DOCUMENTS_D2[1:], order, ROOM, np.random.default_rng(seed))
        sides = [np.diff(ends)[:, 0] for ends in (pairs.first_N2, pairs.second_N2)]
        assert all((side >= 1).all() for side in sides) and (sides[0] + sides[1] <= ROOM).all()
        assert 0 not in document_of(pairs.first_N2)
        other = document_of(pairs.first_N2) != document_of(pairs.second_N2)
        assert (other == ((pairs.labels_N == 1) & (order == "nsp"))).all()


def test_all_orders_have_the_same_pieces_and_labels() -> None:
    made = {
        order: segment_pairs(OFFSETS_S, DOCUMENTS_D2, order, 200, np.random.default_rng(3))
        for order in ("none", "sop", "nsp")
    }
    swapped = made["sop"].labels_N == 1
    assert (made["sop"].labels_N == made["nsp"].labels_N).all() and not made["none"].labels_N.any() and swapped.any()
    assert (made["none"].first_N2[swapped] == made["sop"].second_N2[swapped]).all()
    assert (made["none"].first_N2 == made["nsp"].first_N2).all()


def drawn_corpus(seed: int, mean: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets of sentences of 1 to 60 tokens, and documents of 2 sentences and more."""
    random = np.random.default_rng(seed)
    counts_D = 1 + random.geometric(1 / mean, 60_000 // mean)
    lengths_S = np.clip(random.gamma(2.5, 10, counts_D.sum()).astype(np.int64), 1, 60)
    ends_D = np.cumsum(counts_D)
    return np.concatenate([[0], np.cumsum(lengths_S)]), np.stack([ends_D - counts_D, ends_D], 1)


@pytest.mark.parametrize("mean", [3, 20])
@pytest.mark.parametrize("order", ["sop", "nsp"])
def test_neither_lengths_nor_ends_of_sentences_tell_the_label(order: str, mean: int) -> None:
    """Foreign segments filled the room, and the second segment of a text was the longer one: the best guess by both
    lengths was right about 52 and 56 times of 100. It is learned on four corpora, and asked on a fifth."""

    def read(seed: int) -> tuple[np.ndarray, np.ndarray]:
        offsets_S, documents_D2 = drawn_corpus(seed, mean)
        pairs = segment_pairs(offsets_S, documents_D2, order, 61, np.random.default_rng(seed))
        lengths = [np.diff(ends)[:, 0] // 4 for ends in (pairs.first_N2, pairs.second_N2)]
        edges = [np.isin(pairs.second_N2[:, side], offsets_S) for side in (0, 1)]
        return np.ravel_multi_index((*lengths, *(edge.astype(int) for edge in edges)), (16, 16, 2, 2)), pairs.labels_N

    known, asked = [read(seed) for seed in range(4)], read(4)
    surplus = sum(np.bincount(seen, 2 * labels - 1, 16 * 16 * 4) for seen, labels in known)
    right = (np.asarray(surplus)[asked[0]] > 0) == asked[1]
    assert len(right) > 15_000 and right.mean() < 0.51


def test_both_labels_of_next_sentences_have_segments_of_equal_lengths() -> None:
    offsets_S, documents_D2 = drawn_corpus(0, 5)
    pairs = segment_pairs(offsets_S, documents_D2, "nsp", 61, np.random.default_rng(0))
    sides = (np.diff(ends)[:, 0] for ends in (pairs.first_N2, pairs.second_N2))
    for lengths_N in sides:
        own, foreign = (lengths_N[pairs.labels_N == label] for label in (0, 1))
        assert ks_2samp(own, foreign).pvalue > 0.01


def test_a_run_ends_with_its_segment_and_takes_whole_words() -> None:
    begins = begins_word(["[CLS]", "a", "##b", "c", "[SEP]", "##d", "e", "[SEP]"])
    segments = [words_between(begins, 1, 4), words_between(begins, 5, 7)]
    for seed in range(200):
        chosen = drawn_ngrams(segments, 3, 3, np.random.default_rng(seed))
        assert not {0, 4, 7} & set(chosen) and (1 in chosen) == (2 in chosen) and len(chosen) <= 3


def test_predicted_tokens_and_lengths_of_runs_have_their_shares() -> None:
    """Four standard errors; a run as long as the budget is the only one, and others hardly ever touch."""
    random = np.random.default_rng(7)
    shown = shown_tokens(np.full(40_000, 9), 4, np.arange(1000, 2000), random)
    shares = [float(np.mean(one)) for one in (shown == 4, shown >= 1000, shown == 9)]
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=4 * 0.4 / 200)
    words = [[(place, place + 1) for place in range(400)]]
    for longest, share in ((2, 1 / 3), (3, 2 / 11)):
        drawn = [drawn_ngrams(words, longest, longest, random) for _ in range(2000)]
        whole = [np.ptp(chosen) == longest - 1 for chosen in drawn]
        assert np.mean(whole) == pytest.approx(share, abs=4 * 0.5 / 2000**0.5)
