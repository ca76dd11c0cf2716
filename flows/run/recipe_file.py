"""Recipes as files: strict YAML, ``--set`` on top, and errors that name the line and the nearest legal key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml.comments import CommentedMap

from tasks.errors import RecipeError
from tasks.ports.files.bounded_yaml import DEEPEST, parse_yaml, read_yaml_file
from tasks.ports.rows.table_files import format_of
from tasks.recipe.candidates import knobs_by_maker
from tasks.recipe.knobs import NAME
from tasks.recipe.recipe import Recipe

SHELF = Path(__file__).resolve().parents[2] / "deployments" / "recipes"
KNOWN_RECIPES = "name a YAML file, or a recipe of the shelf: `limbeck shelf` lists them"
PROBLEMS, SHOWN = 20, 100  # problems of a recipe reported at once, and characters displayed of a value
Place = tuple[str | int, ...]
LICENCES = {
    "data.source": "data.licence",
    "task": "data.licence",
    "teacher.model": "teacher.licence",
    "corpus.source": "corpus.licence",
    "transfer.source": "transfer.licence",
    "augmentation.masked_lm": "augmentation.masked_lm_licence",
    "augmentation.word_vectors": "augmentation.word_vectors_licence",
}
"""The knob with the licence of each source."""
MESSAGES = {
    "missing": "is missing; add it",
    "string_type": "must be a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type"), "must be a section, with lines of key: value"
    ),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
}
"""What is wrong with a value, by the library's name of the problem."""
LISTED = re.compile(r"unknown [a-z -]+ '(?P<name>[^']*)'; legal are (?P<legal>[\w, /-]+)$")
"""A sentence that lists the legal names; where one of them is near, it alone is named."""


def load_recipe(name: str, sets: Sequence[str] = (), sections: Sequence[str] = ()) -> Recipe:
    """Read a recipe by path, or by its name on the shelf, and change it by ``a.b=value`` settings; ``sections`` are
    added if they are missing."""
    path = find_recipe(name)
    values = read_yaml(path)
    for section in sections:
        descend(values, section, section)
    for setting in sets:
        apply(values, setting)
    forget_licences(values, set(changed := [setting.partition("=")[0] for setting in sets]))
    return validate(values, path, changed)


def find_recipe(name: str) -> Path:
    """Return the file of a recipe given by path or by its name on the shelf."""
    path = Path(name)
    if path.is_file():
        if format_of(path) is not None and path.suffix != ".json":  # JSON is YAML, too
            raise RecipeError(f"{path} is a table and no recipe; `limbeck init {path}` writes a recipe for it")
        return path
    if name in (shelf := sorted(entry.stem for entry in SHELF.glob("*.yaml"))):
        return SHELF / f"{name}.yaml"
    if path.is_dir():
        raise RecipeError(f"{name!r} is a folder; name a recipe: a YAML file, or a name that `limbeck shelf` lists")
    files = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    near = get_close_matches(name, files, 1) or get_close_matches(path.stem, shelf, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise RecipeError(f"the recipe {name!r} does not exist; {hint}{KNOWN_RECIPES}")


def read_yaml(path: Path) -> CommentedMap:
    """Read a YAML mapping with its line numbers; duplicate keys are an error."""
    try:
        values = read_yaml_file(path, "rt")
    except ValueError as error:
        raise RecipeError(f"{path} is not readable YAML: {error}; correct it") from error
    if not isinstance(values, CommentedMap) or not set(values) & set(legal_keys(Recipe, ())):
        raise RecipeError(f"{path} is not a recipe, which is a YAML file that starts with name: and task:")
    return values


def apply(values: Any, setting: str) -> None:
    """Set one value in place; entries of lists are addressed by number or by name."""
    path, sign, text = setting.partition("=")
    if not sign or not path:
        raise RecipeError(f"--set takes a.b=value, not {setting!r}")
    place, target = path.split("."), values
    if len(place) > DEEPEST:
        raise RecipeError(f"--set takes a path of at most {DEEPEST} steps, not {len(place):,}")
    for step in place[:-1]:
        target = descend(target, step, path)
    key: Any = index_of(target, place[-1], path) if isinstance(target, list) else place[-1]
    try:
        target[key] = parse_yaml(text) if text else None
    except ValueError as error:
        raise RecipeError(
            f"--set {path}: {text[:SHOWN]!r} is not YAML: {error}; quote the value as in --set '{path}=...'"
        ) from error


def descend(target: Any, step: str, path: str) -> Any:
    """Return the section or entry one step down; create a missing section."""
    if isinstance(target, list):
        return target[index_of(target, step, path)]
    if target.get(step) is None:
        target[step] = CommentedMap()
    if not isinstance(target[step], (dict, list)):
        raise RecipeError(f"--set {path}: {step} holds a value, not a section")
    return target[step]


def index_of(entries: Sequence[Any], step: str, path: str) -> int:
    """Return the index of a list entry given by number or by name."""
    if step.isdigit() and int(step) < len(entries):
        return int(step)
    names = [entry.get("name") for entry in entries if isinstance(entry, Mapping)]
    if step in names:
        return names.index(step)
    raise RecipeError(f"--set {path}: the entry {step!r} does not exist; known are {', '.join(map(str, names))}")


def forget_licences(values: Any, given: Collection[str]) -> None:
    """Remove the licence of every replaced source, unless a new licence is given, too: a recipe states only the
    licences of its own sources."""
    for path in given:
        licence = licence_beside(path)
        if licence and licence not in given:
            *sections, name = licence.split(".")
            section = values
            for step in sections:
                section = section[int(step)] if isinstance(section, list) else section.get(step)
            if isinstance(section, dict):
                section.pop(name, None)


def licence_beside(path: str) -> str | None:
    """Return the path of a source's licence; None for a path that is no source."""
    if path.startswith("ensemble.teachers.") and path.endswith(".model"):
        return path.removesuffix("model") + "licence"
    return LICENCES.get(path)


def validate(values: CommentedMap, path: Path, changed: Sequence[str] = ()) -> Recipe:
    """Return the recipe of YAML values, of which ``changed`` places were set on the command line; raise RecipeError
    with each problem and its place."""
    try:
        return Recipe.model_validate(to_plain_values(values))
    except ValidationError as error:
        fitting = [problem for problem in error.errors() if is_of_given_kind(problem["loc"], values)]
        found = fitting or error.errors()[:1]
        told = [problem_sentence(problem, values, path, changed) for problem in found[:PROBLEMS]]
        more = [f"and {len(found) - PROBLEMS:,} more"] if len(found) > PROBLEMS else []
        raise RecipeError("\n".join([*told, *more])) from error


def is_of_given_kind(loc: Place, values: CommentedMap) -> bool:
    """Tell whether a problem is about the kind of value that was given, where a name and a section are both legal."""
    branch = next((number for number, step in enumerate(loc) if is_branch(step)), None)
    given = None if branch is None else value_at(values, loc[:branch])
    if isinstance(given, Mapping):
        return branch is None or loc[branch] not in ("str", "int", "float")
    return branch is None or isinstance(given, str) == (loc[branch] == "str")


def value_at(values: Any, place: Place) -> Any:
    """Return the value at a place; None if there is none."""
    for step in place:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return None
    return values


def recipe_of_text(text: str, path: Path) -> Recipe:
    """Return the recipe of a YAML text; ``path`` is named in errors."""
    values = parse_yaml(text, "rt")
    assert isinstance(values, CommentedMap)
    return validate(values, path)


def to_plain_values(values: Any) -> Any:
    """Convert the YAML reader's own types to plain dicts and lists."""
    if isinstance(values, Mapping):
        return {str(key): to_plain_values(value) for key, value in values.items()}
    return [to_plain_values(value) for value in values] if isinstance(values, list) else values


def problem_sentence(problem: Any, values: CommentedMap, path: Path, changed: Sequence[str] = ()) -> str:
    """Return a sentence about one problem: its place, the given value, and the legal ones."""
    kind, within = kind_of_entry(problem["loc"])
    place: Place = tuple(step for step in within if not is_branch(step))
    where = where_from(place or place_in_message(message_of(problem), values), values, path, changed)
    if problem["type"] == "extra_forbidden":
        legal = legal_keys(Recipe, place[:-1]) if kind is None else legal_keys(kind, place[2:-1])
        near = get_close_matches(str(place[-1]), legal, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"legal are {', '.join(legal)}"
        inside = ".".join(map(str, place[:-1]))
        return f"{where}: unknown key {place[-1]!r}{' in ' + inside if inside else ''}; {hint}"
    message = message_of(problem)
    given = problem["input"]
    shown = f" (given: {shortened(given)})" if isinstance(given, (str, int, float)) else ""
    name = ".".join(map(str, place))
    inside = f": {name}" if name and not where.endswith(f"--set {name}") else ""
    return f"{where}{inside}: {message}{shown}"


def place_in_message(message: str, values: CommentedMap) -> Place:
    """Return the place of a problem of the recipe as a whole, whose sentence begins with a knob; empty if it names none
    that is there."""
    named = re.match(r"[a-z_]+(\.[\w-]+)*", message)
    if named is None or named[0].split(".")[0] not in values:
        return ()
    try:
        return place_of_setting(named[0], values)
    except RecipeError:
        return (named[0].split(".")[0],)


def where_from(place: Place, values: CommentedMap, path: Path, changed: Sequence[str]) -> str:
    """Return where a problem comes from: a setting of the command line, a line of the file, or the file as a whole."""
    settings = {setting: place_of_setting(setting, values) for setting in changed}
    at = next((setting for setting, own in settings.items() if place and place[: len(own)] == own), None)
    if at is not None:
        return f"--set {at}"
    inside = next((setting for setting, own in settings.items() if own[: len(place)] == place), None)
    beside = f", with --set {inside}" if inside is not None else ""
    line = line_of(values, place)
    return f"{path}{f', line {line}' if line is not None else ''}{beside}"


def place_of_setting(setting: str, values: CommentedMap) -> Place:
    """Return the place that a setting changes, with entries of lists by number."""
    place: list[str | int] = []
    target: Any = values
    for step in setting.split("."):
        place.append(index_of(target, step, setting) if isinstance(target, list) else step)
        target = value_at(target, (place[-1],))
    return tuple(place)


def message_of(problem: Any) -> str:
    """Return a problem in words of recipes, not of the library that finds it."""
    numbers = {name: int(one) for name, one in (problem.get("ctx") or {}).items() if is_whole_number(one)}
    context = {**(problem.get("ctx") or {}), **numbers}
    if problem["type"] == "string_pattern_mismatch" and context.get("pattern") == NAME:
        return (
            "must be a name of small letters, digits, dots, hyphens and underscores that starts with a letter or digit"
        )
    if problem["type"] in MESSAGES:
        near = get_close_matches(str(problem["input"]), re.findall("'([^']*)'", str(context.get("expected", ""))), 1)
        return MESSAGES[problem["type"]].format(**context) + (f"; did you mean {near[0]!r}?" if near else "")
    message = str(problem["msg"]).removeprefix("Value error, ")
    if message.endswith("; write it without quotes") and not reads_as_number(problem["input"]):
        message = message.replace("write it without quotes", "write a number")
    if named := LISTED.search(message):
        near = get_close_matches(named["name"], named["legal"].split(", "), 1)
        message = f"{message[: named.end('name') + 1]}; did you mean {near[0]!r}?" if near else message
    return f"{message[:1].lower()}{message[1:]}"


def reads_as_number(value: Any) -> bool:
    """Tell whether a text is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def is_whole_number(value: Any) -> bool:
    """Tell whether a limit is a fraction only by its type."""
    return isinstance(value, float) and value.is_integer()


def shortened(value: str | int | float) -> str:
    """Return a given value, shortened to fit into a sentence."""
    shown = (
        repr(value)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) < 10**SHOWN
        else f"a number of {value.bit_length():,} bits"
    )
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def kind_of_entry(place: Place) -> tuple[type[BaseModel] | None, Place]:
    """Return the knobs of the candidate that a problem is in, or None, and the place without the name of its maker."""
    if place[:1] != ("candidates",) or len(place) < 3:
        return None, place
    return knobs_by_maker().get(str(place[2])), (*place[:2], *place[3:])


def is_branch(step: str | int) -> bool:
    """Return whether a step is pydantic's name for a branch of a union, and no key of the recipe."""
    return isinstance(step, str) and (step in ("str", "TaskSpec", "int", "float") or "[" in step)


def line_of(values: Any, place: Place) -> int | None:
    """Return the line of a key, or of the nearest enclosing section in the file; None if neither is there."""
    line, target = None, values
    for step in place:
        try:
            line = (target.lc.item(step) if isinstance(step, int) else target.lc.key(step))[0] + 1
            target = target[step]
        except (KeyError, AttributeError, IndexError, TypeError):
            break
    return line


def legal_keys(model: type[BaseModel], place: Place) -> list[str]:
    """Return the keys that are legal at a place of the recipe."""
    named = False
    for step in place:
        if isinstance(step, int) or named:  # an index of a list, or a user's name of a section
            named = False
            continue
        annotation = model.model_fields[str(step)].annotation
        found, named = next(iter(models_in(annotation)), None), get_origin(annotation) is dict
        if found is None:
            return []
        model = found
    return [field.alias or name for name, field in model.model_fields.items()]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside an annotation such as ``tuple[Student, ...]`` or ``Teacher | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, UnionType, tuple, list, dict):
        for part in get_args(annotation):
            yield from models_in(part)
