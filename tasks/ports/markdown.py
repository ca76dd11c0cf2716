"""Untrusted text in Markdown: text from a recipe or a file is escaped, so that it never becomes a heading, a link, HTML
or a separate line."""

from __future__ import annotations

import html
import re
import unicodedata

LONGEST = 200  # displayed characters
SPECIAL = re.compile(r"([\\`*_{}\[\]()#!|~])")
ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|www)([:.])|(@)")


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line: control characters, line breaks and characters that change the writing direction
    become spaces, and a long text is shortened."""
    shown = " ".join(
        "".join(
            " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in str(text)
        ).split()
    )
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def escaped(text: str, longest: int = LONGEST) -> str:
    """Return a text escaped for Markdown: no markup, no HTML, and no address that becomes a link."""
    shown = SPECIAL.sub(r"\\\1", html.escape(one_line(text, longest), quote=False))
    return ADDRESS.sub(lambda found: f"{found[1] or ''}\\{found[2] or found[3]}", shown)


def code_span(text: str, longest: int = LONGEST) -> str:
    """Return a text between backticks; no character in it can end the code span or a table cell."""
    return f"`{one_line(text, longest).replace('`', chr(39)).replace('|', '/') or ' '}`"
