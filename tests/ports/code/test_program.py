"""Code digests: the same wherever a definition lies, another one for whatever can change what it does."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from tasks.errors import StoreError
from tasks.own_sources import files_as_read
from tasks.ports.code.fingerprint import NEVER_COUNTED, program
from tasks.ports.code.narrowing import Narrowing
from tasks.ports.code.program import Program, Root
from tests.stage_tasks import all_specs

HELPER = "def double(x):\n    '''Twice.'''\n    return x + x  # a reason\n\ndef unused():\n    return 1\n"
MAIN = "from tasks.helper import double\n\ndef door(x):\n    return double(x)\n"


def digest(*, root: Root = ("tasks.main", "door", None), **edits: str) -> str:
    """Digest a small package of ours after edits."""
    sources = {
        f"tasks.{name.replace('__', '.')}": source for name, source in {"helper": HELPER, "main": MAIN, **edits}.items()
    }
    return Program(sources, ["tasks.never"]).digest([root], {})


# --- files move freely ------------------------------------------------------------------------------------------------


class Moved(ast.NodeTransformer):
    """Rewrites what names modules of ours: imports, and the rooms of stages' engines."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = places

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | list[ast.ImportFrom]:
        """Import from the new places; what is a module itself keeps its local name."""
        whole = [f"{node.module}.{alias.name}" for alias in node.names]
        if not {node.module, *whole} & {*self.places}:
            return node
        return [self.moved(node.module or "", alias) for alias in node.names]

    def moved(self, module: str, alias: ast.alias) -> ast.ImportFrom:
        """Import one name from its new place."""
        if (whole := self.places.get(f"{module}.{alias.name}")) is not None:
            room, _, name = whole.rpartition(".")
            return ast.ImportFrom(room, [ast.alias(name, alias.asname or alias.name)], 0)
        return ast.ImportFrom(self.places.get(module, module), [alias], 0)

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        """Name an engine's new room."""
        self.generic_visit(node)
        if node.arg == "module" and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(self.places.get(str(node.value.value), node.value.value))
        return node


def all_moved(sources: Mapping[str, str]) -> tuple[Program, dict[str, str]]:
    """Move every module of the package into one other room, under another name, with the imports that name it."""
    places = {name: f"tasks.moved.m{number}" for number, name in enumerate(sorted(sources), start=1)}
    texts = {
        places[name]: ast.unparse(ast.fix_missing_locations(Moved(places).visit(ast.parse(source))))
        for name, source in sources.items()
    }
    never = [places[name] for name in sources if not program().is_counted(name)]
    return Program(texts, never), places


def test_moving_every_file_changes_no_digest_of_any_stage() -> None:
    here = program()
    there, places = all_moved(here.sources)
    specs = all_specs()
    assert len(specs) >= 20 and {spec.engine for spec in specs if spec.module == "tasks.training"} > {
        "finetune",
        "intermediate",
        "prediction",
        "drop",
    }
    knobs = {
        "method": "layers",
        "layer_map": "uniform",
        "start": "contribution",
        "strategy": "top",
        "task_type": "classification",
        "metric": "f1",
    }
    for spec in specs:
        moved = [(places[module], name, entry) for module, name, entry in spec.roots]
        for chosen in ({}, knobs):
            assert there.digest(moved, Narrowing(there, moved).entries(chosen)) == here.digest(
                spec.roots, Narrowing(here, spec.roots).entries(chosen)
            ), spec.name


def test_two_files_that_become_one_change_no_digest() -> None:
    joined = HELPER + "\ndef door(x):\n    return double(x)\n"
    assert digest() == digest(main=joined)


def test_a_move_with_the_imports_inside_of_functions_changes_no_digest() -> None:
    inside = "def door(x):\n    from tasks.{} import double\n    return double(x)\n"
    assert digest(main=inside.format("helper")) == digest(main=inside.format("rooms.other"), rooms__other=HELPER)


def test_every_module_that_never_counts_is_there() -> None:
    there = {".".join(name.split(".")[:end]) for name in files_as_read() for end in range(1, name.count(".") + 2)}
    assert set(NEVER_COUNTED) <= there, (
        "whoever moves one of these says so in NEVER_COUNTED, or its code is in keys from now on"
    )


# --- what counts ------------------------------------------------------------------------------------------------------


def test_comments_docstrings_and_formatting_are_free() -> None:
    assert digest() == digest(
        helper="def double( x ):\n\n    # another reason\n    return (x+x)\n\ndef unused():\n    return 1\n"
    )


def test_a_called_helper_counts() -> None:
    assert digest() != digest(helper=HELPER.replace("x + x", "2 * x + 1"))


def test_what_cannot_be_reached_is_free() -> None:
    assert digest() == digest(helper=HELPER.replace("return 1", "return 2"))


def test_a_constant_counts_also_where_several_are_bound_at_once() -> None:
    several = "SMALL, (LARGE, HUGE) = 1, (2, 3)\n\ndef double(x):\n    return x * LARGE\n"
    assert digest(helper=several) != digest(helper=several.replace("(2, 3)", "(4, 3)"))
    assert digest(helper=several) != digest(helper=several.replace("x * LARGE", "x * SMALL"))


def test_one_of_two_names_of_a_statement_is_not_the_other_under_an_alias() -> None:
    taken = "from tasks.helper import {} as SIZE\n\ndef door(x):\n    return x * SIZE\n"
    both = "SMALL, LARGE = 1, 2\n"
    assert digest(main=taken.format("SMALL"), helper=both) != digest(main=taken.format("LARGE"), helper=both)


def test_a_library_of_another_name_under_the_same_alias_counts() -> None:
    taken = "from scipy.stats import rankdata\n\ndef door(x):\n    return rankdata(x)\n"
    assert digest(main=taken) != digest(
        main=taken.replace("scipy.stats import rankdata", "scipy.stats import tiecorrect as rankdata")
    )
    assert digest(main=taken) != digest(main=taken.replace("scipy.stats", "numpy"))


def test_two_imports_of_one_name_inside_of_a_function_both_count() -> None:
    either = (
        "def door(x):\n    if x:\n        from tasks.helper import double\n    else:\n        from tasks.other "
        "import double\n    return double(x)\n"
    )
    other = "def double(x):\n    return 3 * x\n"
    assert digest(main=either, other=other) != digest(main=either, other=other.replace("3", "4"))
    assert digest(main=either, other=other) != digest(
        main=either, other=other, helper=HELPER.replace("x + x", "2 * x + 1")
    )


def test_functions_that_call_each_other_count_wherever_they_lie() -> None:
    even = "from tasks.odd import odd\n\ndef even(n):\n    return n == 0 or odd(n - 1)\n"
    odd = "from tasks.even import even\n\ndef odd(n):\n    return n != 0 and even(n - 1)\n"
    main = MAIN.replace("tasks.helper", "tasks.even").replace("double", "even")
    both = "def even(n):\n    return n == 0 or odd(n - 1)\n\ndef odd(n):\n    return n != 0 and even(n - 1)\n"
    assert digest(main=main, even=even, odd=odd) == digest(main=main, even=both)
    assert digest(main=main, even=even, odd=odd) != digest(main=main, even=even, odd=odd.replace("n != 0", "n > 0"))


def test_two_copies_of_some_state_are_not_one_that_is_shared() -> None:
    state, writes = "STATE = {'seed': 0}\n", "from tasks.state import STATE\n\ndef write(x):\n    STATE['seed'] = x\n"
    reads = "from tasks.{} import STATE\n\ndef read():\n    return STATE['seed']\n"
    main = (
        "from tasks.writes import write\nfrom tasks.reads import read\n\ndef door(x):\n    write(x)\n    return "
        "read()\n"
    )
    shared = digest(main=main, writes=writes, state=state, reads=reads.format("state"))
    assert shared != digest(main=main, writes=writes, state=state, copied=state, reads=reads.format("copied"))


def test_a_module_that_is_handed_on_whole_counts_whole() -> None:
    whole = "from tasks import helper\n\ndef door(x):\n    return vars(helper)[x]\n"
    assert digest(main=whole) != digest(main=whole, helper=HELPER.replace("return 1", "return 2"))
    named = whole.replace("vars(helper)[x]", "helper.double(x)")
    assert digest(main=named) == digest(main=named, helper=HELPER.replace("return 1", "return 2"))
    assert digest(main=named) != digest(main=named, helper=HELPER.replace("x + x", "2 * x + 1"))


def test_what_never_counts_counts_by_its_name_alone() -> None:
    main = "from tasks.never.types import Thing\n\ndef door(x):\n    return Thing(x)\n"
    types = "class Thing:\n    size = 1\n"
    assert digest(main=main, never=" ", never__types=types) == digest(
        main=main, never=" ", never__types=types.replace("1", "2")
    )
    root = ("tasks.never", "door", None)
    assert digest(never=MAIN, root=root) != digest(never=MAIN.replace("double(x)", "double(x) + 1"), root=root), (
        "where a stage starts, all counts"
    )


def test_the_room_of_an_engine_is_free_and_any_other_argument_counts() -> None:
    door = (
        "from tasks.never import stage\n\n@stage(makes='rows', module='tasks.training')\ndef door(x):\n    "
        "return warn(module='numpy')\n"
    )
    assert digest(main=door, never=" ") == digest(
        main=door.replace("tasks.training", "tasks.rooms.training"), never=" "
    )
    assert digest(main=door, never=" ") != digest(main=door.replace("numpy", "scipy"), never=" ")


# --- what a key cannot see is an error, and never no cache ------------------------------------------------------------


@pytest.mark.parametrize(
    "hidden",
    [
        "def double(x):\n    return x\n\ndouble = abs(double)\n",
        "def double(x):\n    return x\n\ndef double(x):\n    return -x\n",
        "from math import sqrt as double\n\ndef double(x):\n    return x\n",
        "if 1:\n    def double(x):\n        return x\n",
        "try:\n    from math import sqrt as double\nexcept ImportError:\n    double = None\n",
        "double = 1\ndouble += 1\n",
        "for double in (abs, len):\n    pass\n",
        "from math import *\n\ndef double(x):\n    return x\n",
        "from .other import double\n",
        "import tasks.other\n\ndef double(x):\n    return x\n",
        "with open('x') as double:\n    pass\n",
        "def double(x):\n    return x\n\nprint(double)\n",
        "def half(x):\n    return x\n",
    ],
)
def test_what_a_key_cannot_see_is_an_error(hidden: str) -> None:
    with pytest.raises(StoreError, match="a key cannot be computed"):
        digest(helper=hidden, other="def double(x):\n    return x\n")
