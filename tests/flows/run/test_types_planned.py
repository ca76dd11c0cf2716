"""Sweeps, searches and runs of several students and seeds take every task type without a case of its own: planned on
tables of each type, where nothing is trained. Which types a flow does not take is a sentence.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.home import Home
from tasks.errors import LimbeckError
from tasks.recipe.recipe import Recipe
from tasks.task_types.types import ERROR_METRICS, TASK_TYPES
from tests.command_line import plan_recipe
from tests.task_types.seq2seq.tables import write_sentences, write_translator
from tests.task_types.test_makers import BASES, TABLES
from tests.tiny import write_tiny_bert

ALL = pytest.mark.parametrize("kind", [*TASK_TYPES])
STEPS = {"steps": 4, "batch_size": 8, "max_length": 32}


def sentence_of(kind: str, flow: str) -> str:
    """Return a part of the sentence by which a flow refuses a type; empty where it takes it."""
    if TASK_TYPES[kind].writes:
        return f"of type {kind}"
    is_error = TASK_TYPES[kind].headline in ERROR_METRICS
    return "a sweep counts points below the teacher, and .* is an error" if flow == "sweep" and is_error else ""


def values_for(kind: str, folder: Path) -> dict[str, Any]:
    """Return a recipe with a table and a teacher of a type, and students of three sizes with three seeds each."""
    (folder / "table").mkdir()
    is_vector = not TASK_TYPES[kind].learns_labels
    if TASK_TYPES[kind].writes:
        table, columns, teacher = write_sentences(folder / "table"), {}, write_translator(folder / "model")
        sizes = [{"layers": layers, "decoder_layers": 1} for layers in (1, 2, 3)]
    else:
        write, columns = TABLES[kind]
        table, teacher = write(folder / "table"), BASES.get(kind, write_tiny_bert)(folder / "model")
        sizes = [{"layers": layers} for layers in (1, 2, 3)]
    return {
        "name": "planned",
        "task": {"name": "tiny", "kind": kind, **columns},
        "data": {"source": str(table), "selection_rows": 16, "validation_share": 0.2},
        "teacher": {"model": str(teacher), **STEPS, **({"already_finetuned": True} if is_vector else {})},
        "task_distillation": {"prediction": STEPS},
        "students": [
            {"name": f"student-{number}", **size, "start": "teacher", "stages": [], "seeds": [0, 1, 2]}
            for number, size in enumerate(sizes)
        ],
        "gate": {"split": "validation"},
    }


@ALL
def test_the_teacher_answers_once_for_three_students_with_three_seeds(kind: str, tmp_path: Path) -> None:
    planned = plan_recipe(Recipe.model_validate(values_for(kind, tmp_path)), home=Home(tmp_path / "home").create())
    counts = Counter(str(row["stage"]).partition("/")[0] for row in planned)
    assert counts["answer-rows"] == 1 and counts["distill-predictions"] == 9 and counts["score-model"] == 4
    assert {row["cache"] for row in planned} == {"miss"}


@ALL
def test_a_sweep_and_a_search_of_each_type_are_planned(kind: str, tmp_path: Path) -> None:
    """The sweep drops layers by two strategies and seeds; the first stage of the search, its latency table, has the
    type's own inputs, and the others wait for it."""
    values, home = values_for(kind, tmp_path), Home(tmp_path / "home").create()
    signal = {"signal": "labels" if TASK_TYPES[kind].learns_labels else "teacher"}
    sweep = {"strategies": ["top", "bottom"], "drop": [1, 2], "seeds": [0, 1]}
    search = {"budget": {"bytes": "0.8x"}, "space": {"layers": [1, 2]}, "training": {**STEPS, "signal": "teacher"}}
    plans = {"sweep": {"layer_dropping": {**STEPS, **signal}, "sweep": sweep}, "search": {"search": search}}
    for flow, sections in plans.items():
        refused = sentence_of(kind, flow)
        if refused:
            with pytest.raises((LimbeckError, ValidationError), match=refused):
                plan_recipe(Recipe.model_validate(values | sections), home=home, kind=flow)
            continue
        planned = plan_recipe(Recipe.model_validate(values | sections), home=home, kind=flow)
        counts = Counter(str(row["stage"]).partition("/")[0] for row in planned)
        assert counts["prepare-rows"] == 1
        assert counts["drop-layers"] == (8 if flow == "sweep" else 0)
        assert counts["measure-latencies"] == (0 if flow == "sweep" else 1)
