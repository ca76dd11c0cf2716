"""A line under a plan on the room that a teacher's kept answers take: the likeliest words for each token."""

from __future__ import annotations

from tasks.recipe.recipe import Recipe
from tasks.report.tables.teacher_layers import gigabytes
from tasks.results.facts import HeldBackFacts
from tasks.task_types.common_head import MOST_OF_INT16

TOKENS_OF_WORD = 1.3
"""Tokens of a word in English text, by usual tokenizers of some 30,000 to 150,000 pieces."""


def kept_answer_lines(recipe: Recipe, held: HeldBackFacts, vocabulary: int | None = None) -> list[str]:
    """Return a sentence on the size of kept answers, of one token where the training rows are not counted yet; empty
    where none are kept. ``vocabulary`` is the number of words that the teacher knows, None if that is not known."""
    ways, learned = recipe.task_distillation, {one.signal_of_training for one in recipe.planned}
    if not recipe.task_type.keeps_words or ways.answers == "live" or "teacher" not in learned:
        return []
    kept = ways.kept_words if vocabulary is None else min(ways.kept_words, vocabulary)
    each, words = answer_bytes(kept, ways.answer_bits, vocabulary), words_told(kept, ways.kept_words)
    if held.purged is None or not held.is_known:
        size = f"up to {each} bytes for each token of the training rows, which are not counted yet"
    else:
        asked = held.words_to_write or held.purged.words_left * recipe.task_type.share_asked
        tokens, of = (
            held.rows["train"] * asked * TOKENS_OF_WORD,
            " of the texts to write" if held.words_to_write else "",
        )
        size = f"up to {gigabytes(round(tokens * each))} for some {tokens:,.0f} tokens{of} ({TOKENS_OF_WORD:g} a word)"
    return [
        f"The teacher's kept answers, for each temperature: {size}, with {words} each, and twice that "
        f"while they are published; task_distillation.answers: live stores none, and runs the teacher in every step."
    ]


def words_told(kept: int, wished: int) -> str:
    """Return how many words an answer keeps, and why these are fewer than the recipe's."""
    if kept == wished:
        return f"{kept} words"
    return f"all {kept:,} words of the teacher's vocabulary, which has fewer than kept_words: {wished},"


def answer_bytes(words: int, bits: int, vocabulary: int | None) -> int:
    """Return the bytes of one stored answer, at most: ids, and logarithms with that of all other words. Ids of a
    vocabulary of unknown size, None, may need the larger format."""
    of_id = 2 if vocabulary is not None and vocabulary <= MOST_OF_INT16 else 4
    return words * of_id + (words + 1) * bits // 8
