"""The scores, comparisons and speeds of all candidates, as the rows of the results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from flows.branches.candidate import Candidate, SharedArtifacts, deviation
from flows.branches.comparison import Comparisons, contrast_all, contrast_on_sets, plain_students
from flows.branches.error_analysis import inspect_all
from flows.branches.judging_sets import in_order_of_seeds, on_set, score_sets, with_judged
from flows.branches.shrinking.packing import pack_all, with_packed
from flows.branches.shrinking.pretrained import accuracies_of_pretraining
from flows.branches.shrinking.quantized import with_bits
from flows.branches.subflow import in_branch
from tasks.contracts import Artifact
from tasks.ports.own_metrics import RegisteredMetric
from tasks.recipe.judging import score_knobs
from tasks.recipe.makers.writing import generation_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import MetricSlice, OwnMetricSlice, PooledSlice, ScoreSlice, SpeedSlice, TextsSlice
from tasks.recipe.student_checks import further_metrics_on
from tasks.results.facts import (
    FurtherScore,
    MetricFacts,
    ModelFacts,
    PackedFacts,
    ScoreFacts,
    SpeedFacts,
    TextFacts,
)
from tasks.results.row import Conditions, Means, ResultRow, SetScores
from tasks.score_model import (
    measure_speed,
    measure_texts,
    score_metric,
    score_model,
    score_own_metric,
    score_pooled,
)
from tasks.scoring.judging_sets import SET_SPLIT
from tasks.scoring.speed.paces import with_paces, with_texts

SetCards = dict[str, dict[str, Artifact]]
"""Scorecards by candidate and judging set."""
SetMetrics = dict[str, list[Artifact]]
"""Further metrics by judging set."""
SetFigures = tuple[SetCards, SetMetrics, dict[str, Comparisons]]
"""Scorecards, further metrics, and the comparisons by judging set."""


async def judge_all(recipe: Recipe, candidates: Sequence[Candidate], shared: SharedArtifacts) -> list[ResultRow]:
    """Score, compare and time all candidates, the teacher first; return the rows of the results.

    Speed is measured after all scores, one model at a time, so that no other work of this run is on the machine.
    """
    teacher = await shared.teacher
    knobs = ScoreSlice.model_validate({**score_knobs(recipe.scoring), **generation_of(recipe), "task": recipe.spec})
    first = await score_model(knobs, models=[teacher], teacher=teacher, rows=shared.rows, label=candidates[0].name)
    scored = partial(score_students, knobs, candidates[1:], teacher, first, shared.rows)
    cards = await in_branch(recipe, "scores", scored, [first])
    compared = partial(compare_all, recipe, candidates, [first, *cards], shared)
    found = await in_branch(recipe, "comparisons", compared, [first])
    against, analyses, (elsewhere, on_sets, compared_on), further, pooled = found
    archives = await pack_all(recipe, candidates)
    speeds = await in_branch(recipe, "speeds", partial(time_all, recipe, candidates, teacher), [first])
    texts = await texts_measured(recipe, candidates, teacher, shared)
    made = [card for cards_of_sets in elsewhere.values() for card in cards_of_sets.values()]
    made += [metric for metrics in on_sets.values() for metric in metrics]
    if not all(artifact.facts for artifact in [first, *cards, *speeds, *texts, *archives, *made, *further, *pooled]):
        return []  # a plan has no figures
    unpaced = [row(one, card, speed) for one, card, speed in zip(candidates, [first, *cards], speeds, strict=True)]
    for metric in further:
        unpaced = with_metric(unpaced, candidates, metric.read(MetricFacts))
    paced = with_paces(unpaced, [speed.read(SpeedFacts) for speed in speeds])
    paced = with_texts(paced, [one.read(TextFacts) for one in texts])
    paced = with_packed(paced, [one.read(PackedFacts) for one in archives])
    paced = with_bits(recipe, paced)
    rows = with_judged(paced, candidates, elsewhere, shared.judging, recipe.gate.split)
    rows = [with_comparisons_on_sets(one, compared_on) for one in rows]
    rows = with_pooled(rows, candidates, pooled)
    for name, metrics in on_sets.items():
        for metric in metrics:
            rows = with_metric_on_set(rows, candidates, metric.read(MetricFacts), name)
    return with_comparisons(recipe, rows, against, analyses)


async def score_students(
    knobs: ScoreSlice, candidates: Sequence[Candidate], teacher: Artifact, first: Artifact, rows: Artifact
) -> list[Artifact]:
    """Score all candidates but the teacher, whose scorecard is ``first``."""
    given = {"teacher": teacher, "rows": rows, "teacher_predictions": first}
    stages = (score_model(knobs, models=one.chosen_first, **given, label=one.name) for one in candidates)
    return list(await asyncio.gather(*stages))


async def compare_all(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], shared: SharedArtifacts
) -> tuple[Comparisons, dict[str, dict[str, JsonValue]], SetFigures, list[Artifact], list[Artifact]]:
    """Return the comparisons and error analyses of all candidates, their scorecards, metrics and comparisons on judging
    sets, further metrics on the task's own rows, and the figures on both of its held-out splits together."""
    return await asyncio.gather(
        contrast_all(recipe, candidates, cards, shared),
        inspect_all(recipe, candidates, cards, shared.rows),
        figures_of_sets(recipe, candidates, cards, shared),
        further_metrics(recipe, cards, shared.rows, shared),
        figures_of_both_splits(recipe, candidates, cards, shared.rows),
    )


async def figures_of_both_splits(
    recipe: Recipe, candidates: Sequence[Candidate], cards: Sequence[Artifact], rows: Artifact
) -> list[Artifact]:
    """Compute the figures of all models on the rows of both held-out splits together; nothing if there is one alone."""
    if not recipe.data.holdout_rows:
        return []
    spec, scoring = recipe.spec, recipe.scoring
    knobs = PooledSlice(
        task_type=spec.kind,
        metrics=spec.metrics,
        headline=spec.headline,
        resamples=scoring.resamples,
        confidence=scoring.confidence,
    )
    stages = (
        score_pooled(knobs, card=card, teacher=cards[0], rows=rows, label=one.name)
        for one, card in zip(candidates, cards, strict=True)
    )
    return list(await asyncio.gather(*stages))


def with_pooled(
    rows: Sequence[ResultRow], candidates: Sequence[Candidate], found: Sequence[Artifact]
) -> list[ResultRow]:
    """Return the rows of the results with the figures on both held-out splits together, if there are any."""
    if not found:
        return list(rows)
    return [
        row.replaced(pooled=in_order_of_seeds(candidate, artifact.read(SetScores)))
        for row, candidate, artifact in zip(rows, candidates, found, strict=True)
    ]


async def time_all(recipe: Recipe, candidates: Sequence[Candidate], teacher: Artifact) -> list[Artifact]:
    """Measure the speed of all candidates."""
    timing = SpeedSlice(**dict(recipe.speed), task_type=recipe.spec.kind)
    stages = (measure_speed(timing, model=one.model, teacher=teacher, label=one.name) for one in candidates)
    return list(await asyncio.gather(*stages))


def with_comparisons(
    recipe: Recipe,
    rows: Sequence[ResultRow],
    comparisons: Mapping[str, object],
    analyses: Mapping[str, object],
) -> list[ResultRow]:
    """Return the rows of the results with comparisons, error analyses, and how each model is made."""
    plain = plain_students(recipe)
    making = {one.name: {"made_from": one.made_from, "made_by": one.by} for one in recipe.candidates}
    return [
        one.replaced(
            against=comparisons.get(one.name, {}),
            plain=one.name in plain,
            inspection=analyses.get(one.name),
            **making.get(one.name, {}),
        )
        for one in rows
    ]


def with_comparisons_on_sets(row: ResultRow, compared: Mapping[str, Comparisons]) -> ResultRow:
    """Return a row of the results with the comparisons of its model on every judging set where there are any."""
    judged = {
        name: scores.replaced(against={other: one[SET_SPLIT] for other, one in found.items()})
        for name, scores in (row.judged or {}).items()
        if (found := compared[name].get(row.name))
    }
    return row.replaced(judged={**(row.judged or {}), **judged}) if judged else row


async def figures_of_sets(
    recipe: Recipe, candidates: Sequence[Candidate], own: Sequence[Artifact], shared: SharedArtifacts
) -> SetFigures:
    """Score all candidates on every judging set; return the scorecards by candidate and set, the metrics of
    ``scoring.metrics`` by set, and the comparisons by set. ``own`` are the scorecards on the task's own rows."""
    cards = await score_sets(recipe, candidates, shared)
    found, compared = await asyncio.gather(
        asyncio.gather(
            *(
                further_metrics(recipe, [cards[one.name][name] for one in candidates], rows, shared, on=name)
                for name, rows in shared.judging.items()
            )
        ),
        contrast_on_sets(recipe, candidates, own, cards, shared),
    )
    return cards, dict(zip(shared.judging, found, strict=True)), compared


async def further_metrics(
    recipe: Recipe, cards: Sequence[Artifact], rows: Artifact, shared: SharedArtifacts, *, on: str = ""
) -> list[Artifact]:
    """Compute the metrics of ``scoring.metrics`` for all models, from their scorecards on the task's own rows, or
    ``on`` a judging set; one stage for each, so that another metric recomputes none of them."""
    scoring, given = recipe.scoring, {"cards": list(cards), "rows": rows}
    own = {f"own/{name}": RegisteredMetric.model_validate(one.facts) for name, one in shared.metrics.items()}
    stages = []
    for name in further_metrics_on(recipe, on) if not on or on in recipe.counted_sets else ():
        common = {"task_type": recipe.spec.kind, "metric": name, "confidence": scoring.confidence}
        if name not in own:
            knobs = MetricSlice(**common, resamples=scoring.resamples)
            stages.append(score_metric(knobs, **given, label=on_set(name, on)))
            continue
        stated = own[name]
        stages.append(
            score_own_metric(
                OwnMetricSlice(
                    **common,
                    resamples=min(scoring.resamples, stated.resamples),
                    name=stated.name,
                    sha256=stated.sha256,
                    reads=stated.reads,
                    lower_is_better=stated.lower_is_better,
                    folder=shared.metrics[stated.name].uri,
                ),
                **given,
                label=on_set(stated.name, on),
            )
        )
    return list(await asyncio.gather(*stages))


def with_metric(rows: Sequence[ResultRow], candidates: Sequence[Candidate], found: MetricFacts) -> list[ResultRow]:
    """Return the rows of the results with one more metric on every split."""
    return [
        with_values(row, found.metric, values, candidate)
        for row, candidate, values in zip(rows, candidates, found.models, strict=True)
    ]


def with_values(row: ResultRow, metric: str, values: Mapping[str, FurtherScore], candidate: Candidate) -> ResultRow:
    """Return a row of the results with the values of one more metric by split."""
    per_seed = {split: candidate.as_in_recipe(one.per_seed) for split, one in values.items()}
    means = row.means or {}
    return row.replaced(
        metrics={split: {**found, metric: values[split].score} for split, found in row.metrics.items()},
        per_seed={split: {**found, metric: per_seed[split]} for split, found in row.per_seed.items()},
        deviation={
            split: {**found, metric: deviation(per_seed[split])} for split, found in (row.deviation or {}).items()
        },
        means={
            split: found.replaced(metrics={**found.metrics, metric: values[split].means})
            for split, found in means.items()
        },
    )


def with_metric_on_set(
    rows: Sequence[ResultRow], candidates: Sequence[Candidate], found: MetricFacts, name: str
) -> list[ResultRow]:
    """Return the rows of the results with one more metric on a judging set."""
    together = []
    for row, candidate, values in zip(rows, candidates, found.models, strict=True):
        judged = row.judged or {}
        scores = with_figure_on_set(judged[name], found.metric, values[SET_SPLIT], candidate)
        together.append(row.replaced(judged={**judged, name: scores}))
    return together


def with_figure_on_set(scores: SetScores, metric: str, value: FurtherScore, candidate: Candidate) -> SetScores:
    """Return a model's scores on a judging set with the value of one more metric."""
    per_seed = candidate.as_in_recipe(value.per_seed)
    means = scores.means or Means()
    return scores.replaced(
        metrics={**scores.metrics, metric: value.score},
        per_seed={**scores.per_seed, metric: per_seed},
        deviation={**scores.deviation, metric: deviation(per_seed)},
        means=means.replaced(metrics={**means.metrics, metric: value.means}),
    )


async def texts_measured(
    recipe: Recipe, candidates: Sequence[Candidate], teacher: Artifact, shared: SharedArtifacts
) -> list[Artifact]:
    """Measure all candidates on real texts; nothing if their tokenizers are all the same."""
    if not recipe.measures_texts:
        return []
    speed = recipe.speed
    knobs = TextsSlice(
        task_type=recipe.spec.kind,
        max_length=recipe.scoring.max_length,
        **{name: getattr(speed, name) for name in ("threads", "repeats", "seconds")},
    )
    judging = [rows for name, rows in shared.judging.items() if name in recipe.counted_sets]
    common = {"teacher": teacher, "rows": shared.rows, "judging": judging}
    return list(
        await asyncio.gather(*(measure_texts(knobs, model=one.model, **common, label=one.name) for one in candidates))
    )


def row(candidate: Candidate, card: Artifact, speed: Artifact) -> ResultRow:
    """Return one row of the results from a scorecard and a speed measurement: figures of the chosen seed, and ``means``
    over all seeds.

    Latency and speed-up are added after all candidates were timed (``with_paces``).
    """
    quality, pace, made = card.read(ScoreFacts), speed.read(SpeedFacts), candidate.model.read(ModelFacts)
    per_seed = {
        split: {name: candidate.as_in_recipe(values) for name, values in found.items()}
        for split, found in quality.per_seed.items()
    }
    spread = {split: {name: deviation(values) for name, values in found.items()} for split, found in per_seed.items()}
    return ResultRow(
        name=candidate.name,
        role=candidate.role,
        parameters=quality.parameters,
        bytes=quality.bytes,
        flops=quality.flops,
        flops_length=quality.flops_length,
        metrics=quality.metrics,
        retained=quality.retained,
        agreement=quality.agreement,
        means=quality.means,
        headline=quality.headline,
        per_seed=per_seed,
        deviation=spread,
        difference=quality.difference,
        truncated=quality.truncated,
        provenance=quality.provenance,
        memory_bytes=pace.memory_bytes,
        token_ms=pace.token_ms,
        token_speedup=pace.token_speedup,
        token_bytes=pace.token_bytes,
        measured_at=Conditions(**{name: getattr(pace, name) for name in Conditions.model_fields}),
        train_seconds=tuple(model.read(ModelFacts).train_seconds for model in candidate.models),
        checkpoint=candidate.model.sha256,
        selected_seed=candidate.seeds[candidate.chosen],
        selection_score=candidate.selection_scores[candidate.chosen],
        selection_scores=tuple(candidate.selection_scores),
        note=made.note,
        **({"pretraining": accuracies} if (accuracies := accuracies_of_pretraining(candidate.models)) else {}),
    )
