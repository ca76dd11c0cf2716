"""Error analysis of one candidate beside its teacher, from the predictions stored with their scorecards.

Of each scorecard the first seed is analysed: the chosen model, which is the one to be registered. The figures are those
of the task type (``alone`` and ``apart`` in ``tasks/task_types``).
"""

from __future__ import annotations

import numpy as np

from tasks.engine.job import Job
from tasks.ports.rows.row_files import read_split
from tasks.recipe.slices import InspectSlice
from tasks.scoring.inspection_files import write_inspection
from tasks.scoring.predictions import predictions_of
from tasks.task_types.answers import ANSWERS

CARDS = ("card", "teacher")


def inspect_answers(job: Job) -> dict[str, object]:
    """Analyse one scorecard's predictions, beside the teacher's if given, and store the texts of the rows selected as
    examples."""
    knobs = job.read(InspectSlice)
    rows = read_split(job.inputs["rows"], knobs.split)
    models = {
        name: ANSWERS[knobs.task_type].read(predictions_of(job.inputs[name], knobs.split, rows.ids).outputs)
        for name in CARDS
        if name in job.inputs
    }
    found = dict(ANSWERS[knobs.task_type].alone(models["card"], rows.labels_N, knobs.bins))
    chosen: set[int] = set()
    if "teacher" in models:
        apart = ANSWERS[knobs.task_type].apart(
            models["card"], models["teacher"], rows.labels_N, np.asarray(rows.ids), knobs.examples
        )
        chosen = {example["id"] for sort in apart.get("examples", {}).values() for example in sort}
        found["apart"] = apart
    texts = {
        str(row): (rows.texts[place], rows.pairs[place] if rows.pairs else None)
        for place, row in enumerate(rows.ids)
        if row in chosen
    }
    write_inspection(job.output, found, texts)
    return {
        "rows": len(rows),
        "shown": len(texts),
        **{name: value for name, value in found.items() if isinstance(value, float)},
    }
