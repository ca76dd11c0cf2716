"""The section of a recipe on trials: how to train one shape, for people who do not know which method to take.

Method: successive halving, Jamieson and Talwalkar 2015, arXiv:1502.07943, over starts, methods and rates.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import Knobs, require_distinct
from tasks.recipe.students import Shape, require_start

Rate = Annotated[float, Field(gt=0, le=1)]
TriedMethod = Literal["answers", "labels", "layers", "relations", "self-attention", "replacing"]
"""What a student learns from: the teacher's answers or labels alone, or first its inner layers by a method."""


class Trial(NamedTuple):
    """One way to train the shape."""

    start: str
    method: TriedMethod
    learning_rate: float
    augmented: bool = False

    @property
    def name(self) -> str:
        """Its name as a candidate, for example teacher-layers-12e-5."""
        _, digits, exponent = Decimal(repr(self.learning_rate)).normalize().as_tuple()
        rate = f"{''.join(map(str, digits))}e{exponent}"
        texts = ("augmented",) if self.augmented else ()
        return "-".join([self.start, self.method, rate, *texts]).replace("/", "-").replace(".", "-")

    @property
    def cost(self) -> tuple[str, bool]:
        """What its seconds a step depend on: the teacher answers replaced words while a student learns."""
        return self.method, self.augmented

    @property
    def inner_phase(self) -> tuple[str, str, bool] | None:
        """What its phase on inner layers depends on, which ways of several learning rates share; None without one."""
        return None if self.method in ("answers", "labels") else (self.start, self.method, self.augmented)


class RecipeTrials(Knobs):
    """Find how to train one shape: limbeck search tries starts, methods and learning rates for a part of the steps, and
    the better third goes on, until the minutes of training are spent; the best are candidates."""

    shape: Shape = Field(description="The student's architecture.")
    starts: tuple[str, ...] = Field(
        ("teacher", "contribution", "random"), min_length=1, description="Initialisations; as start of students."
    )
    methods: tuple[TriedMethod, ...] = Field(
        ("answers", "layers", "relations"),
        min_length=1,
        description="answers: the teacher's predictions alone; labels: no teacher; layers, relations, self-attention, "
        "replacing: half of the steps on the teacher's inner layers by this method, the others on its predictions.",
    )
    learning_rates: tuple[Rate, ...] = Field(
        (5e-5, 1e-4, 3e-4), min_length=1, description="Peak learning rates of the last phase."
    )
    augmentation: tuple[bool, ...] = Field(
        (False,),
        min_length=1,
        description="Whether words of the training rows are replaced, by the recipe's section augmentation: [false, "
        "true] tries both. With labels alone rows stay as they are.",
    )
    steps: int = Field(600, ge=2, description="Steps of a whole training, of both phases together.")
    minutes: float = Field(
        30.0,
        gt=0,
        description="Minutes of training that the trials may take, on the processor that trains them; the candidates "
        "are trained in any case.",
    )
    rounds: int = Field(
        3, ge=2, le=6, description="Rounds: each trains the better third for three times the steps, the last for all."
    )
    candidates: int = Field(1, ge=1, le=10, description="Ways that are trained fully, scored and judged by the gate.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training of each candidate per seed; trials take the first."
    )
    seed: int = Field(0, ge=0, description="Seed of the choice of trials where not all fit the minutes.")

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """Reject repeated values, a misspelt start, and choices that leave no way."""
        for what in ("starts", "methods", "learning_rates", "augmentation", "seeds"):
            require_distinct(getattr(self, what), what)
        for start in self.starts:
            require_start("of trials", start)
        if not self.all_trials:
            raise ValueError(
                "augmentation is [true] and methods is [labels], which reads rows as they are; add false to "
                "augmentation, or another method"
            )
        return self

    @property
    def all_trials(self) -> list[Trial]:
        """Every way to train the shape, the first values of each choice first."""
        every = product(self.starts, self.methods, self.learning_rates, self.augmentation)
        return [one for one in map(Trial._make, every) if not (one.augmented and one.method == "labels")]
