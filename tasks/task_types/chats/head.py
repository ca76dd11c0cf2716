"""The next token of the assistant's messages in a chat: losses and stored answers are those of next words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tasks.task_types.chats.turns import LEARNED_ANSWERS
from tasks.task_types.next_words.head import HEAD as OF_NEXT_WORDS
from tasks.task_types.stored import STATED


def configure_chats(config: Any, labels: Sequence[str]) -> None:
    """State the task type, for which transformers has no name; the outputs are those of the vocabulary."""
    setattr(config, STATED, "chats")


HEAD = replace(OF_NEXT_WORDS, configure=configure_chats, units=LEARNED_ANSWERS)
