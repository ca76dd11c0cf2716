"""Prices, grid factors and watts: small tables with source and date. A user's tables override the built-in ones, and
the recipe overrides both.

Old figures are used with a warning: prices after 90 days, grid factors after two years.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tasks.errors import RecipeError

TABLES = Path(__file__).resolve().parents[3] / "deployments" / "prices"
OLD_PRICE, OLD_GRID = 90, 730  # days


class Row(BaseModel):
    """One line of a table; an empty cell is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    source: str

    @field_validator("*", mode="before")
    @classmethod
    def empty_is_unknown(cls, value: Any, info: Any) -> Any:
        """Read an empty cell as None in a column of figures, and as an empty string in a column of names."""
        return None if value == "" and info.field_name not in NAMES else value


NAMES = ("source", "name", "kind", "instance", "region")


class Instance(Row):
    """An instance in a region, in dollars per hour."""

    instance: str
    region: str
    on_demand: float | None = Field(None, ge=0)
    spot: float | None = Field(None, ge=0)
    vcpus: int | None = Field(None, ge=1)
    memory_gib: float | None = Field(None, gt=0)
    gpu: str | None = None
    gpus: int = Field(0, ge=0)
    as_of: date | None = None


class Grid(Row):
    """The grid of a region or a country."""

    region: str
    kg_per_kwh: float = Field(ge=0)
    pue: float | None = Field(None, ge=1)
    as_of: date | None = None


class Watts(Row):
    """Power of a processor (per core), a GPU (each) or memory (per GB), in watts at rest and under load."""

    kind: str
    name: str
    rest: float | None = Field(None, ge=0)
    load: float = Field(ge=0)


AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True)
class Rates:
    """The rates by which a run's costs are computed; None means unknown."""

    market: str = "on-demand"
    price: Instance | None = None
    kg_per_kwh: float | None = None
    grid: str = ""
    """The source of the factor: the recipe, or a region."""
    pue: float = 1.0
    core_watts: float | None = None
    gpu_watts: float | None = None
    watts: Sequence[Watts] = ()
    warnings: Sequence[str] = field(default_factory=tuple)

    def dollars_per_hour(self, market: str | None = None) -> float | None:
        """Return the instance's price in dollars per hour on a market, by default the recipe's."""
        return (
            None
            if self.price is None
            else self.price.spot
            if (market or self.market) == "spot"
            else self.price.on_demand
        )

    def drawn_by(self, kind: str, model: str) -> Watts | None:
        """Return the row for a processor or GPU model: the longest row name whose words all occur in the model's name.
        A row without a name matches every model."""
        fitting = [row for row in self.watts if row.kind == kind and (not row.name or name_matches(row.name, model))]
        return max(fitting, key=lambda row: len(row.name), default=None)


def name_matches(words: str, model: str) -> bool:
    """Return whether every word of a row's name is a word of a model's name: a row "L4" does not match an L40S, nor
    "H100 PCIe" a plain H100."""
    ours, theirs = (set(re.findall(r"[a-z0-9]+", text.lower())) for text in (words, model))
    return ours <= theirs


def rates_for(costs: Any, *, today: date | None = None) -> Rates:
    """Return the rates for a recipe's ``costs``. Settings left out are unknown; names that are in no table are
    refused."""
    today, folder = today or date.today(), own_folder()
    price = find_instance(read("instances", Instance, folder), costs.instance, costs.region) if costs.instance else None
    grid = find_grid(read("grid", Grid, folder), costs.region) if costs.region else None
    factor = costs.grid_kg_per_kwh if costs.grid_kg_per_kwh is not None else grid.kg_per_kwh if grid else None
    asked = [(price, OLD_PRICE, "price")] + ([(grid, OLD_GRID, "grid factor")] if costs.grid_kg_per_kwh is None else [])
    return Rates(
        market=costs.market,
        price=price,
        kg_per_kwh=factor,
        grid="the recipe" if costs.grid_kg_per_kwh is not None else costs.region or "",
        pue=costs.pue or (grid.pue if grid and grid.pue else 1.0),
        core_watts=costs.core_watts,
        gpu_watts=costs.gpu_watts,
        watts=read("watts", Watts, folder),
        warnings=tuple(old(row, days, what, today) for row, days, what in asked if row and is_old(row, days, today)),
    )


def own_folder() -> Path | None:
    """Return the folder of a user's own tables, or None."""
    given = os.environ.get("LIMBECK_PRICES")
    if given and not Path(given).is_dir():
        raise RecipeError(f"LIMBECK_PRICES names {given!r}, which is not a folder; create it, or unset LIMBECK_PRICES")
    return Path(given) if given else None


def read(name: str, kind: type[AnyRow], own: Path | None) -> list[AnyRow]:
    """Return the rows of a table, the user's own first."""
    places = [folder / f"{name}.csv" for folder in (own, TABLES) if folder is not None]
    return [row for place in places if place.is_file() for row in rows_of(place, kind)]


def rows_of(place: Path, kind: type[AnyRow]) -> list[AnyRow]:
    """Return the rows of one file; an invalid cell is reported with its line."""
    found = []
    with place.open(newline="", encoding="utf-8") as stream:
        for number, cells in enumerate(csv.DictReader(stream), start=2):
            try:
                found.append(kind.model_validate({str(name): cell for name, cell in cells.items()}))
            except ValidationError as error:
                wrong = error.errors()[0]
                what = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg'][0].lower()}{wrong['msg'][1:]}"
                raise RecipeError(
                    f"{place}, line {number}: {what}; its columns are {', '.join(kind.model_fields)}"
                ) from error
    return found


def find_instance(rows: Sequence[Instance], instance: str, region: str | None) -> Instance:
    """Return an instance's row; the error for a missing one lists the known ones."""
    for row in rows:
        if (row.instance, row.region) == (instance, region):
            return row
    elsewhere = sorted({row.region for row in rows if row.instance == instance})
    if elsewhere:
        known = ", ".join(elsewhere)
        raise RecipeError(
            f"costs.instance {instance} has no price in {region}, only in {known}; add a row to your own table "
            f"(LIMBECK_PRICES)"
        )
    instances = sorted({row.instance for row in rows})
    raise RecipeError(
        f"costs.instance {instance!r} is not in the tables; {hint(instance, instances)}known are "
        f"{', '.join(instances)}; "
        "or add a row to your own table (LIMBECK_PRICES)"
    )


def find_grid(rows: Sequence[Grid], region: str) -> Grid:
    """Return a grid's row; the error for a missing one lists the known ones."""
    for row in rows:
        if row.region == region:
            return row
    known = sorted({row.region for row in rows})
    raise RecipeError(
        f"costs.region {region!r} is not in the tables; {hint(region, known)}known are {', '.join(known)}; or add a "
        f"row to your own table (LIMBECK_PRICES)"
    )


def hint(given: str, known: Sequence[str]) -> str:
    """Return a question that names the closest known name, or an empty string."""
    near = get_close_matches(given, known, 1)
    return f"did you mean {near[0]!r}? " if near else ""


def is_old(row: Any, days: int, today: date) -> bool:
    """Return whether a row's figures are out of date; a row without a date is."""
    return row.as_of is None or (today - row.as_of).days > days


def old(row: Any, days: int, what: str, today: date) -> str:
    """Return the warning for an old row, with a remedy."""
    name = getattr(row, "instance", "")
    age = "without a date" if row.as_of is None else f"of {row.as_of.isoformat()}, {(today - row.as_of).days} days old"
    return (
        f"the {what} of {f'{name} in ' if name else ''}{row.region} is {age}; add a newer one to your own table "
        f"(LIMBECK_PRICES)"
    )
