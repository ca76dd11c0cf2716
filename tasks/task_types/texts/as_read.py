"""Texts of rows as a model reads them, where pieces are counted and texts are timed without their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.task_types.units import Units, frame_of, framed_texts


def are_chats(units: object) -> bool:
    """Tell whether rows with such units are chats, which are stored as messages, and not as a model reads them."""
    return isinstance(units, Units) and units.are_chats


def texts_as_read(units: object, texts: Sequence[str], tokenizer: Any) -> list[str]:
    """Return chats as the template of a tokenizer writes them, with all of its special tokens, and other texts as they
    are. Raises ModelError for a tokenizer without a template."""
    if not (isinstance(units, Units) and are_chats(units)):
        return list(texts)
    return [one.text for one in framed_texts(units, texts, frame_of(tokenizer))]
