"""Inputs of the gate for one run: figures in the gate's form, evaluations row by row, and the paired gains that its
tests read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path

from tasks.errors import DataError
from tasks.gate.criteria import Champion
from tasks.gate.row import GateRow, Lead
from tasks.gate.served import served_budget
from tasks.gate.unseen_rows import unseen_by_both
from tasks.gate.verdicts import Decision, Evidence, evaluate_candidates
from tasks.gate.worst_of import Elsewhere
from tasks.ports.rows.seen import learned_digests, read_sentences, sentence_digests
from tasks.recipe.judging import FIGURES, Criterion
from tasks.recipe.recipe import Recipe
from tasks.results.evaluation_facts import ModelDescription
from tasks.results.facts import RowsFacts
from tasks.results.one_class import rows_of_one_class
from tasks.results.row import UNDEFINED, Estimate, Means, ResultRow
from tasks.results.search import SearchResult
from tasks.scoring.evaluation import (
    Evaluation,
    JudgedRows,
    bound_interval,
    paired_gain,
    read_evaluation,
    read_judged_rows,
    write_evaluation,
)
from tasks.scoring.further.resamples import FurtherMetric
from tasks.scoring.judging_sets import SET_SPLIT, SetAnswers
from tasks.scoring.quality.gain import Gain, Unread

FIGURES_KEPT = (*FIGURES, "unsteady", "cost", "measured_at")


@dataclass
class GateInputs:
    """One run's data for the gate; evaluations are written on first use, so that a fully cached run writes none."""

    recipe: Recipe
    models: Sequence[ResultRow]
    """The rows of the results, the teacher first."""
    data: RowsFacts
    """Facts of the prepared rows: counts and digests by split."""
    rows_folder: Callable[[], Path]
    scorecards: Mapping[str, Callable[[], Path]]
    """Functions that return the folder of each model's predictions, by its name."""
    overlaps: Mapping[str, int]
    """Numbers of the gate's rows that overlap with the students' training data, by its kind."""
    workspace: Path
    learned: Sequence[Callable[[], Path]] = ()
    """Folders of further prepared rows whose ``train`` is training data, beside the task's: the user's own text."""
    sets: Mapping[str, SetAnswers] = field(default_factory=dict)
    """The judging sets, by name."""
    search: SearchResult | None = None
    """The answer of the search that chose the candidates, if there was one; its budget may be for graphs."""
    further: Mapping[str, FurtherMetric] = field(default_factory=dict)
    """The metrics beside the task's, by name; their intervals come from values that scoring resampled."""
    written: dict[str, Path] = field(default_factory=dict)
    read: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def rows_sha256(self) -> str:
        """The digest of the gate's rows."""
        return str(self.data.rows_sha256[self.recipe.gate.split])

    @property
    def digests(self) -> dict[str, str]:
        """The tags that identify the rows on which a version was judged; all judging sets, if any, share one digest."""
        sets = "".join(f"{name} {found.rows_sha256}\n" for name, found in sorted(self.sets.items()))
        return {"rows.sha256": self.rows_sha256} | (
            {"judging_sets.sha256": sha256(sets.encode()).hexdigest()} if sets else {}
        )

    @cached_property
    def rows(self) -> JudgedRows:
        """The gate's rows; fetched if the store is remote."""
        folder, split = self.rows_folder(), self.recipe.gate.split
        learned = learned_digests([folder, *(one() for one in self.learned)])
        found = read_judged_rows(folder, split, self.rows_sha256)
        return replace(found, sentences_N=sentence_digests(read_sentences(folder, split)), learned=learned)

    def row_of(self, name: str) -> GateRow:
        """Return a model's figures in the gate's form."""
        return gate_row(self.recipe, next(model for model in self.models if model.name == name))

    def evaluation(self, name: str) -> Path:
        """Return the folder of a model's evaluation; raise DataError if the model has no scorecard."""
        if name not in self.written:
            if name not in self.scorecards:
                raise DataError(f"{name} has no scorecard")
            model = next(model for model in self.models if model.name == name)
            folder = self.workspace / "evaluations" / name
            self.written[name] = write_evaluation(
                folder, self.scorecards[name](), self.rows, about_model(self.recipe, model, self.data.labels)
            )
        return self.written[name]

    def answers(self, name: str) -> Evaluation:
        """Return a model's evaluation, read once."""
        if name not in self.read:
            self.read[name] = read_evaluation(self.evaluation(name))
        return self.read[name]

    def decide(self, champion: Champion | None = None, theirs: Evaluation | None = None) -> dict[str, Decision]:
        """Return the gate's decisions on all models by name, judged against the teacher and the champion; ``theirs`` is
        the champion's evaluation, if it can be read."""
        gate = self.recipe.gate.for_headline(self.recipe.spec.headline)
        teacher, *candidates = (gate_row(self.recipe, model) for model in self.models)
        evidence = Evidence(
            champion,
            partial(self.interval, theirs),
            self.data.rows[gate.split],
            self.overlaps,
            self.elsewhere,
            served_budget(self.search, self.models[1:], candidates),
        )
        return {decision.name: decision for decision in evaluate_candidates(candidates, teacher, gate, evidence)}

    @property
    def elsewhere(self) -> Elsewhere:
        """The gate's evidence from the judging sets."""
        sets = self.sets.items()
        return Elsewhere(
            self.interval_on, {name: found.rows for name, found in sets}, {name: found.overlaps for name, found in sets}
        )

    def interval_on(self, where: str, name: str, criterion: Criterion, confidence: float) -> Gain | Unread | None:
        """Return the interval that a criterion reads for a candidate on a judging set; ``Unread`` if data for it is
        missing or not comparable."""
        recipe = self.recipe
        if where not in self.sets:
            return None
        if criterion.metric in recipe.scoring.metrics:
            metric = self.sets[where].further.get(criterion.metric)
            return metric.interval(criterion, name, SET_SPLIT, confidence) if metric else None
        try:
            ours, teacher = (self.sets[where].evaluation(one) for one in (name, "teacher"))
            headline = recipe.judging_sets[where].headline_on(recipe.spec)
            return interval_of(criterion, headline, ours, teacher, None, confidence, recipe.scoring.resamples)
        except DataError as error:
            return Unread(str(error))

    def interval(
        self, champion: Evaluation | None, name: str, criterion: Criterion, confidence: float
    ) -> Gain | Unread | None:
        """Return the interval that a criterion reads for a candidate; ``Unread`` if data for it is missing or not
        comparable."""
        recipe = self.recipe
        if criterion.metric in self.further:
            return self.further[criterion.metric].interval(criterion, name, recipe.gate.split, confidence)
        try:
            return interval_of(
                criterion,
                recipe.spec.headline,
                self.answers(name),
                self.answers("teacher"),
                champion,
                confidence,
                recipe.scoring.resamples,
            )
        except DataError as error:
            return Unread(str(error))


def interval_of(
    criterion: Criterion,
    headline: str,
    ours: Evaluation,
    teacher: Evaluation,
    champion: Evaluation | None,
    confidence: float,
    resamples: int = 1000,
) -> Gain | None:
    """Return the interval that a criterion reads: of a paired difference, or of a figure in its metric's own unit; None
    if the champion's evaluation is missing.

    The champion is compared on rows that neither it nor the candidate has seen. Raises DataError if the two were not
    evaluated on the same rows, if too few rows remain, or if the score is too small for a share of it to be meaningful.
    """
    other = champion if criterion.reference == "champion" else teacher
    if other is None:
        return None
    if criterion.reference == "champion":
        common = unseen_by_both(ours, other)
        ours, other = common.ours, common.theirs
    if criterion.test is not None:
        return paired_gain(criterion.metric, ours, other, confidence)
    if criterion.metric == "retained":
        return bound_interval(headline, ours, teacher, "retained", confidence, resamples)
    return bound_interval(
        criterion.metric, ours, other, criterion.by if criterion.reference else "own", confidence, resamples
    )


def tag_of_figures(row: GateRow) -> dict[str, str]:
    """Return the tag with the figures by which versions are preferred."""
    names = ("bytes", "latency_ms", "speedup", "unsteady", "headline", "quality", "selection")
    timed = {} if row.measured_at is None else {"measured_at": row.measured_at.as_json()}
    return {"figures": json.dumps({name: getattr(row, name) for name in names} | timed)}


def about_model(recipe: Recipe, model: ResultRow, labels: Sequence[str] | None) -> ModelDescription:
    """Return the description of a model in its evaluation."""
    row = gate_row(recipe, model)
    written = model.as_json()
    figures = {name: written.get(name) for name in FIGURES_KEPT} | {
        "retained": row.retained,
        "metrics": row.metrics,
        "quality": row.quality,
        "selection": row.selection,
    }
    found: ModelDescription = {
        "candidate": model.name,
        "role": model.role,
        "recipe": recipe.name,
        "task": recipe.spec.name,
        "kind": recipe.spec.kind,
        "headline": model.headline,
        "checkpoint": model.checkpoint,
        "figures": figures,
    }
    if labels is not None:
        found["labels"] = list(labels)
    return found


def gate_row(recipe: Recipe, row: ResultRow) -> GateRow:
    """Return a row of the results reduced to the gate's split; ``quality`` and ``lead`` get a sign so that more is
    better."""
    from tasks.metrics.metrics import is_error

    split, turned = recipe.gate.split, is_error(row.headline)
    # Candidates are preferred by their score on the selection rows, where higher is always better: the gate's rows are
    # not used for selection.
    metrics = {name: score.value for name, score in row.metrics[split].items()}
    score, ahead = metrics[row.headline], (row.difference or {}).get(split)
    quality = None if score is None else -score if turned else score
    on = {name: gate_row(recipe, as_if_on(row, name, split)) for name in row.judged or ()}
    return GateRow(
        name=row.name,
        role=row.role,
        checkpoint=row.checkpoint,
        metrics=metrics,
        retained=row.share(split).value,
        parameters=row.parameters,
        bytes=row.bytes,
        flops=row.flops,
        latency_ms=row.latency_ms,
        speedup=row.speedup,
        unsteady=row.unsteady,
        measured_at=row.measured_at,
        memory_bytes=row.memory_bytes,
        token_ms=row.token_ms,
        token_bytes=row.token_bytes,
        fertility=row.fertility,
        fertility_elsewhere=row.fertility_elsewhere,
        ms_per_text=row.ms_per_text,
        packed_bytes=row.packed_bytes,
        nonzero_share=row.nonzero_share,
        bits=row.bits,
        cost=row.cost,
        headline=score,
        quality=quality,
        selection=row.selection_score,
        of_error=turned,
        perfect=quality == (0.0 if turned else 1.0),
        rows_of_one_class=rows_of_one_class(row),
        on=on,
        lead=lead_of(ahead, turned=turned) if ahead else None,
    )


def lead_of(ahead: Estimate, *, turned: bool) -> Lead:
    """Return the bounds of the difference to the teacher, ``turned`` where less of the metric is better."""
    if not turned:
        return Lead(low=ahead.low, high=ahead.high)
    return Lead(
        low=None if ahead.high is None else -ahead.high,
        high=None if ahead.low is None else -ahead.low,
    )


def as_if_on(row: ResultRow, name: str, split: str) -> ResultRow:
    """Return a row of the results with a judging set's figures in place of the split's."""
    found = (row.judged or {})[name]
    return row.replaced(
        judged={},
        headline=found.headline or row.headline,
        metrics={split: found.metrics},
        means={split: found.means or Means()},
        per_seed={split: found.per_seed},
        deviation={split: found.deviation},
        retained={split: found.retained or UNDEFINED},
        difference={split: found.difference or UNDEFINED},
        agreement={split: found.agreement},
        inspection=None,
    )


def verdict_tags(decision: Decision) -> dict[str, str]:
    """Return a version's tags for its verdict."""
    return {
        "gate": "accepted" if decision.accepted else "refused",
        "gate.verdict": decision.verdict or "",
        "gate.closest": "yes" if decision.closest else "no",
        "gate.reasons": json.dumps(list(decision.reasons), ensure_ascii=False),
    }
