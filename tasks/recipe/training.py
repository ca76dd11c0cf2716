"""Training: steps, rates and batches, of a teacher, of the teachers of an ensemble, and of a model from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from re import fullmatch
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tasks.architectures.albert import groups_of
from tasks.errors import ModelError
from tasks.recipe.knobs import (
    LARGEST_INNER,
    LARGEST_LAYERS,
    LARGEST_VOCABULARY,
    LARGEST_WIDTH,
    MOST_PARAMETERS,
    Knobs,
    about_parameters,
    added_knob,
    runtime_knob,
)
from tasks.task_types.types import ERROR_METRICS

LEAST_BATCH_OF_LAMB = 1024
"""Smallest batch for which LAMB is accepted."""
LAMB_RATE, LAMB_BATCH = 1.76e-3, 4096
"""ALBERT's learning rate with LAMB, and the batch that it is for; that of another batch goes with its root."""
EVALUATIONS_OF_LAMB = 20
"""Evaluations with LAMB: a training that diverges stops after three of them."""
SHARINGS = "all|none|attention|ffn|groups:[1-9][0-9]*"
"""Legal ways to share layers."""


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
        "auto", description="auto: bfloat16 arithmetic where the hardware is faster with it."
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
        "masked_perplexity",
        "bits_per_byte",
        "average_precision",
        "squad_f1",
        "squad_exact",
        "bleu",
        "chrf",
        "rouge_1",
        "rouge_2",
        "rouge_l",
        "rouge_lsum",
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

    family: Literal["bert", "albert"] = added_knob("bert", "Architecture of the model.")
    embedding: int | None = added_knob(
        None,
        "With family: albert, the width of the embeddings; empty: 128, or the width of the model if that is less.",
        ge=8,
        le=LARGEST_WIDTH,
    )
    share: str | None = added_knob(
        None,
        "With family: albert, which layers share their weights: all, none, or groups:K; attention or ffn: all layers "
        "share that block, and each has its own other block; empty: all.",
    )
    order: Literal["none", "sop", "nsp"] = added_knob(
        "none",
        "What is learned beside words, from pairs of segments of a document: sop, whether they are swapped (ALBERT, "
        "arXiv:1909.11942); nsp, whether the second one is of another document (BERT).",
    )
    ngrams: int = added_knob(
        0,
        "Longest run of whole words that are predicted together, 3 in ALBERT's paper; 0: single tokens.",
        ge=0,
        le=8,
    )
    optimizer: Literal["adamw", "lamb"] = added_knob(
        "adamw",
        "lamb is for batches of 1,024 and more; its learning_rate, warmup and eps are the paper's unless stated.",
    )

    @model_validator(mode="before")
    @classmethod
    def with_defaults_of_lamb(cls, given: Any) -> Any:
        """Set the learning rate of the batch, warm-up and eps as in ALBERT's paper where LAMB is the optimizer, and
        enough evaluations to see that it diverges."""
        if not isinstance(given, dict) or given.get("optimizer") != "lamb":
            return given
        batch = given.get("batch_size", cls.model_fields["batch_size"].default)
        known = isinstance(batch, int | float) and batch > 0
        rate = {"learning_rate": float(f"{LAMB_RATE * (batch / LAMB_BATCH) ** 0.5:.4g}")} if known else {}
        return {**rate, "warmup": 0.025, "eps": 1e-6, "evaluations": EVALUATIONS_OF_LAMB, **given}

    @model_validator(mode="after")
    def can_be_built(self) -> Self:
        """Reject a shape that no machine could hold."""
        require_buildable(self.layers, self.hidden, self.feed_forward, self.vocabulary)
        return self

    @model_validator(mode="after")
    def is_of_its_family(self) -> Self:
        """Reject knobs of ALBERT for a BERT, and layers that cannot be shared so."""
        own = [knob for knob in ("embedding", "share") if getattr(self, knob) is not None]
        if own and self.family != "albert":
            raise ValueError(f"{own[0]} is a knob of ALBERT; set family: albert, or remove {own[0]}")
        if self.share is not None and not fullmatch(SHARINGS, self.share):
            raise ValueError(
                f"share is {self.share!r}; legal are {SHARINGS.replace('[1-9][0-9]*', 'N').replace('|', ', ')}"
            )
        if self.family == "albert":
            try:
                groups_of(self.share, self.layers)
            except ModelError as error:
                raise ValueError(str(error)) from error
        if self.embedding is not None and self.embedding > self.hidden:
            raise ValueError(
                f"embedding is {self.embedding}, and the layers are {self.hidden} wide (hidden); give it at most "
                f"{self.hidden}"
            )
        if self.hidden % self.heads:
            raise ValueError(f"hidden is {self.hidden} and does not divide among {self.heads} heads; choose a multiple")
        return self

    @model_validator(mode="after")
    def has_a_large_batch(self) -> Self:
        """Reject LAMB with a batch for which its rates are not made, or that batch_tokens would cut."""
        if self.optimizer != "lamb":
            return self
        if self.batch_size < LEAST_BATCH_OF_LAMB:
            raise ValueError(
                f"optimizer: lamb is for batches of {LEAST_BATCH_OF_LAMB:,} and more, and batch_size is "
                f"{self.batch_size}, where it often diverges; use optimizer: adamw, or a larger batch_size"
            )
        if self.batch_tokens < self.batch_size * self.max_length:
            raise ValueError(
                f"batch_tokens is {self.batch_tokens:,}, which would cut the batches of {self.batch_size:,} texts for "
                f"which LAMB's rate is; set batch_tokens to {self.batch_size * self.max_length:,} (batch_size times "
                f"max_length)"
            )
        return self


def sharing_of(section: Pretraining) -> str:
    """Return what layers of a pretrained model share: ``share``, or its default; empty for a BERT."""
    return "" if section.family != "albert" else section.share or "all"


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
        "Minimum headline score on the selection rows, or the largest one of an error; empty: the majority class plus "
        "5 points, by an interval on fewer than 200 rows.",
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


def require_reachable_floors(teachers: Mapping[str, Teacher], headline: str) -> None:
    """Raise ValueError for a floor that no score of teachers, by their places in a recipe, reaches: one above 1, or a
    negative one where the ``headline`` is an error, whose floor is the largest value that is allowed."""
    for where, teacher in teachers.items():
        floor = teacher.floor
        if floor is not None and floor > 1 and headline not in ERROR_METRICS:
            raise ValueError(
                f"{where}.floor is {floor:g}, and {headline} is at most 1; state it as a share, such as 0.9"
            )
        if floor is not None and floor < 0 and headline in ERROR_METRICS:
            raise ValueError(
                f"{where}.floor is {floor:g}, and {headline} is an error, which is at least 0; state the largest one "
                f"that is allowed"
            )
