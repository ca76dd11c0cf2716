"""What the forms of the Prefect UI ask, beside a whole recipe: one of the shelf by its name, and what to change of it.

The forms are made of the recipe's own models, so that a title, a sentence and a limit stand in one place; a Prefect
server refuses by them what is not legal before there is a run. What only shows when everything is put together (a
student wider than its teacher) is refused when the run starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model

from flows.run.recipe_file import SHELF, find_recipe, forget_licences, read_yaml, validate
from tasks.recipe.knobs import Choices, Knobs
from tasks.recipe.recipe import Recipe
from tasks.recipe.students import Sweep

LEFT_OUT = (
    "general_distillation",
    "augmentation",
    "transfer",
    "ensemble",
    "corpus",
    "pretraining",
    "students",
    "layer_dropping",
    "exports",
    "gate",
)
"""Sections that a recipe can do without."""


class Form(BaseModel):
    """Strict about names, as recipes are."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OnTheShelf(Choices):
    """The names of the shelf, read when a form is made."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        """Add the names that are there now."""
        return {**handler(core), "enum": sorted(path.stem for path in SHELF.glob("*.yaml"))}


ShelfName = Annotated[str, OnTheShelf()]
LeftOut = tuple[Annotated[str, Choices(*LEFT_OUT)], ...]


@cache
def changes_of(model: type[Knobs], *, but: tuple[str, ...] = ()) -> type[Form]:
    """Return the form of changes to a model: the same knobs with the same limits, none of them with a default; lists
    are given whole."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name not in but:
            kind = loosened(field.annotation)
            limited = Annotated[kind, *field.metadata] if field.metadata else kind
            fields[name] = (limited | None, Field(None, description=field.description or about(field.annotation)))
    return create_model(
        f"{model.__name__}Changes",
        __base__=Form,
        __doc__=f"{cleandoc(model.__doc__ or '')} Empty: as the recipe says.",
        **fields,
    )


def loosened(kind: Any) -> Any:
    """Turn every section in a type into the form of its changes, and strike out None."""
    if isinstance(kind, type) and issubclass(kind, Knobs):
        return changes_of(kind)
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(loosened(one) for one in get_args(kind) if one is not type(None))]  # noqa: UP007 - made of a list
    return kind


def about(kind: Any) -> str | None:
    """Return what a section's own docstring says, where its field says nothing."""
    sections = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, BaseModel)]
    return cleandoc(sections[0].__doc__ or "") if sections else None


Changes: Any = changes_of(Recipe, but=("name", "sweep"))
"""The form of changes to a recipe of the shelf."""


class VersionToScore(Form):
    """A registered version, and the rows on which it is scored."""

    name: str = Field(min_length=1, description="A registered model.")
    version: str = Field(
        "champion",
        min_length=1,
        description="Its number, or an alias: champion, challenger, previous, champion-small, champion-fast.",
    )
    source: str = Field(
        "",
        description="Rows of your own (a file, a folder or a hub id, with the columns of its task), all of which "
        "count. "
        "Empty: the rows that its run was judged on, to see that what is served is what was judged.",
    )
    revision: str | None = Field(None, description="Hub revision (a commit), for a hub id.")
    label: str = Field(
        "",
        pattern=r"^[\w.-]*$",
        max_length=40,
        description="What the figures are called in the version's tags; empty: the name of the source.",
    )
    beside: Literal["champion", "nothing"] = Field("champion", description="With what it is compared, row by row.")


def recipe_of_the_shelf(
    name: str, changes: BaseModel | None = None, without: tuple[str, ...] = (), sweep: Sweep | None = None
) -> Recipe:
    """Return a recipe of the shelf with what a form changes of it; what does not fit together is said in a sentence."""
    path = find_recipe(name)
    values = read_yaml(path)
    for section in without:
        values.pop(section, None)
    changed = changes.model_dump(mode="json", exclude_none=True) if changes is not None else {}
    enter(values, changed)
    forget_licences(values, set(paths_in(changed)))
    if sweep is not None:
        enter(values, {"sweep": sweep.model_dump(mode="json", exclude_unset=True, exclude_none=True)})
    return validate(values, path)


def paths_in(changes: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted place of everything that is changed; a section that is given is a place of its own too."""
    for name, change in changes.items():
        yield f"{above}{name}"
        if isinstance(change, Mapping):
            yield from paths_in(change, f"{above}{name}.")


def enter(values: Any, changes: Mapping[str, Any]) -> None:
    """Enter changes where they belong; sections are changed knob by knob, anything else is put in the place of what was
    there."""
    for name, change in changes.items():
        if isinstance(change, Mapping) and isinstance(values.get(name), Mapping):
            enter(values[name], change)
        else:
            values[name] = change
