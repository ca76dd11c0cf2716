"""The candidates of a run in MLflow: a nested run for each with the figures that decide, the best one's on the parent;
and the answer of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.ports.tracking.figures import decision_figures, words_against
from tasks.ports.tracking.runs import RunLog
from tasks.results.row import ResultRow


class CandidateLog(RunLog):
    """The results of a run."""

    def candidates(self, models: Sequence[ResultRow], *, best: str, standing: str, split: str = "validation") -> None:
        """Log one nested run a candidate with the figures that decide, and those of the best on the parent. Where all
        was known already: the parent alone.

        ``standing`` says how far the best came at the gate: it need not be champion.
        """
        if not models:
            return
        with self.asking("log the candidates"):
            for model in models if self.children else ():
                tags = {
                    "candidate": model.name,
                    "role": model.role,
                    "gate": model.gate or "",
                    "headline": model.headline,
                    **words_against(model, split),
                }
                run = self.new_child(model.name, tags)
                self.client.log_batch(run, metrics=decision_figures(model, models[0], split))
                self.terminate(run, "FINISHED")
            self.crown(next(model for model in models if model.name == best), standing, models[0], split)

    def crown(self, best: ResultRow, standing: str, teacher: ResultRow, split: str) -> None:
        """Copy the figures of the best candidate to the parent, with its standing: a refused one shows by how much, and
        is no winner."""
        from mlflow.entities import RunTag

        tags = {
            "winner": best.name if best.gate == "champion" else "none",
            "best": best.name,
            "standing": standing,
            "headline": teacher.headline,
        }
        self.client.log_batch(
            self.parent,
            metrics=decision_figures(best, teacher, split),
            tags=[RunTag(name, value) for name, value in tags.items()],
        )

    def sweep(self, result: Mapping[str, Any], plot: str, text: str) -> None:
        """Log what a sweep found on the parent: scores by dropped layers as curves, the answer as figures, and its
        table, plot and JSON."""
        final = [cell for cell in result["cells"] if cell["state"] == "scored"]
        curves = [(f"score.{cell['strategy']}", cell["score"]["value"], cell["drop"]) for cell in final]
        gaps = [
            (f"difference_pts.{cell['strategy']}", 100 * cell["difference"]["value"], cell["drop"]) for cell in final
        ]
        held = [
            (f"layers_within_{one['points']:g}_pts", one["holds"]["drop"] if one["holds"] else 0, 0)
            for one in result["answer"]
        ]
        said = ", ".join(str(one["holds"]["drop"] if one["holds"] else 0) for one in result["answer"])
        with self.asking("log the sweep"):
            self.send(
                self.parent, metrics=[*curves, *gaps, *held, ("score.teacher", result["teacher"]["score"]["value"], 0)]
            )
            within = ", ".join(f"{one['points']:g}" for one in result["answer"])
            self.client.set_tag(self.parent, "winner", f"{said} of {result['layers']} layers within {within} points")
            self.client.set_tag(self.parent, "headline", result["headline"])
            self.client.log_dict(self.parent, dict(result), "run/sweep.json")
            self.client.log_text(self.parent, plot, "run/sweep.svg")
            self.client.log_text(self.parent, text, "run/sweep.md")
