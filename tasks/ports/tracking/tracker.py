"""The tracker: all use of MLflow's client; a team's accounts and metrics use its REST API (``flows/stack``,
``flows/monitoring``). Of a run it logs the candidates, one nested run for each with its main metrics, those of the best
candidate on the parent run, and the result of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasks.ports.tracking.figures import decision_figures, words_against
from tasks.ports.tracking.run_context import CANDIDATE_RUN, data_inputs, flat_parameters
from tasks.ports.tracking.runs import RunLog
from tasks.ports.tracking.versions import Versions
from tasks.results.row import ResultRow
from tasks.results.sweep import SweepResult


class CandidateLog(RunLog):
    """Logs the results of a run."""

    def candidates(
        self,
        models: Sequence[ResultRow],
        *,
        best: str,
        standing: str,
        split: str = "validation",
        knobs: Mapping[str, Mapping[str, object]] | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        """Log the main metrics, the knobs and the data of each candidate in a nested run, and the metrics of the best
        one on the parent. If all stages were cached, log only the parent.

        ``standing`` is the result of the best candidate at the gate, which is not always champion; ``knobs`` and
        ``about``, the description in Markdown, are those of each candidate, by its name.
        """
        if not models:
            return
        with self.asking("log the candidates"):
            for model in models if self.children else ():
                tags = {
                    "limbeck": CANDIDATE_RUN,
                    "candidate": model.name,
                    "role": model.role,
                    **({"made": model.making.removeprefix("made ")} if model.making else {}),
                    "gate": model.gate or "",
                    "headline": model.headline,
                    "split": split,
                    **({"checkpoint.sha256": model.checkpoint} if model.checkpoint else {}),
                    **words_against(model, split),
                }
                described = {"mlflow.note.content": said} if (said := (about or {}).get(model.name)) else {}
                run = self.new_child(model.name, {**tags, **described})
                self.client.log_batch(run, metrics=decision_figures(model, models[0], split))
                self.send(run, params=flat_parameters((knobs or {}).get(model.name, {})))
                if self.data:
                    self.client.log_inputs(run, datasets=data_inputs(self.data))
                self.terminate(run, "FINISHED")
            self.log_best_candidate(next(model for model in models if model.name == best), standing, models[0], split)

    def log_best_candidate(self, best: ResultRow, standing: str, teacher: ResultRow, split: str) -> None:
        """Copy the metrics of the best candidate and its ``standing`` to the parent. A refused candidate keeps its
        metrics, but is not tagged as winner."""
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

    def sweep(self, result: SweepResult, plot: str, text: str) -> None:
        """Log the result of a sweep on the parent: scores by number of dropped layers as curves, the answer as metrics,
        and table, plot and JSON as files."""
        final = [cell for cell in result["cells"] if cell["state"] == "scored"]
        curves = [(f"score.{cell['strategy']}", cell["score"]["value"], cell["drop"]) for cell in final]
        gaps = [
            (f"difference_pts.{cell['strategy']}", 100 * gap["value"], cell["drop"])
            for cell in final
            if (gap := cell["difference"])
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


class Tracker(CandidateLog, Versions):
    """One parent run, its children, and the registry behind it."""
