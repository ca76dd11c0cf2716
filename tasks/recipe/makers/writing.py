"""Knobs of models that write texts: how they write, and what they learn to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from pydantic import Field

from tasks.architectures.known_architectures import ARCHITECTURES, architecture_of, shape_of
from tasks.architectures.limbeck.encoder import require_copied_positions
from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.recipe.distillation import WRITTEN_SIGNALS, Generation, Intermediate, TaskDistillation
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.training import TaskTraining, Teacher


class TextAnswerSlice(Generation):
    """Knobs that determine the texts that a teacher writes of the training sources."""

    task_type: str = Field(description="Type of the task.")
    source_length: int = Field(128, description="Longest source in tokens.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic.")


class MayWrite(Protocol):
    """The type of a task."""

    @property
    def writes(self) -> bool:
        """Whether its models write texts."""

    @property
    def written_signals(self) -> tuple[str, ...]:
        """The signals of trainings that are texts of the teacher."""

    @property
    def keeps_words(self) -> bool:
        """Whether its models answer about a vocabulary."""

    @property
    def continues_texts(self) -> bool:
        """Whether its models read from left to right and continue a text."""


class WritingSections(Protocol):
    """The sections of a recipe that models which write depend on."""

    @property
    def spec(self) -> TaskSpec:
        """The task."""

    @property
    def task_type(self) -> MayWrite:
        """Its type."""

    @property
    def generation(self) -> Generation:
        """How models write."""

    @property
    def teacher(self) -> Teacher:
        """The teacher."""

    @property
    def task_distillation(self) -> TaskDistillation:
        """Both phases."""

    @property
    def planned(self) -> Sequence[CandidateKnobs]:
        """All candidates."""


def generation_of(recipe: WritingSections) -> dict[str, Generation]:
    """Return the knobs of scores that only models which write have."""
    return {"generation": recipe.generation} if recipe.task_type.writes else {}


def check_writing(recipe: WritingSections) -> None:
    """Reject signals and a section that are about written texts for a type whose models write none, and for models that
    write the sections, starts and makers that are not built. Raises ValueError."""
    name, kind = recipe.spec.name, recipe.spec.kind
    learners = [one for one in recipe.planned if one.signal_of_training in WRITTEN_SIGNALS]
    learner = next(iter(learners), None)
    require_written_signals(recipe, learners)
    if not recipe.task_type.writes:
        if recipe.generation != Generation() and learner is None:
            raise ValueError(f"generation says how texts are written, and {name} is of type {kind}; remove it")
        return
    if learner is not None and learner.signal_of_training == "interpolated" and recipe.generation.beams == 1:
        raise ValueError(
            f"{learner.name} learns the one of the teacher's beams that is nearest to the reference (signal: "
            f"interpolated), and generation.beams is 1; set 2 or more beams, or signal: sequence"
        )
    for section, why in NOT_BUILT.items():
        if getattr(recipe, section, None) is not None:
            raise ValueError(f"{section} {why}, and {name} is of type {kind}; remove the section {section}")
    require_both_stacks("task_distillation.intermediate", recipe.task_distillation.intermediate, name, kind)
    for one in recipe.planned:
        maker = getattr(one, "by", "")
        if maker != "distillation":
            raise ValueError(
                f"{one.name} is made by {maker}, which knows models with one stack, and {name} is of type {kind}; "
                f"write students, or candidates by distillation, with layers and decoder_layers"
            )
        if one.start_of_layers not in STARTS_OF_WRITERS and not is_model(one.start_of_layers):
            raise ValueError(
                f"{one.name} starts from {one.start_of_layers}, which has layers of one stack, and {name} is of type "
                f"{kind}; set start: teacher, with evenly spread layers of both stacks, limbeck-seq2seq, embeddings or "
                f"random"
            )
        require_both_stacks(f"{one.name}: intermediate", getattr(one, "intermediate", None), name, kind)


def require_written_signals(recipe: WritingSections, learners: Sequence[CandidateKnobs]) -> None:
    """Raise ValueError for a model that learns texts which a teacher of its type does not write, and for text of the
    user's own beside them, of which there are none."""
    name, kind, legal = recipe.spec.name, recipe.spec.kind, recipe.task_type.written_signals
    refused = next((one for one in learners if one.signal_of_training not in legal), None)
    if refused is not None:
        why = f"whose teachers write {' and '.join(legal)} alone" if legal else "whose models write none"
        raise ValueError(
            f"{refused.name} learns the teacher's texts (signal: {refused.signal_of_training}), and {name} is of type "
            f"{kind}, {why}; set signal: {', '.join(['teacher', *legal])} or labels"
        )
    if learners and not recipe.task_type.writes and getattr(recipe, "transfer", None) is not None:
        raise ValueError(
            f"{learners[0].name} learns the teacher's answers in the training chats (signal: sequence), and not those "
            f"of transfer; remove the section transfer, or set signal: teacher"
        )


def require_written_places(
    recipe: WritingSections, config: Mapping[str, object], positions: int | None = None, name: str = "the teacher"
) -> None:
    """Raise ModelError for a model that writes longer texts than it has places for, by its config; ``positions`` is a
    student's own number of them."""
    stated = [value for knob in WRITTEN_PLACES if isinstance(value := config.get(knob), int)]
    there, asked = positions or max(stated[:1], default=0), recipe.generation.max_length
    answers = any(one.signal_of_training in WRITTEN_SIGNALS for one in recipe.planned)
    if not recipe.task_type.writes and answers and name == "the teacher" and 0 < there <= asked:
        raise ModelError(
            f"generation.max_length is {asked}, and {name} has {there} positions for a question and its answer "
            f"together; set a smaller one, such as {there // 2}"
        )
    if recipe.task_type.writes and 0 < there < asked:
        raise ModelError(
            f"generation.max_length is {asked}, and {name} has {there} positions, so it writes at most {there} tokens; "
            f"set generation.max_length: {there}"
        )


def require_stacks(recipe: WritingSections, config: Mapping[str, object]) -> None:
    """Raise ModelError for a teacher with one stack where a text is written from a source, with two where a text is
    continued, that sees the words that it continues a text with, or does not see those behind a hidden word; ``config``
    is its. Architectures that are not known are judged when they are loaded."""
    name, kind, own = recipe.spec.name, recipe.spec.kind, config.get("model_type")
    has_two = bool(config.get("is_encoder_decoder")) or shape_of(config).get("decoder_layers") is not None
    if recipe.task_type.writes and not has_two:
        raise ModelError(
            f"the teacher is of type {own}, without a decoder beside an encoder, and {name} is of type {kind}, whose "
            f"models read a source and write a text; name a marian, bart or t5 model"
        )
    if recipe.task_type.continues_texts and has_two:
        raise ModelError(
            f"the teacher is of type {own}, which reads a source with one stack and writes with another, and {name} is "
            f"of type {kind}, whose models continue texts; name a gpt2, llama or qwen3 model, or set task.kind: seq2seq"
        )
    finds_hidden = recipe.task_type.keeps_words and not (recipe.task_type.writes or recipe.task_type.continues_texts)
    is_encoder = architecture_of(config).has_masked_lm and own in ARCHITECTURES
    if recipe.task_type.continues_texts and is_encoder:
        raise ModelError(
            f"the teacher is of type {own}, which sees the words behind a place, and {name} is of type {kind}, whose "
            f"models continue texts; name a gpt2, llama or qwen3 model, or set task.kind: masked-words for texts that "
            f"are no chats"
        )
    if finds_hidden and own in ARCHITECTURES and not is_encoder:
        raise ModelError(
            f"the teacher is of type {own}, which finds no hidden words, and {name} is of type {kind}; name a bert, "
            f"roberta or modernbert model, or set task.kind: next-words"
        )


def require_room_of_model(
    recipe: WritingSections, config: Mapping[str, object], positions: int | None = None, name: str = "the teacher"
) -> None:
    """Raise ModelError for a model that writes longer texts than it has places for, and for a training on longer inputs
    than it has: the first text that is longer would end the training. The usual length may be nobody's choice, and is
    refused for a model with words, whose documents fill it, and for a student with fewer ``positions`` than its
    teacher. ``config`` is the model's."""
    require_written_places(recipe, config, positions, name)
    there, fills = positions or read_places(config), recipe.task_type.keeps_words or positions
    if there is None:
        return
    own = [shape for one in recipe.planned if one.name == name and (shape := getattr(one, "shape", None)) is not None]
    if positions and own:
        require_copied_positions(own[0], read_places(config) or positions, f"student {name}: ")
    for where, asked in lengths_of_trainings(recipe, name).items():
        if asked > there and (fills or asked != USUAL_LENGTH):
            raise ModelError(
                f"{where} is {asked}, and {name} has {there} positions, so it reads at most {there} tokens; give it "
                f"{there} or less"
            )


def read_places(config: Mapping[str, object]) -> int | None:
    """Return how many tokens a model reads by its config; None for one without a limit."""
    stated = [value for knob in READ_PLACES if isinstance(value := config.get(knob), int) and value > 0]
    if not stated or "relative_attention_num_buckets" in config:  # T5 states positions that it does not have
        return None
    pad = config.get("pad_token_id")
    reserved = 1 + (pad if isinstance(pad, int) else 0)
    return stated[0] - (reserved if architecture_of(config).reserved_positions else 0)


def lengths_of_trainings(recipe: WritingSections, name: str) -> dict[str, int]:
    """Return the longest inputs of trainings on the task by their places in a recipe: those of a candidate, or, if none
    has this name, of the teacher and of all candidates, whose inputs it answers."""
    named = [one for one in recipe.planned if one.name == name]
    found = dict[str, int]()
    if not named and not recipe.teacher.already_finetuned:
        found["teacher.max_length"] = recipe.teacher.max_length
    for one in named or recipe.planned:
        phases = one.trainings.items()
        own = {
            f"{'.'.join(filter(None, (section, KNOB)))} of {one.name}": phase.max_length for section, phase in phases
        }
        if isinstance(length := getattr(one, "max_length", None), int):
            own[f"{KNOB} of {one.name}"] = length
        if getattr(one, "by", "") == "distillation" and not own:
            section = recipe.task_distillation
            own["task_distillation.prediction.max_length"] = section.prediction.max_length
            if section.intermediate is not None:
                own["task_distillation.intermediate.max_length"] = section.intermediate.max_length
        found |= own
    return found


def require_both_stacks(where: str, phase: Intermediate | None, name: str, kind: str) -> None:
    """Raise ValueError for a first phase that compares layers of one stack."""
    if phase is not None and phase.method != "attention-outputs":
        raise ValueError(
            f"{where} compares layers of one stack (method: {phase.method}), and models of type {kind}, as in {name}, "
            f"have two; use method: attention-outputs with start: limbeck-seq2seq, or remove it"
        )


NOT_BUILT = {
    "pretraining": "trains an encoder alone",
    "transfer": "has texts without a target",
    "layer_dropping": "drops layers of one stack; a student with start: teacher has evenly spread ones of both",
    "sweep": "drops layers of one stack",
    "search": "tries shapes of one stack",
}
"""Sections that are refused for models that write, each with the reason."""
WRITTEN_PLACES = ("max_decoder_position_embeddings", "max_position_embeddings")
"""Entries of a config that say how many tokens a decoder has positions for; models with relative ones have neither."""
KNOB = "max_length"
USUAL_LENGTH: int = TaskTraining.model_fields[KNOB].default
"""The longest input of a training whose recipe names none."""
READ_PLACES = ("max_position_embeddings", "n_positions")
"""Entries of a config that say how many tokens a model reads."""
STARTS_OF_WRITERS = ("teacher", "limbeck-seq2seq", "embeddings", "random")


def is_model(start: str) -> bool:
    """Tell whether a start is a folder or an id of the hub: those have a slash or a point."""
    return "/" in start or "." in start
