"""Candidates that are made smaller, and trained only between the rounds of iterative pruning: fewer pieces in the
vocabulary, fewer neurons, a smaller width, fewer attention heads."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.distillation import Prediction
from tasks.recipe.knobs import LARGEST_VOCABULARY, require_distinct
from tasks.recipe.makers.candidate_knobs import CandidateKnobs, CutKnobs
from tasks.recipe.training import TaskTraining

STEPS_BETWEEN_ROUNDS = 100
LENGTH_OF_SCORE = (
    "Longest input in tokens, for its score on the selection rows and what is measured; empty: that of "
    "task_distillation.prediction."
)


class TrimmedCandidate(CandidateKnobs):
    """A model whose tokenizer and embeddings have only the pieces that a text uses; not trained again. Texts of these
    pieces are divided, and answered, as before. A distillation from it may compare layers, on the rows that it divides
    as its teacher does."""

    by: Literal["vocabulary-trimming"] = Field(description="The maker.")
    keep: Literal["used"] | Annotated[int, Field(ge=1, le=LARGEST_VOCABULARY)] = Field(
        "used", description="used: all pieces that are found in the text; or a number: the most frequent of them."
    )
    of: tuple[Literal["train", "transfer", "corpus"], ...] = Field(
        ("train", "transfer", "corpus"),
        min_length=1,
        description="Texts in which pieces are counted, as far as the recipe has them. With a corpus, rows count ten "
        "times. Rows that are held back are never read.",
    )
    floor: int = Field(1, ge=1, description="Minimum number of times that a piece must be found.")
    max_length: int | None = Field(None, ge=8, le=8192, description=LENGTH_OF_SCORE)

    @model_validator(mode="after")
    def texts_differ(self) -> Self:
        """Reject repeated texts."""
        require_distinct(self.of, "of")
        return self

    @property
    def planned_role(self) -> str:
        """A model with a smaller vocabulary."""
        return "trimmed"

    @property
    def has_own_tokenizer(self) -> bool:
        """True: it has fewer pieces."""
        return True


class ImportanceKnobs(CutKnobs):
    """Knobs of pruning by importance: its rows, and its rounds."""

    rows: int = Field(512, ge=1, le=100_000, description="Training rows on which taylor and activation are measured.")
    max_length: int | None = Field(None, ge=8, le=8192, description=LENGTH_OF_SCORE)
    rounds: int = Field(
        1,
        ge=1,
        le=20,
        description="Rounds in which it is removed, the same share in each; between two rounds the model learns the "
        "teacher's predictions. For strong ratios.",
    )
    between: Prediction | None = Field(
        None, description="Training between two rounds; empty: 100 steps of the second phase's defaults."
    )

    @model_validator(mode="after")
    def trains_between_rounds(self) -> Self:
        """Reject a training between rounds where there is one round."""
        if self.between is not None and self.rounds == 1:
            raise ValueError(
                f"candidate {self.name} is trained between rounds, and has one round; set rounds: 3, or remove between"
            )
        return self

    @property
    def changes_each_layer(self) -> bool:
        """Layer by layer."""
        return True

    @property
    def takes_columns(self) -> bool:
        """Those that read what it removes."""
        return True

    @property
    def planned_between(self) -> Prediction:
        """The training between two rounds."""
        return self.between or Prediction(steps=STEPS_BETWEEN_ROUNDS)

    @property
    def signal_of_training(self) -> str:
        """The teacher, where there are several rounds."""
        return "teacher" if self.rounds > 1 else ""

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """The training between rounds, where there are several."""
        return {"between": self.planned_between} if self.rounds > 1 else {}


class PrunedCandidate(ImportanceKnobs):
    """A model whose feed-forward blocks have fewer neurons, the same number in every layer; not trained again. A
    distillation from it is the next entry of a chain."""

    by: Literal["neuron-pruning"] = Field(description="The maker.")
    keep: float = Field(0.5, gt=0, lt=1, description="Share of the neurons that stay, rounded to a multiple of 32.")
    importance: Literal["taylor", "activation", "magnitude", "random"] = Field(
        "taylor",
        description="taylor: change of the loss on training rows if a neuron were removed; activation: its mean "
        "activation on them; magnitude: its weights; random: the control that the others have to beat.",
    )

    @property
    def as_control(self) -> tuple[str, str]:
        """Chosen at random."""
        return "importance", "random"

    @property
    def changes_each_layer(self) -> bool:
        """A block that layers share is cut once."""
        return False

    @property
    def role_by_maker(self) -> str:
        """A model with fewer neurons."""
        return "pruned"


class NarrowedCandidate(ImportanceKnobs):
    """A model whose hidden states have fewer dimensions, the same in every layer, and whose layers have fewer attention
    heads of the size as before; not trained again. More is lost than with fewer neurons: distil it as the next entry of
    a chain."""

    by: Literal["width-pruning"] = Field(description="The maker.")
    keep: float = Field(
        2 / 3,
        gt=0,
        lt=1,
        description="Share of the heads that stay, rounded to whole heads; the width is that many times the size of a "
        "head.",
    )
    importance: Literal["taylor", "activation", "magnitude", "random"] = Field(
        "taylor",
        description="taylor: change of the loss on training rows if a dimension or a head were removed; activation: "
        "mean activations on them; magnitude: weights; random: the control that the others have to beat.",
    )

    @property
    def as_control(self) -> tuple[str, str]:
        """Chosen at random."""
        return "importance", "random"

    @property
    def role_by_maker(self) -> str:
        """A model of a smaller width."""
        return "narrowed"

    def width_and_heads(self, width: int, heads: int) -> tuple[int, int]:
        """Return its share of the heads, each as large as before."""
        kept = max(1, round(heads * self.keep))
        return width // heads * kept, kept


class HeadsCandidate(CandidateKnobs):
    """A model with fewer attention heads, perhaps other numbers of them in its layers; not trained again. No plain
    folder states that, so the folder keeps the shape, with zeros as the weights of the other heads, and graphs leave
    them out. A distillation from it is the next entry of a chain, and lets the zeros be."""

    by: Literal["head-pruning"] = Field(description="The maker.")
    keep: float = Field(0.5, gt=0, lt=1, description="Share of the heads that stay, at least one in each layer.")
    scope: Literal["global", "layer"] = Field(
        "global",
        description="global: heads of all layers are compared, each layer's in units of its norm; layer: the same "
        "share of each layer.",
    )
    importance: Literal["taylor", "activation", "magnitude", "random"] = Field(
        "taylor",
        description="taylor: change of the loss on training rows if a head were removed; activation: mean activations "
        "on them; magnitude: weights; random: the control that the others have to beat.",
    )
    rows: int = Field(512, ge=1, le=100_000, description="Training rows on which taylor and activation are measured.")
    max_length: int | None = Field(None, ge=8, le=8192, description=LENGTH_OF_SCORE)

    @property
    def as_control(self) -> tuple[str, str]:
        """Chosen at random."""
        return "importance", "random"

    @property
    def planned_role(self) -> str:
        """A model with fewer heads."""
        return "fewer-heads"

    @property
    def changes_each_layer(self) -> bool:
        """Layer by layer."""
        return True

    @property
    def has_silent_heads(self) -> bool:
        """Those that are pruned."""
        return True
