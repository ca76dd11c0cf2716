"""A whole recipe as the parameter of a flow: a command that runs the flow itself makes no form of the recipe's knobs.

Prefect makes the schema of a flow's parameters when the flow is defined. That of a recipe takes a third of a second,
and is read by nothing but the form of a deployment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from prefect import Flow
from prefect.utilities.callables import parameter_schema
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from tasks.recipe.recipe import Recipe

WITH_KNOBS: ContextVar[bool] = ContextVar("with_knobs", default=True)
"""Whether the schema of a recipe is made with all of its knobs."""
WITHOUT_KNOBS = {"type": "object", "description": "A recipe; its knobs are left out here."}
"""The schema of a recipe that is made without them."""


class MadeWhereShown:
    """Leaves the knobs out of a parameter's schema where ``forms`` says so; values are validated as ever."""

    def __get_pydantic_core_schema__(self, source: type[Recipe], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how values are validated: by the model's own validator, whose sections a form would all go through."""
        return handler(source) if WITH_KNOBS.get() else no_info_plain_validator_function(source.model_validate)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema with its sections, or of any object."""
        return handler(core) if WITH_KNOBS.get() else WITHOUT_KNOBS.copy()


RecipeParameter = Annotated[Recipe, MadeWhereShown()]


@contextmanager
def forms(*, with_knobs: bool) -> Iterator[None]:
    """Make the forms of flows that are defined here with all knobs of their recipes, or without."""
    token = WITH_KNOBS.set(with_knobs)
    try:
        yield
    finally:
        WITH_KNOBS.reset(token)


def deployment_form(flow: Flow[..., Any]) -> dict[str, JsonValue]:
    """Return the schema of all parameters of a flow, with all knobs of a recipe; it is made anew only for a flow that
    this process has defined without them."""
    form = flow.parameters
    if any(one.get("description") == WITHOUT_KNOBS["description"] for one in form.properties.values()):
        with forms(with_knobs=True):
            form = parameter_schema(flow.fn)
    return form.model_dump(exclude_unset=True)
