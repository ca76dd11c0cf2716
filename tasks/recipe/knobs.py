"""The base of all sections of a recipe: strict about names and types, immutable, and the source of the values in keys.

A knob declared with ``semantic=False`` changes how a stage runs, never its result, and is not part of the stage's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

NAME = r"^[a-z0-9][a-z0-9._-]*$"


Name = Annotated[str, Field(pattern=NAME, max_length=60)]


BLOCK = r"^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9-]*$"
"""Pattern of the name of a saved Prefect block: its type and its name."""


HEADLINE = "headline"
"""Placeholder in a criterion for the task's headline metric."""


LARGEST_NUMBER = 2**32 - 1
"""Largest whole number for knobs without a bound of their own; also the largest seed that every library accepts."""


class Choices:
    """Names that a form offers for a string, and a Prefect server enforces. Elsewhere values are checked where the
    names are known, with a readable error."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the names to the JSON schema, their only purpose."""
        return {**handler(core), "enum": list(self.names)}


class Knobs(BaseModel):
    """Immutable, and strict about names: an unknown key is an error, not a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def is_what_it_looks_like(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject values of another type that pydantic would convert: true for a number, "3" in quotes for 3, yes or 1
        for a switch; 1.0 is accepted as 1."""
        annotation: Any = cls.model_fields[str(info.field_name)].annotation
        kinds = kinds_in(annotation)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            require_kind(one, kinds)
        return value

    def key_values(self) -> dict[str, JsonValue]:
        """Return the knobs that determine a stage's result, as plain values."""
        fields = type(self).model_fields.items()
        counted = (name for name, field in fields if is_semantic(field) and not is_left_out(field, getattr(self, name)))
        return {name: plain_value(getattr(self, name)) for name in counted}


class DerivedKnobs(Knobs):
    """Knobs that keep what they compute from their fields (``cached_property``)."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, without what was computed from the fields of this one."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


@cache
def kinds_in(annotation: Any) -> frozenset[type]:
    """Return the plain types inside an annotation such as ``tuple[int, ...] | None``."""
    inner: tuple[Any, ...] = (
        get_args(annotation)
        if get_origin(annotation) is not Literal
        else tuple(type(one) for one in get_args(annotation))
    )
    if isinstance(annotation, type) and not inner:
        return frozenset([annotation])
    return frozenset(kind for part in inner for kind in kinds_in(part))


def require_kind(value: Any, kinds: frozenset[type]) -> None:
    """Raise ValueError for a number that is too large, and for a value that would only become a number or a switch by a
    conversion of its type."""
    numeric, shown = kinds & {int, float}, str(value).lower() if isinstance(value, bool) else repr(value)[:60]
    if numeric and isinstance(value, bool) and bool not in kinds:
        raise ValueError(f"{shown} is not a number; write a number")
    if numeric and isinstance(value, str) and str not in kinds:
        raise ValueError(f"{shown} is text, not a number; write it without quotes")
    if (
        int in numeric
        and isinstance(value, (int, float))
        and abs(value) > LARGEST_NUMBER
        and (float not in kinds or isinstance(value, int))
    ):
        raise ValueError(f"at most {LARGEST_NUMBER:,} is legal")
    if (
        bool in kinds
        and not numeric
        and value is not None
        and not isinstance(value, bool)
        and not (str in kinds and isinstance(value, str))
    ):
        raise ValueError(f"{shown} is not a boolean; write true or false")


def plain_value(value: Any) -> Any:
    """Reduce a knob to JSON values, without knobs that are not semantic."""
    if isinstance(value, Knobs):
        return value.key_values()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return value.model_dump(
            mode="json", exclude={name for name, field in fields if is_left_out(field, getattr(value, name))}
        )
    return [plain_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_semantic(field: Any) -> bool:
    """Tell whether a knob is part of the key."""
    return (field.json_schema_extra or {}).get("semantic", True) is not False


def is_left_out(field: Any, value: Any) -> bool:
    """Tell whether a knob is not in the key because it has the default of an ``added_knob``."""
    return bool((field.json_schema_extra or {}).get("added")) and value == field.default


def added_knob(default: Any, description: str, **limits: Any) -> Any:
    """Declare a knob that is in the key only where it differs from its default, so that stages of recipes without it
    keep the keys that they had before there was such a knob."""
    return Field(default, description=description, json_schema_extra={"added": True}, **limits)


def runtime_knob(default: Any, description: str, **limits: Any) -> Any:
    """Declare a knob that changes how a stage runs but not its result."""
    return Field(default, description=description, json_schema_extra={"semantic": False}, **limits)


class Compared(Knobs):
    """What a candidate says of the others that it is to be told apart from."""

    compared_to: tuple[Name, ...] = runtime_knob(
        (),
        "Other candidates, or baselines, to which it is compared; best those that differ from it in one choice. The "
        "paired difference is told with its interval, and the knobs in which both differ.",
    )


def did_you_mean(name: str, legal: Iterable[str]) -> str:
    """Return the beginning of a hint at the nearest legal name; empty without one."""
    near = get_close_matches(name, list(legal), 1)
    return f"did you mean {near[0]!r}? " if near else ""


def require_distinct(values: tuple[Any, ...] | None, what: str) -> None:
    """Raise ValueError for repeated values: they would train and count one thing twice."""
    if values is not None and len(set(values)) != len(values):
        raise ValueError(f"{what} {list(values)} contain duplicates; list each once")


LARGEST_LAYERS, LARGEST_WIDTH, LARGEST_INNER, LARGEST_VOCABULARY = 1_000, 65_536, 1_000_000, 10_000_000
"""Upper bounds of a model's shape, each far beyond any encoder; their combination is bounded, too
(``MOST_PARAMETERS``)."""
MOST_PARAMETERS = 2e10
"""Far more than any encoder has, and below sizes that a machine could not even build."""


def about_parameters(layers: int, width: int, inner: int, words: int) -> int:
    """Return the approximate number of parameters of a model of this shape; ``words`` is the number of parameters in
    its embeddings."""
    return layers * width * (4 * width + 2 * inner) + words
