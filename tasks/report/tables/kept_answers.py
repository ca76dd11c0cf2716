"""A line under a plan on the room that a teacher's kept answers take, the likeliest words for each token, and the
refusal of those that take more than a recipe allows."""

from __future__ import annotations

import math

from tasks.errors import RecipeError
from tasks.recipe.recipe import Recipe
from tasks.report.tables.teacher_layers import gigabytes
from tasks.results.facts import HeldBackFacts, RowsFacts
from tasks.task_types.common_head import MOST_OF_INT16

TOKENS_OF_WORD = 1.3
"""Tokens of a word in English text, by usual tokenizers of some 30,000 to 150,000 pieces."""


def kept_answer_lines(recipe: Recipe, held: HeldBackFacts, vocabulary: int | None = None) -> list[str]:
    """Return a sentence on the size of kept answers, of one token where the training rows are not counted yet; empty
    where none are kept. ``vocabulary`` is the number of words that the teacher knows, None if that is not known."""
    if not keeps_answers(recipe):
        return []
    words, each = words_and_bytes(recipe, vocabulary)
    tokens = answered_tokens(recipe, held)
    if tokens is None:
        size = f"up to {each} bytes for each token of {'the training rows' if recipe.transfer is None else 'the texts'}"
        size += ", which are not counted yet"
    else:
        of = " of the texts to write" if held.words_to_write else ""
        of += " of the training rows, beside those of the transfer text" if recipe.transfer is not None else ""
        size = f"up to {gigabytes(round(tokens * each))} for some {tokens:,.0f} tokens{of} ({TOKENS_OF_WORD:g} a word)"
    return [
        f"The teacher's kept answers, for each temperature: {size}, with "
        f"{words_told(words, recipe.task_distillation.kept_words)} each, and twice that while they are published; "
        f"task_distillation.answers: live stores none, and runs the teacher in every step."
    ]


def require_budget_of_answers(recipe: Recipe, facts: RowsFacts, vocabulary: int | None = None) -> None:
    """Raise RecipeError for kept answers that are expected to take more than ``signal_budget_gb`` for one temperature,
    as far as the training rows are counted."""
    tokens = answered_tokens(recipe, facts) if keeps_answers(recipe) else None
    budget, (words, each) = recipe.task_distillation.signal_budget_gb, words_and_bytes(recipe, vocabulary)
    if tokens is not None and tokens * each > budget * 1e9:
        raise RecipeError(
            f"the teacher's kept answers, {words} words of each of some {tokens:,.0f} tokens, take up to "
            f"{gigabytes(round(tokens * each))}, and task_distillation.signal_budget_gb is {budget:g}; set it to "
            f"{math.ceil(tokens * each / 1e9)} or more if the disk has twice that room, keep fewer words "
            f"(task_distillation.kept_words), learn from fewer rows (data.train_rows), or set "
            f"task_distillation.answers: live, which stores none"
        )


def keeps_answers(recipe: Recipe) -> bool:
    """Tell whether the likeliest words of a teacher's answers are stored."""
    learned = {one.signal_of_training for one in recipe.planned}
    return recipe.task_type.keeps_words and recipe.task_distillation.answers != "live" and "teacher" in learned


def words_and_bytes(recipe: Recipe, vocabulary: int | None) -> tuple[int, int]:
    """Return the words that are kept of an answer, and its bytes."""
    ways = recipe.task_distillation
    words = ways.kept_words if vocabulary is None else min(ways.kept_words, vocabulary)
    return words, answer_bytes(words, ways.answer_bits, vocabulary)


def answered_tokens(recipe: Recipe, facts: HeldBackFacts | RowsFacts) -> float | None:
    """Return about how many tokens of the training rows the teacher answers; None if they are not counted yet, or if
    it answers transfer text in their place."""
    if facts.purged is None or not facts.rows or (recipe.transfer is not None and recipe.transfer.alone):
        return None
    asked = facts.words_to_write or facts.purged.words_left * recipe.task_type.share_asked
    return facts.rows["train"] * asked * TOKENS_OF_WORD


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
