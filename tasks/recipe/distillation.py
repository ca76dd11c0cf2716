"""The phases of distillation: on general text, of inner layers on the task, of predictions on the task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tasks.recipe.data import Sampling
from tasks.recipe.knobs import Knobs, added_knob, runtime_knob
from tasks.recipe.methods import (
    AttentionOutputs,
    ByMethod,
    FeatureMaps,
    Matching,
    Relations,
    Replacing,
    SelfAttention,
    Triple,
)
from tasks.recipe.training import SeededTraining, TaskTraining

Formula = Literal[
    "default",
    "paper",
    "margins",
    "scores",
    "lists",
    "reverse",
    "jensen-shannon",
    "jensen-shannon(0.1)",
    "jensen-shannon(0.9)",
]
"""The formulas of last phases; in brackets beta, the teacher's share of a mixture."""
Signal = Literal["teacher", "labels", "sequence", "interpolated"]
WRITTEN_SIGNALS: tuple[Signal, ...] = ("sequence", "interpolated")
"""Signals that are the teacher's own texts."""
SIGNALS = (
    "Training signal of the prediction phase: teacher (its predictions; of seq2seq those at each place of the true "
    "text) or labels. Of seq2seq and chats also sequence (the teacher's own texts, or answers, in place of the true "
    "ones; the student may have another tokenizer); of seq2seq interpolated (of the texts in its beam the one nearest "
    "to the true one)."
)


class Generation(Knobs):
    """How models of type seq2seq write the texts that are judged, and the teacher those that students learn; of type
    chats the teacher alone (signal: sequence)."""

    beams: int = Field(5, ge=1, le=64, description="Texts that are continued side by side; 1: the likeliest word.")
    length_penalty: float = Field(
        1.0, ge=-5, le=5, description="Exponent of the length by which a text's log-likelihood is divided."
    )
    max_length: int = Field(
        128,
        ge=1,
        le=4096,
        description="Tokens of a written text, at most; a model's own minimum is not followed.",
    )


class GeneralDistillation(ByMethod, SeededTraining):
    """Distil the pretrained teacher on general text, independently of the task."""

    method: Literal["relations", "layers", "triple", "self-attention", "feature-maps"] = Field(
        "relations",
        description="relations (MiniLM v2), layers (TinyBERT), triple (DistilBERT), self-attention (MiniLM) or "
        "feature-maps (MobileBERT).",
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the corpus.")
    learning_rate: float = Field(
        5e-4, gt=0, le=1, description="Peak learning rate; small students take more than BERT's 5e-5."
    )
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student.")
    relations: Relations = Field(Relations(), description="Distilled relations, with method: relations.")
    matching: Matching = Field(Matching(), description="Distilled layers, with method: layers.")
    triple: Triple = Field(Triple(), description="The three losses, with method: triple.")
    self_attention: SelfAttention = Field(
        SelfAttention(), description="Distilled attention, with method: self-attention."
    )
    feature_maps: FeatureMaps = Field(
        FeatureMaps(), description="Distilled layers and words, with method: feature-maps."
    )

    @property
    def predicts_words(self) -> bool:
        """Whether the method predicts words, so that both models have a masked-LM head."""
        return self.method == "triple" or (self.method == "feature-maps" and self.feature_maps.predictions > 0)


class Intermediate(ByMethod):
    """First phase of task distillation: copy the inner layers of the fine-tuned teacher (TinyBERT,
    arXiv:1909.10351)."""

    method: Literal["layers", "relations", "replacing", "self-attention", "feature-maps", "attention-outputs"] = Field(
        "layers",
        description="layers (TinyBERT), relations (MiniLM v2), replacing (BERT-of-Theseus), self-attention (MiniLM), "
        "feature-maps (MobileBERT) or attention-outputs (other attentions, LoLCATs).",
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the training rows.")
    learning_rate: float = Field(3e-4, gt=0, le=1, description="Peak learning rate.")
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student.")
    matching: Matching = Field(Matching(), description="Distilled layers, with method: layers.")
    relations: Relations = Field(Relations(), description="Distilled relations, with method: relations.")
    replacing: Replacing = Field(Replacing(), description="How layers are replaced, with method: replacing.")
    self_attention: SelfAttention = Field(
        SelfAttention(), description="Distilled attention, with method: self-attention."
    )
    feature_maps: FeatureMaps = Field(
        FeatureMaps(), description="Distilled layers, with method: feature-maps; on labelled rows, no words."
    )
    attention_outputs: AttentionOutputs = Field(
        AttentionOutputs(), description="Distilled attention blocks, with method: attention-outputs; it has no knobs."
    )
    sampling: Sampling = Field(
        Sampling(), description="How substitutes are sampled, where the student uses augmentation."
    )


class Patience(Knobs):
    """Distil the teacher's summary token, layer by layer, in addition to its predictions (Sun et al. 2019, PKD,
    arXiv:1908.09355)."""

    weight: float = Field(
        100.0, gt=0, description="Weight relative to the loss on predictions; the paper uses 10 to 1000."
    )
    layer_map: Literal["skip", "last"] = Field(
        "skip", description="Teacher layers: evenly spread, or the last ones. The student's last layer is not included."
    )
    normalise: bool = Field(True, description="Normalise the states, so that only directions are compared.")


class Prediction(TaskTraining):
    """Second phase of task distillation: learn the teacher's softened predictions (Hinton et al. 2015,
    arXiv:1503.02531)."""

    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the training rows.")
    learning_rate: float = Field(
        1e-4, gt=0, le=1, description="Peak learning rate; small students take more than the teacher."
    )
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student; none is also fastest on a CPU.")
    temperature: float = Field(2.0, gt=0, description="Divides both logits; 1 means no softening, 2 to 8 is usual.")
    hard_weight: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Weight of the true labels relative to the teacher's predictions. Of retrieval: of queries that "
        "find their passage among those of the batch; batch_size then counts pairs.",
    )
    formula: Formula = Field(
        "default",
        description="paper: the reference's mean over classes, without the factor T squared. Of ranking: margins, the "
        "differences of scores within a query (its default), scores, or lists, the softened shares of a query's texts. "
        "Of next and masked words, and of texts to write: reverse KL (MiniLLM) or the Jensen-Shannon divergence (GKD) "
        "in place of forward KL; in brackets its beta, the teacher's share of the mixture, one half without.",
    )
    patience: Patience | None = Field(
        None, description="Distil the teacher's summary token in addition to its predictions; empty: disabled."
    )
    sampling: Sampling = Field(
        Sampling(), description="How substitutes are sampled, where the student uses augmentation."
    )


class TaskDistillation(Knobs):
    """The two phases of task distillation; an omitted phase is skipped."""

    intermediate: Intermediate | None = Field(None, description="First phase; empty: skipped.")
    prediction: Prediction = Field(Prediction(), description="Second phase.")
    keep_signals: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Run the teacher once and store its inner layers for the first phase of all students and seeds of "
        "one layer map; augmented variants are computed while a student learns. auto: if these trainings read each "
        "row at least 1.5 times in all; always: also if they read it once. Either needs room on the disk, and a CPU.",
    )
    signal_budget_gb: float = runtime_knob(
        100.0,
        "Maximum size in gigabytes of the stored layers of one map; they never take more than a third of the free "
        "disk. Beyond either the teacher runs during training. Also that of a teacher's kept words for one "
        "temperature; a run that would keep more is refused.",
        gt=0,
    )
    signal_bits: Literal[16, 8] = Field(
        16, description="Bits of a stored value. 8 takes half the space; its effect on quality is not measured."
    )

    answers: Literal["kept", "live"] = added_knob(
        "kept",
        "Of next and masked words: kept, the teacher reads each text once, and its answers are stored; live, it runs "
        "beside its students in every step, and nothing is stored.",
    )
    kept_words: int = added_knob(
        64,
        "Of next and masked words: the likeliest words of each answer of the teacher that are stored, with the mass of "
        "all others. More words take more room.",
        ge=1,
    )
    answer_bits: Literal[16, 32] = added_knob(16, "Of next and masked words: bits of each stored logarithm.")

    def can_keep(self, phase: Intermediate) -> bool:
        """Tell whether a first phase can read stored teacher layers at all; a live teacher stores none."""
        stored = phase.method == "layers" and phase.matching.formula == "masked" and phase.matching.layer_map != "kept"
        return stored and self.keep_signals != "never" and self.answers == "kept"
