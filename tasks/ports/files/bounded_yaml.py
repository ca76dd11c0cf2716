"""Read untrusted YAML with limits: exponential aliases, deep nesting and very many values are refused before any object
is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

LARGEST = 1_000_000  # characters of a text
MOST = 20_000  # values in a text, with every repetition by an alias; the longest recipe of the shelf has 150
DEEPEST = 40  # levels of nested lists and sections
SHOWN = 200  # characters of the library's message that are displayed


def read_yaml_file(path: Path, typ: str = "safe") -> Any:
    """Return the content of a YAML file; ``typ`` is that of ruamel.yaml. Raises ValueError with a reason, and the line
    if known, if the file cannot be read."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"it has {path.stat().st_size:,} bytes, and at most {LARGEST:,} are read")
        return parse_yaml(path.read_text(encoding="utf-8"), typ)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(str(error.strerror or error)) from None


def parse_yaml(text: str, typ: str = "safe") -> Any:
    """Return the value of a YAML text; raises ValueError as ``read_yaml_file`` does."""
    try:
        if len(text) > LARGEST:
            raise ValueError(f"it has {len(text):,} characters, and at most {LARGEST:,} are read")
        require_bounds(text)
        return YAML(typ=typ).load(text)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}{one_line(error.problem or error)}") from None
    except (Exception, RecursionError) as error:  # constructors of numbers and dates may raise any error of Python's
        raise ValueError(one_line(error)) from None


def require_bounds(text: str) -> None:
    """Count a text's values with all aliases expanded, but without building any object; raises ValueError beyond the
    limits."""
    known: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # anchor of each open collection, and the count before it
    count = 0
    for event in YAML(typ="safe").parse(text):
        if isinstance(event, CollectionEndEvent):
            anchor, before = open_.pop()
            known[anchor or ""] = count - before
        elif isinstance(event, CollectionStartEvent):
            open_.append((event.anchor, count))
            count += 1
        elif isinstance(event, AliasEvent):
            if event.anchor in (anchor for anchor, _ in open_):
                raise ValueError(f"the alias {event.anchor[:SHOWN]!r} refers to a value that contains it")
            count += known.get(event.anchor, 1)
        elif isinstance(event, ScalarEvent):
            known[event.anchor or ""] = 1
            count += 1
        if count > MOST:
            raise ValueError(f"it holds more than {MOST:,} values, aliases counted each time")
        if len(open_) > DEEPEST:
            raise ValueError(f"its lists and sections are nested more than {DEEPEST} deep")


def one_line(said: Any) -> str:
    """Return the first line of a library's message, shortened."""
    return next(iter(str(said).strip().splitlines()), type(said).__name__)[:SHOWN]
