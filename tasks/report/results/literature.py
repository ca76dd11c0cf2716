"""Published figures from the literature, for the results page."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationError

from tasks.errors import RecipeError
from tasks.report.format.markdown_table import line, table
from tasks.report.results.results_file import Strict
from tasks.report.tables.results import number

ELSEWHERE = """## From the literature

Published figures, from the sources in the table. They are for other teachers, other training and other data splits (GLUE's development
rows, as each source reports them, in points): they show the usual range and do not rank the models."""  # noqa: E501


PUBLISHED = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B"}


class Published(Strict):
    """One row of the literature."""

    model: str
    scores: dict[str, float] = Field(min_length=1)
    source: str = Field(min_length=20, description="The source, in words.")


class Literature(Strict):
    """The rows of the literature."""

    rows: tuple[Published, ...] = Field(min_length=1)


def literature_of(values: Any, where: str) -> Literature:
    """Return the validated content of the literature's file."""
    try:
        return Literature.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RecipeError(
            f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}; each row has model, scores and "
            f"source"
        ) from error


def literature_table(literature: Literature) -> str:
    """Return the table of published figures."""
    tasks = [task for task in PUBLISHED if any(task in row.scores for row in literature.rows)]
    lines = table(["model", *(PUBLISHED[task] for task in tasks), "source"])
    lines += [
        line([row.model, *(number(row.scores.get(task), ".1f") for task in tasks), row.source])
        for row in literature.rows
    ]
    return "\n".join(lines)
