"""The section of a recipe on a search: which shapes fit a budget, and which of them are worth training.

Method: successive halving, Jamieson and Talwalkar 2015, arXiv:1502.07943, over shapes whose latency is the sum of
measured parts, as in Cai et al. 2019 (ProxylessNAS), arXiv:1812.00332.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.catalog import TaskTypeName
from tasks.recipe.judging import Criterion, Speed
from tasks.recipe.knobs import LARGEST_VOCABULARY, Choices, Knobs, did_you_mean, require_distinct
from tasks.recipe.makers.dropping import DroppedTraining
from tasks.recipe.makers.supernets import SEARCHED, Share, SupernetKnobs, SupernetTraining
from tasks.recipe.makers.trials import RecipeTrials
from tasks.recipe.students import STRATEGY_NAMES

Format = Literal["torch", "onnx", "int8", "int8-table4"]
"""From a teacher's own format to those that are farthest from it."""
BYTES = {"": 1.0, "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
UNITS: dict[str, dict[str, float]] = {
    "latency_ms": {"": 1.0, "ms": 1.0, "us": 1e-3, "s": 1e3},
    "bytes": BYTES,
    "flops": {"": 1.0, "M": 1e6, "G": 1e9, "T": 1e12},
    "joules": {"": 1.0, "J": 1.0, "mJ": 1e-3},
    "memory": BYTES,
}
"""Legal units of each budget, as factors on the unit of its figure."""
UNIT_OF_FIGURES = {"latency_ms": "ms", "bytes": "bytes", "flops": "FLOPs", "joules": "J", "memory": "bytes"}
"""The unit of the figure that a budget bounds."""
LEAST_AMOUNTS = {"bytes": 1e4, "memory": 1e4, "flops": 1e4}
"""Amounts below those of any model: a unit was forgotten."""
FIGURES_OF_BUDGETS = {"memory": "memory_bytes"}
"""The figure of a row that a budget bounds, where its name is another."""
AMOUNT = re.compile(r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")


@dataclass(frozen=True)
class Bound:
    """A budget as a number: an amount in the unit of its figure, or a share of the teacher's."""

    name: str
    amount: float
    of_teacher: bool

    @property
    def criterion(self) -> Criterion:
        """The criterion by which the gate refuses a trained model over this budget."""
        return Criterion(
            metric=FIGURES_OF_BUDGETS.get(self.name, self.name), at_most=self.amount, of_teacher=self.of_teacher
        )

    @property
    def unit(self) -> str:
        """The unit of its figure."""
        return UNIT_OF_FIGURES[self.name]

    def __str__(self) -> str:
        return f"{self.name} ≤ {self.amount:,.10g} {'of the teacher' if self.of_teacher else self.unit}"


def budget_as_bound(name: str, given: str | float) -> Bound:
    """Return a budget that is written as a number, a number with a unit, or a share such as 0.3x or 30%.

    Raises ValueError for another unit, and for an amount that nothing could meet.
    """
    legal = [unit for unit in UNITS[name] if unit]
    found = AMOUNT.fullmatch(str(given))
    if found is None or found[2] not in (*UNITS[name], "x", "%"):
        near = next((unit for unit in legal if found is not None and unit.lower() == found[2].lower()), None)
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(
            f"budget.{name} is {given!r}; {hint}legal are a number, a number with {', '.join(legal)}, or a share of "
            f"the teacher's such as 0.3x or 30%"
        )
    amount, unit = float(found[1]), found[2]
    of_teacher = unit in ("x", "%")
    amount *= {"x": 1.0, "%": 0.01}[unit] if of_teacher else UNITS[name][unit]
    if amount <= 0:
        raise ValueError(f"budget.{name} is {given!r}, which no model meets; give a positive amount")
    if not of_teacher and amount < LEAST_AMOUNTS.get(name, 0.0):
        raise ValueError(
            f"budget.{name} is {given!r}, that is {amount:g} {UNIT_OF_FIGURES[name]}, which no model meets; give an "
            f"amount with its unit, such as {'500M' if name == 'flops' else '10MB'}"
        )
    if math.isinf(amount):
        raise ValueError(f"budget.{name} is {given!r}, which every model meets; give a smaller amount")
    if of_teacher and amount > 1:
        raise ValueError(
            f"budget.{name} is {given!r}, more than the teacher's; give a share of at most 1x, or an amount"
        )
    return Bound(name, amount, of_teacher)


class SearchBudget(Knobs):
    """What a model may cost at most: a number, a number with a unit, or a share of the teacher's such as 0.3x. A shape
    is predicted; the gate decides by what is measured of the trained model. Shares are of the teacher in the first of
    torch, onnx and int8 that the space names."""

    latency_ms: float | str | None = Field(
        None, description="Median latency at the batch, length and threads of section speed: 2, 2ms, 0.3x."
    )
    bytes: float | str | None = Field(None, description="Bytes of the weights, or of the graph: 10MB, 10MiB, 0.3x.")
    flops: float | str | None = Field(None, description="FLOPs at scoring.flops_length: 500M, 1.5G, 0.3x.")
    joules: float | str | None = Field(
        None, description="Energy of one inference, the latency times the watts of its cores: 10mJ, 0.3x."
    )
    memory: float | str | None = Field(
        None,
        description="Memory of a loaded model: 50MB, 0.3x. Of a shape only the weights are known, a lower bound.",
    )

    @model_validator(mode="after")
    def can_be_read(self) -> Self:
        """Reject a unit or an amount that means nothing."""
        self.bounds()
        return self

    def bounds(self) -> tuple[Bound, ...]:
        """Return the budgets that are given."""
        given = {name: getattr(self, name) for name in UNITS}
        return tuple(budget_as_bound(name, value) for name, value in given.items() if value is not None)


class Space(Knobs):
    """The shapes among which a search chooses; each is a plain folder of the teacher's architecture."""

    layers: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, min_length=1, description="Numbers of layers; empty: from 1 to the teacher's."
    )
    width: tuple[Share, ...] = Field(
        (1.0,),
        min_length=1,
        description="Shares of the teacher's width, rounded to whole heads of its size, for example [0.5, 1].",
    )
    neurons: tuple[Share, ...] = Field(
        (0.25, 0.5, 0.75, 1.0),
        min_length=1,
        description="Shares of the neurons of each feed-forward block, rounded to multiples of 32.",
    )
    vocabulary: tuple[Literal["whole", "used"] | Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)], ...] = Field(
        ("whole",),
        min_length=1,
        description="Vocabularies: whole, used (the pieces of the texts), or numbers of pieces. A shape gets the "
        "largest that fits in its format, trimmed after its training.",
    )
    formats: tuple[Format, ...] = Field(
        ("torch",),
        min_length=1,
        description="How it is served: torch, onnx, int8, int8-table4 (see exports.formats). A shape gets, of those "
        "in which it fits, the one that costs the teacher least on the selection rows, with its vocabulary; the first "
        "among equals.",
    )

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """Reject repeated values: they would be judged once and counted twice."""
        for what in ("layers", "width", "neurons", "vocabulary", "formats"):
            require_distinct(getattr(self, what), what)
        return self


class ShapeTraining(DroppedTraining):
    """The training of a shape."""

    signal: Literal["labels", "teacher"] = Field("teacher", description="Training signal of a shape.")
    learning_rate: float = Field(1e-4, gt=0, le=1, description="Peak learning rate.")
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout; none is also fastest on a CPU.")
    evaluations: int = Field(4, ge=1, description="Evaluations on the selection rows, by which shapes are compared.")


class Evolution(Knobs):
    """Which shapes a supernet scores where many fit: generations of them by NSGA-II (Deb et al. 2002), by Optuna."""

    above: int = Field(
        500, ge=8, le=100_000, description="Largest number of fitting shapes that are all scored, without choosing."
    )
    population: int = Field(32, ge=4, le=500, description="Shapes of a generation.")
    generations: int = Field(
        8, ge=2, le=100, description="Generations; of each, shapes that have no score yet are scored."
    )


class ShapeSearch(Knobs):
    """Find the best shape within a budget: limbeck search predicts latency and size of every shape from measured parts,
    ranks those that fit by successive halving or in a supernet, and makes candidates of the best."""

    budget: SearchBudget = Field(SearchBudget(), description="What a model may cost at most; at least one budget.")
    space: Space = Field(Space(), description="The shapes among which to choose.")
    training: ShapeTraining = Field(
        ShapeTraining(),
        description="Training of a shape; earlier rounds of the halving take a part of its steps or epochs.",
    )
    ranking: Literal["halving", "supernet"] = Field(
        "halving",
        description="How shapes are ranked: halving trains up to shapes of them alone, in rounds; supernet trains all "
        "shapes of the space in one set of weights and scores every shape that fits with these, after 8 shapes that "
        "are trained alone agree with it; if they do not, halving follows.",
    )
    supernet: SupernetTraining = Field(SupernetTraining(), description="Its training, with ranking: supernet.")
    evolution: Evolution = Field(
        Evolution(), description="Which shapes are scored with ranking: supernet where more than 500 fit."
    )
    strategy: Annotated[str, Choices(*STRATEGY_NAMES)] = Field(
        "contribution", description="Which layers a shape of fewer layers keeps: a strategy of layer_dropping."
    )
    importance: Literal["taylor", "activation", "magnitude", "random"] = Field(
        "taylor", description="By what neurons, dimensions and heads are kept."
    )
    shapes: int = Field(
        16, ge=1, le=500, description="Maximum number of shapes that are trained; the largest that fit come first."
    )
    rounds: int = Field(
        3,
        ge=1,
        le=6,
        description="Rounds of the halving, at most, since one that would leave no shape out is not made: each trains "
        "a third of the shapes of the one before, with three times its steps; the last one is the training of the "
        "candidates. 1: the largest that fit are the candidates, and none is tried before.",
    )
    candidates: int = Field(5, ge=1, le=50, description="Shapes that are trained fully, scored and judged by the gate.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training of each candidate per seed; the halving takes the first."
    )
    seed: int = Field(
        0, ge=0, description="Seed of the shapes on which the latency table is checked, and of the evolution."
    )
    recipes: RecipeTrials | None = Field(
        None, description="Ways to train one shape, which limbeck search tries by the minute, in place of shapes."
    )

    @model_validator(mode="after")
    def choices_are_legal(self) -> Self:
        """Reject an unknown strategy and repeated seeds."""
        require_distinct(self.seeds, "seeds")
        if self.strategy not in STRATEGY_NAMES:
            hint = did_you_mean(self.strategy, STRATEGY_NAMES)
            raise ValueError(f"strategy is {self.strategy!r}; {hint}legal are {', '.join(STRATEGY_NAMES)}")
        if self.ranking == "supernet" and self.strategy in SEARCHED:
            raise ValueError(
                f"strategy: {self.strategy} finds layers by trainings, which a supernet does not make; choose another "
                f"strategy, or ranking: halving"
            )
        if self.ranking == "supernet" and (self.training.token != "cls" or self.training.measured_tokens is not None):
            raise ValueError(
                "training.token and training.measured_tokens are not known to a supernet, whose layers are chosen "
                "once, before its training; leave them out, or set ranking: halving"
            )
        if self.training.choose_by != "headline" and (
            self.ranking == "supernet" or set(self.space.vocabulary) - {"whole"}
        ):
            raise ValueError(
                f"training.choose_by is {self.training.choose_by!r}, and shapes of a supernet or with a trimmed "
                f"vocabulary have the headline score alone, so that two metrics would be compared; leave choose_by "
                f"out, or set ranking: halving and space.vocabulary: [whole]"
            )
        return self

    @property
    def whole_supernet(self) -> SupernetKnobs:
        """The supernet of the space."""
        return SupernetKnobs(
            **dict(self.supernet),
            layers=self.space.layers,
            width=self.space.width,
            neurons=self.space.neurons,
            strategy=self.strategy,
            importance=self.importance,
        )

    def require_budget(self) -> tuple[Bound, ...]:
        """Return the budgets; raise ValueError if there is none, since the teacher itself would be the answer."""
        bounds = self.budget.bounds()
        if not bounds:
            raise ValueError(
                f"search has no budget; give at least one of {', '.join(UNITS)}, for example --budget latency_ms=2"
            )
        return bounds


class LatencySlice(Speed):
    """Knobs of a latency table."""

    task_type: TaskTypeName = Field(description="Type of the task.")
    depths: tuple[int, ...] = Field(description="The numbers of layers that are measured: the least and the most.")
    between: tuple[int, ...] = Field((), description="Other numbers of layers, on which the table is checked.")
    widths: tuple[float, ...] = Field((1.0,), description="Shares of the width.")
    neurons: tuple[float, ...] = Field((1.0,), description="Shares of the neurons.")
    formats: tuple[Format, ...] = Field(("torch",), description="Engines and formats.")
    checks: int = Field(12, ge=0, description="Shapes that are measured to check the table, and are no part of it.")
    flops_length: int = Field(128, ge=1, description="Input length at which FLOPs are stated.")
    seed: int = Field(0, ge=0, description="Seed of the choice of these shapes.")
