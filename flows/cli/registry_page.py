"""The output of ``limbeck show``: a registered model's aliases, versions and decisions, or one version with all
reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli.shared import print_lines
from tasks.gate.promotion import ALIASES, WITHDRAWN
from tasks.ports.tracking.registry import HistoryEntry, RegistryState, missing

FIGURES = ("quality", "retained", "params_m", "size_mb", "latency_ms", "speedup")
SHORT = {"quality": "score", "retained": "retained", "size_mb": "MB", "latency_ms": "ms", "speedup": "speed-up"}
MARKS = {"ACCEPT": "green", "REGRESSION": "red", "ANOMALOUS": "yellow", "INFEASIBLE": "red"}


def show_model(console: Console, name: str, standing: RegistryState) -> None:
    """Print the aliases, all versions, the history of decisions, and aliases that the registry has lost."""
    aliases = Table("alias", "version", "candidate", title=name, title_justify="left")
    for alias in [
        *(alias for alias in ALIASES if alias in standing.aliases),
        *sorted(set(standing.aliases) - set(ALIASES)),
    ]:
        number = standing.aliases[alias]
        aliases.add_row(alias, number, standing.versions.get(number, {}).get("candidate", ""))
    versions = Table("version", "candidate", "verdict", *SHORT.values())
    versions.add_column("aliases", overflow="fold")
    for number in sorted(standing.versions, key=int, reverse=True):
        tags = standing.versions[number]
        versions.add_row(
            number,
            tags.get("candidate", ""),
            verdict(tags),
            *(tags.get(figure, "") for figure in SHORT),
            named(standing, number),
        )
    console.print(aliases)
    console.print(versions)
    print_lines(*history_lines(standing), to=console)
    print_lines(*missing_alias_lines(name, standing), to=console)


def show_version(console: Console, name: str, standing: RegistryState, number: str) -> None:
    """Print one version: its figures, the verdict with a reason for each criterion, and the decisions about it."""
    tags = standing.versions[number]
    table = Table("property", "", title=f"{name} version {number}: {tags.get('candidate', '')}", title_justify="left")
    table.add_row("verdict", verdict(tags))
    table.add_row("aliases", names_of(standing, number) or "none")
    for figure in (*FIGURES, "recipe", "teacher", "promotion.state", "gate.replaced", "rows.sha256", "model.sha256"):
        if tags.get(figure):
            table.add_row(figure, str(tags[figure]))
    console.print(table)
    print_lines(*(f"  {reason}" for reason in json.loads(tags.get("gate.reasons") or "[]")), to=console)
    print_lines(*history_lines(standing, number), to=console)


def verdict(tags: Mapping[str, str]) -> Text:
    """Return the gate's verdict on a version, coloured; versions of older releases have only the tag ``gate``."""
    word = str(tags.get("gate.verdict") or tags.get("gate", ""))
    return Text(word, style=MARKS.get(word, ""))


def names_of(standing: RegistryState, number: str) -> str:
    """Return the aliases of a version."""
    return ", ".join(sorted(alias for alias, held in standing.aliases.items() if held == number))


def named(standing: RegistryState, number: str) -> str:
    """Return the aliases of a version, with "withdrawn" if a person withdrew it."""
    withdrawn = standing.versions[number].get("promotion.state") == WITHDRAWN
    return ", ".join(filter(None, [names_of(standing, number), "withdrawn" if withdrawn else ""]))


def history_lines(standing: RegistryState, number: str | None = None) -> Iterator[str]:
    """Yield lines about the decisions, newest first: all of them, or those about one version."""
    yield "\nDecisions, the newest first:" if standing.history else "\nNo decision was recorded yet."
    for entry in reversed(standing.history):
        words = [word for word in entry.get("words", []) if number in (None, word["version"])]
        if not words and number is not None:
            continue
        by = f" by {entry['by']}" if entry.get("by") else ""
        yield f"  {entry['n']:>3}  {entry['at']}  {entry['kind']}{whence(entry)}{by}{moved(entry)}"
        yield from (
            f"         {word['candidate']}, version {word['version']}: {word['outcome']}: {word['reason']}"
            for word in words
        )


def whence(entry: HistoryEntry) -> str:
    """Return the recipe behind a decision, or a person's reason."""
    because = " forced" if entry.get("forced") else ""
    return (
        f" {entry['recipe']}"
        if entry.get("recipe")
        else because + (f" ({entry['because']})" if entry.get("because") else "")
    )


def moved(entry: HistoryEntry) -> str:
    """Return the aliases that a decision moved."""
    moves = [f"{alias} {before or '—'} → {after or '—'}" for alias, (before, after) in entry.get("moves", {}).items()]
    return f": {', '.join(moves)}" if moves else ": no alias moved"


def missing_alias_lines(name: str, standing: RegistryState) -> Iterator[str]:
    """Yield a line for each alias of the history that the registry has lost: MLflow can delete a version with an alias,
    which then vanishes."""
    for alias, number in missing(standing).items():
        yield (
            f"\n{name}@{alias} is missing: in the history it is version {number}. Assign it to an existing version: "
            f"limbeck promote {name} VERSION --to {alias}"
        )
