"""Models of the forms in the Prefect UI that take less than a whole recipe: a recipe of the shelf and its changes.

The forms are generated from the recipe's own models, so that titles, descriptions and limits have one source; with
them, a Prefect server refuses illegal values before a run exists. Errors that only appear in the complete recipe (a
student wider than its teacher) are reported when the run starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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
    "candidates",
    "exports",
    "gate",
)
"""Optional sections of a recipe."""


class Form(BaseModel):
    """Base class of the forms; unknown names are refused, as in recipes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OnTheShelf(Choices):
    """The names of the shelf's recipes, read when a form is generated."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the current names to the schema."""
        return {**handler(core), "enum": sorted(path.stem for path in SHELF.glob("*.yaml"))}


ShelfName = Annotated[str, OnTheShelf()]
LeftOut = tuple[Annotated[str, Choices(*LEFT_OUT)], ...]


@cache
def changes_of(model: type[Knobs], *, but: tuple[str, ...] = ()) -> type[Form]:
    """Return the form of changes to a model: the same knobs with the same limits, all optional and without default
    values; a list replaces the whole list."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if name not in but:
            kind = loosened(field.annotation)
            limited = Annotated[kind, *field.metadata] if field.metadata else kind
            fields[name] = (limited | None, Field(None, description=field.description or about(field.annotation)))
    return create_model(
        f"{model.__name__}Changes",
        __base__=Form,
        __doc__=f"{cleandoc(model.__doc__ or '')} Empty: as in the recipe.",
        **fields,
    )


def loosened(kind: Any) -> Any:
    """Replace every section in a type by the form of its changes, and remove None."""
    if isinstance(kind, type) and issubclass(kind, Knobs):
        return changes_of(kind)
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(loosened(one) for one in get_args(kind) if one is not type(None))]  # noqa: UP007 - made of a list
    return kind


def about(kind: Any) -> str | None:
    """Return the docstring of a section's model, for fields without a description; None if it is no section."""
    sections = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, BaseModel)]
    return cleandoc(sections[0].__doc__ or "") if sections else None


Changes: Any = changes_of(Recipe, but=("name", "sweep", "search"))
"""The form of changes to a recipe of the shelf."""


class VersionToScore(Form):
    """A registered version, and the rows to score it on."""

    name: str = Field(min_length=1, description="A registered model.")
    version: str = Field(
        "champion",
        min_length=1,
        description="Number of the version, or an alias: champion, challenger, previous, champion-small, "
        "champion-fast.",
    )
    source: str = Field(
        "",
        description="Your own rows (a file, a folder or a hub id, with the columns of the task), all of which are "
        "scored. Empty: the evaluation rows of its run, to verify that the served model is the evaluated one.",
    )
    revision: str | None = Field(None, description="Hub revision (a commit), for a hub id.")
    label: str = Field(
        "",
        pattern=r"^[\w.-]*$",
        max_length=40,
        description="Name of the figures in the version's tags; empty: the name of the source.",
    )
    beside: Literal["champion", "nothing"] = Field("champion", description="Model for a paired comparison, row by row.")


def recipe_of_the_shelf(
    name: str, changes: BaseModel | None = None, without: tuple[str, ...] = (), sweep: Sweep | None = None
) -> Recipe:
    """Return a recipe of the shelf with the changes of a form; raise RecipeError if they do not fit together."""
    path = find_recipe(name)
    values = read_yaml(path)
    for section in without:
        values.pop(section, None)
    changed = changes.model_dump(mode="json", exclude_none=True) if changes is not None else {}
    enter_changes(values, changed)
    forget_licences(values, set(paths_in(changed)))
    if sweep is not None:
        enter_changes(values, {"sweep": sweep.model_dump(mode="json", exclude_unset=True, exclude_none=True)})
    return validate(values, path)


def paths_in(changes: Mapping[str, object], above: str = "") -> Iterator[str]:
    """Yield the dotted path of every change, and of every section that contains one."""
    for name, change in changes.items():
        yield f"{above}{name}"
        if isinstance(change, Mapping):
            yield from paths_in(change, f"{above}{name}.")


def enter_changes(values: Any, changes: Mapping[str, object]) -> None:
    """Apply changes in place: sections are changed knob by knob, all other values are replaced."""
    for name, change in changes.items():
        if isinstance(change, Mapping) and isinstance(values.get(name), Mapping):
            enter_changes(values[name], change)
        else:
            values[name] = change
