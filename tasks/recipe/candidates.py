"""The candidates of a recipe: each is made from the pretrained model, the teacher or another candidate, by a maker.

``students`` and ``layer_dropping`` are short ways to write candidates of two makers; ``chains.py`` lists all of them
before anything runs. A further maker adds its knobs here, as one more class of ``AnyCandidate``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tasks.architectures.albert import layers_together
from tasks.catalog import TaskSpec
from tasks.modeling.names import OWN_TYPES, in_each_layer
from tasks.recipe.distillation import SIGNALS, GeneralDistillation, Intermediate, Prediction, Signal, TaskDistillation
from tasks.recipe.knobs import Choices, added_knob
from tasks.recipe.makers.bits import QuantizedCandidate
from tasks.recipe.makers.candidate_knobs import PRETRAINED, TEACHER, CandidateKnobs
from tasks.recipe.makers.dropping import DroppedTraining, LayerDropping, MayStayUntrained
from tasks.recipe.makers.pretraining import PretrainedCandidate
from tasks.recipe.makers.shrinking import HeadsCandidate, NarrowedCandidate, PrunedCandidate, TrimmedCandidate
from tasks.recipe.makers.supernets import SubNetworkCandidate
from tasks.recipe.makers.weights import LotteryCandidate, SparseCandidate
from tasks.recipe.students import (
    DRAWN_STARTS,
    OWN_LAYERS,
    STRATEGY_NAMES,
    Shape,
    StageName,
    Student,
    require_inner_phase,
    require_start,
    takes_layers,
)
from tasks.recipe.training import Pretraining, TaskTraining, Teacher
from tasks.task_types.types import TASK_TYPES


class DistilledCandidate(CandidateKnobs):
    """A student: of a shape and a start of its own, made from the teacher or the pretrained model, or another candidate
    that is distilled further."""

    by: Literal["distillation"] = Field(description="The maker.")
    role: Literal["student", "baseline"] = Field(
        "student", description="A baseline is scored beside the others and never becomes champion."
    )
    shape: Shape | None = Field(
        None, description="The student's architecture; empty where it is made from a candidate, whose shape it has."
    )
    start: str = Field(TEACHER, description="As of students; not where it is made from a candidate.")
    stages: tuple[StageName, ...] | None = Field(
        None, description="Optional stages that it takes; empty: all of the recipe's that its start takes."
    )
    signal: Signal = Field("teacher", description=SIGNALS)
    general: GeneralDistillation | None = added_knob(
        None, "Its own distillation on general text, instead of the recipe's."
    )
    intermediate: Intermediate | None = Field(None, description="Its own first phase, instead of the recipe's.")
    prediction: Prediction | None = Field(None, description="Its own second phase, instead of the recipe's.")

    @model_validator(mode="after")
    def is_built_once(self) -> Self:
        """Reject a shape or a start for a candidate whose model is there already, and a new one without a shape."""
        if self.is_follower and (self.shape is not None or self.start != TEACHER):
            raise ValueError(
                f"candidate {self.name} is made from {self.made_from}, so its model is built already; leave shape and "
                f"start out"
            )
        if self.is_follower and "general" in (self.stages or ()):
            raise ValueError(
                f"candidate {self.name} is made from {self.made_from}, and general distillation begins with a new "
                f"student; leave general out of its stages"
            )
        if not self.is_follower and self.shape is None:
            raise ValueError(f"candidate {self.name} is a new student; give it a shape, for example {{layers: 6}}")
        if self.made_from == PRETRAINED and not takes_layers(self.start):
            raise ValueError(
                f"candidate {self.name} is made from the pretrained model, of whose layers start: {self.start} takes "
                f"none; set from: teacher, or another start"
            )
        require_start(self.name, self.start)
        if self.intermediate is not None:
            require_inner_phase(self.name, self.signal, self.stages)
        return self

    @property
    def planned_role(self) -> str:
        """A student, or a baseline."""
        return self.role

    @property
    def signal_of_training(self) -> str:
        """What the second phase learns from."""
        return self.signal

    @property
    def start_of_layers(self) -> str:
        """Its start."""
        return self.start

    @property
    def planned_shape(self) -> dict[str, int | None]:
        """The sizes of its shape, if it is a new student."""
        return {knob: value for knob, value in self.shape or () if not isinstance(value, (str, tuple))}

    def sharing(self, section: Pretraining | None) -> str:
        """What its shape says, or, where it has the teacher's architecture, what the teacher's layers share."""
        if self.start == "albert" and self.shape is not None:
            share = self.shape.share or "all"
            return "none" if layers_together(share, self.shape.layers) == 1 else share
        return super().sharing(section) if self.start in (*OWN_LAYERS, *DRAWN_STARTS) else ""

    @property
    def mixers(self) -> tuple[str, ...]:
        """What stands in each of its layers, if it is built with attentions of our own."""
        if self.start not in OWN_TYPES or self.shape is None:
            return ()
        return tuple(in_each_layer(self.shape.mixer or "softmax", self.shape.layers))

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its second phase, where it has one of its own."""
        return {"prediction": self.prediction} if self.prediction is not None else {}

    def depth(self, layers: int) -> int:
        """Return the layers of its shape, or of the candidate that it is made from."""
        return self.shape.layers if self.shape is not None else layers

    @classmethod
    def of_student(cls, student: Student) -> Self:
        """Return the candidate that an entry of ``students`` is short for."""
        common = {name: getattr(student, name) for name in SAME_AS_OF_STUDENTS}
        shape = Shape(**{name: getattr(student, name) for name in Shape.model_fields})
        return cls(
            **common, made_from=PRETRAINED if student.origin == PRETRAINED else TEACHER, by="distillation", shape=shape
        )

    def as_student(self) -> Student:
        """Return a new student as an entry of ``students``; of a follower see ``further_student``."""
        assert self.shape is not None
        common = {name: getattr(self, name) for name in SAME_AS_OF_STUDENTS}
        origin: Any = PRETRAINED if self.made_from == PRETRAINED else "finetuned"
        return Student(**dict(self.shape), **common | {"seeds": self.planned_seeds}, origin=origin)

    def further_student(self, start: str, layers: int, stages: tuple[StageName, ...]) -> Student:
        """Return a follower as a student whose layers come from ``start``, with ``layers`` of them and the optional
        stages that the recipe has for it."""
        common = {name: getattr(self, name) for name in SAME_AS_OF_STUDENTS}
        taken = () if self.signal != "teacher" else self.stages if self.stages is not None else stages
        return Student(layers=layers, **common | {"seeds": self.planned_seeds, "start": start, "stages": taken})


def tokenizes_corpus(general: GeneralDistillation | None, candidates: Sequence[CandidateKnobs]) -> bool:
    """Tell whether the corpus is divided by the pretrained model's tokenizer: for general distillation, or because a
    candidate counts its pieces."""
    return general is not None or any(isinstance(one, TrimmedCandidate) and "corpus" in one.of for one in candidates)


SAME_AS_OF_STUDENTS = (
    *("name", "role", "compared_to", "start", "stages", "signal", "general", "intermediate", "prediction", "seeds"),
)
"""Knobs of a distilled candidate that an entry of ``students`` has, too."""


class DroppedCandidate(MayStayUntrained, CandidateKnobs):
    """A model without some of its layers, trained again (Sajjad et al. 2020, arXiv:2004.03844)."""

    by: Literal["layer-dropping"] = Field(description="The maker.")
    strategy: Annotated[str, Choices(*STRATEGY_NAMES)] = Field("top", description=f"{', '.join(STRATEGY_NAMES)}.")
    drop: int = Field(2, ge=1, description="How many layers to remove.")

    @property
    def planned_role(self) -> str:
        """A dropped model."""
        return "dropped"

    @property
    def signal_of_training(self) -> str:
        """What the remaining layers are trained with."""
        return self.signal

    @property
    def trainings(self) -> dict[str, TaskTraining]:
        """Its training, which is the whole section."""
        return {"": self}

    def depth(self, layers: int) -> int:
        """Return the number of layers that remain."""
        return layers - self.drop

    @classmethod
    def of_section(cls, dropping: LayerDropping, strategy: str, drop: int) -> Self:
        """Return a candidate that the section ``layer_dropping`` is short for."""
        common = {name: getattr(dropping, name) for name in DroppedTraining.model_fields}
        return cls(
            **common,
            name=f"{strategy}-{drop}",
            made_from=TEACHER if dropping.after_finetuning else PRETRAINED,
            seeds=dropping.seeds,
            by="layer-dropping",
            strategy=strategy,
            drop=drop,
        )

    def as_section(self) -> LayerDropping:
        """Return the training as a section ``layer_dropping``; what it drops from is said elsewhere."""
        common = {name: getattr(self, name) for name in DroppedTraining.model_fields}
        return LayerDropping(
            **common, seeds=self.planned_seeds, strategies=(self.strategy,), drop=(self.drop,), after_finetuning=True
        )


AnyCandidate = (
    Annotated[DistilledCandidate, Tag("distillation")]
    | Annotated[DroppedCandidate, Tag("layer-dropping")]
    | Annotated[TrimmedCandidate, Tag("vocabulary-trimming")]
    | Annotated[PrunedCandidate, Tag("neuron-pruning")]
    | Annotated[NarrowedCandidate, Tag("width-pruning")]
    | Annotated[HeadsCandidate, Tag("head-pruning")]
    | Annotated[SparseCandidate, Tag("weight-pruning")]
    | Annotated[LotteryCandidate, Tag("lottery-ticket")]
    | Annotated[QuantizedCandidate, Tag("quantization")]
    | Annotated[PretrainedCandidate, Tag("pretraining")]
    | Annotated[SubNetworkCandidate, Tag("supernet")]
)
"""The knobs of every maker, under the maker's name."""


def knobs_by_maker() -> dict[str, type[CandidateKnobs]]:
    """Return the knobs of each maker by its name."""
    return {get_args(one)[1].tag: get_args(one)[0] for one in get_args(AnyCandidate)}


def maker_of(given: Any) -> str:
    """Return the maker that an entry names, in a recipe or as knobs."""
    return str(given.get("by", "nothing") if isinstance(given, dict) else given.by)


def require_maker(given: Any) -> Any:
    """Raise ValueError for an entry without a known maker, and suggest the most similar one; return the entry."""
    name = maker_of(given) if isinstance(given, (dict, CandidateKnobs)) else "nothing"
    legal = knobs_by_maker()
    if name not in legal:
        near = get_close_matches(name, legal, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"by names the maker of a candidate, not {name!r}; {hint}legal are {', '.join(legal)}")
    return given


CandidateSection = Annotated[AnyCandidate, Discriminator(maker_of), BeforeValidator(require_maker)]
"""An entry of ``candidates``, read with the knobs of its maker."""


def require_one_choice(planned: Sequence[CandidateKnobs], last: Prediction, headline: str) -> None:
    """Raise ValueError if checkpoints of candidates are chosen by different metrics: the gate compares their scores on
    the selection rows, of which each has one. A model that is not trained has that of the ``headline``; ``last`` is the
    recipe's phase of students without one of their own."""
    chosen: dict[str, str] = {}
    for one in planned:
        phases = [*one.trainings.values()] or ([last] if isinstance(one, DistilledCandidate) else [])
        metrics = [phase.choose_by for phase in phases] or ["headline"]
        chosen |= {headline if metric == "headline" else metric: one.name for metric in metrics}
    if len(chosen) > 1:
        told = " and ".join(f"{name} by {metric}" for metric, name in chosen.items())
        raise ValueError(
            f"checkpoints are chosen by different metrics ({told}), and candidates are compared by these scores; set "
            f"the same choose_by for all, and headline where a candidate is not trained"
        )


# --- tasks whose answer is a vector of each text --------------------------------------------------------------------


def require_vectors(
    spec: TaskSpec, teachers: Mapping[str, Teacher], planned: Sequence[CandidateKnobs], section: TaskDistillation
) -> None:
    """Reject a task without second texts, layers that are replaced, and, where labels judge alone, trainings on them;
    ``section`` is the recipe's of task distillation. Raises ValueError."""
    if spec.pair is None:
        raise ValueError(
            f"task.pair names no column, and {spec.name}, of type {spec.kind}, is judged on pairs of texts; name the "
            f"column of second texts; texts without a second one are learned from as transfer text (section transfer)"
        )
    own = {one.name: one.intermediate for one in planned if isinstance(one, DistilledCandidate)}
    inner = {"task_distillation": section.intermediate, **own}
    replacing = next((where for where, phase in inner.items() if phase is not None and phase.method == "replacing"), "")
    if replacing:
        raise ValueError(
            f"{replacing} replaces layers with the loss on the label of each text (method: replacing), and labels of "
            f"type {spec.kind} are those of pairs; use another method"
        )
    if not TASK_TYPES[spec.kind].learns_labels:
        require_no_labels(spec, teachers, planned, section)


def require_no_labels(
    spec: TaskSpec, teachers: Mapping[str, Teacher], planned: Sequence[CandidateKnobs], section: TaskDistillation
) -> None:
    """Reject trainings, and measures of importance, on labels that judge alone. Raises ValueError."""
    for where, teacher in teachers.items():
        if not teacher.already_finetuned:
            raise ValueError(
                f"{where} would be fine-tuned on labels, and labels of type {spec.kind} judge alone; set "
                f"{where}.already_finetuned: true, and name a model whose vectors are good"
            )
    learner = next((one.name for one in planned if one.signal_of_training == "labels"), None)
    if learner is not None:
        raise ValueError(
            f"{learner} would be trained on labels, and labels of type {spec.kind} judge alone; set its signal: teacher"
        )
    measured = next((one.name for one in planned if getattr(one, "importance", "") == "taylor"), None)
    if measured is not None:
        raise ValueError(
            f"{measured} keeps what changes the loss on labels (importance: taylor), and labels of type {spec.kind} "
            f"judge alone; set its importance: activation, or magnitude"
        )
    last: list[tuple[str, TaskTraining]] = [("task_distillation.prediction", section.prediction)]
    last += [(one.name, phase) for one in planned for phase in one.trainings.values()]
    for where, phase in last:
        weight, usual = getattr(phase, "hard_weight", 0.0), type(phase).model_fields.get("hard_weight")
        if weight not in (0.0, usual and usual.default):  # the usual weight may be nobody's choice, and is not read
            raise ValueError(
                f"{where} gives labels a weight (hard_weight: {weight:g}), and labels of type {spec.kind} judge alone: "
                f"they teach nothing; set hard_weight: 0"
            )
