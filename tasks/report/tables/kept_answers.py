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
    """Return a sentence on the size of kept answers; empty where none are kept, or the words are not counted."""
    kept = recipe.task_type.keeps_words and recipe.task_distillation.answers == "kept"
    if not kept or held.purged is None or not held.is_known:
        return []
    ways = recipe.task_distillation
    tokens = held.rows["train"] * held.purged.words_left * TOKENS_OF_WORD
    size = round(tokens * answer_bytes(ways.kept_words, ways.answer_bits))
    return [
        f"The teacher's kept answers, for each temperature: up to {gigabytes(size)} for some {tokens:,.0f} tokens "
        f"({TOKENS_OF_WORD:g} a word) of {ways.kept_words} words each, and twice that while they are published; "
        f"task_distillation.answers: live stores none, and runs the teacher in every step."
    ]


def answer_bytes(words: int, bits: int) -> int:
    """Return the bytes of one stored answer, at most: ids, and logarithms with that of all other words."""
    return words * ID_BYTES + (words + 1) * bits // 8
