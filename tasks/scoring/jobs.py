"""The scoring jobs, by name. Shape letters: N rows, S seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tasks.engine.job import Job
from tasks.metrics.metrics import METRICS
from tasks.ports.rows.row_files import StoredRows, has_split, read_merged, read_split
from tasks.recipe.slices import ContrastSlice, JudgingScoreSlice, ScoreSlice, SpeedSlice
from tasks.scoring.error_analysis import inspect_answers
from tasks.scoring.packing import archive_model
from tasks.scoring.predict import outputs_of, truncated_share, untrained_outputs
from tasks.scoring.predictions import (
    Predictions,
    predictions_of,
    read_predictions,
    seeds_by_split,
    write_predictions,
)
from tasks.scoring.quality.intervals import paired_difference
from tasks.scoring.quality.scorecard import new_card, score_split
from tasks.scoring.speed.flops import flops_of, parameters_of, weight_bytes
from tasks.scoring.speed.further_tokens import measure_further_tokens
from tasks.scoring.speed.speed import measure_latency, peak_increase
from tasks.scoring.speed.texts import count_and_time_texts
from tasks.task_types.answers import ANSWERS
from tasks.task_types.graphs import GRAPHS
from tasks.task_types.interfaces import Answers
from tasks.task_types.units import Parts

SPLITS = ("validation", "holdout")
PROVENANCE = {
    "metrics": "measured",
    "retained": "measured",
    "agreement": "measured",
    "parameters": "computed",
    "flops": "computed",
    "bytes": "measured",
    "latency_ms": "measured",
    "memory_bytes": "measured",
}


def score(job: Job) -> dict[str, object]:
    """Score a candidate (one checkpoint a seed) and its teacher on every reporting split: figures of the first seed,
    which is the model, and means over all seeds."""
    knobs, models = job.read(ScoreSlice), job.lists["models"]
    answers, figures = ANSWERS[knobs.task.kind], figures_of(knobs)
    splits = {split: read_split(job.inputs["rows"], split) for split in SPLITS if has_split(job.inputs["rows"], split)}
    card = new_card()
    predictions: list[Predictions] = []
    done, total = 0, len(models) * sum(len(rows) for rows in splits.values())
    for split, rows in splits.items():
        if not len(rows):
            continue
        ours_S = [
            ask(job, knobs, knobs.task.kind, model, rows, done + seed * len(rows), total)
            for seed, model in enumerate(models)
        ]
        # The teacher's own scorecard: its outputs need not be computed twice.
        theirs = (
            ours_S[0]
            if models == [job.inputs["teacher"]]
            else teacher_outputs(job, knobs, knobs.task.kind, split, rows)
        )
        done += len(models) * len(rows)
        found_S = [answers.decide(ours) for ours in ours_S]
        predictions.extend(predictions_of_seeds(split, rows, found_S, ours_S, answers))
        score_split(card, split, np.stack(found_S), answers.decide(theirs), rows, figures, answers)
    write_predictions(job.output, predictions)
    validation = splits["validation"]
    facts = {
        **card,
        "headline": figures.headline,
        "parameters": parameters_of(models[0]),
        "bytes": weight_bytes(models[0]),
        "flops": flops_of(models[0], knobs.flops_length, knobs.task.kind),
        "flops_length": knobs.flops_length,
        "truncated": truncated_share(
            models[0], validation.texts, validation.pairs, knobs.max_length, GRAPHS[knobs.task.kind].units
        ),
        "provenance": PROVENANCE,
    }
    (job.output / "scorecard.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def figures_of(knobs: ScoreSlice) -> JudgingScoreSlice:
    """Return the settings for scoring a task's own rows, in the form used for judging sets."""
    task = knobs.task
    same = {name: getattr(knobs, name) for name in ("max_length", "resamples", "confidence", "generation")}
    return JudgingScoreSlice(task_type=task.kind, metrics=task.metrics, headline=task.headline, **same)


def ask(
    job: Job,
    knobs: ScoreSlice | JudgingScoreSlice,
    task_type: str,
    model: Path,
    rows: StoredRows,
    done: int,
    total: int,
) -> dict[str, np.ndarray]:
    """Return a model's outputs of a split, and report progress in rows."""
    return outputs_of(
        model,
        rows.texts,
        rows.pairs,
        knobs.max_length,
        task_type=task_type,
        threads=job.threads,
        generation=knobs.generation,
        report=lambda here: job.progress(done + here, total, unit="rows"),
    )


def score_judging_set(job: Job) -> dict[str, object]:
    """Score a candidate (one checkpoint a seed; the first is the model) and its teacher on a judging set; classes that
    the set merges count as one."""
    knobs, models, folder = job.read(JudgingScoreSlice), job.lists["models"], job.inputs["rows"]
    answers, rows, merged = ANSWERS[knobs.task_type], read_split(folder, "validation"), read_merged(folder)
    asked, teacher = untrained_on_set(job, knobs, rows) if knobs.answered_by else outputs_on_set(job, knobs, rows)
    *ours_S, theirs = [one if merged is None else answers.merge(one, merged) for one in (*asked, teacher)]
    found_S = [answers.decide(ours) for ours in ours_S]
    card = new_card()
    score_split(card, "validation", np.stack(found_S), answers.decide(theirs), rows, knobs, answers)
    write_predictions(job.output, predictions_of_seeds("validation", rows, found_S, ours_S, answers))
    facts: dict[str, object] = {
        "metrics": card["metrics"]["validation"],
        "per_seed": card["per_seed"]["validation"],
        "retained": card["retained"]["validation"],
        "difference": card["difference"]["validation"],
        "agreement": card["agreement"]["validation"],
        "means": card["means"]["validation"],
        "rows": card["rows"]["validation"],
        "headline": knobs.headline,
        "truncated": truncated_share(
            models[0], rows.texts, rows.pairs, knobs.max_length, GRAPHS[knobs.task_type].units
        ),
    }
    if knobs.answered_by:
        facts["chance"] = answers.guess(found_S[0], rows.labels_N)["chance"]
    (job.output / "scorecard.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


SetOutputs = tuple[list[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Outputs of every seed, and of the teacher, on a judging set."""


def outputs_on_set(job: Job, knobs: JudgingScoreSlice, rows: StoredRows) -> SetOutputs:
    """Return the outputs of models of the set's own type."""
    models, many = job.lists["models"], len(rows)
    asked = [
        ask(job, knobs, knobs.task_type, model, rows, seed * many, len(models) * many)
        for seed, model in enumerate(models)
    ]
    if models == [job.inputs["teacher"]]:
        return asked, asked[0]
    return asked, teacher_outputs(job, knobs, knobs.task_type, "validation", rows)


def untrained_on_set(job: Job, knobs: JudgingScoreSlice, rows: StoredRows) -> SetOutputs:
    """Return the outputs of models of another type, which have learned nothing of such rows; the teacher's are stored
    by its own scorecard, unless it is the only model."""
    models, many, own, parts = job.lists["models"], len(rows), knobs.answered_by, GRAPHS[knobs.task_type].units
    assert own is not None and isinstance(parts, Parts)

    def outputs_of_seed(seed: int, model: Path) -> dict[str, np.ndarray]:
        return untrained_outputs(
            own,
            model,
            parts,
            rows.texts,
            rows.pairs,
            knobs.max_length,
            lambda here: job.progress(seed * many + here, len(models) * many, unit="rows"),
        )

    asked = [outputs_of_seed(seed, model) for seed, model in enumerate(models)]
    if models == [job.inputs["teacher"]]:
        return asked, asked[0]
    return asked, predictions_of(job.inputs["teacher_predictions"], "validation", rows.ids).outputs


def predictions_of_seeds(
    split: str,
    rows: StoredRows,
    found_S: Sequence[np.ndarray],
    outputs_S: Sequence[Mapping[str, np.ndarray]],
    answers: Answers,
) -> list[Predictions]:
    """Return every seed's predictions on a split, with the outputs from which they were decided."""
    return [
        Predictions(split, seed, rows.ids, found_N, {name: outputs[name] for name in answers.kept or outputs})
        for seed, (found_N, outputs) in enumerate(zip(found_S, outputs_S, strict=True))
    ]


def teacher_outputs(
    job: Job, knobs: ScoreSlice | JudgingScoreSlice, task_type: str, split: str, rows: StoredRows
) -> Mapping[str, np.ndarray]:
    """Return the teacher's outputs, from its own scorecard if there is one, so that the teacher runs only once."""
    stored = job.inputs.get("teacher_predictions")
    if stored is not None:
        known = [one for one in read_predictions(stored) if one.split == split]
        if len(known) == 1 and known[0].ids == rows.ids:
            return known[0].outputs
    teacher, length = job.inputs["teacher"], knobs.max_length
    return outputs_of(teacher, rows.texts, rows.pairs, length, task_type=task_type, generation=knobs.generation)


def measure(job: Job) -> dict[str, object]:
    """Time a candidate and its teacher in turn, and measure the candidate's memory."""
    knobs = job.read(SpeedSlice)
    folders = {"model": job.inputs["model"], "teacher": job.inputs["teacher"]}
    # Memory first: this process has loaded the libraries and no model yet, so the increase is the candidate's alone.
    memory = peak_increase(
        folders["model"], task_type=knobs.task_type, batch=knobs.batch, length=knobs.length, threads=knobs.threads
    )
    timed = measure_latency(
        folders,
        task_type=knobs.task_type,
        batch=knobs.batch,
        length=knobs.length,
        threads=knobs.threads,
        repeats=knobs.repeats,
        warmup=knobs.warmup,
        seconds=knobs.seconds,
    )
    ours, theirs = timed["engines"]["model"], timed["engines"]["teacher"]
    facts = {
        **timed,
        **(measure_further_tokens(folders, knobs, task_type=knobs.task_type) or {}),
        "memory_bytes": memory,
        "engine": ours if ours == theirs else f"{ours} against {theirs}",
        **{name: getattr(knobs, name) for name in ("batch", "length", "threads", "repeats")},
    }
    (job.output / "speed.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


def contrast(job: Job) -> dict[str, object]:
    """Compare two candidates row by row, from the predictions stored with their scorecards, on every split that both
    were scored on."""
    knobs = job.read(ContrastSlice)
    metric = METRICS[knobs.metric]
    first, second = (seeds_by_split(read_predictions(job.inputs[name])) for name in ("candidate", "baseline"))
    splits = {}
    for split in sorted({*first} & {*second}):
        rows = read_split(job.inputs["rows"], split)
        ours_SN, theirs_SN = (
            np.stack([one.in_order(rows.ids).predictions_N for one in found[split]]) for found in (first, second)
        )
        apart = paired_difference(
            metric,
            ours_SN,
            theirs_SN,
            rows.labels_N,
            resamples=knobs.resamples,
            confidence=knobs.confidence,
            groups_N=rows.groups_N,
            units_N=rows.units_N,
        )
        splits[split] = {**apart.as_json(), "p": apart.p}
    seeds = [max(map(len, found.values()), default=0) for found in (first, second)]
    facts = {"metric": knobs.metric, "lower_is_better": metric.lower_is_better, "seeds": seeds, "splits": splits}
    (job.output / "comparison.json").write_text(json.dumps(facts, indent=1, sort_keys=True))
    return facts


JOBS = {
    "score": score,
    "judge": score_judging_set,
    "measure": measure,
    "measure-texts": count_and_time_texts,
    "pack": archive_model,
    "contrast": contrast,
    "inspect": inspect_answers,
}
