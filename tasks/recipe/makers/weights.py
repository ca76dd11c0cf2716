"""Candidates of which single weights are set to 0 while they are trained."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.distillation import Prediction
from tasks.recipe.knobs import Knobs, added_knob
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.training import TaskTraining

RANKED_IN_GROUPS = ("magnitude", "random")
"""The scores by which a pattern of zeros is chosen; those of movement begin equal, and learn a share."""


class MaskKnobs(Knobs):
    """Which weights of the matrices of all layers are set to 0, and when."""

    keep: float = Field(0.5, gt=0, lt=1, description="Share of the weights of all layers' matrices that stay.")
    scores: Literal["magnitude", "movement", "soft-movement", "random"] = Field(
        "magnitude",
        description="magnitude: large weights stay; movement: weights that the training moves away from 0 stay; "
        "soft-movement: the same with a threshold and a pressure instead of a rank; random: the control that the "
        "others have to beat.",
    )
    scope: Literal["global", "matrix"] = Field(
        "global", description="global: weights are ranked over all matrices; matrix: in each, as in the papers' code."
    )
    pattern: Literal["unstructured", "2:4"] = added_knob(
        "unstructured",
        "unstructured: zeros stand anywhere; 2:4: two of every four consecutive weights of a row, which belongs to an "
        "output, are 0, as sparse tensor cores of GPUs read them. Nothing is faster by it on a CPU.",
    )
    every: int = Field(20, ge=1, description="Steps between two choices of the weights.")
    begin: float = Field(0.0, ge=0, lt=1, description="Share of the steps before the first weight goes.")
    end: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Share of the steps after which the last weight goes; the rest is trained with them.",
    )
    score_rate: float = Field(1e-2, gt=0, description="Learning rate of the scores of soft-movement.")
    pressure: float = Field(
        400.0, ge=0, description="Weight of the mean score in the loss of soft-movement, at the end of the ramp."
    )


class SparseCandidate(MaskKnobs, CandidateKnobs):
    """A model with zeros: while it is trained, a growing share of the weights of its layers is set to 0 (Zhu, Gupta
    2017, arXiv:1710.01878; Sanh et al. 2020, arXiv:2005.07683), anywhere or two of every four (Mishra et al. 2021,
    arXiv:2104.08378). Its file has the size as before and becomes small when it is packed; it is not faster. Nothing
    that is made from it may train it again."""

    by: Literal["weight-pruning"] = Field(description="The maker.")
    signal: Literal["teacher", "labels"] = Field("teacher", description="Training signal.")
    prediction: Prediction | None = Field(
        None,
        description="Its training, instead of the recipe's second phase. The weights of the last step are used, since "
        "earlier ones have fewer zeros.",
    )

    @model_validator(mode="after")
    def ramp_has_a_length(self) -> Self:
        """Reject a ramp that ends where it begins."""
        if self.end <= self.begin:
            raise ValueError(
                f"candidate {self.name} loses weights from begin: {self.begin} to end: {self.end} of its steps; let "
                f"the end be behind the beginning, for example begin: 0 and end: 0.7"
            )
        return self

    @model_validator(mode="after")
    def pattern_is_possible(self) -> Self:
        """Reject another share than the half that 2:4 leaves, and scores that do not rank the weights of a group."""
        if not self.has_pattern:
            return self
        if self.keep != 0.5:
            raise ValueError(
                f"candidate {self.name} keeps two of every four weights (pattern: 2:4), which is keep: 0.5, and it has "
                f"keep: {self.keep:g}; remove keep, or use pattern: unstructured"
            )
        if self.scores not in RANKED_IN_GROUPS:
            raise ValueError(
                f"candidate {self.name}: pattern 2:4 is chosen by {' or '.join(RANKED_IN_GROUPS)}, and scores is "
                f"{self.scores}; remove scores, or use pattern: unstructured"
            )
        return self

    @property
    def has_pattern(self) -> bool:
        """Two of every four weights are 0."""
        return self.pattern == "2:4"

    @property
    def as_control(self) -> tuple[str, str]:
        """Weights chosen at random."""
        return "scores", "random"

    @property
    def planned_role(self) -> str:
        """A model with zeros."""
        return "sparse"

    @property
    def signal_of_training(self) -> str:
        """The teacher, or labels."""
        return self.signal

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its training, where it has one of its own."""
        return {"prediction": self.prediction} if self.prediction is not None else {}

    @property
    def has_zeros(self) -> bool:
        """Single weights are 0."""
        return True


SHARES = ("keep", "rounds", "of")
"""The knobs of a lottery that determine the share of weights in each round."""


class TicketKnobs(Knobs):
    """What a round of a lottery begins with."""

    rewind_to: int = Field(
        0, ge=0, description="Step of the first training whose weights are those of a ticket; 0: before the first step."
    )
    control: Literal["ticket", "dense", "random-weights", "random-mask", "one-shot"] = Field(
        "ticket",
        description="ticket; or a control: dense (no weight goes), random-weights (the ticket's mask, other weights), "
        "random-mask (as many other weights of each matrix stay), one-shot (the mask of one round).",
    )


class LotteryCandidate(TicketKnobs, CandidateKnobs):
    """A lottery ticket (Frankle, Carbin 2018, arXiv:1803.03635): a model is trained and loses weights in rounds, each
    of which begins with the weights of the same early step. Candidates that differ in their control share the rounds.
    """

    by: Literal["lottery-ticket"] = Field(description="The maker.")
    keep: float = Field(0.5, gt=0, lt=1, description="Share of the weights of all layers' matrices that stay.")
    rounds: int = Field(3, ge=1, le=30, description="Rounds of training and pruning before the last training.")
    of: Literal["left", "original"] = Field(
        "left", description="left: each round takes the same share of what is left; original: of all weights (BERT)."
    )
    signal: Literal["teacher", "labels"] = Field("labels", description="Training signal.")
    prediction: Prediction | None = Field(
        None,
        description="The training of each round, instead of the recipe's second phase. The weights of its last step "
        "are used.",
    )

    @property
    def planned_role(self) -> str:
        """A model with zeros, or a control."""
        return "sparse" if self.control == "ticket" else "baseline"

    @property
    def signal_of_training(self) -> str:
        """The teacher, or labels."""
        return self.signal

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its training, where it has one of its own."""
        return {"prediction": self.prediction} if self.prediction is not None else {}

    @property
    def has_zeros(self) -> bool:
        """Single weights are 0, but of the dense control."""
        return self.control != "dense"

    def is_control_of(self, other: CandidateKnobs) -> bool:
        """Return whether it differs from a ticket in its control alone; a dense model may have any share, and one of
        one shot any rounds."""
        if not isinstance(other, LotteryCandidate) or other.control != "ticket":
            return False
        free = {"dense": ("keep", "rounds", "of"), "one-shot": ("rounds", "of")}.get(self.control, ())
        same = ("made_from", "signal", "prediction", "rewind_to", *(one for one in SHARES if one not in free))
        return self.control != "ticket" and all(getattr(self, one) == getattr(other, one) for one in same)

    @property
    def share_of_rounds(self) -> list[float]:
        """The share of the weights in each training after the first one."""
        if self.control == "dense":
            return []
        if self.control == "one-shot":
            return [self.keep]
        return [share_after(number, self.rounds, self.keep, self.of) for number in range(1, self.rounds + 1)]


def share_after(number: int, rounds: int, keep: float, of: str) -> float:
    """Return the share of the weights that is left after round ``number`` of ``rounds``, the last of which leaves
    ``keep``: each round takes the same share of what is ``left``, or of the ``original`` weights."""
    return keep ** (number / rounds) if of == "left" else 1 - (1 - keep) * number / rounds
