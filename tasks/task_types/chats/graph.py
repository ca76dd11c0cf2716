"""Graphs that return how many nats each token of an answer takes, and that answer word by word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks.task_types.chats.turns import JUDGED_ANSWERS
from tasks.task_types.interfaces import Card
from tasks.task_types.next_words.document import NATS
from tasks.task_types.next_words.graph import GRAPH as OF_NEXT_WORDS
from tasks.task_types.stored import STATED


def card_of_chats(config: Any) -> Card:
    """Return the output, and the task type by which it is decoded."""
    return {"output": NATS, "labels": None, STATED: "chats"}


GRAPH = replace(OF_NEXT_WORDS, card=card_of_chats, units=JUDGED_ANSWERS)
