"""The complete recipe: YAML parsed into a ``Recipe``; each stage receives only its own slice of it."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from tasks.catalog import GLUE, JUDGING_SETS, TaskSpec, glue_task
from tasks.recipe.candidates import CandidateSection, DistilledCandidate, require_one_choice, require_vectors
from tasks.recipe.chains import (
    LEAST_LAYERS,
    check_ensemble,
    origins_of,
    planned_candidates,
    require_chains,
    require_made,
    start_behind,
)
from tasks.recipe.data import SPLITS, Augmentation, CorpusText, Data, JudgingSet, TransferText, require_packable
from tasks.recipe.distillation import GeneralDistillation, Generation, Intermediate, TaskDistillation
from tasks.recipe.judging import COSTS, FIGURES, OF_TOKENS, OWN_METRIC, Exports, Gate, Scoring, Speed
from tasks.recipe.knobs import BLOCK, HEADLINE, Choices, DerivedKnobs, Name, did_you_mean, runtime_knob
from tasks.recipe.makers.candidate_knobs import TEACHER, CandidateKnobs
from tasks.recipe.makers.dropping import LayerDropping
from tasks.recipe.makers.pretraining import check_pretrained
from tasks.recipe.makers.search import ShapeSearch
from tasks.recipe.makers.section_checks import check_counted_texts, check_exports
from tasks.recipe.makers.writing import check_writing
from tasks.recipe.running import Costs, Report, Resources
from tasks.recipe.student_checks import (
    check_follower,
    check_groups,
    check_phases,
    check_stages,
    check_turns,
    check_units,
    judging_metrics,
)
from tasks.recipe.students import StageName, Student, Sweep
from tasks.recipe.training import (
    Colleague,
    Ensemble,
    Pretraining,
    TaskTraining,
    Teacher,
    require_reachable_floors,
)
from tasks.task_types.types import METRICS_OF_SCORES_OF, SENTENCE_VECTORS, TASK_TYPES, TaskType

RANKING = frozenset().union(*METRICS_OF_SCORES_OF.values())
"""The metrics of scores of all task types."""


class Recipe(DerivedKnobs):
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
    candidates: tuple[CandidateSection, ...] = Field(
        (),
        description="More models, each made from the pretrained model, the teacher or another candidate, by a maker: "
        "chains of any length. Students and layer_dropping are the short way to write candidates of two makers.",
    )
    sweep: Sweep | None = Field(None, description="Settings of limbeck sweep; a run ignores them.")
    search: ShapeSearch | None = Field(None, description="Settings of limbeck search; a run ignores them.")
    generation: Generation = Field(Generation(), description="How models of type seq2seq write.")
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
        check_units(self)
        check_writing(self)
        check_groups(self)
        self.check_further_metrics()
        if not self.planned and self.sweep is None and self.search is None:
            raise ValueError("there are no candidates: add students, layer_dropping or candidates")
        check_pretrained(self.planned, self.pretraining)
        require_chains(self.planned, self.pretraining)
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
        require_packable(self.data, self.spec, self.transfer)
        check_ensemble(self.ensemble, self.spec, self.planned)
        check_exports(self)
        check_counted_texts(self)
        for student in self.all_students:
            check_stages(self, student)
            check_phases(self, student)
            check_turns(self, student)
        for one in self.planned:
            if one.is_follower and isinstance(one, DistilledCandidate):
                behind = origins_of(one, {other.name: other for other in self.planned})
                check_follower(self, self.as_student(one), one.made_from, behind)
        return self

    def check_task(self) -> None:
        """Reject an unknown task, metrics that its type does not have, and names of classes where it has none."""
        spec, legal = self.spec, self.task_type.metrics
        unknown = next((name for name in (*spec.metrics, spec.headline) if name not in legal), None)
        if unknown is not None and (unknown in RANKING or OWN_METRIC.fullmatch(unknown)):
            raise ValueError(
                f"task.metrics names {unknown!r}, which is reported beside the metrics of the task, and chooses no "
                f"checkpoint: trainings know {', '.join(legal)}; move it to scoring.metrics"
            )
        if unknown is not None and unknown in spec.metrics:
            raise ValueError(
                f"task.metrics names {unknown!r}; {did_you_mean(unknown, legal)}for {spec.name}, a {spec.kind}, legal "
                f"are {', '.join(legal)}"
            )
        columns = [column for column in (spec.text, spec.pair, spec.label) if column is not None]
        if len(set(columns)) < len(columns):
            raise ValueError(
                f"the task's columns are {', '.join(columns)}; name another for each of text, pair and label"
            )
        if spec.headline not in spec.metrics:
            raise ValueError(f"task.headline is {spec.headline!r}, which is not one of task.metrics; add it there")
        if self.task_type.outputs == SENTENCE_VECTORS:
            colleagues = {f"ensemble.teachers.{number - 2}": one for number, one in self.colleagues}
            require_vectors(spec, {"teacher": self.teacher, **colleagues}, self.planned, self.task_distillation)
        if spec.labels and not self.task_type.has_classes:
            raise ValueError(f"task.labels names classes, and {spec.name} is a {spec.kind}; leave labels out")

    def check_further_metrics(self) -> None:
        """Reject further metrics that are the task's own, that its type does not have, or that it has too many classes
        for; registered ones are known to a machine, not to a recipe."""
        spec, of_scores = self.spec, METRICS_OF_SCORES_OF.get(self.spec.kind, ())
        further = [*(name for name in self.task_type.metrics if name not in spec.metrics), *of_scores]
        for name in self.scoring.metrics:
            if name in spec.metrics:
                raise ValueError(f"scoring.metrics names {name!r}, which is a metric of the task already; remove it")
            if name not in further and OWN_METRIC.fullmatch(name) is None:
                hint = did_you_mean(name, (*further, *spec.metrics))
                raise ValueError(
                    f"scoring.metrics names {name!r}; {hint}for {spec.name}, a {spec.kind}, legal are "
                    f"{', '.join(further)}, and own/NAME, a metric that limbeck metrics lists"
                )
            if name in of_scores and spec.labels and len(spec.labels) != 2:
                raise ValueError(
                    f"scoring.metrics names {name!r}, which is for two classes, and {spec.name} has "
                    f"{len(spec.labels)}; remove it"
                )

    def check_criteria(self) -> None:
        """Reject criteria on unknown metrics, and on further metrics where these are not computed."""
        further = self.scoring.metrics
        for one in self.gate.criteria:
            if one.metric in further and one.reference == "champion":
                raise ValueError(
                    f"gate: {one.metric} is one of scoring.metrics, which are computed for the models of a run; remove "
                    f"relative_to: champion"
                )
        of_others = () if TASK_TYPES[self.spec.kind].continues_texts else OF_TOKENS
        figures = tuple(name for name in FIGURES if name not in of_others)
        legal = (*figures, *COSTS, HEADLINE, *self.spec.metrics, *further)
        unknown = [criterion.metric for criterion in self.gate.criteria if criterion.metric not in legal]
        if unknown:
            hint = did_you_mean(unknown[0], legal)
            raise ValueError(f"gate.criteria: unknown metric {unknown[0]!r}; {hint}legal are {', '.join(legal)}")
        self.gate.for_headline(self.spec.headline).require_shares()
        require_made(
            self.gate, self.candidates, self.exports, elsewhere=any(one in self.data.judge for one in self.counted_sets)
        )

    def check_choices(self) -> None:
        """Reject the choice of checkpoints by a metric of another type of task."""
        own: dict[str, TaskTraining | None] = {
            f"students.{student.name}.prediction": student.prediction for student in self.students
        }
        teachers: dict[str, Teacher] = {"teacher": self.teacher}
        teachers |= {f"ensemble.teachers.{number - 2}": colleague for number, colleague in self.colleagues}
        require_reachable_floors(teachers, self.spec.headline)
        trainings = {**teachers, "task_distillation.prediction": self.task_distillation.prediction}
        own |= {
            ".".join(filter(None, ("candidates", one.name, section))): training
            for one in self.candidates
            for section, training in one.trainings.items()
        }
        own["search.training"] = self.search.training if self.search else None
        legal = ("headline", *judging_metrics(self))
        for where, training in {**trainings, "layer_dropping": self.layer_dropping, **own}.items():
            if training is not None and training.choose_by not in legal:
                raise ValueError(
                    f"{where}.choose_by is {training.choose_by}, and {self.spec.name} is a task of {self.spec.kind}; "
                    f"choose one of {', '.join(legal)}"
                )
        require_one_choice(self.planned, self.task_distillation.prediction, self.spec.headline)

    def check_judging_sets(self) -> None:
        """Reject judging sets with a name that is taken or another form than the task, and criteria on unknown sets."""
        made = [TEACHER, *(one.name for one in self.planned)]
        for name, given in self.judging_sets.items():
            where = f"data.judge.{name}"
            if name in (*SPLITS, *made):
                raise ValueError(f"{where} has the name of a split or a model of this recipe; give it another name")
            given.check_form(where, self.spec)
            if given.overlaps == "purge" and not self.data.purge:
                raise ValueError(f"{where}.overlaps is purge, and data.purge is false; remove one of them")
        foreign = {name: given for name, given in self.judging_sets.items() if given.is_foreign(self.spec)}
        legal = (self.gate.split, *(name for name in self.judging_sets if name not in foreign))
        for metric, name in ((one.metric, name) for one in self.gate.criteria for name in one.worst_of):
            if name in foreign:
                foreign[name].check_criterion(name, metric, self.spec)
            elif name not in legal:
                raise ValueError(
                    f"gate: worst_of names {name!r}, which is not a judging set of data.judge; "
                    f"{did_you_mean(name, legal)}"
                    f"legal are {', '.join(legal)}"
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
        present: dict[StageName, object] = {
            "general": self.general_distillation,
            "augmentation": self.augmentation,
            "intermediate": self.task_distillation.intermediate,
        }
        return tuple(stage for stage, section in present.items() if section is not None)

    def takes(self, student: Student, stage: StageName) -> bool:
        """Tell whether a student passes through an optional stage."""
        own = stage == "intermediate" and student.intermediate is not None
        wanted = student.stages is None or stage in student.stages
        return wanted and student.signal == "teacher" and (own or stage in self.optional_stages)

    @cached_property
    def planned(self) -> tuple[CandidateKnobs, ...]:
        """All candidates, in the order of the results: students, dropped models, and those of ``candidates``."""
        return planned_candidates(self.students, self.layer_dropping, self.candidates)

    @property
    def measures_texts(self) -> bool:
        """Whether models differ in how they divide texts, so that real texts are counted and timed."""
        return any(one.has_own_tokenizer for one in self.candidates)

    @property
    def has_zeros(self) -> bool:
        """Whether single weights of a candidate are 0, so that all models are packed, too."""
        return any(one.has_zeros for one in self.candidates)

    @property
    def all_students(self) -> tuple[Student, ...]:
        """Everything that is distilled, as students; of a follower the number of layers is not known here."""
        return tuple(self.as_student(one) for one in self.planned if isinstance(one, DistilledCandidate))

    @property
    def new_students(self) -> tuple[Student, ...]:
        """The students that are built anew, from the teacher or the pretrained model."""
        followers = {one.name for one in self.planned if one.is_follower}
        return tuple(student for student in self.all_students if student.name not in followers)

    def as_student(self, candidate: DistilledCandidate, layers: int = LEAST_LAYERS) -> Student:
        """Return a distilled candidate as a student; ``layers`` is the depth of a follower."""
        if not candidate.is_follower:
            return candidate.as_student()
        start = start_behind(candidate, {one.name: one for one in self.planned})
        own: tuple[StageName, ...] = ("intermediate",) if candidate.intermediate is not None else ()
        stages = tuple(dict.fromkeys((*self.optional_stages, *own)))
        return candidate.further_student(start, layers, tuple(stage for stage in stages if stage != "general"))

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
    def counted_sets(self) -> list[str]:
        """The judging sets whose rows are of the task's type, by name: their texts are counted, and they have the
        metrics of the task."""
        return [name for name, given in self.judging_sets.items() if not given.is_foreign(self.spec)]

    @property
    def is_glue(self) -> bool:
        """Tell whether the task is one of GLUE's by name."""
        return isinstance(self.task, str) and self.task in GLUE
