"""The folder of results: one small file per finished run, and the page generated from them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.errors import RecipeError
from tasks.ports.files.bounded_json import read_json as read_bounded
from tasks.report.results.literature import Literature, literature_of
from tasks.report.results.results_brief import brief_table
from tasks.report.results.results_cuts import file_name, parsed, trimmed
from tasks.report.results.results_file import Run
from tasks.report.results.results_page import results_page

PAGE, LITERATURE = "README.md", "literature.json"


def add_result(folder: Path, source: Path, note: str) -> Path:
    """Reduce a finished run's file to the content that the page needs and write it to the folder; the file of another
    run is never overwritten."""
    require_folder(folder)
    result = trimmed(read_json(source), note, str(source))
    target = folder / file_name(result)
    if target.is_file():
        there = parsed(read_json(target), str(target))
        if there.identity != result.identity:
            told = f"{target} holds {' '.join(there.identity[1:])}, not {' '.join(result.identity[1:])}"
            raise RecipeError(
                f"{told}; give this recipe another name (--set name=...) and run it again: all stages are cached"
            )
    write_json(target, result.model_dump(mode="json"))
    return target


def write_page(folder: Path) -> Path:
    """Write the page of a folder's files; return its path."""
    target = folder / PAGE
    target.write_text(page_of(folder), encoding="utf-8")
    return target


def page_of(folder: Path) -> str:
    """Return the page of a folder's files."""
    require_folder(folder)
    paths = sorted(path for path in folder.glob("*.json") if path.name != LITERATURE)
    found = [(path, parsed(read_json(path), str(path))) for path in paths]
    for number, (path, result) in enumerate(found):
        for other, earlier in found[:number]:
            if earlier.identity == result.identity:
                raise RecipeError(f"{other} and {path} both hold {' '.join(result.identity[1:])}; remove one of them")
    return results_page([result for _, result in found], literature(folder))


def table_of(folder: Path, name: str) -> str:
    """Return the short table of one run's file, for quoting on another page."""
    require_folder(folder)
    path = folder / name
    if not path.is_file():
        known = ", ".join(sorted(one.name for one in folder.glob("*.json") if one.name != LITERATURE)) or "none"
        raise RecipeError(f"{folder} has no file {name!r}; it has {known}")
    result = parsed(read_json(path), str(path))
    if not isinstance(result, Run):
        raise RecipeError(f"{path} belongs to a sweep, whose table is on the results page; name the file of a run")
    return brief_table(result)


def literature(folder: Path) -> Literature | None:
    """Return the published figures for comparison; None if the folder has none."""
    path = folder / LITERATURE
    return literature_of(read_json(path), str(path)) if path.is_file() else None


def require_folder(folder: Path) -> None:
    """Raise RecipeError for a folder that does not exist."""
    if not folder.is_dir():
        raise RecipeError(f"the folder {str(folder)!r} does not exist; create it, or name deployments/results")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return read_bounded(path)
    except (OSError, ValueError) as error:
        raise RecipeError(
            f"{path} cannot be read as JSON ({error}); name a file written by limbeck run --json"
        ) from error


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write a result file atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
    temporary.replace(path)
