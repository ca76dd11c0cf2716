"""Conversion of the options of ``limbeck sweep`` and ``limbeck search`` to settings of the recipe's sections of these
names: they are stored with the run, so that ``limbeck resume`` finds them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tasks.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tasks.recipe.recipe import Recipe


def sweep_sets(*, strategies: str | None, drop: str | None, seeds: str | None, halving: bool) -> list[str]:
    """Return the recipe settings of the options; an omitted option sets nothing."""
    sets = [] if strategies is None else [f"sweep.strategies={json.dumps(entries('--strategies', strategies))}"]
    sets += [
        f"sweep.{name}={json.dumps(numbers(f'--{name}', given))}"
        for name, given in (("drop", drop), ("seeds", seeds))
        if given is not None
    ]
    return [*sets, *(["sweep.halving=true"] if halving else [])]


def budget_sets(budgets: list[str]) -> list[str]:
    """Return the recipe settings of the options ``--budget``; raise RecipeError for another form, an unknown budget and
    one that is given twice."""
    from tasks.recipe.knobs import did_you_mean
    from tasks.recipe.makers.search import UNITS

    found: dict[str, str] = {}
    for given in budgets:
        name, sign, amount = given.partition("=")
        if not sign or not amount.strip():
            raise RecipeError(f"--budget takes NAME=AMOUNT, for example latency_ms=2 or bytes=10MB, not {given!r}")
        if name not in UNITS:
            raise RecipeError(f"--budget {name!r} is unknown; {did_you_mean(name, UNITS)}legal are {', '.join(UNITS)}")
        if name in found:
            raise RecipeError(f"--budget {name} is given twice; give it once")
        found[name] = amount.strip()
    return [f"search.budget.{name}={json.dumps(amount)}" for name, amount in found.items()]


def minutes_sets(recipe: Recipe, minutes: float) -> list[str]:
    """Return the recipe setting of the option ``--minutes``; raise RecipeError for a recipe without ways to try."""
    if recipe.search is None or recipe.search.recipes is None:
        raise RecipeError(
            f"--minutes is for ways to train one shape, and {recipe.name} has no section search.recipes; add one with "
            f"a shape (limbeck init --search writes it), or search shapes: --budget latency_ms=2"
        )
    return [f"search.recipes.minutes={minutes:g}"]


def entries(option: str, given: str) -> list[str]:
    """Return the entries of a comma-separated list; raise RecipeError on an empty entry and on a repeated one."""
    found = [entry.strip() for entry in given.split(",")]
    if not all(found):
        raise RecipeError(
            f"{option} {given!r} has an empty entry; give a list with commas, for example {EXAMPLES[option]}"
        )
    if len(set(found)) < len(found):
        raise RecipeError(f"{option} {given!r} repeats an entry; list each once")
    return found


def numbers(option: str, given: str) -> list[int]:
    """Return the whole numbers of a comma-separated list; raise RecipeError on other entries."""
    found = entries(option, given)
    if not all(entry.isdecimal() for entry in found):
        raise RecipeError(f"{option} takes whole numbers with commas, for example {EXAMPLES[option]}, not {given!r}")
    if option == "--drop" and "0" in found:
        raise RecipeError(f"--drop {given!r} removes no layer; give numbers from 1, for example {EXAMPLES[option]}")
    return [int(entry) for entry in found]


EXAMPLES = {"--strategies": "top,symmetric", "--drop": "1,2,3", "--seeds": "0,1,2"}


def require_no_results(files: Mapping[str, Path | None]) -> None:
    """Raise RecipeError for a dry run that is asked for a file of results; ``files`` are by option."""
    given = next((option for option, file in files.items() if file is not None), None)
    if given is not None:
        raise RecipeError(f"{given} writes the results of a run, and --dry-run has none; leave one of them out")
