"""Decisions on the aliases of a registered model, as plain values: the outcome of a run, and of a person's request.

A run stores its decision in ``results.json`` (``results.run.Promotion``); Prefect returns that of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from tasks.gate.verdicts import Decision


class VersionWords(TypedDict):
    """The outcome for one version, with its reason."""

    version: str
    outcome: str
    reason: str


class ChampionNow(TypedDict):
    """The champion after a decision."""

    version: str
    candidate: str


class AliasDecision(TypedDict):
    """Moved aliases and their reasons."""

    moves: dict[str, str | None]
    """New versions of moved aliases; None for one that was removed."""
    words: list[VersionWords]
    aliases: dict[str, str]
    """All aliases after the decision."""
    champion: ChampionNow | None


class RunDecision(AliasDecision):
    """The decision of a run on its candidates."""

    decisions: Mapping[str, Decision]
    """The gate's decision by candidate."""
    news: bool
    """Whether it is new, and not that of an earlier run again."""


class DeletedVersion(TypedDict):
    """A version that was deleted."""

    name: str
    version: str
    candidate: str
