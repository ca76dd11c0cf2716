"""The messages of a chat as one text, as rows store it, and back: each behind two signs that stand in no other text.

A stored chat is ``␞user␟ How are you?`` and, on the next line, ``␞assistant␟ Fine.``, so that a person reads it on a
page, and a message is what its author wrote, whatever lines it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.errors import DataError

MESSAGE, CONTENT = "␞", "␟"
"""The sign before a message, and the one between its role and its content."""
MESSAGE_BEGINS = re.compile(rf"(?:^|\n){MESSAGE}([a-z]+){CONTENT} ")
ASSISTANT = "assistant"
ROLES_OF_CHATS = ("system", "user", ASSISTANT)
OTHER_ROLES = {"human": "user", "gpt": ASSISTANT, "bot": ASSISTANT, "model": ASSISTANT}
"""Names of roles in tables of conversations, and those that templates know."""


class Message(NamedTuple):
    """A message, and its place in the stored text of its chat: that of its sign, and those of its content."""

    role: str
    content: str
    sign: int = 0
    begin: int = 0

    @property
    def end(self) -> int:
        """The end of its content in the stored text."""
        return self.begin + len(self.content)


def messages_in(text: str) -> list[Message]:
    """Return the messages of a stored chat; a text without a sign is one message of the user."""
    marks = list(MESSAGE_BEGINS.finditer(text))
    if not marks or marks[0].start() != 0:
        return [Message("user", text)]
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [
        Message(mark[1], text[mark.end() : end], mark.end() - len(f"{MESSAGE}{mark[1]}{CONTENT} "), mark.end())
        for mark, end in zip(marks, ends, strict=True)
    ]


def stored_chat(messages: Sequence[tuple[str, str]]) -> str:
    """Return the roles and contents of messages as one text."""
    return "\n".join(f"{MESSAGE}{role}{CONTENT} {content}" for role, content in messages)


def said_by_assistant(text: str) -> str:
    """Return what the assistant says in a stored chat, a line or more for each of its messages."""
    return "\n".join(one.content for one in messages_in(text) if one.role == ASSISTANT)


def spoken(text: str) -> str:
    """Return what a user and the assistant say in a stored chat."""
    return "\n".join(one.content for one in messages_in(text) if one.role != "system")


def chat_in_cell(file: str, column: str, row: int, cell: Any) -> Any:
    """Return a cell of a table as a stored chat: a list of messages, or its JSON. A cell without a chat is returned as
    it is, and is an empty one for the reader. Raises DataError for a list that is no chat."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return cell
    where = f"{file}, row {row}, column {column!r}"
    if isinstance(cell, str):
        cell = read_json(cell, where)
    if cell == []:
        return None
    if not isinstance(cell, list):
        raise DataError(f"{where}: {short(cell)} is no list of messages; each is a mapping with a role and a content")
    return chat_of(cell, where)


def read_json(text: str, where: str) -> Any:
    """Return the list of a text. Raises DataError for a text that is no JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(
            f"{where}: {short(text)} is no chat; write a list of messages as JSON, as in "
            f'[{{"role": "user", "content": "…"}}, {{"role": "assistant", "content": "…"}}]'
        ) from error


def chat_of(messages: Sequence[Any], where: str) -> str:
    """Return a list of messages as a stored chat. Raises DataError for one that a model cannot learn from."""
    found = [role_and_content(one, number, where) for number, one in enumerate(messages, start=1)]
    if not any(role == ASSISTANT for role, _ in found):
        raise DataError(
            f"{where}: the chat has no message of the assistant, and a model learns from the assistant's messages "
            f"alone; leave it out"
        )
    return stored_chat(found)


def role_and_content(message: Any, number: int, where: str) -> tuple[str, str]:
    """Return the role and the content of one message. Raises DataError for one that is not a text of a known role."""
    here = f"{where}, message {number}"
    if not isinstance(message, Mapping):
        raise DataError(f"{here}: {short(message)} is no message; a message is a mapping with a role and a content")
    given = message.get("role", message.get("from"))
    role = OTHER_ROLES.get(str(given).lower(), str(given).lower())
    if role not in ROLES_OF_CHATS:
        raise DataError(
            f"{here}: the role is {short(given)}; the roles of a chat are {', '.join(ROLES_OF_CHATS)}; rename it, or "
            f"leave the chat out"
        )
    if message.get("weight") == 0:
        raise DataError(
            f"{here}: the weight is 0, and a model learns from all messages of the assistant; leave the chat out, or "
            f"remove the weight"
        )
    if message.get("tool_calls") or message.get("function_call"):
        raise DataError(f"{here}: the message calls a tool, and messages of a chat are texts; leave the chat out")
    given = message.get("content", message.get("value"))
    content = text_of_parts(given) if isinstance(given, list) else given
    if not isinstance(content, str):
        raise DataError(f"{here}: the content is {short(given)}; a content is a text, or a list of parts of texts")
    if MESSAGE in content or CONTENT in content:
        raise DataError(f"{here}: the content has the sign {MESSAGE} or {CONTENT}, between which chats are stored")
    return role, content


def text_of_parts(parts: Sequence[Any]) -> str | None:
    """Return the text of a content that is divided into parts, each on lines of its own, as chats with pictures have
    them; None where a part is no text."""
    texts = [one.get("text") for one in parts if isinstance(one, Mapping) and one.get("type") == "text"]
    if len(texts) != len(parts) or not all(isinstance(text, str) for text in texts):
        return None
    return "\n".join(map(str, texts))


def chat_asked(text: str) -> str:
    """Return a text of a user as a stored chat: a list of messages as JSON, one that is stored already, or the user's
    first message. Raises DataError for a list that is no chat."""
    if not text.lstrip().startswith("[{"):
        return text if MESSAGE_BEGINS.match(text) else stored_chat([("user", text)])
    messages = read_json(text, "the text")
    return stored_chat([role_and_content(one, number, "the text") for number, one in enumerate(messages, start=1)])


def short(value: Any) -> str:
    """Return the beginning of a value for an error."""
    said = repr(value)
    return said if len(said) <= 40 else f"{said[:39]}…"
