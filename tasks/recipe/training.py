"""Training: steps, rates and batches, of a teacher, of the teachers of an ensemble, and of a model from scratch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from tasks.recipe.knobs import (
    LARGEST_INNER,
    LARGEST_LAYERS,
    LARGEST_VOCABULARY,
    LARGEST_WIDTH,
    MOST_PARAMETERS,
    Knobs,
    about_parameters,
    runtime_knob,
)


class Training(Knobs):
    """Settings of every training; the sections below add their own."""

    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the data; ignored where steps is given.")
    steps: int | None = Field(None, ge=1, description="Optimizer steps, a budget that does not grow with the data.")
    batch_size: int = Field(32, ge=1, description="Examples in a batch.")
    batch_tokens: int = Field(
        8192, ge=32, description="Maximum number of tokens (padding included) in a batch: limits memory for long texts."
    )
    learning_rate: float = Field(5e-5, gt=0, le=1, description="Peak learning rate of AdamW.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps with learning-rate warm-up.")
    schedule: Literal["linear", "constant"] = Field("linear", description="Learning rate after warm-up.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay; not on biases and norms.")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's beta1, the decay of the mean of gradients.")
    beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's beta2, the decay of the mean of squared gradients.")
    eps: float = Field(1e-8, gt=0, le=1, description="Added to AdamW's denominator; BERT's own code has 1e-6.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    dropout: float | None = Field(None, ge=0, lt=1, description="Dropout while training; empty keeps the model's own.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="auto: bfloat16 arithmetic where the hardware has it."
    )
    max_length: int = Field(128, ge=8, le=8192, description="Longest input in tokens; truncation is reported.")
    evaluations: int = Field(
        4,
        ge=0,
        description="Number of evaluations on the selection rows; the best checkpoint is used. 0 uses the last.",
    )
    checkpoint_minutes: float = runtime_knob(
        5.0, "Minutes between the checkpoints that an interrupted stage resumes from.", gt=0
    )


def require_buildable(layers: int, hidden: int, feed_forward: int, vocabulary: int = 0) -> None:
    """Raise ValueError for a shape that would take a machine hours to build, or all of its memory."""
    parameters = about_parameters(layers, hidden, feed_forward, vocabulary * hidden)
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"layers, hidden and feed_forward make a model of {parameters:.2g} parameters, and at most "
            f"{MOST_PARAMETERS:.0g} are legal"
        )


class TaskTraining(Training):
    """A training on the task; its checkpoints are scored by their predictions on the selection rows."""

    choose_by: Literal[
        "headline",
        "accuracy",
        "f1",
        "macro_f1",
        "balanced_accuracy",
        "matthews",
        "macro_f1_accuracy",
        "group_exact",
        "group_f1",
        "f1_group_exact",
        "group_parity",
        "pearson",
        "spearman",
        "pearson_spearman",
        "mse",
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "micro_f1",
        "label_macro_f1",
        "subset_accuracy",
        "ndcg_at_10",
        "mrr_at_10",
        "recall_at_1",
        "recall_at_10",
        "recall_at_100",
        "word_perplexity",
        "token_perplexity",
        "bits_per_byte",
        "average_precision",
        "squad_f1",
        "squad_exact",
    ] = Field(
        "headline",
        description="Metric that chooses the best checkpoint on the selection rows; headline: the headline "
        "metric of the task.",
    )


class SeededTraining(Training):
    """A training with one seed of its own; students and dropped models have a list of seeds instead."""

    seed: int = Field(0, ge=0, description="Seed of initialisation, order and dropout.")


class Pretraining(SeededTraining):
    """Train a small masked language model on the corpus first (for the demo, or a language of your own)."""

    layers: int = Field(4, ge=1, le=LARGEST_LAYERS, description="Transformer layers.")
    hidden: int = Field(128, ge=8, le=LARGEST_WIDTH, description="Width.")
    heads: int = Field(4, ge=1, le=LARGEST_WIDTH, description="Attention heads.")
    feed_forward: int = Field(512, ge=8, le=LARGEST_INNER, description="Inner width of the feed-forward blocks.")
    vocabulary: int = Field(
        2000, ge=100, le=LARGEST_VOCABULARY, description="WordPiece vocabulary learned from the corpus."
    )
    mask_share: float = Field(
        0.15, gt=0, lt=1, description="Share of tokens that are predicted (Devlin et al. 2018, arXiv:1810.04805)."
    )

    @model_validator(mode="after")
    def can_be_built(self) -> Self:
        """Reject a shape that no machine could hold."""
        require_buildable(self.layers, self.hidden, self.feed_forward, self.vocabulary)
        return self


class Teacher(SeededTraining, TaskTraining):
    """The large model: pretrained, fine-tuned on the task, then distilled into the small ones."""

    model: str = runtime_knob("google-bert/bert-base-uncased", "A hub id or a folder of a pretrained encoder.")
    revision: str | None = runtime_knob(None, "Hub revision (a commit), for a hub id.")
    already_finetuned: bool = Field(
        False, description="The model has a trained head for this task and is used without training."
    )
    licence: str = runtime_knob("unknown", "Licence of the teacher's weights, for the model card.")
    floor: float | None = runtime_knob(
        None,
        "Minimum headline score on the selection rows; empty: the majority class plus 5 points, by an interval on "
        "fewer than 200 rows.",
        le=1,
    )
    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the training rows.")
    learning_rate: float = Field(
        3e-5, gt=0, le=1, description="Peak learning rate; 2e-5 to 5e-5 is usual for BERT-base."
    )


class Colleague(Teacher):
    """An additional teacher of an ensemble."""

    weight: float = Field(1.0, gt=0, description="Its weight in the mixture; the first teacher's is 1.")


class Ensemble(Knobs):
    """Several teachers predict, and students learn from the mixture of their predictions (Hinton et al. 2015,
    arXiv:1503.02531)."""

    teachers: tuple[Colleague, ...] = Field(min_length=1, description="The further teachers.")
    combine: Literal["weights", "certainty"] = Field(
        "weights", description="By weights, or by weight times each teacher's certainty for the row."
    )
