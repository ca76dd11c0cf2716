"""Checks of sections of a recipe against each other: stages and phases that could not work for a student, and metrics
of rows that are judged together without such rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, get_args

from tasks.architectures.limbeck.encoder import require_head_of_encoder
from tasks.catalog import TaskSpec
from tasks.errors import ModelError
from tasks.recipe.chains import (
    require_comparable_layers,
    require_kept_answers,
    require_method_of_start,
    require_parts_of_words,
    require_teachers_pieces,
    require_turns,
)
from tasks.recipe.data import Augmentation, JudgingSet, TransferText
from tasks.recipe.distillation import Formula, GeneralDistillation, Intermediate, Prediction, TaskDistillation
from tasks.recipe.judging import Exports, Scoring
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.students import OWN_KNOBS, OWN_LAYERS, Shape, StageName, Student, general_start
from tasks.recipe.training import Ensemble
from tasks.task_types.types import OF_GROUPS, TaskType


class StudentSections(Protocol):
    """The sections of a recipe that a student depends on."""

    @property
    def spec(self) -> TaskSpec:
        """The task."""

    @property
    def task_type(self) -> TaskType:
        """Its type."""

    @property
    def general_distillation(self) -> GeneralDistillation | None:
        """Distillation on general text."""

    @property
    def pretraining(self) -> object | None:
        """Pretraining of a model."""

    @property
    def exports(self) -> Exports | None:
        """Graphs."""

    @property
    def augmentation(self) -> Augmentation | None:
        """Substitutes of words."""

    @property
    def planned(self) -> Sequence[CandidateKnobs]:
        """All candidates."""

    @property
    def task_distillation(self) -> TaskDistillation:
        """Both phases."""

    @property
    def transfer(self) -> TransferText | None:
        """The user's text without labels."""

    @property
    def ensemble(self) -> Ensemble | None:
        """Further teachers."""

    @property
    def optional_stages(self) -> tuple[StageName, ...]:
        """The optional stages that the recipe has."""

    def takes(self, student: Student, stage: StageName) -> bool:
        """Tell whether a student passes through an optional stage."""

    def inner_phase(self, student: Student) -> Intermediate | None:
        """Return a student's first phase."""


def general_phase(recipe: StudentSections, student: Student) -> GeneralDistillation | None:
    """Return a student's distillation on general text, if it passes through one: its own, or the recipe's."""
    return (student.general or recipe.general_distillation) if recipe.takes(student, "general") else None


def check_stages(recipe: StudentSections, student: Student) -> None:
    """Reject a start without a head for the task, and stages that are missing in the recipe or cannot work for this
    student."""
    require_head_of_encoder(student.name, student.start, recipe.task_type.auto_class)
    own = ("intermediate",) if student.intermediate is not None else ()
    missing = [stage for stage in student.stages or () if stage not in (*recipe.optional_stages, *own)]
    if missing:
        raise ValueError(
            f"student {student.name} uses the stages {missing}, which the recipe does not have; it has "
            f"{list(recipe.optional_stages)}"
        )
    if student.general is not None and not (general_start(student) and recipe.takes(student, "general")):
        raise ValueError(
            f"student {student.name} has a distillation on general text of its own (general), which takes the place "
            f"of the recipe's, and it passes through none: give the recipe general_distillation, and the student "
            f"signal: teacher, the stage general, and a start that is drawn or of origin: pretrained"
        )
    if student.stages and student.signal == "labels":
        raise ValueError(
            f"student {student.name} learns from labels only, but uses {list(student.stages)}; set signal: teacher, "
            f"or remove its stages"
        )
    if "general" in (student.stages or ()) and not general_start(student):
        raise ValueError(
            f"student {student.name} uses the stage general, but starts from {student.start}: general distillation "
            f"computes its own start from the pretrained model; remove general from its stages, set its start to "
            f"embeddings or random, or "
            "its origin to pretrained"
        )
    if recipe.takes(student, "general") and general_start(student) and student.start == "contribution":
        raise ValueError(
            f"student {student.name} starts from contribution, which is measured on the task's rows, and general "
            f"distillation has no task; choose another strategy, or remove general from its stages"
        )


def check_phases(recipe: StudentSections, student: Student) -> None:
    """Reject phases whose settings cannot work for this student."""
    inner, last = recipe.inner_phase(student), student.prediction or recipe.task_distillation.prediction
    if (
        inner is not None
        and inner.method == "replacing"
        and (student.start not in OWN_LAYERS or student.origin != "finetuned")
    ):
        raise ValueError(
            f"student {student.name} replaces its teacher's layers (method: replacing), so it must start from "
            f"whole layers of the fine-tuned teacher; "
            "set start: top or teacher, and remove origin"
        )
    if inner is not None and inner.method == "replacing" and recipe.transfer is not None and recipe.transfer.alone:
        raise ValueError(
            f"student {student.name} replaces layers with the loss on labels only, and transfer text has no labels; "
            f"set "
            f"transfer.alone: false"
        )
    if inner is not None:
        require_method_of_start(student.name, student.start, inner)
    if (
        inner is not None
        and inner.method == "layers"
        and inner.matching.layer_map == "kept"
        and student.start not in OWN_LAYERS
    ):
        raise ValueError(
            f"student {student.name} starts from {student.start}, which has no layers of its teacher; use layer_map: "
            f"uniform"
        )
    if recipe.transfer is not None and recipe.transfer.alone and student.signal == "teacher" and last.hard_weight == 1:
        raise ValueError(
            f"student {student.name} learns from labels only (hard_weight: 1), and transfer text has no labels; set "
            f"transfer.alone: false"
        )
    if last.patience is not None and student.signal == "teacher":
        if student.layers < 2:
            raise ValueError(
                f"student {student.name} has 1 layer, and patience excludes a student's last layer; set 2 or more "
                f"layers"
            )
        if recipe.ensemble is not None:
            raise ValueError(
                "patience copies the states of one teacher, and an ensemble has several; remove one of the two"
            )
    if recipe.ensemble is not None and recipe.takes(student, "augmentation"):
        raise ValueError(
            f"student {student.name} uses the stage augmentation, whose sentences only the first teacher would "
            f"predict; remove augmentation from its stages, or remove the ensemble"
        )


def check_turns(recipe: StudentSections, student: Student) -> None:
    """Reject phases of feature maps that cannot work for this student."""
    share = (student.share or "all") if student.start == "albert" else None
    phases: tuple[GeneralDistillation | Intermediate | None, ...]
    phases = (general_phase(recipe, student), recipe.inner_phase(student))
    for phase in phases:
        if phase is not None:
            require_turns(student.name, share, student.layers, phase)


def check_follower(recipe: StudentSections, student: Student, made_from: str, behind: Sequence[CandidateKnobs]) -> None:
    """Reject a first phase that needs its teacher's own layers, or its tokens, for a student that is made from another
    candidate; ``behind`` are all that it is made from."""
    inner = recipe.inner_phase(student)
    if inner is not None and inner.method == "replacing":
        raise ValueError(
            f"candidate {student.name} is made from {made_from}, whose layers were trained since; method: replacing "
            f"needs the teacher's own, so give it another method, or make it from teacher"
        )
    if inner is not None:
        unlike = "are read in windows" if recipe.task_type.has_units else ""
        unlike = unlike or ("have replaced words" if recipe.takes(student, "augmentation") else "")
        require_comparable_layers(student.name, inner.method, behind, unlike)


def last_phases(recipe: StudentSections) -> list[Prediction]:
    """Return the last phase of the recipe, and those of candidates of all makers that have one of their own."""
    own = [phase for one in recipe.planned for phase in one.trainings.values() if isinstance(phase, Prediction)]
    return [recipe.task_distillation.prediction, *own]


def check_formulas(recipe: StudentSections) -> None:
    """Reject a formula of a last phase that the task's type does not have, and a live teacher where none is needed."""
    require_kept_answers(recipe.spec.name, recipe.spec.kind, recipe.task_distillation.answers)
    # a type that has a formula has it with every share in brackets
    legal = [one for one in get_args(Formula) if one.partition("(")[0] in recipe.task_type.formulas]
    other = next((one.formula for one in last_phases(recipe) if one.formula not in legal), None)
    if other is not None:
        raise ValueError(
            f"formula is {other!r}, and {recipe.spec.name} is of type {recipe.spec.kind}; legal are {', '.join(legal)}"
        )


def check_units(recipe: StudentSections) -> None:
    """Reject parts of a recipe that only work with one answer a row, for a task type whose rows have several, and
    formulas of another type."""
    check_formulas(recipe)
    spec = recipe.spec
    if not recipe.task_type.has_units:
        return
    if recipe.task_type.answers_pieces:
        require_teachers_pieces(recipe.planned)
    if recipe.task_type.keeps_words:
        formats = recipe.exports.formats if recipe.exports else ()
        require_parts_of_words(spec.name, spec.kind, recipe.pretraining, recipe.general_distillation, formats)
    apart = recipe.task_type.reads_units_apart
    if apart and spec.pair is None:
        raise ValueError(
            f"task.pair names no column, and {spec.name} is of type {spec.kind}; name a column of lists, as in "
            f'pair: "{{choices[]}}", or several columns, as in pair: "{{choice1 | choice2}}"'
        )
    if spec.pair is not None and not (apart or "pair" in {column.role for column in recipe.task_type.columns}):
        raise ValueError(f"task.pair names a second text, and {spec.name} is of type {spec.kind}; leave pair out")
    needed = next((column for column in recipe.task_type.columns if column.role == "pair" and column.required), None)
    if needed is not None and spec.pair is None:
        raise ValueError(f"task.pair names no column, and {spec.name} needs {needed.description}; name its column")
    if recipe.ensemble is not None and not recipe.task_type.mixes_teachers:
        raise ValueError(
            f"ensemble mixes the answers of several teachers, and {spec.name} is of type {spec.kind}, whose answers "
            f"are not mixed; remove the section ensemble"
        )
    if recipe.augmentation is not None:
        harm = "change which option or text is right" if apart else "have another tag, or be the answer"
        raise ValueError(
            f"augmentation replaces words, and {spec.name} is of type {spec.kind}, in which a replaced word may "
            f"{harm}; remove the section augmentation"
        )
    if any(one.patience is not None for one in last_phases(recipe)) and not apart:
        raise ValueError(
            f"patience compares one token of each row, and {spec.name} is of type {spec.kind}, with an answer for each "
            f"word or piece; remove patience"
        )


def own_knobs_apart(student: Student) -> list[str]:
    """Return the knobs of a student's shape that are given, but for those that only its start has; raise ModelError for
    those of another start."""
    given = [knob for knob in Shape.model_fields if getattr(student, knob) is not None]
    own = OWN_KNOBS.get(student.start, ())
    for knobs in OWN_KNOBS.values():
        other = [knob for knob in given if knob in knobs and knob not in own]
        if other:
            starts = " or ".join(name for name, known in OWN_KNOBS.items() if set(other) <= set(known))
            raise ModelError(
                f"student {student.name}: {', '.join(other)} can be set with start: {starts} only, and it has start: "
                f"{student.start}; remove them, or set that start"
            )
    return [knob for knob in given if knob not in own]


# --- rows that are judged together ------------------------------------------------------------------------------------


class GroupedSections(Protocol):
    """The sections of a recipe that name groups, or metrics of groups."""

    @property
    def spec(self) -> TaskSpec:
        """The task."""

    @property
    def task_type(self) -> TaskType:
        """Its type."""

    @property
    def scoring(self) -> Scoring:
        """Further metrics."""

    @property
    def judging_sets(self) -> Mapping[str, JudgingSet]:
        """The judging sets by name."""


def group_of(recipe: GroupedSections, on: str = "") -> str | None:
    """Return the column of groups of the task's own rows, or ``on`` a judging set: that of the set, or the task's where
    the set is of the same source."""
    if not on:
        return recipe.spec.group
    given = recipe.judging_sets[on]
    return given.group or (None if given.source else recipe.spec.group)


def check_groups(recipe: GroupedSections) -> None:
    """Reject metrics of groups where no rows have any, and groups of rows whose units have an answer each."""
    spec, sets = recipe.spec, recipe.judging_sets
    if recipe.task_type.has_units and any(group_of(recipe, one) for one in ("", *sets)):
        raise ValueError(
            f"groups are of rows with one answer each, and {spec.name} is of type {spec.kind}; remove group"
        )
    own = next((name for name in spec.metrics if name in OF_GROUPS), None)
    if own is not None and spec.group is None:
        raise ValueError(
            f"task.metrics names {own!r}, which judges groups of rows, and the task names no column of them; set "
            f"task.group, or move the metric to scoring.metrics where a judging set has groups"
        )
    without = next((name for name in sets if own is not None and group_of(recipe, name) is None), None)
    if without is not None:
        raise ValueError(
            f"task.metrics names {own!r}, which judges groups of rows, and data.judge.{without} names no column of "
            f"them; set data.judge.{without}.group"
        )
    further = next((name for name in recipe.scoring.metrics if name in OF_GROUPS), None)
    if further is not None and not any(group_of(recipe, one) for one in ("", *sets)):
        raise ValueError(
            f"scoring.metrics names {further!r}, which judges groups of rows; set task.group, or group of a judging "
            f"set, to the column of the groups"
        )


def judging_metrics(recipe: GroupedSections) -> tuple[str, ...]:
    """Return the metrics of a task's type that its own rows have: those of groups only where there are groups."""
    return tuple(name for name in recipe.task_type.metrics if recipe.spec.group or name not in OF_GROUPS)


def further_metrics_on(recipe: GroupedSections, on: str = "") -> tuple[str, ...]:
    """Return the metrics of ``scoring.metrics`` of the task's own rows, or ``on`` a judging set: those of groups only
    where there are groups."""
    grouped = group_of(recipe, on) is not None
    return tuple(name for name in recipe.scoring.metrics if grouped or name not in OF_GROUPS)
