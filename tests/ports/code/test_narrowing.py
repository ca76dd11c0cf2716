"""Families of choices: of one that is asked by a knob alone, what the knob names counts; any other counts whole."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.ports.code.fingerprint import narrowing, program
from tasks.ports.code.narrowing import Narrowing
from tasks.ports.code.program import Program
from tests.stage_tasks import all_specs, edited, narrowed

FAMILY = "def first(x):\n    return x\n\ndef second(x):\n    return -x\n\nKINDS = {'first': first, 'second': second}\n"
EDITED = FAMILY.replace("return -x", "return x * 3")


def digest(door: str, knobs: dict[str, Any], family: str = FAMILY) -> str:
    """Digest a small package of ours, as a stage with these knobs would."""
    program = Program({"tasks.main": f"from tasks.family import KINDS\n\n{door}", "tasks.family": family})
    roots = [("tasks.main", "door", None)]
    return program.digest(roots, Narrowing(program, roots).entries(knobs))


def is_hit(door: str, **knobs: Any) -> bool:
    """Tell whether a result stays one when the second entry is edited."""
    return digest(door, knobs) == digest(door, knobs, EDITED)


PLAIN = {
    "a knob": """
def door(knobs, x):
    return KINDS[knobs.kind](x)
""",
    "a knob of a job": """
def door(job, x):
    return KINDS.get(job.knobs.kind, abs)(x)
""",
    "a knob under another name": """
def door(job, x):
    kind = job.knobs.kind
    return KINDS[kind](x)
""",
    "a knob that a caller hands over": """
def ask(name, x):
    return KINDS[name](x)

def door(knobs, x):
    return ask(knobs.kind, x)
""",
    "a knob over two callers, by name": """
def low(x, *, by):
    return KINDS[by](x)

def ask(name, x):
    return low(x, by=name)

def door(knobs, x):
    return ask(knobs.kind, x)
""",
    "a default": """
def ask(x, name='first'):
    return KINDS[name](x)

def door(knobs, x):
    return ask(x)
""",
    "a string": """
def door(knobs, x):
    return KINDS['first'](x)
""",
    "each of a list": """
def door(knobs, x):
    for n, one in enumerate(knobs.kinds, start=1):
        x = KINDS[one](x)
    return x
""",
    "each of a list, in one line": """
def door(knobs, x):
    return [KINDS[one](x) for one in knobs.kinds]
""",
    "a knob that is looked up first, with a sentence": """
def door(knobs, x):
    if knobs.kind not in KINDS:
        raise ValueError(sorted(KINDS))
    return KINDS[knobs.kind](x)
""",
}


PLAIN_ARCHITECTURE = """
def model_type_of(config):
    return config.model_type

def door(knobs, model):
    return KINDS.get(model_type_of(model.config))
"""


@pytest.mark.parametrize("door", PLAIN.values(), ids=PLAIN)
def test_of_a_family_that_is_asked_by_a_knob_alone_only_the_chosen_entry_counts(door: str) -> None:
    knobs: dict[str, Any] = {"phase": {"kind": "first", "kinds": ["first"]}, "note": "second"}
    assert is_hit(door, **knobs)
    chosen: dict[str, Any] = {"phase": {"kind": "second", "kinds": ["first", "second"]}}
    assert not is_hit(door, **chosen) or "'first'" in door
    assert digest(door, knobs) != digest(door, knobs, FAMILY.replace("return x\n", "return x + 0\n"))


def test_of_a_family_that_is_asked_by_an_architecture_those_of_the_models_count() -> None:
    door = PLAIN_ARCHITECTURE
    assert is_hit(door, architectures=["first"]) and is_hit(door, architectures=[])
    assert not is_hit(door, architectures=["first", "second"]) and not is_hit(door)


HIDDEN = {
    "what a config says": """
def door(knobs, model):
    return KINDS[model.config.model_type]
""",
    "what a config says, through a function": """
def kind_of(model):
    return model.config.kind

def door(knobs, model):
    return KINDS[kind_of(model)]
""",
    "the architecture of a config, where a stage's models are not known": """
def model_type_of(config):
    return config.model_type

def door(knobs, model):
    return KINDS.get(model_type_of(model.config))
""",
    "what a function of others says": """
def door(knobs, model):
    return KINDS.get(str(model.config))
""",
    "a knob here and a config there": """
def door(knobs, model):
    return KINDS[knobs.kind], KINDS.get(model.config.kind)
""",
    "a name that is a knob or not": """
def door(knobs, model):
    kind = knobs.kind
    if model:
        kind = model.kind
    return KINDS[kind]
""",
    "a parameter that one caller takes from a config": """
def ask(name):
    return KINDS[name]

def door(knobs, model):
    return ask(knobs.kind), ask(model.kind)
""",
    "a parameter of a function that is handed on": """
def ask(name):
    return KINDS[name]

def door(knobs, names):
    return ask(knobs.kind), map(ask, names)
""",
    "a parameter that is set anew": """
def ask(name, model):
    name = model.kind
    return KINDS[name]

def door(knobs, model):
    return ask(knobs.kind, model)
""",
    "arguments behind a star": """
def ask(name):
    return KINDS[name]

def door(knobs, given):
    return ask(*given)
""",
    "all of it, one by one": """
def door(knobs, x):
    return [one(x) for one in KINDS.values()]
""",
    "its names": """
def door(knobs, x):
    return sorted(KINDS)
""",
    "the family under another name": """
ALSO = KINDS

def door(knobs, x):
    return ALSO[x]
""",
    "another function's parameter": """
def door(knobs, x):
    return (lambda kind: KINDS[kind])(x)
""",
    "a loop over something else": """
def door(knobs, names):
    return [KINDS[one] for one in names]
""",
    "a knob that this stage has not": """
def door(knobs, x):
    return KINDS[knobs.way](x)
""",
    "an entry that is set": """
def door(knobs, x):
    KINDS[knobs.kind] = x
    return KINDS
""",
}


@pytest.mark.parametrize("door", HIDDEN.values(), ids=HIDDEN)
def test_a_family_that_is_asked_by_anything_else_counts_whole(door: str) -> None:
    assert not is_hit(door, kind="first", name="first", note="first")


def test_a_string_elsewhere_among_the_knobs_does_not_narrow() -> None:
    door = "def door(knobs, x):\n    return KINDS[knobs.kind](x)\n"
    assert not is_hit(door, kind="second", name="first")


EVERYWHERE = {
    "FORMATS",
    "MOST_HELD",
    "FILES",
    "PROVENANCE",
    "IN_A_LAYER",
    "OUTSIDE",
    "JOBS",
}
"""Families that count whole: asked by what a model's config says, by a metric's function, by a file's name, or read
from end to end. Of ``JOBS`` the one that a stage task names is a root of its own."""


def test_which_families_are_narrowed_and_by_which_knob() -> None:
    found: dict[str, set[str]] = {}
    for spec in all_specs():
        for (_, name), asks in narrowing(spec.roots).asks.items():
            found.setdefault(name, set()).update(["whole"] if asks is None else {asked for _, asked in asks})
    assert EVERYWHERE <= {name for name, asks in found.items() if asks == {"whole"}}
    assert {name: asks for name, asks in found.items() if asks != {"whole"}} == {
        "OBJECTIVES": {"method"},
        "LAYER_MAPS": {"layer_map"},
        "ARCHITECTURES": {"architectures", "bert", "start"},  # a model that is drawn from nothing is a BERT
        "STARTS": {"start"},
        "STRATEGIES": {"start", "strategy"},
        "MIXTURES": {"combine"},
        "OPTIMIZERS": {"optimizer"},
        "METRICS": {"metric", "metrics"},
        "METRICS_OF_SCORES": {"metric"},
        "ROW_SCORES": {"task_type"},
        "ANSWERS": {"task_type", "task.kind"},
        "HEADS": {"task_type", "task.kind"},
        "GRAPHS": {"task_type", "task.kind"},
        "TWO_STACKS": {"task_type"},
        "WRITING_GRAPHS": {"task_type", "task.kind"},
        "OF_HEADS": {"importance"},
        "OF_ROWS": {"importance"},
        "OF_STREAM": {"importance"},
        "OF_WEIGHTS": {"importance"},
        "PARTS": {"part"},
        "PATTERNS": {"pattern"},
        "DRAWS": {"draw"},
        "WAYS_OF_RANGES": {"format"},
        "WAYS": {"ways", "whole"},  # a latency table times graphs in all of them
        "READERS": {"task.kind", "task_type"},
        "THRESHOLDS": {"task_type"},
        "TASK_TYPES": {"task_type", "task.kind"},
        "UNTRAINED_SCORES": {"task_type"},
    }


def test_of_architectures_those_of_the_models_and_of_the_start_count() -> None:
    (roots,) = (spec.roots for spec in all_specs() if spec.name == "distill-general")
    knobs = {"method": "triple", "start": "distilbert", "shape": {"layers": 6}, "triple": {"temperature": 2.0}}

    def changes(name: str, **beside: Any) -> bool:
        """Tell whether an edit of an architecture's masked-LM head changes the code of the stage."""
        module = f"tasks.architectures.{name}"
        source = program().sources[module]
        told = source.replace("    logits_NV: Tensor =", "    model.eval()\n    logits_NV: Tensor =")
        assert told != source
        programs = (program(), edited({module: told}))
        before, after = (one.digest(roots, narrowed(one, roots).entries(knobs | beside)) for one in programs)
        return before != after

    models = {"architectures": ["bert"]}
    assert changes("bert", **models) and changes("distilbert", **models) and not changes("roberta", **models)
    assert changes("roberta", architectures=["bert", "camembert"]) and not changes("bert", architectures=["roberta"])
    assert changes("roberta"), "a stage whose models are not known counts all"
