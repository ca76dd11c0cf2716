"""Recipe section on dropped models: which layers go, and how those that remain are trained."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import Choices, require_distinct
from tasks.recipe.students import STRATEGY_NAMES
from tasks.recipe.training import TaskTraining


class DroppedTraining(TaskTraining):
    """The training of a model of which layers were removed."""

    signal: Literal["labels", "teacher"] = Field("labels", description="Training signal of the dropped model.")
    token: Literal["cls", "mean"] = Field(
        "cls", description="Tokens at which the contribution strategy compares a layer's input and output."
    )
    measured_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens that the contribution strategy reads, of selection rows and then of training rows; empty: "
        "those of 500 rows, or 100,000 of documents and chats.",
    )
    temperature: float = Field(2.0, gt=0, description="Temperature, with signal: teacher.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels, with signal: teacher.")
    learning_rate: float = Field(5e-5, gt=0, le=1, description="Peak learning rate.")


class MayStayUntrained(DroppedTraining):
    """The training of a model of which layers were removed; without a step, it is scored as it was cut."""

    steps: int | None = Field(
        None, ge=0, description="Optimizer steps, a budget that does not grow with the data; 0: scored as it was cut."
    )

    @model_validator(mode="after")
    def needs_no_answers(self) -> Self:
        """Reject a teacher's answers where nothing learns."""
        if self.steps == 0 and self.signal == "teacher":
            raise ValueError(
                "steps is 0, so that nothing learns the teacher's answers; set signal: labels, or more steps"
            )
        return self


class LayerDropping(MayStayUntrained):
    """Remove whole layers, then train the remaining model (Sajjad et al. 2020, Poor Man's BERT, arXiv:2004.03844)."""

    strategies: tuple[Annotated[str, Choices(*STRATEGY_NAMES)], ...] = Field(
        ("top",), min_length=1, description=f"{', '.join(STRATEGY_NAMES)}."
    )
    drop: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (2,), min_length=1, description="Numbers of layers to remove; each gives its own models."
    )
    after_finetuning: bool = Field(False, description="Drop from the fine-tuned teacher instead of the pretrained one.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1, description="One training per seed.")

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """Reject repeated values: they would be trained once and counted twice."""
        for what in ("strategies", "drop", "seeds"):
            require_distinct(getattr(self, what), what)
        return self
