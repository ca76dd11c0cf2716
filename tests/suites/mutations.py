"""The mutation suite: change one thing, and see which stages a run would execute. Exactly those that depend on it, no
more and no fewer.

Every knob of the schema is walked, as the schema declares it; what lies outside of a recipe (code, weights, rows,
libraries, surroundings) is changed for real, in copies. A stage that should run again and would not is *stale*; one
that need not and would is *spurious*. What a stage executed is seen by a profiler while the recipes run once: an edit
of any of it must count (``code_mutations.py``).

    python -m tests.suites.mutations         prints the table; non-zero if anything is stale or spurious
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from flows.cli.runner import planned_records, run_recipe
from flows.home import Home
from flows.run.environment import prepare_environment
from tasks.errors import LimbeckError
from tasks.recipe.data import Augmentation, CorpusText
from tasks.recipe.distillation import Generation
from tasks.recipe.judging import Exporting, Quantizing, ScoreKnobs, Speed
from tasks.recipe.knobs import Knobs, is_semantic
from tasks.recipe.makers.bits import GridKnobs
from tasks.recipe.makers.candidate_knobs import CandidateKnobs
from tasks.recipe.makers.dropping import DroppedTraining
from tasks.recipe.makers.pretraining import PretrainedCandidate
from tasks.recipe.makers.search import LatencySlice, SearchBudget, ShapeSearch, Space
from tasks.recipe.makers.shrinking import ImportanceKnobs
from tasks.recipe.makers.slices import ShapeSlice
from tasks.recipe.makers.supernets import SpaceOfShapes, SupernetTraining
from tasks.recipe.makers.trials import RecipeTrials
from tasks.recipe.makers.weights import MaskKnobs, TicketKnobs
from tasks.recipe.makers.writing import TextAnswerSlice
from tasks.recipe.methods import ByMethod
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import (
    AnswerSlice,
    ContrastSlice,
    ContributionSlice,
    CorpusRead,
    DropSlice,
    GeneralSlice,
    InspectSlice,
    IntermediateSlice,
    JudgingRowsSlice,
    KeptSlice,
    OfTask,
    PackSlice,
    PatienceOf,
    PredictionSlice,
    PurgeSlice,
    RowsSlice,
    ScoreSlice,
    SentencesSlice,
    SignalSlice,
    StreamSlice,
    TeacherSlice,
    TransferSlice,
    VocabularyOfCorpus,
)
from tasks.recipe.students import Shape
from tasks.recipe.training import Pretraining, SeededTraining, TaskTraining, Training
from tests.command_line import plan_recipe
from tests.engine.test_sources import edit_during_a_run
from tests.suites.code_mutations import Executed, executed_edits, family_edits, moves, watched
from tests.tiny import write_tiny_bert, write_tiny_rows

ROOT = Path(__file__).resolve().parents[2]
FAST: dict[str, Any] = {"steps": 3, "batch_size": 8, "max_length": 16, "evaluations": 1, "precision": "fp32"}

DEPEND = {
    "data": {"prepare-rows": RowsSlice},
    "task": {"prepare-rows": RowsSlice, "score-model": ScoreSlice},
    "pretraining": {"pretrain-base": Pretraining},
    "teacher": {"finetune-teacher": TeacherSlice},
    "corpus": {"prepare-corpus": CorpusText, "compare-corpus": CorpusRead},
    "general_distillation": {"distill-general": GeneralSlice},
    "augmentation": {"augment-text": Augmentation},
    "transfer": {"prepare-transfer": TransferSlice},
    "task_distillation.intermediate": {"distill-layers": IntermediateSlice, "record-signals": SignalSlice},
    "task_distillation": {"record-signals": SignalSlice},
    "task_distillation.prediction": {"distill-predictions": PredictionSlice, "answer-rows": AnswerSlice},
    "layer_dropping": {"drop-layers": DropSlice, "measure-contributions": ContributionSlice},
    "scoring": {"score-model": ScoreSlice},
    "speed": {"measure-speed": Speed},
    "gate": {"inspect-answers": InspectSlice},
    "sweep": {},
    "resources": {},
}
"""Which stage task takes which slice of a section: the one thing that is said here and not read from the schema."""
THREADED = {
    "threads": (
        "augment-text",
        "distill-layers",
        "distill-predictions",
        "measure-contributions",
        "drop-layers",
        "score-model",
    ),
    "threads_alone": ("pretrain-base", "finetune-teacher", "answer-rows", "record-signals", "distill-general"),
}
"""Which stage tasks' sums are added up by how many threads."""

Graph = Mapping[str, set[str]]
"""Each stage with the stages that take what it makes."""


@dataclass
class Case:
    """One mutation and what came of it."""

    what: str
    expected: set[str]
    seen: set[str]
    note: str = ""
    knob: tuple[str, str] = ("", "")
    """Model and name of the knob that was changed."""

    @property
    def stale(self) -> set[str]:
        """What should run again and would not."""
        return self.expected - self.seen

    @property
    def spurious(self) -> set[str]:
        """What would run again and need not."""
        return self.seen - self.expected


@dataclass
class Base:
    """A recipe that was run once, and the graph of its stages."""

    name: str
    home: Home
    values: dict[str, Any]
    folder: Path
    graph: dict[str, set[str]] = field(default_factory=dict)
    takes: dict[str, set[str]] = field(default_factory=dict)
    """Each stage with the digests that it takes."""
    records: list[Any] = field(default_factory=list)
    executed: Executed = field(default_factory=dict)

    def run(self) -> Base:
        """Run the recipe for real, see what it executes, and read its graph from the keys' explanations."""
        with watched() as self.executed:
            run_recipe(Recipe.model_validate(self.values), home=self.home)
        records = self.records = planned_records(Recipe.model_validate(self.values), self.home)
        assert {record.cache for record in records} == {"hit"}, (
            f"the base recipe {self.name} is not cached after its run"
        )
        made = {record.artifact.sha256: record.display_name for record in records if record.artifact is not None}
        for record in records:
            given = {
                digest
                for one in record.explanation["inputs"].values()
                for digest in ([one] if isinstance(one, str) else one)
            }
            self.takes[record.display_name] = given
            for digest in given & set(made):
                self.graph.setdefault(made[digest], set()).add(record.display_name)
        return self

    def below(self, stages: set[str]) -> set[str]:
        """Return stages with everything that depends on them."""
        found, waiting = set(), list(stages)
        while waiting:
            stage = waiting.pop()
            if stage not in found:
                found.add(stage)
                waiting.extend(self.graph.get(stage, ()))
        return found

    def of_stage_task(self, stage_task: str) -> set[str]:
        """Return the stages of one stage task."""
        return {stage for stage in self.takes if stage.split("/")[0] == stage_task}

    def of_label(self, label: str) -> set[str]:
        """Return the stages of one branch."""
        return {stage for stage in self.takes if stage.partition("/")[2] == label}

    def missed(self, values: dict[str, Any]) -> set[str]:
        """Return the stages that a changed recipe would run."""
        return {
            row["stage"] for row in plan_recipe(Recipe.model_validate(values), home=self.home) if row["cache"] == "miss"
        }


def make_bases(home: Home, folder: Path) -> list[Base]:
    """Write models and rows and return two recipes that have every section between them."""
    bert = write_tiny_bert(folder / "bert")
    (folder / "rows").mkdir(exist_ok=True)
    rows = write_tiny_rows(folder / "rows")
    (folder / "text.txt").write_text(
        "\n".join(f"the film {number} was very good and the meal was poor" for number in range(80))
    )
    chain: dict[str, Any] = {
        "name": "chain",
        "task": {"name": "tiny", "text": "text", "metrics": ["accuracy", "f1"]},
        "data": {"source": str(rows), "selection_rows": 20, "holdout_rows": 20},
        "teacher": {"model": str(bert), "floor": 0.0, **FAST},
        "corpus": {"source": str(rows), "max_tokens": 2000, "max_length": 16},
        "general_distillation": FAST,
        "augmentation": {"masked_lm": "teacher", "rows": 20, "max_length": 16, "precision": "fp32", "options": 3},
        "task_distillation": {"intermediate": FAST, "prediction": FAST, "keep_signals": "always"},
        "students": [
            {"name": "small", "layers": 2, "hidden": 8, "heads": 4, "feed_forward": 16, "start": "random"},
            {"name": "half", "layers": 2, "stages": []},
            {"name": "plain", "layers": 3, "stages": ["intermediate"]},
        ],
        "layer_dropping": {**FAST, "strategies": ["contribution"], "drop": [1]},
        "scoring": {"resamples": 100, "max_length": 16},
        "speed": {"repeats": 5, "warmup": 1, "seconds": 0.05, "length": 8},
        "resources": {"cores": 2, "threads_alone": 1},
    }
    own: dict[str, Any] = {
        "name": "own",
        "task": chain["task"],
        "data": chain["data"],
        "pretraining": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "vocabulary": 120, **FAST},
        "teacher": {"floor": 0.0, **FAST},
        "corpus": chain["corpus"],
        "transfer": {"source": str(folder / "text.txt")},
        "task_distillation": {"prediction": FAST},
        "students": [{"name": "half", "layers": 1}],
        "scoring": chain["scoring"],
        "speed": chain["speed"],
        "resources": {"cores": 2, "threads_alone": 1},
        "gate": {
            "criteria": [
                {"metric": "parameters", "at_most": 1e9},
                {"metric": "bytes", "at_most": 1.0, "relative_to": "champion"},
                {"metric": "accuracy", "relative_to": "champion", "test": "non-inferiority", "tolerance": 1.0},
                {"metric": "f1", "at_least": 0.0},
            ]
        },
    }
    return [Base("chain", home, chain, folder), Base("own", home, own, folder)]


# --- knobs of the schema ----------------------------------------------------------------------------------------------


def knobs_of(
    model: BaseModel, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], type[BaseModel], Any, Any]]:
    """Yield path, model, declaration and value of every knob of a recipe; a section that is not there has none."""
    for field_name, declared in type(model).model_fields.items():
        name, value = declared.alias or field_name, getattr(model, field_name)
        if isinstance(value, BaseModel):
            yield from knobs_of(value, (*path, name))
        elif isinstance(value, tuple) and value and isinstance(value[0], Knobs):
            for index, inner in enumerate(value):
                yield from knobs_of(inner, (*path, name, index))
        elif isinstance(value, dict) and value and is_section(declared.annotation):
            for called, inner in value.items():
                yield from knobs_of(inner, (*path, name, called))
        elif value is not None or len(path) > 1 or not is_section(declared.annotation):
            yield (*path, name), type(model), declared, value


def is_section(annotation: Any) -> bool:
    """Tell whether a knob holds knobs."""
    return (
        get_origin(annotation) is dict
        and is_section(get_args(annotation)[1])
        or any(isinstance(kind, type) and issubclass(kind, Knobs) for kind in get_args(annotation))
    )


def proposals(path: tuple[Any, ...], annotation: Any, value: Any) -> list[Any]:
    """Return other values for a knob, the likeliest to be legal first."""
    special = {
        "seeds": [[0, 1]],
        "strategies": [["contribution", "top"]],
        "drop": [[1, 2]],
        "stages": [["intermediate"], ["general"]],
        "start": ["embeddings"],
        "intermediate": [{**FAST, "steps": 2}],
        "prediction": [{**FAST, "steps": 2}],
        "metrics": [["accuracy"], ["f1"]],
        "labels": [["positive", "negative"]],
        "language": ["de"],
        "headline": ["f1"],
        "delimiter": [";"],
        "encoding": ["latin-1"],
        "columns": [["text", "label", "second"]],
        "of_teacher": [True],
        "at_least": [0.5],
        "at_most": [5e8],
        "metric": ["bytes", "f1"],
        "worst_of": [["validation"]],
    }
    if path[-1] in special:
        return special[path[-1]]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2, value + 4, max(1, value // 2)]
    if isinstance(value, float):
        return [value * 0.9, value / 2] if value else [0.1]
    kinds = {kind for kind in (get_args(annotation) or (annotation,)) if kind is not type(None)}
    literals = [choice for kind in [annotation, *kinds] if get_origin(kind) is Literal for choice in get_args(kind)]
    if literals:
        return [choice for choice in literals if choice != value]
    return [
        candidate
        for kind, candidate in ((int, 150), (int, 8), (float, 0.05), (str, "other"), (bool, True))
        if kind in kinds
    ]


def changed(values: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return a recipe's values with one knob set."""
    result = copy.deepcopy(values)
    inner: Any = result
    for part in path[:-1]:
        inner = inner[part] if isinstance(part, int) else inner.setdefault(part, {})
    inner[path[-1]] = value
    return result


def knob_cases(base: Base) -> Iterator[Case]:
    """Change every knob of a recipe that can be changed alone, one at a time."""
    whole = Recipe.model_validate(base.values)
    for path, model, declared, value in knobs_of(whole):
        for other in proposals(path, declared.annotation, value):
            if isinstance(other, list) and isinstance(value, tuple) and other == list(value):
                continue
            try:
                seen = base.missed(changed(whole.model_dump(mode="json"), path, other))
            except (ValidationError, LimbeckError):
                continue  # not legal here
            expected = expected_of(base, path, seen) if is_semantic(declared) else set()
            yield Case(
                f"{base.name}: {'.'.join(map(str, path))}",
                expected,
                seen,
                f"{value} → {other}",
                (model.__name__, path[-1]),
            )
            break


def forgotten(cases: list[Case]) -> Iterator[Case]:
    """Yield every knob of the schema that no recipe of this suite could change: a new knob must be walked too."""
    walked = {case.knob for case in cases}
    abstract = (
        *TRAININGS,
        Knobs,
        Shape,
        ByMethod,
        Exporting,
        Quantizing,
        ScoreKnobs,
        *OF_CANDIDATES,
        *OF_SEARCH,
        Recipe,
    )
    sections = {type_ for type_ in families(Knobs) if type_ not in abstract and not issubclass(type_, SLICES)}
    for model in sections:
        for name, declared in model.model_fields.items():
            if (
                (model.__name__, declared.alias or name) not in walked
                and name not in BY_BYTES | {"by"}  # which says what knobs there are
                and (model, name) != (PretrainedCandidate, "made_from")  # it has one legal value
                and not is_section(declared.annotation)
                and not is_knobs(declared.annotation)
            ):
                yield Case(f"{model.__name__}.{name}", {"no recipe of this suite changes it"}, set())


def is_knobs(annotation: Any) -> bool:
    """Tell whether a knob is a section that is always there."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def families(model: type) -> set[type]:
    """Return a class with all that derive from it."""
    return {model, *(inner for child in model.__subclasses__() for inner in families(child))}


OF_CANDIDATES = (CandidateKnobs, ImportanceKnobs, MaskKnobs, TicketKnobs, GridKnobs, SpaceOfShapes)
OF_SEARCH = (ShapeSearch, RecipeTrials, SearchBudget, Space, SupernetTraining)
"""A search is planned up to its latency table, from which all else follows; ``tests/search`` asks searches again."""
TRAININGS = (Training, TaskTraining, SeededTraining, DroppedTraining)
"""What the sections that train have in common."""

SLICES = (
    OfTask,
    RowsSlice,
    GeneralSlice,
    ScoreSlice,
    CorpusRead,
    PatienceOf,
    ContrastSlice,
    JudgingRowsSlice,
    PurgeSlice,
    StreamSlice,
    ShapeSlice,
    SentencesSlice,
    TextAnswerSlice,
    Generation,
    LatencySlice,
    KeptSlice,
    PackSlice,
    VocabularyOfCorpus,
)
"""What stage tasks receive: the same knobs again."""

BY_BYTES = {"source", "model", "masked_lm", "word_vectors", "revision", "masked_lm_revision"}
"""Names of sources: their bytes count, and those are changed below."""


def expected_of(base: Base, path: tuple[Any, ...], seen: set[str]) -> set[str]:
    """Return what must run again when a semantic knob changes: the stage tasks whose slice has it, and all below."""
    if path[0] == "students":
        return of_student(base, path, seen)
    if path[0] == "resources":
        return base.below({stage for stage_task in THREADED[path[-1]] for stage in base.of_stage_task(stage_task)})
    if path[0] == "layer_dropping" and path[-1] in ("strategies", "drop", "seeds"):
        return new_branches(base, seen, "contribution-1" if path[-1] == "seeds" else None)
    if path[-1] == "after_finetuning":
        return base.below(base.of_stage_task("measure-contributions") | base.of_stage_task("drop-layers"))
    section = next(name for name in sorted(DEPEND, key=len, reverse=True) if ".".join(map(str, path)).startswith(name))
    inner = path[len(section.split("."))] if len(path) > len(section.split(".")) else path[-1]
    stage_tasks = {
        stage_task
        for stage_task, slice_ in DEPEND[section].items()
        if inner in slice_.model_fields or section == "task"
    }
    if path[-1] == "layer_map" and path[1] == "intermediate":
        stage_tasks |= {"record-signals"}
    if path[-1] == "keep_signals":  # the stage is not there any more; who read what it kept asks the teacher instead
        return base.below(base.of_stage_task("record-signals")) - base.of_stage_task("record-signals")
    # Other stages take the place of the one that reads pieces of text.
    if path[0] == "pretraining" and path[-1] in ("family", "order", "ngrams", "optimizer"):
        others = {"divide-corpus", "learn-vocabulary", "pretrain-encoder"}
        return others | base.below(base.of_stage_task("pretrain-base")) - base.of_stage_task("pretrain-base")
    if path == ("corpus", "max_tokens") and "pretraining" not in base.values:  # which reads the whole corpus
        stage_tasks |= {"compare-corpus"}
    if path == ("corpus", "text") and "pretraining" in base.values:  # which reads the same column
        stage_tasks |= {"pretrain-base"}
    if path == ("transfer", "alone"):
        stage_tasks |= {"answer-rows", "distill-predictions"}
    return base.below({stage for stage_task in stage_tasks for stage in base.of_stage_task(stage_task)})


def of_student(base: Base, path: tuple[Any, ...], seen: set[str]) -> set[str]:
    """Return what must run again when a knob of one student changes."""
    student, knob = base.values["students"][path[1]]["name"], path[2]
    branch = base.of_label(student)
    last = {stage for stage in branch if not stage.startswith("distill-layers")}
    if knob == "role":
        return set()
    if knob == "seeds":
        return new_branches(base, seen, student)
    if knob in ("signal", "prediction"):
        return last
    if knob == "intermediate" and base.values["students"][path[1]].get("stages") == []:
        return set()  # it does not take the phase
    if knob in ("layers", "hidden", "heads", "feed_forward", "start"):
        whole = "stages" not in base.values["students"][path[1]]
        alone = base.values["students"][path[1]].get("stages") == ["intermediate"]
        shared = [
            stage_task
            for stage_task, taken in (
                ("distill-general", whole),
                ("record-signals", (alone or whole) and knob == "layers"),
            )
            if taken
        ]
        return branch | {stage for stage in seen if stage.startswith(tuple(shared))}
    # A student that takes the phase reads what the teacher showed once: a stage that may not have been there before.
    fresh = {
        stage for stage in seen if knob == "stages" and stage.startswith("record-signals") and stage not in base.takes
    }
    return {stage for stage in seen if stage.partition("/")[2] == student} | last | fresh


def new_branches(base: Base, seen: set[str], grown: str | None) -> set[str]:
    """Return the stages that were not there before; a candidate that got another seed is scored, timed and looked into
    again.

    It is timed again because a plan cannot know which of its seeds will be the model.
    """
    fresh = {stage for stage in seen if stage not in base.takes and not stage.endswith(" s0")}
    assert fresh, "another seed or strategy must make another branch"
    again = "score-model", "score-pooled", "measure-speed", "inspect-answers"
    return fresh | ({f"{stage}/{grown}" for stage in again} & base.takes.keys())


# --- what lies outside of a recipe ------------------------------------------------------------------------------------

PLAN = """
import json, sys
from flows.home import Home
from flows.run.environment import prepare_environment
home = Home.from_environment(); prepare_environment(home)
from flows.cli.runner import plan_of, planned_session
from tasks.recipe.recipe import Recipe
plan = plan_of(planned_session(Recipe.model_validate(json.loads(sys.argv[1])), home, "run"))
print(json.dumps([row.stage for row in plan.stages if row.cache == "miss"]))
"""


def planned(
    base: Base,
    values: dict[str, Any] | None = None,
    *,
    tree: Path = ROOT,
    cwd: Path | None = None,
    path: str = "",
    **env: str,
) -> set[str]:
    """Plan in a process of its own, perhaps with other code, another folder, another environment."""
    environment = (
        os.environ
        | {"LIMBECK_HOME": str(base.home.root), "PYTHONPATH": os.pathsep.join(filter(None, [path, str(tree)]))}
        | env
    )
    words = [sys.executable, "-c", PLAN, json.dumps(values or base.values)]
    done = subprocess.run(words, cwd=cwd or tree, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    return set(json.loads(done.stdout.splitlines()[-1]))


VARIABLES = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "NVIDIA_TF32_OVERRIDE": "1",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "OPENBLAS_CORETYPE": "Nehalem",
}
"""Variables by which libraries choose kernels and arithmetic: a key has none of them, because no engine sees them
(``tests/engine/test_environment.py``)."""


def outside_cases(base: Base, scratch: Path) -> Iterator[Case]:
    """Change what lies outside of the recipe."""
    yield from surroundings(base, scratch)
    yield from sources(base, scratch)
    yield from code(base, scratch)
    yield from all_code(base, scratch)


def surroundings(base: Base, scratch: Path) -> Iterator[Case]:
    """Change what must not matter, and the version of a library, which must."""
    yield Case("PYTHONHASHSEED", set(), planned(base, PYTHONHASHSEED="77"))
    yield Case("locale", set(), planned(base, LC_ALL="C", LANG="C"))
    yield Case("time zone", set(), planned(base, TZ="Asia/Tokyo"))
    yield Case("threads of the machine", set(), planned(base, OMP_NUM_THREADS="3"))
    yield Case("working folder", set(), planned(base, cwd=scratch))
    for name, value in VARIABLES.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            yield Case(f"variable {name}", set(), base.missed(base.values), "no engine sees it")
    yield Case("order of the recipe's keys", set(), planned(base, dict(reversed(base.values.items()))))
    whole = changed(base.values, ("teacher", "steps"), float(base.values["teacher"]["steps"]))
    yield Case("3 written as 3.0", set(), planned(base, whole))
    (scratch / "other" / "torch-9.9.9.dist-info").mkdir(parents=True)
    (scratch / "other" / "torch-9.9.9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n"
    )
    without = {"prepare-rows", "compare-corpus"}
    yield Case(
        "version of torch",
        set(base.takes) - without,
        planned(base, path=str(scratch / "other")),
        "all but rows and texts need torch",
    )


def sources(base: Base, scratch: Path) -> Iterator[Case]:
    """Change rows and weights, in copies."""
    rows, bert = Path(base.values["data"]["source"]), Path(base.values["teacher"]["model"])

    def with_rows(name: str, edit: Callable[[str], str]) -> set[str]:
        target = scratch / name / "train.csv"
        target.parent.mkdir()
        target.write_text(edit(rows.read_text()))
        return planned(base, changed(base.values, ("data", "source"), str(target)))

    def with_bert(name: str, edit: Callable[[Path], None]) -> set[str]:
        target = scratch / name
        shutil.copytree(bert, target)
        edit(target)
        return planned(base, changed(base.values, ("teacher", "model"), str(target)))

    from_rows = base.below(base.of_stage_task("prepare-rows"))
    yield Case("data folder moved", set(), with_rows("moved", lambda text: text))
    yield Case("one data row", from_rows, with_rows("row", lambda text: text.replace("was good", "was fine", 1)))
    yield Case(
        "order of data rows",
        from_rows,
        with_rows("order", lambda text: "\n".join([text.splitlines()[0], *reversed(text.splitlines()[1:])])),
    )
    yield Case(
        "label map",
        base.below(base.of_stage_task("prepare-rows") | base.of_stage_task("score-model")),
        planned(base, changed(base.values, ("task", "labels"), ["positive", "negative"])),
    )
    os.utime(rows)
    yield Case("data file touched", set(), planned(base))
    yield Case(
        "corpus document",
        base.below(base.of_stage_task("prepare-corpus") | base.of_stage_task("compare-corpus")),
        planned(base, changed(base.values, ("corpus", "source"), str(edited_corpus(rows, scratch)))),
    )
    (weights,) = {
        digest for stage in base.of_stage_task("finetune-teacher") for digest in base.takes[stage]
    } - made_here(base)
    of_teacher = base.below({stage for stage, given in base.takes.items() if weights in given})
    yield Case("teacher's folder moved", set(), with_bert("moved-bert", lambda folder: None))
    yield Case("one weight byte", of_teacher, with_bert("weight", lambda folder: flip(folder / "model.safetensors")))
    yield Case("tokenizer file", of_teacher, with_bert("tokenizer", add_token))
    epsilon = '"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-11'
    yield Case(
        "model config", of_teacher, with_bert("config", lambda folder: replace(folder / "config.json", *epsilon))
    )
    sharded = scratch / "sharded"
    write_shards(bert, sharded)
    yield from shard_cases(base, sharded, scratch)
    yield Case(
        "a note beside the weights",
        set(),
        with_bert("note", lambda folder: (folder / "NOTES.txt").write_text("nothing") and None),
    )


def write_shards(bert: Path, folder: Path) -> None:
    """Save a model in several files, each with a part of its weights."""
    from transformers import BertForMaskedLM

    shutil.copytree(bert, folder)
    (folder / "model.safetensors").unlink()
    BertForMaskedLM.from_pretrained(bert, local_files_only=True).save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 1 and (folder / "model.safetensors.index.json").is_file()


def shard_cases(base: Base, sharded: Path, scratch: Path) -> Iterator[Case]:
    """Change each file of a teacher in shards: its key is that of all of them."""

    def key_of_teacher(folder: Path) -> str:
        values = changed(base.values, ("teacher", "model"), str(folder))
        records = planned_records(Recipe.model_validate(values), base.home)
        return next(record.key for record in records if record.name == "finetune-teacher")

    known = key_of_teacher(sharded)
    shards = sorted(path.name for path in sharded.glob("*.safetensors"))
    for name in (*shards, "model.safetensors.index.json"):
        other = scratch / f"sharded-{name}"
        shutil.copytree(sharded, other)
        flip(other / name) if name in shards else (other / name).write_text((other / name).read_text() + " ")
        yield Case(
            f"sharded teacher: {name}",
            {"finetune-teacher"},
            {"finetune-teacher"} if key_of_teacher(other) != known else set(),
        )
    shutil.move(sharded, scratch / "sharded-elsewhere")
    yield Case(
        "sharded teacher moved",
        set(),
        {"finetune-teacher"} if key_of_teacher(scratch / "sharded-elsewhere") != known else set(),
    )


def code(base: Base, scratch: Path) -> Iterator[Case]:
    """Change the code, in copies of it."""

    def with_code(name: str, file: str, old: str, new: str) -> set[str]:
        tree = scratch / name
        shutil.copytree(
            ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", "tests", ".import_linter_cache")
        )
        replace(tree / file, old, new)
        return planned(base, tree=tree)

    losses, strategies, loop = (
        "tasks/methods/losses/soft_targets.py",
        "tasks/methods/layers/layer_strategies.py",
        "tasks/training/loop.py",
    )
    learned = base.of_stage_task("distill-predictions") | base.of_stage_task(
        "drop-layers"
    )  # both may learn from soft targets
    higher = "list(range(layers - drop))", "list(range(layers - drop + 0))"
    lower = "sorted(by_change[: layers - drop])", "sorted(by_change[: layers - drop + 0])"
    interval = "(1 - confidence) / 2, (1 + confidence) / 2", "(1.0 - confidence) / 2, (1 + confidence) / 2"
    yield Case(
        "a comment", set(), with_code("comment", losses, "def soft_target_loss(", "# why\ndef soft_target_loss(")
    )
    yield Case("a docstring", set(), with_code("docstring", losses, '"""Soft-target', '"""The soft-target'))
    yield Case(
        "a called helper",
        base.below(learned),
        with_code("helper", losses, "* temperature**2", "* temperature**2 * 1.0"),
    )
    yield Case(
        "another entry of a family",
        set(),
        with_code("other-entry", strategies, *higher),
        "the recipe drops by contribution, not from the top",
    )
    yield Case(
        "the chosen entry of a family",
        base.below(base.of_stage_task("drop-layers")),
        with_code("chosen-entry", strategies, *lower),
    )
    yield Case(
        "the training loop",
        base.below(trained(base)),
        with_code("loop", loop, "return (step + 1) / rising", "return (step + 2) / rising"),
    )
    yield Case(
        "the scales",
        base.below(base.of_stage_task("score-model")),
        with_code("scales", "tasks/scoring/quality/intervals.py", *interval),
    )
    yield Case(
        "the tracker",
        set(),
        with_code("tracker", "tasks/ports/tracking/runs.py", "CURVE_SECONDS = 20.0", "CURVE_SECONDS = 21.0"),
    )
    yield Case(
        "the store",
        set(),
        with_code("store", "tasks/ports/store/folder.py", "POLL, KernelLease", "POLL as POLL, KernelLease"),
    )
    yield Case(
        "the model card",
        set(),
        with_code("card", "tasks/report/model_card.py", "def model_card(", "OTHER = 1\n\n\ndef model_card("),
    )


def executed_code(base: Base) -> Iterator[Case]:
    """Change everything that was executed."""
    for what, expected, seen in executed_edits(base.records, base.executed):
        yield Case(f"{base.name}: {what}", base.below(expected), base.below(seen), "executed")


def all_code(base: Base, scratch: Path) -> Iterator[Case]:
    """Change every entry of the families that knobs choose from, the place of every file, and a file during a run."""
    for what, expected, seen in family_edits(base.records):
        yield Case(
            f"code: {what}", base.below(expected), base.below(seen), "an entry of a family that a knob chooses from"
        )
    for what, seen in moves(base.records):
        yield Case(f"move: {what}", set(), base.below(seen), "to another place, with the imports that name it")
    found = edit_during_a_run(scratch)
    wrong = {name for name in ("engines", "here") if set(found[name]) - {"old"}} | (
        {"key"} if found["before"] != found["after"] else set()
    )
    yield Case("a file during a run", set(), wrong, "what runs later is what was hashed at the start")


def trained(base: Base) -> set[str]:
    """Return the stages that train."""
    stage_tasks = (
        "finetune-teacher",
        "distill-general",
        "distill-layers",
        "distill-predictions",
        "drop-layers",
        "pretrain-base",
    )
    return {stage for stage_task in stage_tasks for stage in base.of_stage_task(stage_task)}


def made_here(base: Base) -> set[str]:
    """Return the digests that stages of the run made."""
    return {manifest["sha256"] for manifest in schema_store(base).manifests()}


def schema_store(base: Base) -> Any:
    """Return the store of a base run."""
    from tasks.ports.store.open import open_store

    return open_store(base.home.store, base.home.cache)


def edited_corpus(rows: Path, scratch: Path) -> Path:
    """Write the corpus with one document changed."""
    target = scratch / "corpus.csv"
    target.write_text(rows.read_text().replace("was bad", "was poor", 1))
    return target


def flip(path: Path) -> None:
    """Turn one bit of the last byte of a file."""
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)


def add_token(folder: Path) -> None:
    """Change the tokenizer: a word becomes another one."""
    replace(folder / "tokenizer.json", '"truly"', '"really"')


def replace(path: Path, old: str, new: str) -> None:
    """Change a file; a change that changes nothing is a mistake of this suite."""
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new))


# --- the command ------------------------------------------------------------------------------------------------------


def all_cases(home: Home, folder: Path) -> list[Case]:
    """Run both recipes once, then change everything, one thing at a time; the sections that neither has are planned
    only."""
    from tests.suites.planned import planned_bases  # which is made of what is declared here

    bases = [base.run() for base in make_bases(home, folder)]
    (folder / "scratch").mkdir()
    knobs = [case for base in bases for case in knob_cases(base)]
    knobs += [
        case for base in planned_bases(Home(folder / "empty").create(), folder / "planned") for case in base.cases()
    ]
    executed = [case for base in bases for case in executed_code(base)]
    knobs += list(other_parents(links_of(bases[0]).run()))
    return [*knobs, *forgotten(knobs), *executed, *outside_cases(bases[0], folder / "scratch")]


def links_of(base: Base) -> Base:
    """Return the chain of candidates that is planned otherwise, of another recipe's task and teacher."""
    from tests.suites.planned import chained

    same = {section: base.values[section] for section in ("task", "data", "teacher", "scoring", "speed", "resources")}
    values = {"name": "links", **same, "task_distillation": {"prediction": FAST}, **chained()[0]}
    return Base("links", base.home, values, base.folder)


def other_parents(links: Base) -> Iterator[Case]:
    """Make each follower from another model of its chain; a plan that was never run cannot tell two models apart."""
    for number, other in ((2, "cut"), (2, "teacher"), (3, "further"), (11, "trimmed")):
        candidate = Recipe.model_validate(links.values).candidates[number]
        seen = links.missed(changed(links.values, ("candidates", number, "from"), other))
        expected = links.below(links.of_label(candidate.name))
        yield Case(f"links: {candidate.name} from {other}", expected, seen, "run", (type(candidate).__name__, "from"))


def show(cases: list[Case]) -> int:
    """Print the table; return how many cases are wrong."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what changed", "how", "re-run", "stale", "spurious")
    for case in cases:
        table.add_row(
            case.what,
            case.note[:60],
            str(len(case.seen)),
            ", ".join(sorted(case.stale)),
            ", ".join(sorted(case.spurious)),
        )
    console = Console(width=200)
    console.print(table)
    wrong = sum(bool(case.stale or case.spurious) for case in cases)
    stale, spurious = sum(bool(case.stale) for case in cases), sum(bool(case.spurious) for case in cases)
    console.print(f"{len(cases)} mutations tried, {stale} stale, {spurious} spurious")
    return wrong


def main() -> int:
    """Run the suite in a home of its own."""
    import tempfile

    argparse.ArgumentParser(
        prog="python -m tests.suites.mutations", description="Change one thing at a time."
    ).parse_args()
    with tempfile.TemporaryDirectory(prefix="limbeck-mutations-") as folder:
        home = Home(Path(folder) / "home").create()
        os.environ["LIMBECK_HOME"] = str(home.root)
        prepare_environment(home)
        from flows.servers.local import prefect_for_a_run

        with prefect_for_a_run(home) as ready:
            from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

            # Prefect has read its settings already: importing the stages imports it.
            names = {PREFECT_API_URL: "PREFECT_API_URL", PREFECT_API_AUTH_STRING: "PREFECT_API_AUTH_STRING"}
            with temporary_settings({setting: os.environ[name] for setting, name in names.items()}):
                ready()
                return 1 if show(all_cases(home, Path(folder))) else 0


if __name__ == "__main__":
    raise SystemExit(main())
