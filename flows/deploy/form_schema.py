"""The schema of a deployment's form, as Prefect's pages show it: fields in the order of the recipe, names for people.

PostgreSQL stores schemas as JSONB, which keeps no order of keys; Prefect's pages sort fields by ``position``.
"""

from __future__ import annotations

import re
from typing import NotRequired, TypedDict, cast

from pydantic import JsonValue

TITLE_WORDS = {
    "beta1": "beta 1",
    "beta2": "beta 2",
    "eps": "epsilon",
    "gb": "(GB)",
    "gpu": "GPU",
    "int8": "INT8",
    "kwh": "kWh",
    "lm": "language model",
    "mlflow": "MLflow",
    "pue": "PUE",
}
"""Parts of field names that are not words of their own."""
OWN_TITLES = {
    "grid_kg_per_kwh": "Grid (kg CO2e per kWh)",
    "kwh": "Energy (kWh)",
    "about": "Description",
    "too_good": "Suspicious score",
    "of": "Candidates",
    "TaskSpec": "A task of your own",
}
"""Names that do not follow from those of fields and sections."""
CHOICES = {
    "string": "Text",
    "number": "Number",
    "integer": "Whole number",
    "boolean": "Yes or no",
    "array": "List",
    "object": "Names and values",
}
"""Names of the alternatives of a field that may be one of several types; those of sections are their own."""


FieldSchema = TypedDict(
    "FieldSchema",
    {
        "title": NotRequired[str],
        "position": NotRequired[int],
        "type": NotRequired[str],
        "enum": NotRequired[list[JsonValue]],
        "anyOf": NotRequired["list[FieldSchema]"],
        "$ref": NotRequired[str],
        "semantic": NotRequired[str],
    },
)
"""A field of a form, or one of its alternatives; its other entries are those of a JSON schema."""


class SectionSchema(TypedDict, total=False):
    """One object of a form; its other entries are those of a JSON schema."""

    title: str
    properties: dict[str, FieldSchema]


class FormSchema(SectionSchema, total=False):
    """A whole form with its sections by their names."""

    definitions: dict[str, SectionSchema]


def for_people(schema: FormSchema) -> FormSchema:
    """Return a schema with positions, and with titles instead of names of fields and classes."""
    definitions = {name: titled_section(given, name) for name, given in schema.get("definitions", {}).items()}
    titled = cast(FormSchema, {**schema, **titled_section(schema, "")})
    if definitions:
        titled["definitions"] = definitions
    return titled


def titled_section(given: SectionSchema, name: str) -> SectionSchema:
    """Return one object of a schema with its fields in order."""
    fields, titled = given.get("properties", {}), given.copy()
    if name:
        titled["title"] = human_title(name)
    if fields:
        titled["properties"] = {
            key: titled_field(value, key, place) for place, (key, value) in enumerate(fields.items())
        }
    return titled


def titled_field(given: FieldSchema, name: str, place: int) -> FieldSchema:
    """Return one field with its position and title; a title that the model declares itself stays."""
    declared = str(given.get("title") or "")
    automatic = declared.lower().replace(" ", "_") == name.lower()
    kept = given.copy()
    kept.pop("semantic", None)
    if "anyOf" in kept:
        kept["anyOf"] = [titled_choice(one) for one in kept["anyOf"]]
    return {**kept, "title": declared if declared and not automatic else human_title(name), "position": place}


def titled_choice(given: FieldSchema) -> FieldSchema:
    """Return one alternative of a field with a title, if it has no section's."""
    if "$ref" in given or "title" in given or given.get("type") not in CHOICES:
        return given.copy()
    return {**given, "title": "One of a list" if "enum" in given else CHOICES[str(given["type"])]}


def human_title(name: str) -> str:
    """Return the title of a field (``max_length``) or of a section's class (``GeneralDistillationChanges``)."""
    if name in OWN_TITLES:
        return OWN_TITLES[name]
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Changes")).lower().split("_")
    words = " ".join(TITLE_WORDS.get(part, part) for part in parts)
    return words[:1].upper() + words[1:]
