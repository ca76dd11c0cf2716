"""Tokens of a chat that a model learns to write: those of the assistant's messages, and the end of each.

A chat is written by the template of the tokenizer, and a message begins where the template, asked for an answer, ends:
so it begins in a training as it does when a model is asked. White space behind the end of a message is the template's,
and is not learned. Windows are those of documents. Shape letters: U predicted tokens of a chat, T tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasks.errors import ModelError
from tasks.task_types.next_words.document import JUDGED_TOKENS, LEARNED_TOKENS, predicted_tokens
from tasks.task_types.texts.messages import ASSISTANT, Message, chat_asked, messages_in
from tasks.task_types.units import FramedText, ModelFrame

PROBE = "limbeck"
"""Words of which no template makes others."""


def written_by_template(frame: ModelFrame, messages: Sequence[Message], *, asks: bool = False) -> str:
    """Return messages as the template of a tokenizer writes them, and behind them, if it ``asks``, the beginning of an
    answer. Raises ModelError for a tokenizer without a template, and for messages that its template refuses."""
    if frame.write_chat is None:
        raise ModelError(
            "the tokenizer has no template for chats (chat_template); name a model that answers in chats, or write "
            "each chat as one text, and set task.kind: next-words"
        )
    chat = [{"role": one.role, "content": one.content} for one in messages]
    try:
        return frame.write_chat(chat, add_generation_prompt=asks)
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "jinja2":
            raise
        roles = ", ".join(one.role for one in messages)
        raise ModelError(
            f"the template of the tokenizer does not write a chat of {roles} ({error}); leave such chats out, or name "
            f"another model"
        ) from error


def in_its_template(frame: ModelFrame, text: str) -> FramedText:
    """Return a stored chat as its template writes it. Raises ModelError for a chat without an answer, and for a
    template that writes a message otherwise when others follow."""
    messages = messages_in(text)
    if not any(one.role == ASSISTANT for one in messages):
        raise ModelError(
            "a chat without a message of the assistant has no answer that could be judged; add one, or ask for an "
            "answer (limbeck predict --new-tokens 100)"
        )
    whole = written_by_template(frame, messages)
    parts: list[tuple[int, int, int]] = []
    end = 0
    for number, one in enumerate(messages):
        if one.role != ASSISTANT:
            continue
        is_last = number + 1 == len(messages)
        behind = (whole if is_last else written_by_template(frame, messages[: number + 1])).rstrip()
        before = written_by_template(frame, messages[:number], asks=True) if number else opening(frame, one)
        if not (whole.startswith(before) and whole.startswith(behind) and len(before) <= len(behind)):
            raise ModelError(
                "the template of the tokenizer writes a message otherwise when others follow it, so it is unknown "
                "which tokens are the assistant's; name a model with another template, or give chats of one answer"
            )
        parts += [(end, one.sign, 0), (len(before), one.begin, len(one.content))]
        end = len(behind)
    return FramedText(whole, np.asarray([*parts, (end, messages[0].sign, 0)], dtype=np.int64))


def opening(frame: ModelFrame, first: Message) -> str:
    """Return what a template writes before the first message of a chat, which nobody asked for: a header, and with some
    templates words of a system. A space before the message belongs to it, as where a message is asked for."""
    return written_by_template(frame, [first._replace(content=PROBE)]).partition(PROBE)[0].rstrip(" ")


def asked_by_template(frame: ModelFrame, text: str) -> str:
    """Return a stored chat with the beginning of the assistant's next message."""
    return written_by_template(frame, messages_in(text), asks=True)


def answering_tokens(text: str, windows: Sequence[np.ndarray], *, judged: bool) -> list[np.ndarray]:
    """Return by window, at each token whose next one is the assistant's and is predicted there, its number [T]; -1 for
    others."""
    spans = [(one.begin, one.end) for one in messages_in(text) if one.role == ASSISTANT]
    found, before = list[np.ndarray](), 0
    for unit_T, places_T2 in zip(predicted_tokens(text, windows, judged=judged), windows, strict=True):
        begin_T, there_T = places_T2[:, 0], places_T2.any(1)
        own_T = np.any([(begin_T >= begin) & (begin_T <= end) for begin, end in spans], axis=0) & there_T
        asked_T = (unit_T >= 0) & np.append(own_T[1:], False)
        numbers_T = np.where(asked_T, before + np.cumsum(asked_T) - 1, -1)
        found.append(numbers_T.astype(np.int64))
        before += int(asked_T.sum())
    return found


def learned_answers(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tokens that a model learns to predict."""
    return answering_tokens(text, windows, judged=False)


def judged_answers(text: str, windows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the tokens by whose prediction a model is judged."""
    return answering_tokens(text, windows, judged=True)


LEARNED_ANSWERS = replace(
    LEARNED_TOKENS,
    places=learned_answers,
    frame=in_its_template,
    prompt=asked_by_template,
    prepared=chat_asked,
    are_chats=True,
)
JUDGED_ANSWERS = replace(LEARNED_ANSWERS, places=judged_answers, shared=JUDGED_TOKENS.shared)
