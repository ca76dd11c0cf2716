"""A command in a terminal of its own (a pty), as a person sees it: questions are answered once they are there."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
PATIENCE = 300.0  # seconds; a busy machine is slow


def typed_in_a_terminal(
    words: Sequence[str | Path],
    answers: Sequence[tuple[str, str]] = (),
    *,
    folder: Path,
    environment: Mapping[str, str],
    patience: float = PATIENCE,
) -> tuple[int, str]:
    """Run a command in a terminal and type each answer when its question is displayed; return the status and all that
    was displayed, without colours. Raises AssertionError for a question that is never asked."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [str(word) for word in words],
        cwd=folder,
        env=dict(environment) | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    shown, seen, waiting, until = b"", 0, list(answers), time.monotonic() + patience
    try:
        while (part := read_some(ours, until)) is not None:
            shown += part
            text = plain(shown)
            if waiting and waiting[0][0] in text[seen:]:
                seen = text.index(waiting[0][0], seen) + len(waiting[0][0])
                os.write(ours, f"{waiting.pop(0)[1]}\n".encode())
        status = process.wait(timeout=max(1.0, until - time.monotonic()))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not waiting, f"never asked: {waiting[0][0]!r}; displayed was: {plain(shown)}"
    return status, plain(shown)


def read_some(terminal: int, until: float) -> bytes | None:
    """Return what is displayed next; None once the command has ended."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, until - time.monotonic()))
    assert ready, "the command hung"
    try:
        return os.read(terminal, 65536) or None
    except OSError:  # on Linux: the other end is closed
        return None


def plain(shown: bytes) -> str:
    """Return what is displayed as text."""
    return CONTROL.sub("", shown.decode(errors="replace"))
