"""What the gate needs to judge a run: figures as the gate reads them, evaluations row by row, and the paired gains that its tests ask for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.errors import DataError
from tasks.gate.criteria import Champion, Gain
from tasks.gate.verdicts import Decision, Evidence, decide
from tasks.recipe import Criterion, Recipe
from tasks.scoring.evaluation import Evaluation, JudgedRows, paired_gain, read_evaluation, read_judged_rows, write_evaluation

FIGURES_KEPT = ("retained", "parameters", "bytes", "flops", "latency_ms", "speedup", "memory_bytes", "cost", "measured_at")


@dataclass
class Judging:
    """One run before its judge; evaluations are written when they are first asked for, so that a run in which nothing is new writes none."""

    recipe: Recipe
    models: Sequence[Mapping[str, Any]]
    """The rows of the results, the teacher first."""
    data: Mapping[str, Any]
    """What the preparation of rows said of them: counts and digests by split."""
    rows_folder: Callable[[], Path]
    scorecards: Mapping[str, Callable[[], Path]]
    """Where each model's answers are, by its name."""
    overlaps: Mapping[str, int]
    """How many of the gate's rows also stand in what students learn from, by where."""
    workspace: Path
    written: dict[str, Path] = field(default_factory=dict)

    @property
    def rows_sha256(self) -> str:
        """The digest of the rows that judge."""
        return str(self.data["rows_sha256"][self.recipe.gate.split])

    @cached_property
    def rows(self) -> JudgedRows:
        """The rows that judge; where the store is elsewhere, this fetches them."""
        return read_judged_rows(self.rows_folder(), self.recipe.gate.split, self.rows_sha256)

    def evaluation(self, name: str) -> Path:
        """Return the folder of a model's evaluation."""
        if name not in self.written:
            if name not in self.scorecards:
                raise DataError(f"{name} has no scorecard of its own")
            model = next(model for model in self.models if model["name"] == name)
            folder = self.workspace / "evaluations" / name
            self.written[name] = write_evaluation(folder, self.scorecards[name](), self.rows, about_model(self.recipe, model))
        return self.written[name]

    def decide(self, champion: Champion | None = None, theirs: Evaluation | None = None) -> dict[str, Decision]:
        """Let the gate judge everybody against the teacher and the champion; ``theirs`` is the champion's evaluation, if there is one to read."""
        gate = self.recipe.gate
        teacher, *candidates = (gate_row(self.recipe, model) for model in self.models)
        evidence = Evidence(champion, self.gains(candidates, theirs), self.data["rows"][gate.split], self.overlaps)
        return {decision.name: decision for decision in decide(candidates, teacher, gate, evidence)}

    def gains(self, candidates: Sequence[Mapping[str, Any]], theirs: Evaluation | None) -> dict[tuple[str, Criterion], Gain]:
        """Compute the paired gains that the gate's tests ask for; one that cannot be computed is left out."""
        wanted = [criterion for criterion in self.recipe.gate.criteria if criterion.test is not None]
        found: dict[tuple[str, Criterion], Gain] = {}
        for name in [candidate["name"] for candidate in candidates if wanted and candidate["role"] != "baseline"]:
            for criterion in wanted:
                gain = self.gain(name, criterion, theirs)
                if gain is not None:
                    found[name, criterion] = gain
        return found

    def gain(self, name: str, criterion: Criterion, theirs: Evaluation | None) -> Gain | None:
        """Compute one paired gain, or None where there is nothing to compare with."""
        try:
            other = read_evaluation(self.evaluation("teacher")) if criterion.reference == "teacher" else theirs
            return None if other is None else paired_gain(criterion.metric, read_evaluation(self.evaluation(name)), other, criterion.confidence)
        except DataError:
            return None


def about_model(recipe: Recipe, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an evaluation says of its model."""
    row = gate_row(recipe, model)
    figures = {name: row.get(name) for name in FIGURES_KEPT} | {"metrics": row["metrics"], "quality": row["quality"]}
    return {"candidate": model["name"], "role": model["role"], "recipe": recipe.name, "task": recipe.spec.name, "kind": recipe.spec.kind,
            "headline": model["headline"], "checkpoint": model["checkpoint"], "figures": figures}  # fmt: skip


def gate_row(recipe: Recipe, row: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a row of the results to the figures of the gate's split; ``quality`` and ``lead`` are turned so that more is better."""
    from tasks.scoring.metrics import LOWER_IS_BETTER, METRICS

    split, turned = recipe.gate.split, METRICS.get(row["headline"]) in LOWER_IS_BETTER
    metrics = {name: value["value"] for name, value in row["metrics"][split].items()}
    retained = (row["retained"] or {}).get(split, {}).get("value")
    score, ahead = metrics[row["headline"]], (row.get("difference") or {}).get(split)
    quality = None if score is None else -score if turned else score
    return {**row, "metrics": metrics, "retained": retained, "headline": score, "quality": quality, "perfect": quality == (0.0 if turned else 1.0),
            "lead": {"low": -ahead["high"], "high": -ahead["low"]} if ahead and turned else ahead}  # fmt: skip


def verdict_tags(decision: Decision) -> dict[str, str]:
    """Return what a version's tags say of its verdict."""
    return {"gate": "accepted" if decision.accepted else "refused", "gate.verdict": decision.verdict or "",
            "gate.closest": "yes" if decision.closest else "no", "gate.reasons": json.dumps(list(decision.reasons), ensure_ascii=False)}  # fmt: skip
