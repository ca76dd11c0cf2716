"""A classifier that gives all rows one class is not accepted, whatever it keeps of the teacher. Pure functions.

Its score is the share of rows of that class, and beside a teacher that does the same it keeps everything. Only where a
criterion reads how probabilities sort the rows, may the most probable class be the same for all: with rare classes a
model can sort well and still expect none of them.
"""

from __future__ import annotations

from tasks.gate.criteria import UNKNOWN, Finding
from tasks.gate.row import GateRow
from tasks.metrics.metrics import METRICS_OF_SCORES
from tasks.recipe.judging import Gate


def one_class_findings(candidate: GateRow, gate: Gate) -> list[Finding]:
    """Return that a candidate gives all of the gate's rows one class although they have several; nothing if it does
    not, if a criterion reads a metric of scores (``auroc``), or if none reads any quality."""
    sorts_rows = any(criterion.metric in METRICS_OF_SCORES for criterion in gate.criteria)
    asks_for_quality = any(criterion.is_quality for criterion in gate.criteria)
    if not candidate.rows_of_one_class or sorts_rows or not asks_for_quality:
        return []
    said = (
        f"all {candidate.rows_of_one_class:,} rows get one class although they have several, so that it tells nothing "
        f"apart: not met"
    )
    return [Finding("classes", False, said, UNKNOWN)]
