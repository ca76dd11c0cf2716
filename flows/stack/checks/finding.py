"""The result of one check of ``limbeck doctor``."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, BAD = "ok", "warning", "BAD"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its subject, state, details and remedy."""

    subject: str
    state: str
    details: str
    remedy: str = ""
