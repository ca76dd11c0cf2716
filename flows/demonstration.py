"""The demo's sources: a small language that is generated where the demo runs, whoever starts it: the command line, or a form."""

from __future__ import annotations

from pathlib import Path

from flows.home import Home
from tasks.recipe import Recipe

DEMO = "demo"
SECTIONS = ("data", "corpus", "transfer")
"""Sections of the demo's recipe whose source is a part of the language; the recipe names each by the section's own name."""


def language_of(home: Home, number: int) -> Path:
    """Return the folder of a generated language, written if it is not there."""
    from tasks.demo_language import write_language

    folder = home.root / "demo" / f"language-{number}"
    if not (folder / "data").is_dir():
        write_language(folder, seed=number)
    return folder


def with_language(recipe: Recipe, home: Home) -> Recipe:
    """Return the demo's recipe with its sources where they are; a source that somebody changed stays."""
    values = recipe.model_dump(mode="json", exclude_unset=True)
    own = [name for name in SECTIONS if (values.get(name) or {}).get("source") == name]
    if not own:
        return recipe
    folder = language_of(home, recipe.data.seed)
    for name in own:
        values[name]["source"] = str(folder / name)
    return Recipe.model_validate(values)
