"""The complete recipe: YAML parsed into a ``Recipe``; each stage receives only its own slice of it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Self

from pydantic import Field, model_validator

from tasks.catalog import GLUE, JUDGING_SETS, TaskSpec, glue_task
from tasks.recipe.data import SPLITS, Augmentation, CorpusText, Data, JudgingSet, TransferText
from tasks.recipe.distillation import GeneralDistillation, Intermediate, TaskDistillation
from tasks.recipe.judging import COSTS, FIGURES, Exports, Gate, Scoring, Speed
from tasks.recipe.knobs import BLOCK, HEADLINE, Choices, Knobs, Name, runtime_knob
from tasks.recipe.running import Costs, Report, Resources
from tasks.recipe.students import OWN_LAYERS, LayerDropping, StageName, Student, Sweep, general_start
from tasks.recipe.training import Colleague, Ensemble, Pretraining, TaskTraining, Teacher
from tasks.task_types.types import TASK_TYPES, TaskType


class Recipe(Knobs):
    """Everything that determines the results of a run."""

    name: Name = runtime_knob(..., "Short name of the recipe.")
    about: str = runtime_knob("", "Description in one sentence.")
    task: Annotated[str, Choices(*GLUE)] | TaskSpec = Field(
        description="A GLUE task by name, or your own task (columns, labels, metrics)."
    )
    data: Data = Data()
    pretraining: Pretraining | None = Field(
        None, description="Train the teacher's base on the corpus first; then teacher.model is not used."
    )
    teacher: Teacher = Teacher()
    ensemble: Ensemble | None = None
    corpus: CorpusText | None = None
    general_distillation: GeneralDistillation | None = None
    augmentation: Augmentation | None = None
    transfer: TransferText | None = None
    task_distillation: TaskDistillation = TaskDistillation()
    students: tuple[Student, ...] = Field((), description="The small models, each with a name, a shape and a start.")
    layer_dropping: LayerDropping | None = None
    sweep: Sweep | None = Field(None, description="Settings of limbeck sweep; a run ignores them.")
    scoring: Scoring = Scoring()
    speed: Speed = Speed()
    exports: Exports | None = Field(None, description="Export trained models for ONNX Runtime; empty: disabled.")
    gate: Gate = Gate()
    report: Report = Field(Report(), description="Content of the report of a run.")
    resources: Resources = Resources()
    notify: tuple[Annotated[str, Field(pattern=BLOCK)], ...] = runtime_knob(
        (),
        "Prefect notification blocks (type/name, for example slack-webhook/team) that are notified of failure, "
        "refusal and promotion.",
    )
    costs: Costs = runtime_knob(Costs(), "Prices and factors of the ledger, and the budget.")

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        """Reject combinations that would otherwise fail only hours later."""
        names = [student.name for student in self.students]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"students {repeated} are not unique; give each its own name")
        self.check_task()
        if not self.students and self.layer_dropping is None and self.sweep is None:
            raise ValueError("there are no candidates: add students or layer_dropping")
        if self.corpus is None and (self.general_distillation or self.pretraining):
            raise ValueError("general_distillation and pretraining need a corpus; add a corpus section")
        if self.gate.split == "holdout" and not self.data.holdout_rows:
            raise ValueError(
                "the gate decides on holdout rows, and data.holdout_rows is 0; hold out rows (data.holdout_rows: "
                "2000), or set gate.split: validation to decide on the validation split"
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

    def check_task(self) -> None:
        """Reject an unknown task, metrics that its type does not have, and names of classes where it has none."""
        spec, legal = self.spec, self.task_type.metrics
        unknown = next((name for name in spec.metrics if name not in legal), None)
        if unknown is not None:
            raise ValueError(
                f"task.metrics names {unknown!r}, and {spec.name} is a {spec.kind}; choose of {', '.join(legal)}"
            )
        if spec.headline not in spec.metrics:
            raise ValueError(f"task.headline is {spec.headline!r}, which is not one of task.metrics; add it there")
        if spec.labels and not self.task_type.has_classes:
            raise ValueError(f"task.labels names classes, and {spec.name} is a {spec.kind}; leave labels out")

    def check_criteria(self) -> None:
        """Reject criteria on unknown metrics."""
        legal = (*FIGURES, *COSTS, HEADLINE, *self.spec.metrics)
        unknown = [criterion.metric for criterion in self.gate.criteria if criterion.metric not in legal]
        if unknown:
            raise ValueError(f"gate: unknown metric {unknown[0]!r}; legal are {', '.join(legal)}")

    def check_choices(self) -> None:
        """Reject the choice of checkpoints by a metric of another type of task."""
        own = {f"students.{student.name}.prediction": student.prediction for student in self.students}
        trainings: dict[str, TaskTraining | None] = {
            "teacher": self.teacher,
            "task_distillation.prediction": self.task_distillation.prediction,
        }
        trainings |= {f"ensemble.teachers.{number - 2}": colleague for number, colleague in self.colleagues}
        legal = ("headline", *self.task_type.metrics)
        for where, training in {**trainings, "layer_dropping": self.layer_dropping, **own}.items():
            if training is not None and training.choose_by not in legal:
                raise ValueError(
                    f"{where}.choose_by is {training.choose_by}, and {self.spec.name} is a {self.spec.kind}; choose "
                    f"one of {', '.join(legal)}"
                )

    def check_judging_sets(self) -> None:
        """Reject judging sets whose name is taken or whose form differs from the task's, and criteria on sets that do
        not exist."""
        made = ["teacher", *(student.name for student in self.students), *self.dropped]
        for name, given in self.judging_sets.items():
            where = f"data.judge.{name}"
            if name in (*SPLITS, *made):
                raise ValueError(f"{where} has the name of a split or a model of this recipe; give it another name")
            if given.pair is not None and self.spec.pair is None:
                raise ValueError(
                    f"{where} names a second text, and the task {self.spec.name} has only one text; remove pair"
                )
            if (given.labels or given.classes) and not self.task_type.has_classes:
                raise ValueError(
                    f"{where} names classes, and the task {self.spec.name} predicts a number; remove labels and classes"
                )
            if given.overlaps == "purge" and not self.data.purge:
                raise ValueError(f"{where}.overlaps is purge, and data.purge is false; remove one of them")
        legal = (self.gate.split, *self.judging_sets)
        for unknown in (name for criterion in self.gate.criteria for name in criterion.worst_of if name not in legal):
            near = get_close_matches(unknown, legal, 1)
            raise ValueError(
                f"gate: worst_of names {unknown!r}, which is not a judging set of data.judge; "
                f"{f'did you mean {near[0]!r}? ' if near else ''}"
                f"legal are {', '.join(legal)}"
            )

    def check_ensemble(self) -> None:
        """Reject an ensemble that cannot be mixed, or from which no model learns."""
        if self.ensemble is None:
            return
        if self.ensemble.combine == "certainty" and not self.task_type.is_softened:
            raise ValueError(
                f"ensemble.combine: certainty needs classes, and {self.spec.name} is a {self.spec.kind}; use combine: "
                f"weights"
            )
        if "teacher" not in {self.drops_by, *(student.signal for student in self.students)}:
            raise ValueError(
                "no student learns from the ensemble's predictions; set a student's signal to teacher, or remove the "
                "ensemble"
            )

    def check_exports(self) -> None:
        """Reject exports of unknown models, exports under names that are taken, and int8 without held-back rows to
        judge it on."""
        if self.exports is None:
            return
        made = ["teacher", *(student.name for student in self.students), *self.dropped]
        unknown = [name for name in self.exports.of if name not in made]
        if unknown:
            raise ValueError(
                f"exports.of names {unknown[0]!r}, which is not a model of this recipe; its models are "
                f"{', '.join(made)}"
            )
        taken = [f"{name}-{way}" for name in made for way in self.exports.formats if f"{name}-{way}" in made]
        if taken:
            raise ValueError(f"the student name {taken[0]!r} is also the name of an export; give it another name")
        if "int8" in self.exports.formats and not self.data.selection_rows:
            raise ValueError(
                "int8 is evaluated on selection rows, and data.selection_rows is 0; set data.selection_rows, or set "
                "exports.formats: [onnx]"
            )

    def check_stages(self, student: Student) -> None:
        """Reject a student's stages that are missing in the recipe or cannot work for this student."""
        own = ("intermediate",) if student.intermediate is not None else ()
        missing = [stage for stage in student.stages or () if stage not in (*self.optional_stages, *own)]
        if missing:
            raise ValueError(
                f"student {student.name} uses the stages {missing}, which the recipe does not have; it has "
                f"{list(self.optional_stages)}"
            )
        if student.stages and student.signal == "labels":
            raise ValueError(
                f"student {student.name} learns from labels only, but uses {list(student.stages)}; set signal: "
                f"teacher, or remove its stages"
            )
        if "general" in (student.stages or ()) and not general_start(student):
            raise ValueError(
                f"student {student.name} uses the stage general, but starts from {student.start}: general "
                f"distillation computes its own start from the pretrained model; remove general from its stages, set "
                f"its start to embeddings or random, or "
                "its origin to pretrained"
            )
        if self.takes(student, "general") and general_start(student) and student.start == "contribution":
            raise ValueError(
                f"student {student.name} starts from contribution, which is measured on the task's rows, and general "
                f"distillation has no task; choose another strategy, or remove general from its stages"
            )

    def check_phases(self, student: Student) -> None:
        """Reject phases whose settings cannot work for this student."""
        inner, last = self.inner_phase(student), student.prediction or self.task_distillation.prediction
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
        if inner is not None and inner.method == "replacing" and self.transfer is not None and self.transfer.alone:
            raise ValueError(
                f"student {student.name} replaces layers with the loss on labels only, and transfer text has no "
                f"labels; set "
                f"transfer.alone: false"
            )
        if (
            inner is not None
            and inner.method == "layers"
            and inner.matching.layer_map == "kept"
            and student.start not in OWN_LAYERS
        ):
            raise ValueError(
                f"student {student.name} starts from {student.start}, which has no layers of its teacher; use "
                f"layer_map: uniform"
            )
        if self.transfer is not None and self.transfer.alone and student.signal == "teacher" and last.hard_weight == 1:
            raise ValueError(
                f"student {student.name} learns from labels only (hard_weight: 1), and transfer text has no labels; "
                f"set "
                f"transfer.alone: false"
            )
        if last.patience is not None and student.signal == "teacher":
            if student.layers < 2:
                raise ValueError(
                    f"student {student.name} has 1 layer, and patience excludes a student's last layer; set 2 or "
                    f"more layers"
                )
            if self.ensemble is not None:
                raise ValueError(
                    "patience copies the states of one teacher, and an ensemble has several; remove one of the two"
                )
        if self.ensemble is not None and self.takes(student, "augmentation"):
            raise ValueError(
                f"student {student.name} uses the stage augmentation, whose sentences only the first teacher would "
                f"predict; remove augmentation from its stages, or remove the ensemble"
            )

    def inner_phase(self, student: Student) -> Intermediate | None:
        """Return a student's first phase of task distillation, if it has one."""
        return (
            (student.intermediate or self.task_distillation.intermediate)
            if self.takes(student, "intermediate")
            else None
        )

    @property
    def optional_stages(self) -> tuple[StageName, ...]:
        """The optional stages that this recipe has."""
        present = {
            "general": self.general_distillation,
            "augmentation": self.augmentation,
            "intermediate": self.task_distillation.intermediate,
        }
        return tuple(stage for stage, section in present.items() if section is not None)  # type: ignore[misc]

    def takes(self, student: Student, stage: StageName) -> bool:
        """Tell whether a student passes through an optional stage."""
        own = stage == "intermediate" and student.intermediate is not None
        wanted = student.stages is None or stage in student.stages
        return wanted and student.signal == "teacher" and (own or stage in self.optional_stages)

    @property
    def drops_by(self) -> str | None:
        """The training signal of dropped models, if there are any."""
        return self.layer_dropping.signal if self.layer_dropping is not None else None

    @property
    def dropped(self) -> list[str]:
        """The names of the dropped models."""
        dropping = self.layer_dropping
        return (
            [f"{strategy}-{drop}" for strategy in dropping.strategies for drop in dropping.drop]
            if dropping is not None
            else []
        )

    @property
    def colleagues(self) -> list[tuple[int, Colleague]]:
        """The teachers beside the first one, numbered from 2."""
        return list(enumerate(self.ensemble.teachers, start=2)) if self.ensemble else []

    @property
    def spec(self) -> TaskSpec:
        """The task's columns, labels and metrics."""
        return glue_task(self.task) if isinstance(self.task, str) else self.task

    @property
    def task_type(self) -> TaskType:
        """The type of the task."""
        return TASK_TYPES[self.spec.kind]

    @property
    def judging_sets(self) -> dict[str, JudgingSet]:
        """The judging sets by name: those that belong to a GLUE task, where its source has them, and the recipe's own.

        Of the former, rows that overlap with training rows are left out: a set that nobody requested must not make the
        gate refuse every candidate.
        """
        brought = JUDGING_SETS.get(self.spec.name, {}) if self.is_glue else {}
        sets = {
            **{name: JudgingSet(split=split, overlaps="leave-out") for name, split in brought.items()},
            **self.data.judge,
        }
        return {name: given for name, given in sets.items() if given is not None}

    @property
    def is_glue(self) -> bool:
        """Tell whether the task is one of GLUE's by name."""
        return isinstance(self.task, str) and self.task in GLUE
