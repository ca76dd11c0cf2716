"""A whole recipe as the parameter of a flow: the form of all its knobs is made where a deployment is written, not at
every import.

Prefect makes the schema of a flow's parameters when the flow is defined. That of a recipe takes 0.3 s or more, in every
command that runs a flow, and is read by nothing but the form of a deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from tasks.recipe.recipe import Recipe

WITH_KNOBS: ContextVar[bool] = ContextVar("with_knobs", default=False)
"""Whether the schema of a recipe is made with all of its knobs."""


class MadeLater:
    """Leaves the knobs out of a parameter's schema, except inside ``deployment_form``; values are validated as ever."""

    def __get_pydantic_core_schema__(self, source: type[Recipe], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return how values are validated: by the model's own validator, whose sections a form would all go through."""
        return handler(source) if WITH_KNOBS.get() else no_info_plain_validator_function(source.model_validate)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the schema of an object, or of this one with its sections."""
        return handler(core) if WITH_KNOBS.get() else {"type": "object"}


RecipeParameter = Annotated[Recipe, MadeLater()]


def deployment_form(flow: Callable[..., Any]) -> dict[str, JsonValue]:
    """Return the schema of all parameters of a flow's function, that of a recipe with all of its knobs."""
    from prefect.utilities.callables import parameter_schema

    token = WITH_KNOBS.set(True)
    try:
        return parameter_schema(flow).model_dump(exclude_unset=True)
    finally:
        WITH_KNOBS.reset(token)
