"""What one branch of a run does: a student from its start to its last phase, a dropped model, a candidate on the scales.

The flow in ``compress.py`` says the order of the story; this file says how its slices are cut from the recipe.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import Any

from flows.contrasts import contrast_all, plain_students
from flows.inspections import inspect_all
from flows.judging_sets import score_sets, with_judged
from tasks.contracts import Parcel
from tasks.distill_general import distill_general
from tasks.distill_task import distill_layers, distill_predictions, record_signals
from tasks.drop_layers import drop_layers, measure_contributions
from tasks.finetune_teacher import answer_rows, mix_answers
from tasks.recipe import (
    LAYER_STARTS,
    AnswerSlice,
    ContributionSlice,
    DropSlice,
    GeneralSlice,
    Intermediate,
    IntermediateSlice,
    LayerDropping,
    MixSlice,
    PatienceOf,
    Prediction,
    PredictionSlice,
    Recipe,
    ScoreSlice,
    Shape,
    SignalSlice,
    Student,
    general_start,
    sections_of,
)
from tasks.score_model import measure_speed, score_model
from tasks.scoring.paces import with_paces

NOT_COPIED = {"strategies", "drop", "after_finetuning", "token", "seeds"}
OF_ANSWERS = {"temperature", "hard_weight", "formula", "patience", "sampling"}
"""Knobs of a training that have to do with a teacher's answers."""


@dataclass
class Goods:
    """What branches share; each is awaited only where a branch needs it, so that no branch waits for what it does not use."""

    rows: Parcel
    base: Parcel
    teacher: Awaitable[Parcel]
    colleagues: Sequence[Awaitable[Parcel]] = ()
    corpus: Awaitable[Parcel] | None = None
    candidates: Awaitable[Parcel] | None = None
    transfer: Parcel | None = None
    starts: dict[str, Parcel] = field(default_factory=dict)
    judging: dict[str, Parcel] = field(default_factory=dict)
    """The rows of judging sets, by name."""
    general: dict[Any, Awaitable[Parcel]] = field(default_factory=dict)
    signals: dict[SignalSlice, Awaitable[Parcel]] = field(default_factory=dict)
    answers: dict[tuple[AnswerSlice, int], Awaitable[Parcel]] = field(default_factory=dict)
    """By what is asked and by the number of the teacher, counted from 0."""
    mixtures: dict[tuple[AnswerSlice, MixSlice], Awaitable[Parcel]] = field(default_factory=dict)
    contributions: dict[tuple[ContributionSlice, str], Awaitable[Parcel]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One small model to be judged: its name, its role, and one checkpoint for each seed, in the order of the recipe.

    One of the seeds is the model: it is exported, registered, and judged by its own figures; the others say how far seeds spread.
    """

    name: str
    role: str
    models: list[Parcel]
    seeds: tuple[int, ...] = (0,)

    @property
    def chosen(self) -> int:
        """Say which of the seeds is the model: the best by its score on the selection rows, the first of equals and where seeds have no scores."""
        scores = self.selection_scores
        return 0 if None in scores else max(range(len(scores)), key=lambda number: (known(scores[number]), -number))

    @property
    def selection_scores(self) -> list[float | None]:
        """The score of every seed on the selection rows; None where it was not taken, or is not known yet."""
        return [model.facts.get("selection_score") for model in self.models]

    @property
    def model(self) -> Parcel:
        """The checkpoint of the chosen seed; in a plan that cannot know it, one that is not made yet, so that what waits for it is not called cached."""
        waiting = [model for model in self.models if not model.facts] if len(self.models) > 1 else []
        return waiting[0] if waiting else self.models[self.chosen]

    @property
    def chosen_first(self) -> list[Parcel]:
        """All checkpoints, that of the chosen seed first, as scorecards want them."""
        return [self.models[self.chosen], *(model for number, model in enumerate(self.models) if number != self.chosen)]

    def as_in_recipe(self, values: Sequence[float]) -> list[float]:
        """Return what was found of ``chosen_first`` in the order of the recipe."""
        others = [*values[1:]]
        return [*others[: self.chosen], values[0], *others[self.chosen :]] if values else []


def known(score: float | None) -> float:
    """Return a score; one that is not known is below all others."""
    return -math.inf if score is None else score


def label(name: str, seed: int, seeds: tuple[int, ...]) -> str:
    """Return a short static name for the run graph."""
    return name if len(seeds) == 1 else f"{name} s{seed}"


async def make_student(recipe: Recipe, student: Student, goods: Goods) -> Candidate:
    """Make one student, all its seeds side by side."""
    models = await asyncio.gather(*(train_student(recipe, student, seed, goods) for seed in student.seeds))
    return Candidate(student.name, student.role, list(models), student.seeds)


async def train_student(recipe: Recipe, student: Student, seed: int, goods: Goods) -> Parcel:
    """Take one student through the phases that its recipe gives it."""
    made = await starting_point(recipe, student, goods)
    varied = await goods.candidates if goods.candidates is not None and recipe.takes(student, "augmentation") else None
    text = {"transfer": goods.transfer} if goods.transfer is not None and student.signal == "teacher" else {}
    common = {"teacher": await goods.teacher, "rows": goods.rows, "candidates": varied, **text, "label": label(student.name, seed, student.seeds)}
    phase = recipe.inner_phase(student)
    if phase is not None:
        kept = await kept_signals(recipe, student, phase, goods, text) if recipe.task_distillation.keeps(phase, varied=varied is not None) else None
        knobs = IntermediateSlice(**cut(phase, seed), **of_student(recipe, student, made))
        made = await distill_layers(knobs, start=made, signals=kept, **await origin_of(recipe, student, made, goods), **common)
    prediction = student.prediction or recipe.task_distillation.prediction
    knobs_2 = PredictionSlice(**by_signal(cut(prediction, seed), student.signal), **of_student(recipe, student, made), signal=student.signal)
    answers = await answers_for(recipe, goods, prediction, student.layers) if student.signal == "teacher" else None
    return await distill_predictions(knobs_2, answers=answers, start=made, **await origin_of(recipe, student, made, goods), **common)


async def origin_of(recipe: Recipe, student: Student, made: Parcel | None, goods: Goods) -> dict[str, Parcel]:
    """Return what a student is built from beside its teacher; nothing once an earlier stage made it."""
    if made is not None or student.start not in LAYER_STARTS:
        return {}
    origin = {"base": goods.base} if student.origin == "pretrained" else {}
    if student.start != "contribution":
        return origin
    knobs = ContributionSlice(max_length=recipe.task_distillation.prediction.max_length)
    return {**origin, "contributions": await contributions_of(knobs, student.origin, goods)}


async def contributions_of(knobs: ContributionSlice, origin: str, goods: Goods) -> Parcel:
    """Measure what each layer contributes, once for all who ask."""
    if (knobs, origin) not in goods.contributions:
        base = goods.base if origin == "pretrained" else await goods.teacher
        goods.contributions[knobs, origin] = asyncio.ensure_future(measure_contributions(knobs, base=base, rows=goods.rows))
    return await goods.contributions[knobs, origin]


async def answers_for(recipe: Recipe, goods: Goods, training: Prediction | LayerDropping, layers: int = 0) -> Parcel:
    """Ask the teacher, or the ensemble, about every row that students will see, once for all whose ``training`` asks alike.

    ``layers`` are those of the student; its patience is about them.
    """
    patience = training.patience if isinstance(training, Prediction) else None
    of = PatienceOf(layer_map=patience.layer_map, layers=layers) if patience is not None else None
    alone = recipe.transfer is not None and recipe.transfer.alone
    knobs = AnswerSlice(max_length=training.max_length, precision=training.precision, transfer_alone=alone, patience=of)
    if recipe.ensemble is None:
        shown = f"patience {knobs.patience.layer_map}, {knobs.patience.layers} layers" if knobs.patience else ""
        return await answers_of(0, shown, knobs, goods)
    temperature = 1.0 if recipe.spec.kind == "regression" else training.temperature
    weights = (1.0, *(colleague.weight for _, colleague in recipe.colleagues))
    mixture = MixSlice(combine=recipe.ensemble.combine, weights=weights, temperature=temperature)
    if (knobs, mixture) not in goods.mixtures:
        goods.mixtures[knobs, mixture] = asyncio.ensure_future(mixture_of(mixture, knobs, goods))
    return await goods.mixtures[knobs, mixture]


async def mixture_of(mixture: MixSlice, knobs: AnswerSlice, goods: Goods) -> Parcel:
    """Mix what all teachers answer, each softened as the students of this mixture soften it."""
    said = (answers_of(number, f"teacher {number + 1}", knobs, goods) for number in range(1 + len(goods.colleagues)))
    return await mix_answers(mixture, answers=list(await asyncio.gather(*said)))


async def answers_of(number: int, shown: str, knobs: AnswerSlice, goods: Goods) -> Parcel:
    """Return one teacher's answers; students of all temperatures share them."""
    if (knobs, number) not in goods.answers:
        goods.answers[knobs, number] = asyncio.ensure_future(asked(number, shown, knobs, goods))
    return await goods.answers[knobs, number]


async def asked(number: int, shown: str, knobs: AnswerSlice, goods: Goods) -> Parcel:
    """Ask one teacher."""
    teacher = await [goods.teacher, *goods.colleagues][number]
    text = {"transfer": goods.transfer} if goods.transfer is not None else {}
    return await answer_rows(knobs, teacher=teacher, rows=goods.rows, **text, label=shown)


async def kept_signals(recipe: Recipe, student: Student, phase: Intermediate, goods: Goods, text: Mapping[str, Parcel]) -> Parcel:
    """Keep the teacher's layers for a map; students and seeds of one map share them."""
    knobs = SignalSlice(
        layer_map=phase.matching.layer_map, layers=student.layers, hidden=phase.matching.hidden > 0, attention=phase.matching.attention > 0,
        max_length=phase.max_length, precision=phase.precision, signal_budget_gb=recipe.task_distillation.signal_budget_gb,
        transfer_alone=of_student(recipe, student, None)["transfer_alone"],
    )  # fmt: skip
    if knobs not in goods.signals:
        goods.signals[knobs] = asyncio.ensure_future(signals_of(knobs, goods, text))
    return await goods.signals[knobs]


async def signals_of(knobs: SignalSlice, goods: Goods, text: Mapping[str, Parcel]) -> Parcel:
    """Run the teacher once for all who share a map."""
    return await record_signals(knobs, teacher=await goods.teacher, rows=goods.rows, **text, label=f"{knobs.layers} layers")


async def starting_point(recipe: Recipe, student: Student, goods: Goods) -> Parcel | None:
    """Return the checkpoint that a student starts from, or None where the engine builds it from the teacher."""
    if student.name in goods.starts:
        return goods.starts[student.name]
    if not recipe.takes(student, "general") or not general_start(student) or goods.corpus is None or recipe.general_distillation is None:
        return None
    shape = shape_of(student)
    key = (shape, student.start)
    if key not in goods.general:
        knobs = GeneralSlice(**chosen(recipe.general_distillation), shape=shape, start=student.start)
        goods.general[key] = asyncio.ensure_future(general_student(knobs, goods))
    return await goods.general[key]


async def general_student(knobs: GeneralSlice, goods: Goods) -> Parcel:
    """Distil one shape on general text; students of one shape share it."""
    assert goods.corpus is not None
    shown = f"{knobs.shape.layers}x{knobs.shape.hidden or 'teacher'}"
    return await distill_general(knobs, base=goods.base, corpus=await goods.corpus, label=shown)


def shape_of(student: Student) -> Shape:
    """Return a student's architecture alone."""
    return Shape(**{name: getattr(student, name) for name in Shape.model_fields})


def of_student(recipe: Recipe, student: Student, made: Parcel | None) -> dict[str, Any]:
    """Return what a phase must know of the student; nothing of its start once an earlier stage made it."""
    alone = recipe.transfer is not None and recipe.transfer.alone and student.signal == "teacher"
    fresh = {"shape": shape_of(student), "start": student.start, "origin": student.origin} if made is None else {}
    return {"transfer_alone": alone, **fresh}


def cut(knobs: Any, seed: int) -> dict[str, Any]:
    """Return a section's knobs with a seed of its own."""
    return {**chosen(knobs), "seed": seed}


def chosen(knobs: Any) -> dict[str, Any]:
    """Return a section's knobs without those of methods that it does not use."""
    others = {section for method, section in sections_of(type(knobs)).items() if method != getattr(knobs, "method", None)}
    return {name: value for name, value in dict(knobs).items() if name not in others}


def by_signal(knobs: Mapping[str, Any], signal: str) -> dict[str, Any]:
    """Leave out what only a training on a teacher's answers reads: a plain baseline stays the same model, however others are taught."""
    return {name: value for name, value in knobs.items() if signal == "teacher" or name not in OF_ANSWERS}


async def make_dropped(
    recipe: Recipe, dropping: LayerDropping, strategy: str, drop: int, goods: Goods, *,
    kept: Sequence[int] | None = None, shown: str = "", waits: Mapping[str, Parcel] | None = None,
) -> Candidate:  # fmt: skip
    """Make the models of one strategy and one number of layers.

    ``kept`` are the layers that a search found, ``shown`` is a name of its own, and ``waits`` what a plan cannot know yet; a run has none.
    """
    base = await goods.teacher if dropping.after_finetuning else goods.base
    measured = None
    if strategy == "contribution":
        slice_ = ContributionSlice(token=dropping.token, max_length=dropping.max_length)
        measured = await contributions_of(slice_, "finetuned" if dropping.after_finetuning else "pretrained", goods)
    signal = {"teacher": await goods.teacher, "answers": await answers_for(recipe, goods, dropping)} if dropping.signal == "teacher" else {}
    name = shown or f"{strategy}-{drop}"
    shared = {knob: value for knob, value in dict(dropping).items() if knob not in NOT_COPIED}
    layers = None if kept is None else tuple(kept)

    async def one(seed: int) -> Parcel:
        knobs = DropSlice(**{**shared, "seed": seed}, strategy=strategy, drop=drop, kept=layers)
        return await drop_layers(knobs, base=base, rows=goods.rows, contributions=measured, **signal, **waits or {}, label=label(name, seed, dropping.seeds))

    return Candidate(name, "dropped", list(await asyncio.gather(*(one(seed) for seed in dropping.seeds))), dropping.seeds)


async def judge_all(recipe: Recipe, candidates: Sequence[Candidate], goods: Goods) -> list[dict[str, Any]]:
    """Put everyone on the scales, the teacher first; return the rows of the results.

    Speed is measured after all scores, one model at a time, so that no other work of this run is on the machine.
    """
    teacher = await goods.teacher
    knobs = ScoreSlice(**dict(recipe.scoring), task=recipe.spec)
    first = await score_model(knobs, models=[teacher], teacher=teacher, rows=goods.rows, label=candidates[0].name)
    cards = await asyncio.gather(
        *(
            score_model(knobs, models=candidate.chosen_first, teacher=teacher, rows=goods.rows, teacher_predictions=first, label=candidate.name)
            for candidate in candidates[1:]
        )
    )
    against, looks, elsewhere = await asyncio.gather(
        contrast_all(recipe, candidates, [first, *cards], goods.rows), inspect_all(recipe, candidates, [first, *cards], goods.rows),
        score_sets(recipe, candidates, goods),
    )  # fmt: skip
    speeds = await asyncio.gather(*(measure_speed(recipe.speed, model=candidate.model, teacher=teacher, label=candidate.name) for candidate in candidates))
    if not all(parcel.facts for parcel in [first, *cards, *speeds, *(card for found in elsewhere.values() for card in found.values())]):
        return []  # a plan has no figures
    unpaced = [row(candidate, card, speed) for candidate, card, speed in zip(candidates, [first, *cards], speeds, strict=True)]
    rows = with_judged(with_paces(unpaced, [speed.facts for speed in speeds]), candidates, elsewhere, goods.judging, recipe.gate.split)
    plain = plain_students(recipe)
    return [{**one, "against": against.get(one["name"], {}), "plain": one["name"] in plain, "inspection": looks.get(one["name"])} for one in rows]


def deviation(per_seed: Sequence[float]) -> float | None:
    """Return the standard deviation over seeds (of the seeds there could be, not only of these); one seed has none."""
    return stdev(per_seed) if len(per_seed) > 1 else None


def row(candidate: Candidate, card: Parcel, speed: Parcel) -> dict[str, Any]:
    """Join a scorecard and a measurement of speed to one row of the results: figures of the chosen seed, and ``means`` over all of them.

    Its latency is entered when everybody was timed.
    """
    quality, pace = dict(card.facts), dict(speed.facts)
    per_seed = {split: {name: candidate.as_in_recipe(values) for name, values in found.items()} for split, found in quality["per_seed"].items()}
    seconds = [model.facts.get("train_seconds") for model in candidate.models]
    return {
        "name": candidate.name,
        "role": candidate.role,
        **{name: quality[name] for name in ("parameters", "bytes", "flops", "flops_length", "metrics", "retained", "agreement")},
        "means": quality["means"],
        "per_seed": per_seed,
        "deviation": {split: {name: deviation(values) for name, values in found.items()} for split, found in per_seed.items()},
        "difference": quality.get("difference"),
        "headline": quality["headline"],
        "truncated": quality.get("truncated"),
        "memory_bytes": pace["memory_bytes"],
        "measured_at": {name: pace[name] for name in ("batch", "length", "threads", "repeats", "engine")},
        "train_seconds": seconds,
        "checkpoint": candidate.model.sha256,
        "selected_seed": candidate.seeds[candidate.chosen],
        "selection_score": candidate.selection_scores[candidate.chosen],
        "selection_scores": candidate.selection_scores,
        "note": candidate.model.facts.get("note"),
        "provenance": quality.get("provenance"),
    }
