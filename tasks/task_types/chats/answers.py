"""Likelihoods of what the assistant says in chats: figures and comparisons are those of documents."""

from __future__ import annotations

from tasks.task_types.next_words.answers import ANSWERS as OF_NEXT_WORDS

ANSWERS = OF_NEXT_WORDS
