"""What counts as an overlap of two rows: each rule by itself, all of them against a plain search, and how long they
take."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from tasks.ports.rows.overlap import (
    HELD,
    LEARNED,
    NONE,
    SHARED,
    HeldBack,
    Sentences,
    contained,
    folded,
    related,
    sentences_of,
    standing_alone,
)

HELD_BACK = "the plot of the old film was never quite as dull as its end"


@pytest.mark.parametrize(
    ("learned", "overlaps"),
    [
        ("The  PLOT of the old film was never quite as dull as its end", True),
        ("he said that the plot of the old film was never quite as dull as its end", True),
        ("the old film", True),
        ("old film", False),
        ("the new book of the old film was never quite as dull", True),
        ("of the old film was never quite as good", True),
        ("the old film was never quite as good", False),
        ("the end of the plot", False),
        ("dull", False),
    ],
)
def test_a_sentence_overlaps_where_it_repeats_enough_of_another(learned: str, overlaps: bool) -> None:
    held = HeldBack(sentences_of([HELD_BACK]))
    assert (held.overlaps(sentences_of([learned])) == (0 if overlaps else NONE)).all()
    assert held.found().tolist() == [overlaps]


def test_short_held_back_texts_overlap_with_what_holds_them_and_single_words_with_their_like_alone() -> None:
    held = HeldBack(sentences_of(["so dull", "dull"]))
    assert held.overlaps(sentences_of(["it was so dull again", "it was dull", "Dull"])).tolist() == [0, NONE, 1]


def test_pairs_overlap_by_any_sentence_on_any_side() -> None:
    held = HeldBack(sentences_of(["a cat sits", "it rains"], ["an animal sits there", "it is wet"]))
    learned = sentences_of(
        ["something else", "an animal sits there", "the cat stood"], ["a cat sits", "nobody", "it was dry"]
    )
    assert held.overlaps(learned).tolist() == [0, 0, NONE]
    assert held.found().tolist() == [True, False]


def test_rows_that_overlap_by_way_of_others_are_one_group_and_a_phrase_of_everybody_makes_none() -> None:
    rows = ["a b c d e f g h i", "x x", "b c d e f g h i j k", "c d e", "y y", "x x"]
    assert related(sentences_of(rows)).tolist() == [0, 1, 0, 0, 2, 1]
    assert related(sentences_of(["one", "two", "three"], ["p q", "r s", "p q"])).tolist() == [0, 1, 0]
    everybody = [f"what do you think of the following review {number}" for number in range(60)]
    assert related(sentences_of([*everybody, "same text", "same text"])).tolist() == [*range(60), 60, 60]


def test_questions_of_one_passage_are_one_group_though_all_passages_share_a_phrase() -> None:
    phrase = "this page was last edited on a day in"
    passages = [f"{' '.join(f'p{number}w{word}' for word in range(24))} {phrase}" for number in range(60)]
    questions, asked = [f"q{number}" for number in range(480)], [passages[number % 60] for number in range(480)]
    assert related(sentences_of(questions, asked)).tolist() == [number % 60 for number in range(480)]
    # More than a tenth of the rows ask about each of six passages, and a question of a template says nothing of a row.
    asked = [passages[number % 6] for number in range(480)]
    assert related(sentences_of(questions, asked)).tolist() == [number % 6 for number in range(480)]
    template = ["does the text say so or does it not"] * 480
    assert related(sentences_of(questions, template)).tolist() == [*range(480)]
    assert related(sentences_of(questions, [passages[0]] * 480)).tolist() == [*range(480)]


def test_words_of_two_rows_are_never_read_as_one_text() -> None:
    held = HeldBack(sentences_of(["a b c d e f g h i j"]))
    assert held.overlaps(sentences_of(["x a b c d", "e f g h x"], ["e f g h x", "i j y y"])).tolist() == [NONE, NONE]


def test_case_width_and_white_space_make_no_other_text() -> None:
    assert folded("  The\tFILM\u00a0was \uff47ood ") == folded("the film was good") != folded("the film was good.")
    assert folded("Straße") == folded("STRASSE") and folded(None) == ""


def test_both_searches_find_what_a_plain_search_finds() -> None:
    draw = random.Random(0)
    for _ in range(60):
        letters, longest, sides = (
            "abcdefgh"[: draw.choice([1, 2, 3, 8])],
            draw.choice([3, 6, 14, 30]),
            draw.choice([1, 2]),
        )
        held, learned = (
            [tuple(text_of(draw, letters, longest) for _ in range(sides)) for _ in range(count)] for count in (6, 30)
        )
        index = HeldBack(held)
        assert index.overlaps(learned).tolist() == [
            next((place for place, row in enumerate(held) if alike(one, row)), NONE) for one in learned
        ]
        assert index.found().tolist() == [any(alike(one, row) for one in learned) for row in held]
        different = list(dict.fromkeys(sentence for row in learned for sentence in row))
        assert standing_alone(different).tolist() == [
            not any(one != other and holds(other, one) for other in different) for one in different
        ]
        asked = list(dict.fromkeys(sentence for row in held for sentence in row))
        assert contained(asked, different).tolist() == [any(holds(other, one) for other in different) for one in asked]


def test_a_sentence_is_contained_in_others_alone_and_not_in_its_like() -> None:
    others = ["so he said that it was a fine old film", "fine film"]
    assert contained(["it was a fine", "fine film", "fine old film indeed", "it"], others).tolist() == [
        True,
        True,
        False,
        True,
    ]
    assert contained(["a b", "a b c"], []).tolist() == [False, False] and not len(contained([], others))
    assert contained(["a b", "a b c"], ["d"]).tolist() == [False, False], "nor in one another"


def text_of(draw: random.Random, letters: str, longest: int) -> str:
    return " ".join(draw.choice(letters) for _ in range(draw.randint(1, longest)))


def holds(outer: str, inner: str) -> bool:
    return f" {inner} " in f" {outer} "


def alike(learned: Sentences, held: Sentences) -> bool:
    """Tell by the rules as they are written whether two rows overlap."""
    for one in learned:
        for other in held:
            words, theirs = one.split(), other.split()
            shared = [" ".join(words[at : at + SHARED]) for at in range(len(words) - SHARED + 1)]
            if (
                one == other
                or (len(theirs) >= HELD and holds(one, other))
                or (len(words) >= LEARNED and holds(other, one))
            ):
                return True
            if any(holds(other, part) for part in shared):
                return True
    return False


def test_many_like_fragments_take_no_longer_than_others() -> None:
    """Every row holds the words of every other: looking at pairs of them would be two hundred million comparisons of
    texts."""
    rows = sentences_of(f"{'word ' * 20}{number}" for number in range(20_000))
    rows += sentences_of("word " * length for length in range(1, 300))
    started = time.process_time()
    assert (HeldBack(rows[:1000]).overlaps(rows) < NONE).sum() == 20_000 + 297
    assert standing_alone([sentence for row in rows for sentence in row]).sum() == 20_000 + 1
    assert time.process_time() - started < 10


@pytest.mark.slow
def test_rows_as_many_as_those_of_mnli_take_less_than_a_minute() -> None:
    draw = np.random.default_rng(0)
    shares = 1 / np.arange(1, 100_001)
    words = np.asarray([f"w{number}" for number in range(100_000)])

    def texts(count: int, mean: int) -> list[str]:
        lengths = np.maximum(1, draw.poisson(mean, count))
        flat, ends = words[draw.choice(len(words), lengths.sum(), p=shares / shares.sum())], np.cumsum(lengths)
        return [" ".join(flat[start:end]) for start, end in zip(ends - lengths, ends, strict=True)]

    premises, hypotheses = texts(131_000, 20), texts(393_000, 10)
    started = time.process_time()
    rows = sentences_of([premises[number // 3] for number in range(393_000)], hypotheses)
    standing_alone(list(dict.fromkeys(sentence for row in rows for sentence in row)))
    HeldBack(rows[:12_000]).overlaps(rows)
    assert time.process_time() - started < 60
