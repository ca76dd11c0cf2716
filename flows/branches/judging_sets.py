"""Judging sets in a run: their rows, their overlap with training data, and the scores of all models on them.

Each set has stages of its own, so that adding a set recomputes neither the other sets nor any training.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from flows.branches.candidate import Candidate, SharedArtifacts, deviation
from flows.run.judging_sources import SOURCE, known_of_sets, sets_in, sources_of_sets
from tasks.catalog import TaskSpec
from tasks.contracts import Artifact
from tasks.ports.rows.judging_sets import judging_rows, overlapping
from tasks.ports.rows.overlap import Sentences
from tasks.ports.store.artifacts import Store
from tasks.prepare_rows import compare_judging_set, pack_rows, prepare_judging_set, purge_rows
from tasks.recipe.data import TableFormat
from tasks.recipe.judging import own_metrics_of
from tasks.recipe.makers.writing import generation_of
from tasks.recipe.recipe import Recipe
from tasks.recipe.slices import CorpusRead, JudgingRowsSlice, JudgingScoreSlice, OfTask, PurgeSlice, StreamSlice
from tasks.recipe.student_checks import group_of
from tasks.results.facts import MetricFacts, SetFacts
from tasks.results.row import UNDEFINED, Estimate, Means, ResultRow, SetScores
from tasks.score_model import score_judging_set
from tasks.scoring.further.resamples import FurtherMetric
from tasks.scoring.judging_sets import SetAnswers
from tasks.stage.session import Session
from tasks.task_types.types import TASK_TYPES

BYTES_OF_STREAM = 300_000
"""Bytes of a packed row: its last window alone may be short, one in some hundred of 512 tokens. Words would tell little
of languages without spaces."""

# --- rows -------------------------------------------------------------------------------------------------------------


async def rows_to_learn(
    recipe: Recipe, sources: Mapping[str, Artifact], rows: Artifact
) -> tuple[Artifact, dict[str, Artifact]]:
    """Return the prepared rows, without the training rows that overlap with judging sets of ``overlaps: purge``, and
    the rows of these sets."""
    purging = await prepare_sets(
        recipe, sources, rows, [name for name, given in sets_in(recipe, sources).items() if given.overlaps == "purge"]
    )
    if not purging:
        return rows, {}
    return await purge_rows(PurgeSlice(names=tuple(purging)), rows=rows, judging=list(purging.values())), purging


async def packed_rows(recipe: Recipe, rows: Artifact) -> Artifact:
    """Return the rows with which models are trained: those of a recipe with packed documents, one behind the other."""
    if not recipe.data.packed:
        return rows
    return await pack_rows(StreamSlice(task_type=recipe.spec.kind, size=BYTES_OF_STREAM), rows=rows)


async def rows_of_sets(
    recipe: Recipe, sources: Mapping[str, Artifact], learned: Artifact, known: Mapping[str, Artifact]
) -> dict[str, Artifact]:
    """Return the rows of every judging set, in the recipe's order; ``known`` are the sets that were prepared before
    train was purged."""
    found = {
        **known,
        **await prepare_sets(
            recipe, sources, learned, [name for name in sets_in(recipe, sources) if name not in known]
        ),
    }
    return {name: found[name] for name in sets_in(recipe, sources)}


async def prepare_sets(
    recipe: Recipe, sources: Mapping[str, Artifact], rows: Artifact, names: Sequence[str]
) -> dict[str, Artifact]:
    """Return the rows of the named sets, in the format and classes of the task."""
    found = await asyncio.gather(
        *(
            prepare_judging_set(rows_slice(recipe, name), source=sources[f"{SOURCE}{name}"], rows=rows, label=name)
            for name in names
        )
    )
    return dict(zip(names, found, strict=True))


def rows_slice(recipe: Recipe, name: str) -> JudgingRowsSlice:
    """Return the knobs that determine the rows of a set; columns that it does not name are the task's, or have the
    names of their roles where its rows are of another type."""
    given, spec = recipe.judging_sets[name], recipe.spec
    if given.is_foreign(spec):
        spec = TaskSpec(name=spec.name, kind=given.kind or spec.kind)
    return JudgingRowsSlice(
        name=name,
        task_type=spec.kind,
        text=given.text or spec.text,
        pair=given.pair or spec.pair,
        label=given.label or spec.label,
        group=group_of(recipe, name),
        drawn_by=recipe.data.group,
        labels=given.labels,
        numbered=not given.source,
        classes=tuple(sorted(given.classes.items())),
        split=given.split,
        rows=given.rows,
        format=TableFormat() if given.source else recipe.data.format,
        faulty_rows=recipe.data.faulty_rows,
        leave_out=given.overlaps == "leave-out",
    )


async def compare_sets(
    recipe: Recipe, sources: Mapping[str, Artifact], shared: SharedArtifacts, rows: Artifact
) -> None:
    """Count the rows of every set that overlap with training data of this run: training rows, transfer text and general
    text."""
    corpus = {"source": sources["corpus"]} if recipe.corpus and "corpus" in sources else {}
    knobs = corpus_read(recipe) if corpus else CorpusRead()
    text = {"transfer": shared.transfer} if shared.transfer is not None else {}
    await asyncio.gather(
        *(
            compare_judging_set(knobs, judging=one, rows=rows, **text, **corpus, label=name)
            for name, one in shared.judging.items()
        )
    )


def corpus_read(recipe: Recipe) -> CorpusRead:
    """Return which words of a recipe's corpus are learned from: a pretraining reads all of them."""
    assert recipe.corpus is not None
    return CorpusRead(text=recipe.corpus.text, most=None if recipe.pretraining else recipe.corpus.max_tokens)


# --- scores -----------------------------------------------------------------------------------------------------------


async def score_sets(
    recipe: Recipe, candidates: Sequence[Candidate], shared: SharedArtifacts
) -> dict[str, dict[str, Artifact]]:
    """Score all candidates on every judging set, the teacher (the first) before the others; return the scorecards by
    candidate and set."""
    found = await asyncio.gather(*(score_set(recipe, candidates, shared, name) for name in shared.judging))
    return {
        one.name: {name: cards[one.name] for name, cards in zip(shared.judging, found, strict=True)}
        for one in candidates
    }


async def score_set(
    recipe: Recipe, candidates: Sequence[Candidate], shared: SharedArtifacts, name: str
) -> dict[str, Artifact]:
    """Score all candidates on one set; return the scorecards by candidate."""
    knobs, teacher = score_slice(recipe, name), await shared.teacher
    ask = partial(score_judging_set, knobs, teacher=teacher, judging=shared.judging[name])
    first, *others = candidates
    theirs = await ask(models=[teacher], label=on_set(first.name, name))
    cards = await asyncio.gather(
        *(ask(models=one.chosen_first, teacher_predictions=theirs, label=on_set(one.name, name)) for one in others)
    )
    return {first.name: theirs, **{one.name: card for one, card in zip(others, cards, strict=True)}}


def score_slice(recipe: Recipe, name: str) -> JudgingScoreSlice:
    """Return the knobs that determine the scores on a set: by the task's metrics, or by those of the type of its rows
    where that is another one."""
    given, spec, scoring = recipe.judging_sets[name], recipe.spec, recipe.scoring
    rows, foreign = TASK_TYPES[given.kind or spec.kind], given.is_foreign(spec)
    untrained = foreign and not given.asks_alike(spec)
    return JudgingScoreSlice(
        task_type=rows.name,
        metrics=rows.metrics if foreign else spec.metrics,
        headline=given.headline_on(spec),
        max_length=scoring.max_length,
        resamples=scoring.resamples,
        confidence=scoring.confidence,
        generation=generation_of(recipe).get("generation"),
        answered_by=OfTask(task_type=spec.kind) if untrained else None,
    )


def on_set(label: str, name: str) -> str:
    """Return the label of a candidate's scores, or of a metric, on a set; without a set, on the task's own rows."""
    return f"{label} on {name}" if name else label


def with_judged(
    rows: Sequence[ResultRow],
    candidates: Sequence[Candidate],
    cards: Mapping[str, Mapping[str, Artifact]],
    sets: Mapping[str, Artifact],
    split: str,
) -> list[ResultRow]:
    """Return the rows of the results, with each model's figures on judging sets if the run has any."""
    if not sets:
        return list(rows)
    return [
        one.replaced(judged=judged_of(candidate, cards[candidate.name], sets, one, split))
        for candidate, one in zip(candidates, rows, strict=True)
    ]


def judged_of(
    candidate: Candidate, cards: Mapping[str, Artifact], sets: Mapping[str, Artifact], row: ResultRow, split: str
) -> dict[str, SetScores]:
    """Return a candidate's figures on every set for its row of the results: those of the chosen seed, and ``means``
    over all seeds.

    Both contain the drop of the headline score from the task's own ``split``; None for a set with merged classes, and
    for one of another type, which has another headline.
    """
    found = {}
    for name, card in cards.items():
        facts, about = card.read(SetScores), sets[name].read(SetFacts)
        # With merged classes the task is a different, easier one: the two scores cannot be subtracted.
        own, over = row.score(split), (row.means or {}).get(split, Means()).metrics.get(row.headline, UNDEFINED)
        means = facts.means or Means()
        drop, over_seeds = (
            None if about.merged else drop_of(row.headline, ours, there.get(row.headline, UNDEFINED))
            for ours, there in ((own, facts.metrics), (over, means.metrics))
        )
        found[name] = in_order_of_seeds(candidate, facts).replaced(
            means=means.replaced(drop=over_seeds),
            drop=drop,
            merges=about.merges,
        )
    return found


def in_order_of_seeds(candidate: Candidate, scores: SetScores) -> SetScores:
    """Return a model's scores with those of each seed in the order of the recipe, and their deviation; on a scorecard
    the chosen seed is the first."""
    per_seed = {metric: candidate.as_in_recipe(values) for metric, values in scores.per_seed.items()}
    return scores.replaced(
        per_seed=per_seed, deviation={metric: deviation(values) for metric, values in per_seed.items()}
    )


def drop_of(headline: str, own: Estimate, there: Estimate) -> float | None:
    """Return the drop of the headline score from the task's own rows to a set, positive if it is worse on the set; None
    if one of the two is undefined."""
    from tasks.metrics.metrics import is_error

    ours, theirs = own.value, there.value
    if ours is None or theirs is None:
        return None
    return float(theirs - ours if is_error(headline) else ours - theirs)


# --- plan and gate ----------------------------------------------------------------------------------------------------


def planned_sets(
    recipe: Recipe,
    names: Sequence[str],
    classes: Sequence[str] | None,
    train: Sequence[Sentences],
    largest: int,
    texts: Mapping[str, Callable[[], Iterable[Sentences]]] | None = None,
) -> dict[str, SetFacts]:
    """Return the facts that a plan can compute for the named judging sets, which no stage has read yet: their rows, and
    their overlap with these training rows, and with ``texts`` by kind.

    Sources of more than ``largest`` bytes are left out, and so are sets for which train is purged, which a stage does.
    """
    found, left_out = {}, unread_sets(recipe, names, largest)
    sources = sources_of_sets(recipe)
    for name, given in sets_in(recipe, sources).items():
        if name in names and name not in left_out:
            split, facts = judging_rows(
                Path(sources[f"{SOURCE}{name}"].uri),
                rows_slice(recipe, name),
                classes,
                train if given.overlaps == "leave-out" else None,
            )
            learned = {"training rows": train, **{kind: read() for kind, read in (texts or {}).items()}}
            both = {kind: overlapping(split.sentences, each) for kind, each in learned.items()}
            found[name] = facts.replaced(
                leaked={kind: int(ours_N.sum()) for kind, (ours_N, _) in both.items()},
                learned={kind: int(theirs_N.sum()) for kind, (_, theirs_N) in both.items()},
            )
    return found


def unread_sets(recipe: Recipe, names: Sequence[str], largest: int) -> dict[str, str]:
    """Return those of the named judging sets that a plan does not read, each with the reason."""
    sources = sources_of_sets(recipe)
    found = {}
    for name, given in sets_in(recipe, sources).items():
        size = sources[f"{SOURCE}{name}"].bytes
        if name in names and given.overlaps == "purge":
            found[name] = "train is purged for it first"
        elif name in names and size > largest:
            found[name] = too_large(size, largest)
    return found


def too_large(size: int, largest: int) -> str:
    """Return why a plan does not read a source of so many bytes."""
    return f"its {size / 2**20:,.1f} MiB are more than the {largest / 2**20:.0f} MiB that a plan reads"


def metrics_of_gate(
    recipe: Recipe, session: Session, models: Sequence[str], *, on: str = ""
) -> dict[str, FurtherMetric]:
    """Return access to the resampled values of the metrics beside the task's, for criteria on them: on the task's own
    rows, or ``on`` a judging set."""
    stages = {name: ("score-metric", name) for name in recipe.scoring.metrics}
    stages |= {f"own/{name}": ("score-own-metric", name) for name in own_metrics_of(recipe.scoring)}
    places = {name: number for number, name in enumerate(models)}
    made = {name: session.artifact_of(stage, on_set(label, on)) for name, (stage, label) in stages.items()}
    return {
        name: FurtherMetric(partial(session.store.folder, one), places, one.read(MetricFacts).lower_is_better)
        for name, one in made.items()
        if one is not None
    }


def answers_of_sets(
    recipe: Recipe, session: Session, names: Sequence[str], store: Store, workspace: Path
) -> dict[str, SetAnswers]:
    """Return the locations of the rows, predictions and further metrics of every set, for the gate; ``names`` are the
    models."""
    found = {}
    for name, facts in known_of_sets(session).items():
        rows = session.artifact_of("prepare-judging-set", name)
        assert rows is not None, "the description of a set requires its rows"
        cards = {one: session.artifact_of("score-judging-set", on_set(one, name)) for one in names}
        places = {one: partial(store.folder, card) for one, card in cards.items() if card is not None}
        place = workspace / "judging" / name
        found[name] = SetAnswers(
            partial(store.folder, rows),
            facts.rows_sha256,
            facts.rows,
            places,
            facts.leaked,
            place,
            metrics_of_gate(recipe, session, names, on=name),
        )
    return found
