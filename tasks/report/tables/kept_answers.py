"""A line under a plan on the room that a teacher's kept answers take: the likeliest words for each token."""

from __future__ import annotations

from tasks.recipe.recipe import Recipe
from tasks.report.tables.teacher_layers import gigabytes
from tasks.results.facts import HeldBackFacts

TOKENS_OF_WORD = 1.3
"""Tokens of a word in English text, by usual tokenizers of some 30,000 to 150,000 pieces."""
ID_BYTES = 4
"""Of a stored word's id, at most: those of small vocabularies take 2."""


def kept_answer_lines(recipe: Recipe, held: HeldBackFacts) -> list[str]:
    """Return a sentence on the size of kept answers, of one token where the training rows are not counted yet; empty
    where none are kept."""
    ways, learned = recipe.task_distillation, {one.signal_of_training for one in recipe.planned}
    if not recipe.task_type.keeps_words or ways.answers == "live" or "teacher" not in learned:
        return []
    each = answer_bytes(ways.kept_words, ways.answer_bits)
    if held.purged is None or not held.is_known:
        size = f"up to {each} bytes for each token of the training rows, which are not counted yet"
    else:
        tokens = held.rows["train"] * held.purged.words_left * TOKENS_OF_WORD
        size = f"up to {gigabytes(round(tokens * each))} for some {tokens:,.0f} tokens ({TOKENS_OF_WORD:g} a word)"
    return [
        f"The teacher's kept answers, for each temperature: {size}, with {ways.kept_words} words each, and twice that "
        f"while they are published; task_distillation.answers: live stores none, and runs the teacher in every step."
    ]


def answer_bytes(words: int, bits: int) -> int:
    """Return the bytes of one stored answer, at most: ids, and logarithms with that of all other words."""
    return words * ID_BYTES + (words + 1) * bits // 8
