"""Records of functions: of one that code asks for fields by name, those fields count; of any other, all count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks.ports.code.fingerprint import program
from tasks.ports.code.narrowing import Narrowing
from tasks.ports.code.program import Program
from tests.stage_tasks import changed_stages, edited

RECORDS = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Way:
    first: object
    second: object

def first(x):
    return x

def second(x):
    return -x

PLAIN = Way(first=first, second=second)
WAYS = {'plain': PLAIN}
"""
EDITED = RECORDS.replace("return -x", "return x * 3")


def is_hit(stage: str, records: str = RECORDS, edited: str = EDITED) -> bool:
    """Tell whether a result of a stage stays one when the second field's function is edited."""
    return digest(stage, records) == digest(stage, edited)


def digest(stage: str, records: str) -> str:
    """Digest a small package of ours, as a stage that asks for the way ``plain`` would."""
    program = Program({"tasks.main": f"from tasks.ways import PLAIN, WAYS\n\n{stage}", "tasks.ways": records})
    roots = [("tasks.main", "stage", None)]
    return program.digest(roots, Narrowing(program, roots).entries({"way": "plain"}))


NAMED = {
    "at once": """
def stage(knobs, x):
    return WAYS[knobs.way].first(x)
""",
    "twice": """
def stage(knobs, x):
    return WAYS[knobs.way].first(WAYS[knobs.way].first(x))
""",
    "by a local name": """
def stage(knobs, x):
    way = WAYS[knobs.way]
    return [way.first(one) for one in x]
""",
    "as one of several": """
def stage(knobs, x):
    rows, way = x[0], WAYS[knobs.way]
    return lambda: way.first(rows)
""",
    "by an argument": """
def inner(way, x):
    return way.first(x) if x else inner(way, x - 1)

def stage(knobs, x):
    return inner(WAYS[knobs.way], x)
""",
    "by a named argument of a local name": """
def inner(x, *, way):
    return way.first(x)

def stage(knobs, x):
    way = WAYS[knobs.way]
    return inner(x, way=way)
""",
    "after a check": """
def stage(knobs, x):
    if knobs.way not in WAYS:
        raise ValueError(sorted(WAYS))
    return WAYS[knobs.way].first
""",
}


@pytest.mark.parametrize("stage", NAMED.values(), ids=NAMED)
def test_a_field_that_nobody_reads_does_not_count(stage: str) -> None:
    assert is_hit(stage) and not is_hit(stage.replace(".first", ".second"))


WHOLE = {
    "handed on": """
def stage(knobs, x):
    return WAYS[knobs.way]
""",
    "handed to a library": """
def stage(knobs, x):
    return vars(WAYS[knobs.way])
""",
    "handed on by a partial": """
from functools import partial

def inner(way, x):
    return way.first(x)

def stage(knobs, x):
    return partial(inner, WAYS[knobs.way])(x)
""",
    "handed to a decorated function": """
def around(f):
    return lambda way, x: way.second(x)

@around
def inner(way, x):
    return way.first(x)

def stage(knobs, x):
    return inner(WAYS[knobs.way], x)
""",
    "kept in an object": """
class Keeps:
    def __init__(self, way):
        self.way = way

def stage(knobs, x):
    return Keeps(WAYS[knobs.way]).way.first(x)
""",
    "bound twice": """
def stage(knobs, x):
    way = WAYS[knobs.way]
    way = way if x else None
    return way.first(x)
""",
    "a parameter that is bound again": """
def inner(way, x):
    way = way or x
    return way.second(x)

def stage(knobs, x):
    return inner(WAYS[knobs.way], x)
""",
    "by a field whose name is computed": """
def stage(knobs, x):
    return getattr(WAYS[knobs.way], 'sec' + 'ond')(x)
""",
    "all entries": """
def stage(knobs, x):
    return [way.first(x) for way in WAYS.values()]
""",
    "beside the family": """
def stage(knobs, x):
    return WAYS[knobs.way].first(x), PLAIN
""",
}


@pytest.mark.parametrize("stage", WHOLE.values(), ids=WHOLE)
def test_a_record_that_is_used_in_another_way_counts_whole(stage: str) -> None:
    assert not is_hit(stage)


RAW = NAMED["at once"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda source: source.replace(
            "    second: object\n", "    second: object\n\n    def both(self): self.second(1)\n"
        ),
        lambda source: source.replace("class Way:", "class Way(dict):"),
        lambda source: source.replace("@dataclass(frozen=True)\n", ""),
        lambda source: source.replace("Way(first=first, second=second)", "Way(first, second)"),
        lambda source: source.replace("Way(first=first, second=second)", "Way(**{'first': first, 'second': second})"),
        lambda source: source + "OTHERS = {'plain': PLAIN}\n\ndef unused(): return OTHERS\n\nfirst_of = unused\n",
    ],
    ids=["a method", "a base", "no dataclass", "by place", "unpacked", "a family that nobody uses"],
)
def test_only_plain_records_are_read_in_part(changed: Callable[[str], str]) -> None:
    """Methods and bases could read any field; the last one is no such case, because no code reaches it."""
    hit = is_hit(RAW, changed(RECORDS), changed(EDITED))
    assert hit is ("OTHERS" in changed(RECORDS))


def changed_by(module: str, old: str, new: str, **knobs: Any) -> set[str]:
    """Return the stages with these knobs whose code digest an edit of a module changes."""
    source = program().sources[module]
    assert source.count(old) == 1
    return changed_stages(edited({module: source.replace(old, new)}), knobs)


CHOICE = {"task_type": "classification", "kind": "classification", "task": {"kind": "classification"}}


def test_a_change_of_the_error_analysis_trains_and_scores_nothing_again() -> None:
    place = "tasks.task_types.classification.answers"
    shared = "tasks.task_types.common_answers"
    assert changed_by(shared, "(certainty_N * bins)", "(1 * certainty_N * bins)", **CHOICE) == {"inspect-answers"}
    assert changed_by(place, "MARGIN = 0.05", "MARGIN = 0.06", **CHOICE) == set(), "the gate reads it, and no stage"
    deciding = changed_by(place, "outputs[LOGITS].argmax(-1)", "outputs[LOGITS].argmax(axis=-1)", **CHOICE)
    assert {"finetune-teacher", "distill-predictions", "score-model"} <= deciding and "inspect-answers" not in deciding


def test_a_change_of_one_task_type_changes_no_stage_of_another() -> None:
    place = "tasks.task_types.regression.answers"
    assert changed_by(place, "[LOGITS][:, 0]\n", "[LOGITS][:, 0] + 0\n", **CHOICE) == set()
    other = {"task_type": "regression", "task": {"kind": "regression"}}
    assert "finetune-teacher" in changed_by(place, "[LOGITS][:, 0]\n", "[LOGITS][:, 0] + 0\n", **other)


def test_a_further_task_type_changes_no_stage() -> None:
    further = '"regression": REGRESSION, "ordinal": REGRESSION,'
    assert changed_by("tasks.task_types.answers", '"regression": REGRESSION,', further, **CHOICE) == set()
