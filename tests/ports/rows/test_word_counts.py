"""Words of a text, whatever language it is written in."""

from __future__ import annotations

import pytest

from tasks.task_types.texts.word_counts import words_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("the film  was good\n", 4),
        ("größer als früher", 3),
        ("이 영화는 좋다", 3),
        ("这部电影很好。", 7),  # its full stop stands alone
        ("この映画 is good", 6),
        ("ภาพยนตร์", 8),
        ("在2024年", 3),
    ],
)
def test_words_between_spaces_or_letters_where_there_are_none(text: str, words: int) -> None:
    """A text in Chinese counted as one word, and its teacher's answers as those of one."""
    assert words_in(text) == words
