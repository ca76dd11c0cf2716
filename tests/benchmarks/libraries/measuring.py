"""What our training is worth beside libraries of distillation: the same teacher, start, batches in one order, steps,
rates and optimizer; process time of a step and quality in one table.

Needs a recipe of a classification by BERT's architecture whose first student starts from its teacher's layers:
``RECIPE=file``. A teacher that is not fine-tuned yet is fine-tuned first, outside of all times. Two lessons: the
teacher's softened answers, and hidden states with attention, after which the same answers are learned. Ours asks the
teacher once for the answers of all seeds and shares that time; all others have it beside the student. Times of ours
have reading, tokenizing and writing in them, those of the others have not.

A library that is not installed is left out with its reason; ``make bench PEERS=1`` runs in an environment that has
them. Shape letter: N rows.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tasks.metrics.definition import metric_value
from tasks.metrics.metrics import METRICS
from tasks.recipe.slices import IntermediateSlice
from tests.benchmarks.libraries.contestants import OTHERS, Contestant, our_answers, our_layers
from tests.benchmarks.libraries.lesson import lesson_of
from tests.benchmarks.measure import Contest, Figure, Lap
from tests.benchmarks.setting import Setting
from tests.benchmarks.types.peers import SEEDS, answer_once, difference_told, predictions
from tests.benchmarks.types.school import School, open_school, with_teacher

OURS, ANSWERS_ALONE, LAYERS_FIRST = "ours", "soft targets", "hidden states and attention"


@dataclass
class Found:
    """Laps and predictions of every contestant, seed by seed, by lesson."""

    laps: dict[str, dict[str, list[Lap]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    predicted: dict[str, dict[str, list[np.ndarray]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )


def library_peers(setting: Setting) -> list[Figure]:
    """Let every contestant train its students, seed after seed, and judge them."""
    with tempfile.TemporaryDirectory() as folder:
        school = with_teacher(open_school(Path(folder), setting.quick), setting.quick)
        seeds = SEEDS[: 1 if setting.quick else setting.repeats]
        kept, share = answer_once(school, 2 * len(seeds))
        contestants = {OURS: Contestant(partial(our_answers, kept, share), our_layers), **OTHERS}
        found = Found()
        for seed in seeds:
            for name, one in list(contestants.items()):
                try:
                    train_one(school, found, name, one, seed, setting)
                except Exception as error:  # a library may raise anything; ours is meant to run
                    if name == OURS:
                        raise
                    setting.tell(f"{name} is left out: {type(error).__name__}: {first_line(error)}")
                    del contestants[name]
        return [
            figure
            for lesson in (ANSWERS_ALONE, LAYERS_FIRST)
            for figure in figures(school, lesson, found, list(contestants))
        ]


def train_one(school: School, found: Found, name: str, one: Contestant, seed: int, setting: Setting) -> None:
    """Train one contestant's students of a seed: on answers alone and, if it can, on layers and then on answers."""
    label = f"{seed}-{name}".lower().replace(" ", "-").replace(",", "")
    start = school.save(school.start(school.load_teacher(), seed), f"start-{label}")
    answers = school.knobs.model_copy(update={"seed": seed})
    lessons = {ANSWERS_ALONE: start}
    if one.layers is not None:
        lesson = lesson_of(school, f"layers-{label}", start, layer_knobs(school, seed), school.steps)
        lessons[LAYERS_FIRST], lap = one.layers(lesson)
        found.laps[LAYERS_FIRST][name].append(lap)
    rows, metric = school.split("validation"), school.recipe.spec.headline
    for number, (lesson_name, begun) in enumerate(lessons.items()):
        made, lap = one.answers(lesson_of(school, f"answers-{number}-{label}", begun, answers, school.steps))
        if lesson_name == ANSWERS_ALONE:
            found.laps[lesson_name][name].append(lap)
        found.predicted[lesson_name][name].append(predictions(school, made, rows))
        value = metric_value(METRICS[metric], found.predicted[lesson_name][name][-1], rows.labels_N, rows.units_N)
        ms = 1e3 * found.laps[lesson_name][name][-1].per_unit("cpu")
        setting.tell(f"seed {seed}, {lesson_name}, {name}: {metric} {value:.4f}, {ms:.1f} ms a step")


def layer_knobs(school: School, seed: int) -> IntermediateSlice:
    """Return the knobs of the phase of inner layers, of the same student and as many steps."""
    phase, ours = school.recipe.task_distillation.intermediate, school.knobs
    told: dict[str, Any] = {**dict(phase), "evaluations": 0, "dropout": 0.0, "steps": ours.steps, "seed": seed}
    return IntermediateSlice(**told, task_type=ours.task_type, shape=ours.shape, start="teacher")


def figures(school: School, lesson: str, found: Found, names: list[str]) -> list[Figure]:
    """Return each contestant's milliseconds for a step with its quality, and beside each other one how many times
    faster ours is, with the difference in quality and its interval."""
    rows, metric = school.split("validation"), school.recipe.spec.headline
    laps, predicted = found.laps[lesson], found.predicted[lesson]
    present, lines = [name for name in names if name in laps], list[Figure]()
    for name in present:
        values = [metric_value(METRICS[metric], one, rows.labels_N, rows.units_N) for one in predicted[name]]
        note = f"{metric} {statistics.mean(values):.4f} of {len(rows):,} rows; seeds: {len(values)}"
        spent = {clock: [1e3 * lap.per_unit(clock) for lap in laps[name]] for clock in ("cpu", "wall")}
        other = {"wall": spent["wall"]}
        lines.append(Figure(f"{lesson}, a step", name, "", spent["cpu"], "cpu", None, " ms", note=note, other=other))
    for name in present[1:]:
        note = difference_told(metric, predicted[OURS], predicted[name], rows)
        contest = Contest(dict(laps), [])
        lines.append(contest.figure(f"{lesson}, a step", of=OURS, against=name, target=None, note=note))
    return lines


def first_line(error: Exception) -> str:
    """Return the first line of an error's sentence."""
    return (str(error).strip().splitlines() or [""])[0][:160]
