"""The knobs: one strict model per stage. A recipe is YAML that becomes a ``Recipe``; each stage receives its own slice and nothing else.

A knob made with ``semantic=False`` changes how a stage runs, never what it makes, and is left out of the stage's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from tasks.catalog import GLUE, JUDGING_SETS, TaskSpec, glue_task
from tasks.errors import ModelError
from tasks.families import HIDDEN, MOST_PARAMETERS, SCORES, STATES, about_parameters, require_alone, require_global, require_signal, require_words

NAME = r"^[a-z0-9][a-z0-9._-]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=60)]
BLOCK = r"^[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9-]*$"
"""How Prefect names a saved block: its type and its name."""
STRATEGIES = ("top", "bottom", "alternate-odd", "alternate-even", "symmetric", "contribution")
OWN_LAYERS = ("teacher", *STRATEGIES)
"""Starts that are the teacher, or the model that it was fine-tuned from, with layers left out."""
LAYER_STARTS = (*OWN_LAYERS, "distilbert")
"""Starts that take whole layers, be it into another architecture."""
STARTS_BY_NAME = (*LAYER_STARTS, "embeddings", "random")
FIGURES = ("retained", "parameters", "bytes", "flops", "latency_ms", "speedup", "memory_bytes")
COSTS = ("kwh", "co2e_kg", "dollars", "dollars_spot", "joules")
"""What the gate can weigh beside the metrics of a task: figures of every row, and of its cost where a ledger knows it; joules are those of one inference."""
HEADLINE = "headline"
"""Stands in a criterion for the task's headline metric, whatever that is."""
KIND_METRICS = {"classification": ("accuracy", "f1", "matthews"), "regression": ("pearson", "spearman", "pearson_spearman", "mse")}
"""Metrics by the kind of task that they are of."""
THREADS_ALONE = 4
"""One number for all machines. Where there are only two cores, or one, four threads cost little: 2 % (float32) to 24 % (bf16)
more processor time than one thread, and no more than two threads (6 x 384, measured on two cores)."""
SPLITS = ("train", "selection", "validation", "holdout")
"""The splits of a task's own rows."""
LARGEST_NUMBER = 2**32 - 1
"""The greatest whole number that a knob takes where it states no bound of its own; the greatest seed that every library takes."""
LARGEST_LAYERS, LARGEST_WIDTH, LARGEST_INNER, LARGEST_VOCABULARY = 1_000, 65_536, 1_000_000, 10_000_000
"""Bounds of a model's shape, each far beyond any encoder; together they are bounded too (``MOST_PARAMETERS``)."""
StageName = Literal["general", "augmentation", "intermediate"]


class Choices:
    """Names that a form offers for a string, and a Prefect server insists on. Elsewhere what is given is checked where the names are known, with a sentence."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        """Add the names to the JSON schema, which is all that they are for."""
        return {**handler(core), "enum": list(self.names)}


class Knobs(BaseModel):
    """Frozen, and strict about names: an unknown key is an error, not a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def is_what_it_looks_like(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true for a number, "3" in quotes for 3, and yes or 1 for a switch, which pydantic would all take; 1.0 is 1."""
        kinds = kinds_in(cls.model_fields[str(info.field_name)].annotation)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            require_kind(one, kinds)
        return value

    def key_values(self) -> dict[str, Any]:
        """Return the knobs that decide what a stage makes, as plain values."""
        semantic = (name for name, field in type(self).model_fields.items() if is_semantic(field))
        return {name: plain(getattr(self, name)) for name in semantic}


@cache
def kinds_in(annotation: Any) -> frozenset[type]:
    """Return the plain types inside an annotation such as ``tuple[int, ...] | None``."""
    inner = get_args(annotation) if get_origin(annotation) is not Literal else tuple(type(one) for one in get_args(annotation))
    return frozenset([annotation]) if isinstance(annotation, type) and not inner else frozenset().union(*(kinds_in(part) for part in inner))


def require_kind(value: Any, kinds: frozenset[type]) -> None:
    """Raise ValueError where a value would only become a number or a switch by being read as another kind of thing than it is."""
    numeric, shown = kinds & {int, float}, str(value).lower() if isinstance(value, bool) else repr(value)[:60]
    if numeric and isinstance(value, bool) and bool not in kinds:
        raise ValueError(f"{shown} is no number; write one")
    if numeric and isinstance(value, str) and str not in kinds:
        raise ValueError(f"{shown} is text and no number; write it without quotes")
    if int in numeric and isinstance(value, (int, float)) and abs(value) > LARGEST_NUMBER and (float not in kinds or isinstance(value, int)):
        raise ValueError(f"at most {LARGEST_NUMBER:,} is legal")
    if bool in kinds and not numeric and value is not None and not isinstance(value, bool) and not (str in kinds and isinstance(value, str)):
        raise ValueError(f"{shown} is no switch; write true or false")


def plain(value: Any) -> Any:
    """Reduce a knob to JSON values, leaving out what is not semantic."""
    if isinstance(value, Knobs):
        return value.key_values()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_semantic(field: Any) -> bool:
    """Tell whether a knob is part of the key."""
    return (field.json_schema_extra or {}).get("semantic", True) is not False


def handling(default: Any, description: str, **limits: Any) -> Any:
    """Declare a knob that changes how a stage runs but not what it makes."""
    return Field(default, description=description, json_schema_extra={"semantic": False}, **limits)


class JudgingSet(Knobs):
    """Labelled rows beside the task's own, of another kind or from elsewhere, on which every model is scored. They are never learned from."""

    source: str = handling("", "A file, a folder or a hub id. Empty: the recipe's own data, of which split names other rows.")
    revision: str | None = handling(None, "Hub revision (a commit), for a hub id.")
    split: str = Field("", max_length=200, description="Which file of a folder, its name without ending (axb/test); empty: validation, test or the only one.")
    text: str | None = Field(None, description="Column of the text; empty: as in the task.")
    pair: str | None = Field(None, description="Column of the second text, for pair tasks; empty: as in the task.")
    label: str | None = Field(None, description="Column of the label; empty: as in the task.")
    labels: tuple[str, ...] | None = Field(None, description="What the numbers in its label column mean, from 0 on; empty: as its file says.")
    classes: dict[str, tuple[str, ...]] = Field(
        {}, description="Which classes of the task a label stands for, where they are called otherwise; for several, answers are merged: any of them is right."
    )
    rows: int | None = Field(None, ge=1, description="Use at most this many rows (a fixed sample).")
    overlaps: Literal["keep", "leave-out", "purge"] = Field(
        "keep", description="Rows that overlap with training rows. keep: they are told, and the gate looks into them; leave-out: of the set; purge: of train."
    )

    @field_validator("classes", mode="before")
    @classmethod
    def one_or_several(cls, given: Any) -> Any:
        """Take one class for a list of one."""
        return {name: [value] if isinstance(value, str) else value for name, value in given.items()} if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def has_rows_of_its_own(self) -> Self:
        """Refuse a set that would be the rows by which the recipe chooses and learns anyway."""
        if not self.source and self.split in ("", "train"):
            raise ValueError("a judging set has rows of its own; name their source, or a split of the recipe's own data other than train")
        return self


class Data(Knobs):
    """Where the labelled rows come from and how they are divided."""

    source: str = handling("", "A hub id, a folder with train/validation files, or one file (parquet, csv, tsv, jsonl). Empty: GLUE on the hub.")
    revision: str | None = handling(None, "Hub revision (a commit), for a hub id.")
    licence: str = handling("unknown", "Licence of the data, for the model card.")
    synthetic: bool = handling(False, "The data is generated; the model card and the table say so.")
    selection_rows: int = Field(1000, ge=0, description="Rows held back from train to choose checkpoints; at most a tenth of train.")
    holdout_rows: int = Field(0, ge=0, description="Rows held back from train only for reporting; at most a fifth of train.")
    purge: bool = Field(True, description="Take rows out of train that overlap with held-back ones: same sentence, 8 words in a row, or one in the other.")
    group: str | None = Field(None, description="Column of groups of which none may be on both sides; it decides instead of the texts.")
    validation_share: float = Field(0.1, gt=0, lt=0.5, description="Share of train used as validation where the source has no validation split.")
    train_rows: int | None = Field(None, ge=1, description="Use at most this many training rows (a seeded sample).")
    seed: int = Field(0, ge=0, description="Seed of the split.")
    judge: dict[Name, JudgingSet | None] = handling(
        {}, "Judging sets by name: rows on which every model is scored beside the task's own; null leaves one out that the task brings."
    )


class Training(Knobs):
    """What every training loop needs; the stages below add their own."""

    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the data; ignored where steps is given.")
    steps: int | None = Field(None, ge=1, description="Optimizer steps, a budget that does not grow with the data.")
    batch_size: int = Field(32, ge=1, description="Examples in a batch.")
    batch_tokens: int = Field(8192, ge=32, description="Most tokens (padding included) in a batch: bounds memory when texts are long.")
    learning_rate: float = Field(5e-5, gt=0, description="Peak learning rate of AdamW.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps with a rising learning rate.")
    schedule: Literal["linear", "constant"] = Field("linear", description="Learning rate after warm-up.")
    weight_decay: float = Field(0.01, ge=0, description="Decoupled weight decay; not on biases and norms.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Share of AdamW's mean of gradients that a step keeps.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Share of AdamW's mean of squared gradients that a step keeps.")
    eps: float = Field(1e-8, gt=0, le=1, description="Added to AdamW's denominator; BERT's own code has 1e-6.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    dropout: float | None = Field(None, ge=0, lt=1, description="Dropout while training; empty keeps the model's own.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto: bfloat16 arithmetic where the hardware has it.")
    max_length: int = Field(128, ge=8, le=8192, description="Longest input in tokens; what is cut off is reported.")
    evaluations: int = Field(4, ge=0, description="How often the selection rows are scored; the best checkpoint is kept. 0 keeps the last.")
    checkpoint_minutes: float = handling(5.0, "Minutes between the checkpoints that an interrupted stage resumes from.", gt=0)


def require_buildable(layers: int, hidden: int, feed_forward: int, vocabulary: int = 0) -> None:
    """Raise ValueError for a shape that would take a machine hours to build, or all of its memory."""
    parameters = about_parameters(layers, hidden, feed_forward, vocabulary * hidden)
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"layers, hidden and feed_forward make a model of {parameters:.2g} parameters, and at most {MOST_PARAMETERS:.0g} are legal")


class TaskTraining(Training):
    """A training on the task, whose checkpoints are scored by their answers to the selection rows."""

    choose_by: Literal["headline", "accuracy", "f1", "matthews", "pearson", "spearman", "pearson_spearman", "mse"] = Field(
        "headline", description="Metric by which the best checkpoint is chosen on the selection rows; headline: the one that decides the task."
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
    vocabulary: int = Field(2000, ge=100, le=LARGEST_VOCABULARY, description="WordPiece vocabulary learned from the corpus.")
    mask_share: float = Field(0.15, gt=0, lt=1, description="Share of tokens that are predicted (Devlin et al. 2018, arXiv:1810.04805).")

    @model_validator(mode="after")
    def can_be_built(self) -> Self:
        """Refuse a shape that no machine could hold."""
        require_buildable(self.layers, self.hidden, self.feed_forward, self.vocabulary)
        return self


class Teacher(SeededTraining, TaskTraining):
    """The large model: pretrained, fine-tuned on the task, then copied by the small ones."""

    model: str = handling("google-bert/bert-base-uncased", "A hub id or a folder of a pretrained encoder.")
    revision: str | None = handling(None, "Hub revision (a commit), for a hub id.")
    already_finetuned: bool = Field(False, description="The model carries a trained head for this task: take it as it is.")
    licence: str = handling("unknown", "Licence of the teacher's weights, for the model card.")
    floor: float | None = handling(
        None, "Least headline score on the selection rows; empty: the majority class plus 5 points, by an interval on fewer than 200 rows."
    )
    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the training rows.")
    learning_rate: float = Field(3e-5, gt=0, description="Peak learning rate; 2e-5 to 5e-5 is usual for BERT-base.")


class Colleague(Teacher):
    """One more teacher of an ensemble."""

    weight: float = Field(1.0, gt=0, description="Its weight in the mixture; the first teacher's is 1.")


class Ensemble(Knobs):
    """Several teachers answer, students learn from the mixture of their answers (Hinton et al. 2015, arXiv:1503.02531)."""

    teachers: tuple[Colleague, ...] = Field(min_length=1, description="The teachers beside the first one.")
    combine: Literal["weights", "certainty"] = Field("weights", description="By weights, or by weight times each teacher's certainty of the row at hand.")


class CorpusText(Knobs):
    """Unlabelled general text, for general distillation."""

    source: str = handling(..., "A hub id, a folder or a file (parquet, csv, jsonl with a text column, or txt).")
    revision: str | None = handling(None, "Hub revision (a commit), for a hub id.")
    licence: str = handling("unknown", "Licence of the text, for the model card.")
    text: str = Field("text", description="Name of the text column.")
    max_tokens: int = Field(20_000_000, ge=1000, description="Stop after this many tokens.")
    max_length: int = Field(128, ge=16, le=512, description="Tokens in one sequence.")


class Sizes(NamedTuple):
    """What a method may ask of a model's shape."""

    layers: int
    width: int
    heads: int


class Method(Knobs):
    """The knobs of one way to copy a teacher's inside; each way says itself what it is called and whom it cannot serve."""

    called: ClassVar[str]
    """Its name in a recipe, and in the dict of objectives."""
    weights: ClassVar[tuple[str, ...]] = ()
    """The knobs that weigh its terms, where they may be zero."""

    @model_validator(mode="after")
    def copies_something(self) -> Self:
        """A loss of nothing has no gradient."""
        if self.weights and not any(getattr(self, name) for name in self.weights):
            raise ValueError(f"{', '.join(self.weights)} are all 0, so nothing would be copied; leave one of them greater, or do without the phase")
        return self

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """Raise ModelError where a student of these sizes cannot copy from this teacher; ``teacher`` is its config, ``where`` the section."""


class Matching(Method):
    """Which inner layers of the teacher are copied, and how (Jiao et al. 2019, TinyBERT, arXiv:1909.10351)."""

    called = "layers"
    weights = ("hidden", "attention")

    layer_map: Literal["uniform", "last", "skip", "divisible", "kept"] = Field(
        "uniform", description="Which teacher layer each student layer copies; kept: the one that it was, for a student that starts from whole layers."
    )
    hidden: float = Field(1.0, ge=0, description="Weight of the hidden-state loss; 0 leaves it out.")
    attention: float = Field(1.0, ge=0, description="Weight of the attention-score loss; 0 leaves it out. Needs equal head counts.")
    projection: Literal["shared", "per_layer", "none"] = Field("shared", description="Linear map from the student's width to the teacher's.")
    formula: Literal["masked", "paper"] = Field(
        "masked",
        description="masked: padding never counts; paper: means over rows padded to max_length, as in the authors' code.",
    )

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """Layers, widths and heads must agree where they are compared, and the family must show what is compared."""
        for signal, weight in ((SCORES, self.attention), (HIDDEN, self.hidden)):
            if weight:
                require_signal(teacher, signal, where)
        if self.attention and ours.heads != theirs.heads:
            raise ModelError(f"{where}: {ours.heads} heads against the teacher's {theirs.heads}; attention scores need equal heads; set matching.attention: 0")
        if self.projection == "none" and ours.width != theirs.width:
            raise ModelError(f"{where}: projection none needs equal widths, here {ours.width} and {theirs.width}; use projection: shared")
        if self.layer_map == "skip" and ours.layers == 1:
            raise ModelError(f"{where}: layer_map skip leaves a student of 1 layer nothing to copy; use layer_map: uniform")
        if self.layer_map == "divisible" and theirs.layers % ours.layers:
            raise ModelError(f"{where}: {theirs.layers} teacher layers do not divide by {ours.layers}; use layer_map: uniform")


class Relations(Method):
    """Copy how tokens relate, from one teacher layer to the student's last (Wang et al. 2020, MiniLMv2, arXiv:2012.15828)."""

    called = "relations"
    weights = ("query", "key", "value")

    layer: int | None = Field(None, ge=1, description="The teacher's layer, counted from 1; empty: its last. Of large teachers an upper middle one is better.")
    heads: int | None = Field(None, ge=1, description="Relation heads; empty: the most, up to 48, that divide both widths. Attention heads need not agree.")
    query: float = Field(1.0, ge=0, description="Weight of the relation among queries.")
    key: float = Field(1.0, ge=0, description="Weight of the relation among keys.")
    value: float = Field(1.0, ge=0, description="Weight of the relation among values.")

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """The layer must be there, the relation heads must divide both widths, and the family must show queries, keys and values."""
        require_signal(teacher, STATES, where)
        if self.layer is not None and self.layer > theirs.layers:
            raise ModelError(f"{where}: relations.layer is {self.layer}, and the teacher has layers 1 to {theirs.layers}; choose one of them")
        if self.heads is not None and (ours.width % self.heads or theirs.width % self.heads):
            raise ModelError(f"{where}: {self.heads} relation heads do not divide the widths {ours.width} and {theirs.width}; "
                             "choose a number that divides both, or leave relations.heads out")  # fmt: skip


class Triple(Method):
    """Masked text read by both: softened words, masked words, directions (Sanh et al. 2019, DistilBERT, arXiv:1910.01108)."""

    called = "triple"
    weights = ("soft", "words", "direction")

    soft: float = Field(5.0, ge=0, description="Weight of the teacher's softened words.")
    words: float = Field(2.0, ge=0, description="Weight of the masked words themselves.")
    direction: float = Field(1.0, ge=0, description="Weight of the angle between the last hidden states; needs equal widths.")
    temperature: float = Field(2.0, gt=0, description="Divides both logits.")
    mask_share: float = Field(0.15, gt=0, lt=1, description="Share of a batch's tokens that are predicted; rare ones are drawn more often.")

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """The head for words must be known, and the widths equal where directions are compared."""
        require_words(teacher, where)
        if self.direction and ours.width != theirs.width:
            raise ModelError(f"{where}: directions of hidden states need equal widths, here {ours.width} and {theirs.width}; "
                             "set triple.direction: 0, or leave hidden out")  # fmt: skip


class Replacing(Method):
    """The student's layers take the teacher's places by chance while the task is learned (Xu et al. 2020, BERT-of-Theseus, arXiv:2002.02925)."""

    called = "replacing"

    first: float = Field(0.3, gt=0, le=1, description="Chance of a layer at the first step.")
    share: float = Field(0.5, ge=0, le=1, description="Share of the steps over which the chance rises evenly to 1.")

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """Layers must stand alone, and fit where the teacher's stood."""
        require_alone(teacher, where)
        if ours[1:] != theirs[1:]:
            raise ModelError(f"{where}: a layer can replace the teacher's only at its width and heads; leave hidden, heads and feed_forward out")


class SelfAttention(Method):
    """Copy where tokens look and how their values relate, in the last layers (Wang et al. 2020, MiniLM, arXiv:2002.10957)."""

    called = "self-attention"
    weights = ("attention", "value")

    attention: float = Field(1.0, ge=0, description="Weight of the attention distributions; needs equal head counts.")
    value: float = Field(1.0, ge=0, description="Weight of the relation among values.")

    def check(self, where: str, teacher: Mapping[str, Any], ours: Sizes, theirs: Sizes) -> None:
        """Heads must agree, and the family must show scores and values, in layers that look everywhere."""
        require_global(teacher, where)
        require_signal(teacher, SCORES, where)
        require_signal(teacher, STATES, where)
        if ours.heads != theirs.heads:
            raise ModelError(f"{where}: {ours.heads} heads against the teacher's {theirs.heads}; method self-attention needs equal heads, relations does not")


def sections_of(phase: type[Knobs]) -> dict[str, str]:
    """Return the section of every method that a phase knows, by the method's name."""
    kinds = {name: field.annotation for name, field in phase.model_fields.items()}
    return {kind.called: name for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Method)}


def method_of(phase: Any) -> Method:
    """Return the knobs of the method that a phase has chosen."""
    found: Method = getattr(phase, sections_of(type(phase))[phase.method])
    return found


class ByMethod(Training):
    """A phase in which the teacher's inside is copied by one method of several; the knobs of the others are no part of it, nor of its key."""

    method: str = Field(description="How.")

    @model_validator(mode="after")
    def only_the_chosen(self) -> Self:
        """Refuse knobs of a method that is not the chosen one: they would be read by nobody. A form fills every section in with defaults: that is no wish."""
        for method, section in sections_of(type(self)).items():
            if method != self.method and section in self.model_fields_set and getattr(self, section) != type(self).model_fields[section].default:
                raise ValueError(f"{section} belongs to method: {method}, and the method is {self.method}; set method: {method}, or leave {section} out")
        return self

    def key_values(self) -> dict[str, Any]:
        """Return the knobs that decide what the phase makes: a method that is new here leaves the keys of the others alone."""
        others = {section for method, section in sections_of(type(self)).items() if method != self.method}
        return {name: value for name, value in super().key_values().items() if name not in others}


class GeneralDistillation(ByMethod, SeededTraining):
    """Learn from the pretrained teacher on general text, before the task is known."""

    method: Literal["relations", "layers", "triple", "self-attention"] = Field(
        "relations", description="relations (MiniLM v2), layers (TinyBERT), triple (DistilBERT) or self-attention (MiniLM)."
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the corpus.")
    learning_rate: float = Field(5e-4, gt=0, description="Peak learning rate; small students take more than BERT's 5e-5.")
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student.")
    relations: Relations = Field(Relations(), description="What is copied, with method: relations.")
    matching: Matching = Field(Matching(), description="What is copied, with method: layers.")
    triple: Triple = Field(Triple(), description="The three losses, with method: triple.")
    self_attention: SelfAttention = Field(SelfAttention(), description="What is copied, with method: self-attention.")


class Augmentation(Knobs):
    """Substitute words so that the student sees more of the teacher's mind (TinyBERT's data augmentation, arXiv:1909.10351)."""

    masked_lm: str | None = handling(None, "A hub id or folder of a masked language model; 'teacher' for the pretrained teacher itself.")
    masked_lm_revision: str | None = handling(None, "Hub revision (a commit), for a hub id.")
    masked_lm_licence: str = handling("unknown", "Licence of the masked language model, for the model card; 'teacher' has the teacher's.")
    word_vectors: str | None = handling(None, "A file of word vectors in GloVe text format (plain or gzip).")
    word_vectors_licence: str = handling("unknown", "Licence of the word vectors, for the model card.")
    vocabulary: int = Field(100_000, ge=1, description="Word vectors read from the head of the file.")
    options: int = Field(15, ge=1, le=100, description="Substitutes kept for each word.")
    rows: int | None = Field(None, ge=1, description="Training rows that get substitutes (a seeded sample); empty: all.")
    mode: Literal["masked", "one-pass"] = Field("masked", description="masked: one word masked at a time; one-pass: all words at once, unmasked: much cheaper.")
    context: Literal["alone", "beside-original"] = Field("alone", description="beside-original: the unmasked sentence stands beside it, as in the reference.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic of the masked language model.")
    max_length: int = Field(128, ge=8, le=512, description="Longest input in tokens.")
    seed: int = Field(0, ge=0, description="Seed of the sample of rows.")

    @model_validator(mode="after")
    def has_a_source(self) -> Self:
        """Augmentation without any source of words would silently do nothing."""
        if self.masked_lm is None and self.word_vectors is None:
            raise ValueError("augmentation needs masked_lm or word_vectors (or both); leave the section out to do without it")
        return self


class Sampling(Knobs):
    """How stored substitutes become training sentences."""

    share: float = Field(0.5, ge=0, le=1, description="Share of the examples that are replaced by a variant in an epoch.")
    probability: float = Field(0.4, ge=0, le=1, description="Chance that a replaceable word of a variant is replaced.")


class TransferText(Knobs):
    """Unlabelled in-domain text of your own, answered by the teacher and learned by the student."""

    source: str = handling(..., "A folder or file (parquet, csv, tsv, jsonl, txt).")
    licence: str = handling("unknown", "Licence of the text, for the model card.")
    text: str = Field("text", description="Name of the text column.")
    pair: str | None = Field(None, description="Name of the second text's column, for pair tasks.")
    alone: bool = Field(False, description="Use it instead of the training rows, not beside them.")


class Intermediate(ByMethod):
    """Task distillation, first phase: the fine-tuned teacher's inside (TinyBERT, arXiv:1909.10351)."""

    method: Literal["layers", "relations", "replacing", "self-attention"] = Field(
        "layers", description="layers (TinyBERT), relations (MiniLM v2), replacing (BERT-of-Theseus) or self-attention (MiniLM)."
    )
    epochs: float = Field(1.0, gt=0, description="Passes over the training rows.")
    learning_rate: float = Field(3e-4, gt=0, description="Peak learning rate.")
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student.")
    matching: Matching = Field(Matching(), description="Which layers are copied, with method: layers.")
    relations: Relations = Field(Relations(), description="What is copied, with method: relations.")
    replacing: Replacing = Field(Replacing(), description="How layers are replaced, with method: replacing.")
    self_attention: SelfAttention = Field(SelfAttention(), description="What is copied, with method: self-attention.")
    sampling: Sampling = Field(Sampling(), description="How substitutes are sampled, where the student uses augmentation.")


class Patience(Knobs):
    """Copy the teacher's summary token, layer by layer, beside its answers (Sun et al. 2019, PKD, arXiv:1908.09355)."""

    weight: float = Field(100.0, gt=0, description="Weight beside the answers; the paper tries 10 to 1000.")
    layer_map: Literal["skip", "last"] = Field("skip", description="Teacher layers: evenly spread, or the last ones. The student's last copies none.")
    normalise: bool = Field(True, description="Compare directions; without it lengths count too.")


class Prediction(TaskTraining):
    """Task distillation, second phase: the teacher's softened answers (Hinton et al. 2015, arXiv:1503.02531)."""

    epochs: float = Field(3.0, gt=0, le=1e6, description="Passes over the training rows.")
    learning_rate: float = Field(1e-4, gt=0, description="Peak learning rate; small students take more than the teacher.")
    dropout: float | None = Field(0.0, ge=0, lt=1, description="Dropout of the student; none is also fastest on a CPU.")
    temperature: float = Field(2.0, gt=0, description="Divides both logits; 1 means no softening, 2 to 8 is usual.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels beside the teacher's answers.")
    formula: Literal["default", "paper"] = Field("default", description="paper: the reference's mean over classes, without the factor T squared.")
    patience: Patience | None = Field(None, description="Copy the teacher's summary token beside its answers; empty: not.")
    sampling: Sampling = Field(Sampling(), description="How substitutes are sampled, where the student uses augmentation.")


class TaskDistillation(Knobs):
    """The two phases of task distillation; leave a phase out to skip it."""

    intermediate: Intermediate | None = Field(None, description="First phase; empty: skipped.")
    prediction: Prediction = Field(Prediction(), description="Second phase.")
    keep_signals: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Run the teacher once and keep its inner layers, for the first phase of students without augmentation. "
        "auto: where a training passes its rows at least twice; always: also where only several students or seeds do.",
    )
    signal_budget_gb: float = Field(5.0, gt=0, description="Most gigabytes that the kept layers of one map may take; beyond it the teacher is run live.")

    def keeps(self, phase: Intermediate, *, varied: bool) -> bool:
        """Tell whether a student's first phase reads kept layers; a student's own knobs decide, so that another student changes nothing."""
        possible = not varied and phase.method == "layers" and phase.matching.formula == "masked" and phase.matching.layer_map != "kept"
        twice = phase.steps is None and phase.epochs >= 2
        return possible and (self.keep_signals == "always" or (self.keep_signals == "auto" and twice))


class Shape(Knobs):
    """The student's architecture: the teacher's, made smaller."""

    layers: int = Field(ge=1, le=LARGEST_LAYERS, description="Transformer layers.")
    hidden: int | None = Field(None, ge=8, le=LARGEST_WIDTH, description="Width; empty: the teacher's.")
    heads: int | None = Field(None, ge=1, le=LARGEST_WIDTH, description="Attention heads; empty: the teacher's.")
    feed_forward: int | None = Field(None, ge=8, le=LARGEST_INNER, description="Inner width of the feed-forward blocks; empty: the teacher's.")

    @model_validator(mode="after")
    def can_be_built(self) -> Self:
        """Refuse a shape that no machine could hold; what is left to the teacher is bounded there."""
        require_buildable(self.layers, self.hidden or 8, self.feed_forward or 8)
        return self


def require_distinct(values: tuple[Any, ...] | None, what: str) -> None:
    """Repeated values would train and count one thing twice."""
    if values is not None and len(set(values)) != len(values):
        raise ValueError(f"{what} {list(values)} repeat; give each once")


class Student(Shape):
    """One small model to be made; several students are branches of one run."""

    name: Name = handling(..., "Short name, for example 4x312.")
    role: Literal["student", "baseline"] = Field("student", description="A baseline is scored beside the students and never becomes champion.")
    start: str = Field(
        "teacher",
        description="teacher: evenly spread layers of it; a strategy of layer dropping: the layers that it keeps; distilbert: evenly spread layers in "
        "DistilBERT's architecture; embeddings: the teacher's, projected; random; or a folder or hub id.",
    )
    origin: Literal["finetuned", "pretrained"] = Field("finetuned", description="Where a start's layers come from: the teacher, or what it began as.")
    stages: tuple[StageName, ...] | None = Field(None, description="Optional stages that this student takes; empty: all of the recipe's that its start takes.")
    signal: Literal["teacher", "labels"] = Field("teacher", description="What the prediction phase learns from.")
    intermediate: Intermediate | None = Field(None, description="This student's own first phase, instead of the recipe's.")
    prediction: Prediction | None = Field(None, description="This student's own second phase, instead of the recipe's.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1, description="One training per seed; figures are means over them.")

    @model_validator(mode="after")
    def seeds_differ(self) -> Self:
        """Repeated seeds would count one training twice."""
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} repeat; give each seed once")
        return self

    @model_validator(mode="after")
    def nothing_is_idle(self) -> Self:
        """Refuse a start that is a slip, and what nobody would read: where layers come from if none are taken, a first phase that is not passed."""
        near = [] if self.start in STARTS_BY_NAME else get_close_matches(self.start, STARTS_BY_NAME, 1, 0.8)
        if near:
            raise ValueError(f"student {self.name}: unknown start {self.start!r}; did you mean {near[0]!r}? A folder of that name is written ./{self.start}")
        if self.origin == "pretrained" and self.start not in LAYER_STARTS:
            raise ValueError(f"student {self.name}: origin says where a start's layers come from, and start: {self.start} takes none; leave origin out")
        if self.intermediate is not None and self.signal == "labels":
            raise ValueError(f"student {self.name} learns from labels alone, but has an intermediate phase; set signal: teacher, or leave intermediate out")
        if self.intermediate is not None and self.stages is not None and "intermediate" not in self.stages:
            raise ValueError(f"student {self.name} has an intermediate phase that its stages leave out; add intermediate to them, or leave the phase out")
        return self


class LayerDropping(TaskTraining):
    """Remove whole layers, then train what is left (Sajjad et al. 2020, Poor Man's BERT, arXiv:2004.03844)."""

    strategies: tuple[Annotated[str, Choices(*STRATEGIES)], ...] = Field(("top",), min_length=1, description=f"{', '.join(STRATEGIES)}.")
    drop: tuple[Annotated[int, Field(ge=1)], ...] = Field((2,), min_length=1, description="How many layers to remove; each gives its own models.")
    after_finetuning: bool = Field(False, description="Drop from the fine-tuned teacher instead of the pretrained one.")
    signal: Literal["labels", "teacher"] = Field("labels", description="What the dropped model is trained with.")
    token: Literal["cls", "mean"] = Field("cls", description="Where the contribution strategy compares a layer's input and output.")
    temperature: float = Field(2.0, gt=0, description="Softening, with signal: teacher.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels, with signal: teacher.")
    learning_rate: float = Field(5e-5, gt=0, description="Peak learning rate.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0,), min_length=1, description="One training per seed.")

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """What is given twice would be trained once and counted twice."""
        for what in ("strategies", "drop", "seeds"):
            require_distinct(getattr(self, what), what)
        return self


class Sweep(Knobs):
    """How many layers does the task need? Every strategy at every number of layers, by ``limbeck sweep``; how each is trained says layer_dropping."""

    strategies: tuple[Annotated[str, Choices(*STRATEGIES, "greedy")], ...] | None = Field(
        None, description="Strategies to try, greedy among them; empty: those of layer_dropping, or all six others."
    )
    drop: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, description="Numbers of layers to remove; empty: those of layer_dropping, or all.")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, description="Trainings of each; empty: those of layer_dropping, or 0, 1, 2.")
    halving: bool = Field(False, description="First a quarter of the steps and one seed for all; the better half goes on (arXiv:1502.07943).")
    try_steps: int = Field(100, ge=1, description="Steps of each try of the greedy strategy (Peer et al. 2021, arXiv:2105.14839).")

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """An empty list would try nothing, and a repeated entry would count one training twice."""
        for what in ("strategies", "drop", "seeds"):
            if getattr(self, what) == ():
                raise ValueError(f"{what} is an empty list; name at least one, or leave it out")
            require_distinct(getattr(self, what), what)
        return self


class Scoring(Knobs):
    """How candidates are judged."""

    resamples: int = Field(1000, ge=100, le=100_000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Confidence of the intervals.")
    max_length: int = Field(128, ge=8, le=8192, description="Longest input in tokens.")
    flops_length: int = Field(128, ge=1, description="Input length at which FLOPs are stated.")


class Speed(Knobs):
    """How latency and memory are measured; interleaved with the teacher's on the same machine."""

    batch: int = Field(1, ge=1, description="Sentences at once.")
    length: int = Field(32, ge=1, description="Tokens in a sentence.")
    threads: int = Field(1, ge=1, description="CPU threads.")
    repeats: int = Field(30, ge=5, description="Timed calls of each model, at least; more follow until its median is known within 5 %.")
    warmup: int = Field(5, ge=0, description="Untimed calls before.")
    seconds: float = Field(
        10.0, gt=0, le=3600, description="When timed calls end: what is not known by then is unsteady and decides nothing. A tenth is always used."
    )


class Exporting(Knobs):
    """What an fp32 graph depends on."""

    opset: int = Field(20, ge=18, le=22, description="Version of ONNX's operations; ONNX Runtime 1.17 and newer read 20.")
    parity_rows: int = Field(128, ge=1, description="Real rows on which a graph and its checkpoint are compared, padded together.")


class Quantizing(Knobs):
    """What an int8 graph depends on."""

    ways: tuple[Literal["dynamic", "static"], ...] = Field(
        ("dynamic", "static"), min_length=1, description="Ranges of activations: dynamic finds them in every call, static in rows of train. The better is kept."
    )
    calibration_rows: int = Field(200, ge=1, le=10_000, description="Training rows from which static takes its ranges.")
    seed: int = Field(0, ge=0, description="Seed of their draw.")


class Exports(Exporting, Quantizing):
    """Pack finished models for ONNX Runtime; every export has its own row in the table, and travels in its model's folder if it is still the same model."""

    formats: tuple[Literal["onnx", "int8"], ...] = Field(("onnx", "int8"), min_length=1, description="onnx: fp32; int8: made of it, a quarter of its size.")
    of: tuple[Name, ...] = Field((), description="Whom to export, teacher among them; empty: every student and dropped model, not the baselines.")
    parity: float = Field(1e-3, gt=0, description="Most by which any logit of the fp32 graph may differ from the checkpoint's.")
    tolerance: float = Field(0.01, ge=0, description="Most of the headline metric that int8 may lose to its own fp32 on the selection rows.")
    min_speedup: float = Field(
        1.0, ge=0, description="Least speed-up of int8 over its own fp32 graph, timed in turn as section speed says; 1: not slower, 5 % being noise; 0: any."
    )
    reduce_range: Literal["auto", "yes", "no"] = Field("auto", description="Seven bits for weights. auto: where the processor cannot multiply bytes (VNNI).")

    @model_validator(mode="after")
    def choices_differ(self) -> Self:
        """What is given twice would be made once and counted twice."""
        for what in ("formats", "of", "ways"):
            require_distinct(getattr(self, what), what)
        return self


class Criterion(Knobs):
    """One condition that a candidate must meet: a bound on a figure, or a test against the teacher or the current champion."""

    metric: str = Field(description=f"A metric of the task, its {HEADLINE} metric by that word, or one of {', '.join((*FIGURES, *COSTS))}.")
    at_least: float | None = Field(None, description="Lowest acceptable value.")
    at_most: float | None = Field(None, description="Highest acceptable value.")
    reading: Literal["interval", "mean"] = Field(
        "interval", description="Where a bound on quality is read: at the worse end of the figure's interval, or by the mean alone, which counts luck as merit."
    )
    of_teacher: bool = Field(False, description="The bound is a share of the teacher's value; short for relative_to: teacher.")
    relative_to: Literal["teacher", "champion"] | None = Field(None, description="Whose value the bound or the test is about; without a champion yet: met.")
    by: Literal["share", "difference"] = Field("share", description="A relative bound is a share of the other's value, or a difference to it.")
    tolerance: float = Field(0.0, ge=0, description="How far beyond the bound still passes, in the metric's own unit; the margin of a test.")
    test: Literal["non-inferiority", "superiority"] | None = Field(
        None, description="Instead of a bound, for a metric of the task: the paired difference's interval must clear the margin, below or above zero."
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Confidence of the two-sided interval that is read; several candidates are corrected for (Holm).")
    worst_of: tuple[str, ...] = Field((), description="Judging sets, and the gate's split, of which the worst decides; empty: the gate's split.")

    @model_validator(mode="after")
    def is_known_on_every_set(self) -> Self:
        """A judging set has a model's quality and nothing else, and no champion's answers."""
        if self.worst_of and (not self.is_quality or self.reference == "champion"):
            raise ValueError(f"criterion {self.metric!r}: worst_of holds a metric of the task, or retained, against a bound or the teacher; leave worst_of out")
        require_distinct(self.worst_of, "worst_of")
        return self

    @model_validator(mode="after")
    def has_one_bound(self) -> Self:
        """A criterion without a bound would accept everything."""
        bounds = (self.at_least is not None) + (self.at_most is not None)
        if self.test is None and bounds != 1:
            raise ValueError(f"criterion {self.metric!r} needs exactly one of at_least and at_most")
        if self.test is not None and (bounds or self.reference is None or self.metric in (*FIGURES, *COSTS)):
            legal = "a test compares a metric of the task with relative_to: teacher or champion"
            raise ValueError(f"criterion {self.metric!r}: {legal}; leave at_least and at_most out")
        if self.of_teacher and self.relative_to == "champion":
            raise ValueError(f"criterion {self.metric!r} is relative to the teacher and to the champion; write it as two criteria")
        if self.by == "difference" and self.reference is None:
            raise ValueError(f"criterion {self.metric!r} is a difference, but to nothing; set relative_to: teacher or champion")
        if self.reading == "mean" and (self.test is not None or not self.is_quality):
            raise ValueError(f"criterion {self.metric!r}: reading: mean is for bounds on quality; tests read intervals, and a cost has none; leave it out")
        return self

    @property
    def is_quality(self) -> bool:
        """Tell whether it is about what a model answers, which rows drawn anew would change, and not about what it costs."""
        return self.metric == "retained" or self.metric not in (*FIGURES, *COSTS)

    @property
    def reads_interval(self) -> bool:
        """Tell whether noise decides: a test, or a bound on quality that is not read by the mean."""
        return self.test is not None or (self.is_quality and self.reading == "interval")

    @property
    def reference(self) -> Literal["teacher", "champion"] | None:
        """Whose value this is relative to."""
        return "teacher" if self.of_teacher else self.relative_to


class Gate(Knobs):
    """Which candidates may be called champion."""

    criteria: tuple[Criterion, ...] = Field(
        (Criterion(metric=HEADLINE, test="non-inferiority", relative_to="teacher", tolerance=0.02),),
        description="All must hold; the default: certainly no more than two points (0.02) below the teacher.",
    )
    prefer: Literal["smallest", "fastest", "best"] = Field("smallest", description="Which accepted candidate becomes champion.")
    split: Literal["validation", "holdout"] = Field(
        "holdout", description="Which rows decide: holdout rows; validation, on which everybody has looked before, decides where the recipe says so."
    )
    too_good: float = Field(0.05, ge=0, description="A headline score certainly better than the teacher's by more than this is looked into, not accepted.")
    perfect_rows: int = Field(100, ge=1, description="A perfect headline score on at least so many rows is looked into, not accepted.")
    leakage: float = Field(0.02, ge=0, le=1, description="Share of the split's rows that may overlap with what students learn from; more is looked into.")
    promote: Literal["auto", "manual", "never"] = handling("auto", "The best accepted candidate becomes champion, or challenger (manual), or nothing (never).")
    margin: float = handling(0.0, "Points of the headline score (0.01 is one point) that a new champion may certainly lose to the old one.", ge=0)
    register_as: str | None = handling(None, "Name of the registered model; empty: task and teacher.", pattern=r"^\w[\w .-]*$")

    def for_headline(self, metric: str) -> Gate:
        """Return the gate of a task whose headline metric is this one."""
        criteria = tuple(one.model_copy(update={"metric": metric}) if one.metric == HEADLINE else one for one in self.criteria)
        return self.model_copy(update={"criteria": criteria})


class Report(Knobs):
    """What the page of a run shows; never part of a key."""

    texts: bool = handling(True, "Show the texts on which student and teacher disagree; false where they must not leave the store.")


class Resources(Knobs):
    """How a run is laid out on a machine. Threads are part of keys: another number adds sums up in another order."""

    cores: int | None = handling(None, "Cores that stages may hold at once; empty: all that this process may use.", ge=1)
    threads: int = Field(
        1, ge=1, le=256, description="Threads of a stage that runs beside others like it: students, dropped models, scores, exports."
    )
    threads_alone: int = Field(
        THREADS_ALONE,
        ge=1,
        le=256,
        description="Threads of a stage that the others wait for: pretraining, teacher, its answers and layers, general distillation.",
    )


class Budget(Knobs):
    """What a run may spend; asked before each stage that would compute, and while it does. Empty: no limit."""

    dollars: float | None = handling(None, "Dollars for the instance's hours, from the run's start on.", gt=0)
    kwh: float | None = handling(None, "kWh that the run's stages may take, as far as they are known.", gt=0)
    hours: float | None = handling(None, "Hours of the clock, from the run's start on.", gt=0)
    by_estimate: bool = handling(True, "Refuse what would go beyond the budget if it takes what the like of it took; false: go on until it is spent.")


class Costs(Knobs):
    """What the ledger counts with. Nothing here is part of a key; what is left out stays unknown, and is never counted as 0."""

    region: str | None = handling(None, "Region of the cloud (us-east-1), or country (DE), whose grid and prices count.")
    instance: str | None = handling(None, "Instance type that the run pays for, for example g5.xlarge; empty: no dollars.")
    market: Literal["on-demand", "spot"] = handling("on-demand", "Price that a budget in dollars, and MLflow, count with.")
    pue: float | None = handling(None, "kWh of the data centre for each of the machine (PUE); empty: the region's, or 1.", ge=1)
    grid_kg_per_kwh: float | None = handling(None, "kg CO2e per kWh of the grid; empty: the region's.", ge=0)
    core_watts: float | None = handling(None, "Watts of a busy core; empty: by the processor's name, or 3.5.", gt=0)
    gpu_watts: float | None = handling(None, "Watts of a busy GPU that does not count its own; empty: by its name.", gt=0)
    budget: Budget = handling(Budget(), "What the run may spend.")

    @model_validator(mode="after")
    def can_be_counted(self) -> Self:
        """Refuse a price that cannot be looked up, and dollars without a price."""
        if self.instance is not None and self.region is None:
            raise ValueError(f"an instance has a price in a region; set costs.region beside costs.instance {self.instance}")
        if self.budget.dollars is not None and self.instance is None:
            raise ValueError("a budget in dollars needs a price; set costs.instance and costs.region, or give the budget in kwh or hours")
        return self


def general_start(student: Student) -> bool:
    """Tell whether general distillation can begin with a student's start: one that is not made of the fine-tuned teacher."""
    return student.start in ("embeddings", "random") or (student.start in LAYER_STARTS and student.origin == "pretrained")


# What the doors receive: slices of the recipe that hold what decides their stage, and nothing else.


class RowsSlice(Data):
    """What the preparation of rows depends on."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class JudgingRowsSlice(Knobs):
    """What the rows of a judging set depend on, beside the names of the task's classes."""

    name: str = handling(..., "What the recipe calls it, for what is said.")
    kind: Literal["classification", "regression"] = Field(description="What its labels are.")
    text: str = Field(description="Column of the text.")
    pair: str | None = Field(description="Column of the second text.")
    label: str = Field(description="Column of the label.")
    labels: tuple[str, ...] | None = Field(None, description="What the numbers in its label column mean.")
    numbered: bool = Field(False, description="Numbers in its label column mean what they mean in train.")
    classes: tuple[tuple[str, tuple[str, ...]], ...] = Field((), description="Which classes of the task a label stands for.")
    split: str = Field("", description="Which file of a folder.")
    rows: int | None = Field(None, description="Rows at most.")
    leave_out: bool = Field(False, description="Rows that overlap with training rows are left out.")


class PurgeSlice(Knobs):
    """What the purge of train for judging sets depends on, beside their rows."""

    names: tuple[str, ...] = Field(description="The sets, in order.")


class JudgingScoreSlice(Knobs):
    """What the scores on a judging set depend on."""

    kind: Literal["classification", "regression"] = Field(description="What answers are.")
    metrics: tuple[str, ...] = Field(description="Metrics to report.")
    headline: str = Field(description="The metric that decides.")
    max_length: int = Field(128, description="Longest input in tokens.")
    resamples: int = Field(1000, description="Bootstrap resamples behind every interval.")
    confidence: float = Field(0.95, description="Confidence of the intervals.")


class CorpusRead(Knobs):
    """What decides which of a corpus's words are learned from."""

    text: str = Field("text", description="Name of the text column.")
    most: int | None = Field(None, description="Words that are read at most: a text has no more words than tokens. Empty: all.")


class GeneralSlice(GeneralDistillation):
    """General distillation of one shape."""

    shape: Shape = Field(description="The student's architecture.")
    start: str = Field("random", description="embeddings or random.")


class PatienceOf(Knobs):
    """Which states of the teacher's summary token are kept beside its answers."""

    layer_map: Literal["skip", "last"] = Field("skip", description="Which teacher layers.")
    layers: int = Field(ge=2, description="Layers of the student.")


class AnswerSlice(Knobs):
    """What the teacher's answers depend on."""

    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    transfer_alone: bool = Field(False, description="Answer the transfer text only.")
    patience: PatienceOf | None = Field(None, description="Keep the summary token too, for a student with patience.")


class MixSlice(Knobs):
    """How the answers of several teachers become one."""

    combine: Literal["weights", "certainty"] = Field("weights", description="By weights, or by each teacher's certainty of the row.")
    weights: tuple[float, ...] = Field(description="Weight of each teacher.")
    temperature: float = Field(1.0, gt=0, description="At which each teacher is softened before the mixture, as students soften it; 1 for numbers.")


class SignalSlice(Knobs):
    """What the teacher's kept layers depend on."""

    layer_map: str = Field("uniform", description="Which teacher layers are copied.")
    layers: int = Field(ge=1, description="Layers of the student.")
    hidden: bool = Field(True, description="Hidden states are copied.")
    attention: bool = Field(True, description="Attention scores are copied.")
    max_length: int = Field(128, description="Longest input in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")
    signal_budget_gb: float = Field(5.0, gt=0, description="Most gigabytes that they may take.")
    transfer_alone: bool = Field(False, description="Keep those of the transfer text only.")


class OfStudent(Knobs):
    """What both phases need to know of a student; shape and start are empty where an earlier stage made it."""

    shape: Shape | None = Field(None, description="The student's architecture.")
    start: str | None = Field(None, description="How the student starts.")
    origin: str | None = Field(None, description="Which model its layers come from.")
    transfer_alone: bool = Field(False, description="Learn from the transfer text only.")


class IntermediateSlice(Intermediate, SeededTraining, OfStudent):
    """The first phase for one student and seed."""


class PredictionSlice(Prediction, SeededTraining, OfStudent):
    """The second phase for one student and seed."""

    signal: Literal["teacher", "labels"] = Field("teacher", description="What is learned from.")


class ContributionSlice(Knobs):
    """What the contribution of layers depends on."""

    token: Literal["cls", "mean"] = Field("cls", description="Where input and output are compared.")
    max_length: int = Field(128, description="Longest input in tokens.")


class DropSlice(SeededTraining, TaskTraining):
    """One strategy, one number of layers, one seed."""

    strategy: str = Field(description="Which layers go.")
    drop: int = Field(ge=1, description="How many layers go.")
    kept: tuple[int, ...] | None = Field(None, description="Which layers stay, counted from 0, where the strategy found them by trying (greedy).")
    signal: Literal["labels", "teacher"] = Field("labels", description="What the dropped model is trained with.")
    temperature: float = Field(2.0, gt=0, description="Softening, with signal: teacher.")
    hard_weight: float = Field(0.1, ge=0, le=1, description="Weight of the true labels, with signal: teacher.")
    transfer_alone: bool = Field(False, description="Learn from the transfer text only.")


class ScoreSlice(Scoring):
    """What a scorecard depends on."""

    task: TaskSpec = Field(description="Columns, labels and metrics.")


class ExportSlice(Exporting):
    """One checkpoint's graph."""

    kind: str = Field(description="classification or regression.")
    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")


class QuantizeSlice(Quantizing):
    """One graph in int8."""

    kind: str = Field(description="classification or regression.")
    metric: str = Field(description="The metric by which ways are compared.")
    max_length: int = Field(128, description="Longest input in tokens, as the model is judged.")
    reduce_range: bool = Field(False, description="Seven bits for weights.")


class ContrastSlice(Knobs):
    """What a comparison of two candidates depends on, beside their answers."""

    metric: str = Field(description="The metric that decides.")
    resamples: int = Field(1000, description="Bootstrap resamples of the rows.")
    confidence: float = Field(0.95, description="Confidence of the interval.")


class InspectSlice(Knobs):
    """What a look into the answers depends on, beside the answers."""

    kind: Literal["classification", "regression"] = Field(description="What the answers are.")
    split: str = Field(description="Which rows.")
    bins: int = Field(10, ge=2, description="Bins of the reliability diagram, or of the residuals.")
    examples: int = Field(6, ge=0, description="Rows shown of each sort of disagreement.")


class Recipe(Knobs):
    """Everything that decides what a run makes."""

    name: Name = handling(..., "Short name of the recipe.")
    about: str = handling("", "One sentence for people.")
    task: Annotated[str, Choices(*GLUE)] | TaskSpec = Field(description="A GLUE task by name, or your own task (columns, labels, metrics).")
    data: Data = Data()
    pretraining: Pretraining | None = Field(None, description="Train the teacher's base on the corpus first; then teacher.model is not used.")
    teacher: Teacher = Teacher()
    ensemble: Ensemble | None = None
    corpus: CorpusText | None = None
    general_distillation: GeneralDistillation | None = None
    augmentation: Augmentation | None = None
    transfer: TransferText | None = None
    task_distillation: TaskDistillation = TaskDistillation()
    students: tuple[Student, ...] = Field((), description="The small models to be made, each with a name, a shape and a start.")
    layer_dropping: LayerDropping | None = None
    sweep: Sweep | None = Field(None, description="What limbeck sweep tries; a run does not read it.")
    scoring: Scoring = Scoring()
    speed: Speed = Speed()
    exports: Exports | None = Field(None, description="Pack finished models for ONNX Runtime; empty: not.")
    gate: Gate = Gate()
    report: Report = Field(Report(), description="What the page of a run shows.")
    resources: Resources = Resources()
    notify: tuple[Annotated[str, Field(pattern=BLOCK)], ...] = handling(
        (), "Prefect notification blocks (type/name, for example slack-webhook/team) that are told of failure, refusal and promotion."
    )
    costs: Costs = handling(Costs(), "What the ledger counts with, and the budget.")

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        """Refuse what would only fail hours later."""
        names = [student.name for student in self.students]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"students {repeated} are named twice; give each its own name")
        known = self.spec.headline  # an unknown task is refused here
        if known not in self.spec.metrics:
            raise ValueError(f"task.headline is {known!r}, which is not one of task.metrics; add it there")
        if not self.students and self.layer_dropping is None and self.sweep is None:
            raise ValueError("nothing to make: add students or layer_dropping")
        if self.corpus is None and (self.general_distillation or self.pretraining):
            raise ValueError("general_distillation and pretraining need a corpus; add a corpus section")
        if self.gate.split == "holdout" and not self.data.holdout_rows:
            raise ValueError(
                "the gate decides on holdout rows, and data.holdout_rows is 0; hold rows back (data.holdout_rows: 2000), "
                "or say gate.split: validation, with which the rows of the validation split decide"
            )
        self.check_criteria()
        self.check_choices()
        self.check_judging_sets()
        self.check_ensemble()
        self.check_exports()
        for student in self.students:
            self.check_stages(student)
            self.check_phases(student)
        return self

    def check_criteria(self) -> None:
        """Refuse a criterion that nothing could ever be held against."""
        legal = (*FIGURES, *COSTS, HEADLINE, *self.spec.metrics)
        unknown = [criterion.metric for criterion in self.gate.criteria if criterion.metric not in legal]
        if unknown:
            raise ValueError(f"gate: unknown metric {unknown[0]!r}; legal are {', '.join(legal)}")

    def check_choices(self) -> None:
        """Refuse to choose checkpoints by a metric of the other kind of task."""
        own = {f"students.{student.name}.prediction": student.prediction for student in self.students}
        trainings: dict[str, TaskTraining | None] = {"teacher": self.teacher, "task_distillation.prediction": self.task_distillation.prediction}
        trainings |= {f"ensemble.teachers.{number - 2}": colleague for number, colleague in self.colleagues}
        legal = ("headline", *KIND_METRICS[self.spec.kind])
        for where, training in {**trainings, "layer_dropping": self.layer_dropping, **own}.items():
            if training is not None and training.choose_by not in legal:
                raise ValueError(f"{where}.choose_by is {training.choose_by}, and {self.spec.name} is a {self.spec.kind}; choose one of {', '.join(legal)}")

    def check_judging_sets(self) -> None:
        """Refuse judging sets that have no name of their own or another form than the task, and a criterion of one that is not there."""
        made = ["teacher", *(student.name for student in self.students), *self.dropped]
        for name, given in self.judging_sets.items():
            where = f"data.judge.{name}"
            if name in (*SPLITS, *made):
                raise ValueError(f"{where} is called like a split or a model of this recipe; give it another name")
            if given.pair is not None and self.spec.pair is None:
                raise ValueError(f"{where} names a second text, and the task {self.spec.name} has one text alone; leave pair out")
            if self.spec.kind == "regression" and (given.labels or given.classes):
                raise ValueError(f"{where} names classes, and the task {self.spec.name} predicts a number; leave labels and classes out")
            if given.overlaps == "purge" and not self.data.purge:
                raise ValueError(f"{where}.overlaps is purge, and data.purge is false; leave one of them out")
        legal = (self.gate.split, *self.judging_sets)
        for unknown in (name for criterion in self.gate.criteria for name in criterion.worst_of if name not in legal):
            near = get_close_matches(unknown, legal, 1)
            raise ValueError(f"gate: worst_of names {unknown!r}, which is no judging set of data.judge; {f'did you mean {near[0]!r}? ' if near else ''}"
                             f"legal are {', '.join(legal)}")  # fmt: skip

    def check_ensemble(self) -> None:
        """Refuse an ensemble that cannot be mixed, or that nobody would listen to."""
        if self.ensemble is None:
            return
        if self.ensemble.combine == "certainty" and self.spec.kind == "regression":
            raise ValueError(f"ensemble.combine: certainty needs classes, and the task {self.spec.name} predicts a number; use combine: weights")
        if "teacher" not in {self.drops_by, *(student.signal for student in self.students)}:
            raise ValueError("nobody learns from the ensemble's answers; set a student's signal to teacher, or leave the ensemble out")

    def check_exports(self) -> None:
        """Refuse exports of what is not made, under names that are taken, or judged on rows that are not held back."""
        if self.exports is None:
            return
        made = ["teacher", *(student.name for student in self.students), *self.dropped]
        unknown = [name for name in self.exports.of if name not in made]
        if unknown:
            raise ValueError(f"exports.of names {unknown[0]!r}, which this recipe does not make; it makes {', '.join(made)}")
        taken = [f"{name}-{way}" for name in made for way in self.exports.formats if f"{name}-{way}" in made]
        if taken:
            raise ValueError(f"a student is called {taken[0]!r}, as an export would be; give it another name")
        if "int8" in self.exports.formats and not self.data.selection_rows:
            raise ValueError("int8 is judged on selection rows, and data.selection_rows is 0; hold rows back, or set exports.formats: [onnx]")

    def check_stages(self, student: Student) -> None:
        """A stage that a student names must be in the recipe, and must be able to do something for it."""
        own = ("intermediate",) if student.intermediate is not None else ()
        missing = [stage for stage in student.stages or () if stage not in (*self.optional_stages, *own)]
        if missing:
            raise ValueError(f"student {student.name} takes the stages {missing}, which the recipe does not have; it has {list(self.optional_stages)}")
        if student.stages and student.signal == "labels":
            raise ValueError(f"student {student.name} learns from labels alone, but takes {list(student.stages)}; set signal: teacher, or leave its stages out")
        if "general" in (student.stages or ()) and not general_start(student):
            raise ValueError(
                f"student {student.name} takes the stage general, but starts from {student.start}: general distillation makes a start of its own, from "
                "the pretrained model; leave general out of its stages, set its start to embeddings or random, or its origin to pretrained"
            )
        if self.takes(student, "general") and general_start(student) and student.start == "contribution":
            raise ValueError(
                f"student {student.name} starts from contribution, which is measured on the task's rows, and general distillation knows no task; "
                "choose another strategy, or leave general out of its stages"
            )

    def check_phases(self, student: Student) -> None:
        """Refuse phases that cannot do what they say."""
        inner, last = self.inner_phase(student), student.prediction or self.task_distillation.prediction
        if inner is not None and inner.method == "replacing" and (student.start not in OWN_LAYERS or student.origin != "finetuned"):
            raise ValueError(
                f"student {student.name} replaces its teacher's layers (method: replacing), so it must start from whole layers of the fine-tuned teacher; "
                "set start: top or teacher, and leave origin out"
            )
        if inner is not None and inner.method == "replacing" and self.transfer is not None and self.transfer.alone:
            raise ValueError(f"student {student.name} replaces layers by the labels' loss alone, and transfer text has none; set transfer.alone: false")
        if inner is not None and inner.method == "layers" and inner.matching.layer_map == "kept" and student.start not in OWN_LAYERS:
            raise ValueError(f"student {student.name} starts from {student.start}, of which no layer is its teacher's own; use layer_map: uniform")
        if self.transfer is not None and self.transfer.alone and student.signal == "teacher" and last.hard_weight == 1:
            raise ValueError(f"student {student.name} learns from labels alone (hard_weight: 1), and transfer text has none; set transfer.alone: false")
        if last.patience is not None and student.signal == "teacher":
            if student.layers < 2:
                raise ValueError(f"student {student.name} has 1 layer, and patience leaves a student's last layer out; give it 2 or more")
            if self.ensemble is not None:
                raise ValueError("patience copies the states of one teacher, and an ensemble has several; leave one of the two out")
        if self.ensemble is not None and self.takes(student, "augmentation"):
            raise ValueError(
                f"student {student.name} takes the stage augmentation, whose sentences only the first teacher would answer; "
                "leave augmentation out of its stages, or do without the ensemble"
            )

    def inner_phase(self, student: Student) -> Intermediate | None:
        """Return the first phase that a student passes, if it does."""
        return (student.intermediate or self.task_distillation.intermediate) if self.takes(student, "intermediate") else None

    @property
    def optional_stages(self) -> tuple[StageName, ...]:
        """The optional stages that this recipe has."""
        present = {"general": self.general_distillation, "augmentation": self.augmentation, "intermediate": self.task_distillation.intermediate}
        return tuple(stage for stage, section in present.items() if section is not None)  # type: ignore[misc]

    def takes(self, student: Student, stage: StageName) -> bool:
        """Tell whether a student passes through an optional stage."""
        own = stage == "intermediate" and student.intermediate is not None
        wanted = student.stages is None or stage in student.stages
        return wanted and student.signal == "teacher" and (own or stage in self.optional_stages)

    @property
    def drops_by(self) -> str | None:
        """What dropped models are trained with, if there are any."""
        return self.layer_dropping.signal if self.layer_dropping is not None else None

    @property
    def dropped(self) -> list[str]:
        """The names of the dropped models."""
        dropping = self.layer_dropping
        return [f"{strategy}-{drop}" for strategy in dropping.strategies for drop in dropping.drop] if dropping is not None else []

    @property
    def colleagues(self) -> list[tuple[int, Colleague]]:
        """The teachers beside the first one, numbered from 2."""
        return list(enumerate(self.ensemble.teachers, start=2)) if self.ensemble else []

    @property
    def spec(self) -> TaskSpec:
        """The task's columns, labels and metrics."""
        return glue_task(self.task) if isinstance(self.task, str) else self.task

    @property
    def judging_sets(self) -> dict[str, JudgingSet]:
        """The judging sets by name: those that a task of GLUE brings, where its source has them, and the recipe's own.

        Of the former, rows that overlap with training rows are left out: a set that nobody asked for must not make the gate refuse everybody.
        """
        brought = JUDGING_SETS.get(self.spec.name, {}) if self.is_glue else {}
        sets = {**{name: JudgingSet(split=split, overlaps="leave-out") for name, split in brought.items()}, **self.data.judge}
        return {name: given for name, given in sets.items() if given is not None}

    @property
    def is_glue(self) -> bool:
        """Tell whether the task is one of GLUE's by name."""
        return isinstance(self.task, str) and self.task in GLUE
