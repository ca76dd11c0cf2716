"""What our way of learning a teacher's answers is worth beside the usual one, by task type: the same teacher, start,
rows, steps, batches and rates; quality and time in one run.

Needs a recipe whose first student starts from its teacher's layers and learns its answers in so many steps:
``RECIPE=file``. A teacher that is not fine-tuned yet (``already_finetuned: true``) is fine-tuned first, outside of all
times. Ours: the teacher answers every training row once, of a vocabulary its likeliest words are kept; the students of
all seeds learn them, and share the time that they took. Theirs: a Trainer of transformers (Seq2SeqTrainer for
translators) with the divergence from a teacher that runs beside the student, in bfloat16 by hand where the machine has
it, texts of like length together; embedders by sentence-transformers, if it is installed. Both are judged by our scores
on the validation rows, with a paired interval over rows and seeds. Shape letter: N rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from tasks.metrics.definition import metric_value
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.row_files import StoredRows
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import AnswerSlice, KeptSlice
from tasks.scoring.predict import outputs_of
from tasks.scoring.quality.intervals import paired_difference
from tasks.task_types.answers import ANSWERS
from tasks.task_types.heads import HEADS
from tasks.training.answers import answer
from tasks.training.distill import distill_prediction
from tests.benchmarks.measure import Contest, Figure, Lap, timed
from tests.benchmarks.setting import Setting
from tests.benchmarks.types.school import School, open_school, with_teacher
from tests.benchmarks.types.trainers import PEERS, Peer

SEEDS, RESAMPLES = (0, 1, 2), 2000
OURS = "our training on kept answers"


def type_peers(setting: Setting) -> list[Figure]:
    """Train students both ways in turn, seed after seed, and judge them."""
    with tempfile.TemporaryDirectory() as folder:
        school = open_school(Path(folder), setting.quick)
        peer, seeds = peer_of(school.kind), SEEDS[: 1 if setting.quick else setting.repeats]
        school = with_teacher(school, setting.quick)
        answers, answering = answer_once(school, len(seeds))
        found: dict[str, list[np.ndarray]] = {OURS: [], peer.name: []}
        laps: dict[str, list[Lap]] = {OURS: [], peer.name: []}
        rows, metric = school.split("validation"), school.recipe.spec.headline
        for seed in seeds:
            for name, (made, lap) in {
                OURS: learn_kept(school, answers, answering, seed),
                peer.name: peer.learn(school, seed),
            }.items():
                found[name].append(predictions(school, made, rows))
                laps[name].append(lap)
                value = metric_value(METRICS[metric], found[name][-1], rows.labels_N, rows.units_N)
                setting.tell(f"seed {seed}, {name}: {metric} {value:.4f}, {lap.cpu:.0f} s")
    return figures(school.recipe, found, Contest(laps, []), rows)


def peer_of(kind: str) -> Peer:
    """Return the usual way for a task type; raises SystemExit with a sentence if none is written here."""
    if kind not in PEERS:
        raise SystemExit(f"no usual way is measured here for tasks of type {kind}; legal are {', '.join(PEERS)}")
    return PEERS[kind]


def answer_once(school: School, students: int) -> tuple[Path, Lap]:
    """Keep the teacher's answers on all training rows; return each student's share of the time."""
    knobs, words = school.knobs, school.recipe.task_distillation.kept_words
    kept = KeptSlice(words=words, temperature=knobs.temperature) if HEADS[school.kind].keep else None
    asked = AnswerSlice(task_type=knobs.task_type, max_length=knobs.max_length, kept=kept)
    with timed() as lap:
        answer(school.job("answers", asked))
    return school.scratch / "answers", Lap(lap.cpu / students, lap.wall / students)


def learn_kept(school: School, answers: Path, answering: Lap, seed: int) -> tuple[Path, Lap]:
    """Train our student; its lap has its share of the answers' time."""
    knobs = school.knobs.model_copy(update={"seed": seed})
    with timed() as lap:
        distill_prediction(school.job(f"ours-{seed}", knobs, answers=answers))
    return school.scratch / f"ours-{seed}", Lap(lap.cpu + answering.cpu, lap.wall + answering.wall)


def predictions(school: School, folder: Path, rows: StoredRows) -> np.ndarray:
    """Return what a model predicts of the rows that judge [N]."""
    generation = school.recipe.generation if school.recipe.task_type.writes else None
    most = school.recipe.scoring.max_length
    outputs = outputs_of(folder, rows.texts, rows.pairs, most, task_type=school.kind, generation=generation)
    return ANSWERS[school.kind].decide(outputs)


def difference_told(metric: str, ours: list[np.ndarray], theirs: list[np.ndarray], rows: StoredRows) -> str:
    """Return the difference between two models of some seeds each, from their predictions, with its interval."""
    apart = paired_difference(
        METRICS[metric],
        np.stack(ours),
        np.stack(theirs),
        rows.labels_N,
        resamples=RESAMPLES,
        groups_N=rows.groups_N,
        units_N=rows.units_N,
    )
    return f"{metric} {apart.value:+.4f} [{apart.low:+.4f}, {apart.high:+.4f}]"


def figures(recipe: Recipe, found: dict[str, list[np.ndarray]], contest: Contest, rows: StoredRows) -> list[Figure]:
    """Return how many times faster ours is, with the difference in quality and its interval."""
    (ours, theirs), metric = found, recipe.spec.headline
    judged = len(rows) if rows.units_N is None else len({*rows.units_N.tolist()})
    told = f"{recipe.spec.kind}: {difference_told(metric, found[ours], found[theirs], rows)} of {judged} rows"
    return [contest.figure(told, of=ours, against=theirs, target=None)]
