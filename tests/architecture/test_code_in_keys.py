"""What a key cannot see is not written: rules for the code whose digest says what a stage makes, each shown to fire."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import StoreError
from tasks.ports.code.fingerprint import narrowing, program
from tasks.ports.code.program import Definition, Module, Program, imported, is_ours, run_at_import
from tests.stage_tasks import all_specs

ROOT = Path(__file__).resolve().parents[2]
Rule = Callable[[Program, str], Iterator[str]]

DECORATORS = {
    "stage",
    "prefect_task",
    "dataclass",
    "property",
    "cached_property",
    "cache",
    "classmethod",
    "staticmethod",
    "contextmanager",
    "asynccontextmanager",
    "contextlib.contextmanager",
    "contextlib.asynccontextmanager",
    "model_validator",
    "field_validator",
}
"""Decorators that enter what they decorate in no list, and hide nothing of it."""
PURE = {
    "np.iinfo",
    "np.uint64",
    "Field",
    "field",
    "replace",
    "ConfigDict",
    "TypeVar",
    "Path",
    "frozenset",
    "timedelta",
    "re.compile",
    "dict.fromkeys",
    "partial",
    "pa.schema",
    "pa.string",
    "pa.list_",
    "pa.int64",
    "str",
}
"""What may be called while a module is imported, beside classes of ours: it changes nothing but its result."""
BY_STRING = {"eval", "exec", "compile", "globals", "locals", "vars", "__import__"}
BY_STRING_OF = {
    "__subclasses__",
    "import_module",
    "attrgetter",
    "methodcaller",
    "getmembers",
    "entry_points",
    "__globals__",
    "__builtins__",
}
CHANGES = {
    "append",
    "extend",
    "insert",
    "add",
    "update",
    "setdefault",
    "pop",
    "popitem",
    "remove",
    "discard",
    "clear",
    "register",
    "sort",
    "reverse",
}
NUMERIC = {"torch", "numpy", "transformers", "tokenizers", "onnxruntime", "onnx", "scipy", "pyarrow"}


def tree_of(program: Program, name: str) -> ast.Module:
    """Parse a module."""
    return parsed(program.sources[name])


@cache
def parsed(source: str) -> ast.Module:
    """Parse a text, once for all rules."""
    return ast.parse(source)


def top_names(program: Program, name: str) -> dict[str, str]:
    """Return what a module defines at its top level or imports anywhere, with the module that it is from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree_of(program, name)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {local: module for local, (module, _) in imported(node)}
    return found | dict.fromkeys(program.module(name).definitions, name)


def beginning(node: ast.AST) -> str:
    """Return the name that a chain of attributes and subscripts begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def told(node: ast.AST) -> str:
    """Return a piece of code for a sentence."""
    return f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node).splitlines()[0][:80]}"


# --- the rules --------------------------------------------------------------------------------------------------------


def names_are_bound_once(program: Program, name: str) -> Iterator[str]:
    """At the top level each name is bound once, by def, class, = or import, and nothing else happens there."""
    try:
        Module(name, program.sources[name])
    except StoreError as error:
        yield str(error)


def imports_say_what_they_import(program: Program, name: str) -> Iterator[str]:
    """Imports are absolute, without ``*``; what is ours is imported by from … import, also inside of functions."""
    for node in ast.walk(tree_of(program, name)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            try:
                list(imported(node))
            except StoreError as error:
                yield str(error)


def annotations_are_not_run(program: Program, name: str) -> Iterator[str]:
    """Every module says so, for what annotations would run is looked at by no rule."""
    body = [node for node in tree_of(program, name).body if not isinstance(node, ast.Expr)]
    if body and ast.unparse(body[0]) != "from __future__ import annotations":
        yield "does not begin with from __future__ import annotations"


def nothing_is_found_by_a_string(program: Program, name: str) -> Iterator[str]:
    """No code of ours is found by a name that is made at run time."""
    tops = top_names(program, name)
    for node in ast.walk(tree_of(program, name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            computed = len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
            if (
                node.func.id in ("getattr", "setattr", "delattr", "hasattr")
                and computed
                and beginning(node.args[0]) in tops
            ):
                yield told(node)
            if node.func.id in BY_STRING:
                yield told(node)
        named = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        of_a_top = isinstance(node, ast.Attribute) and beginning(node) in tops
        if named in BY_STRING_OF or (named in ("__dict__", "modules") and of_a_top):
            yield told(node)


def nothing_registers_itself(program: Program, name: str) -> Iterator[str]:
    """Decorators are known ones; no class enters itself, or what derives from it, somewhere."""
    for node in ast.walk(tree_of(program, name)):
        for decorator in getattr(node, "decorator_list", []):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called) not in DECORATORS and ast.unparse(called) != "functools.wraps":
                yield told(decorator)
        if isinstance(node, ast.ClassDef) and any(one.arg == "metaclass" for one in node.keywords):
            yield told(node)
        hooks = ("__init_subclass__", "__set_name__", "__class_getitem__", "__getattr__", "__getattribute__")
        if isinstance(node, ast.FunctionDef) and node.name in hooks:
            yield told(node)


def nothing_is_changed_from_outside(program: Program, name: str) -> Iterator[str]:
    """No function sets or fills what is defined at the top level of a module of ours, or sets anything in a library."""
    tops = top_names(program, name)
    for node in ast.walk(tree_of(program, name)):
        if isinstance(node, ast.Global):
            yield told(node)
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [getattr(node, "target", None)]
        for target in [one for whole in targets if whole is not None for one in ast.walk(whole)]:
            if (
                isinstance(target, (ast.Attribute, ast.Subscript))
                and not isinstance(target.ctx, ast.Load)
                and beginning(target) in tops
            ):
                yield told(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            held = node.func.value
            if isinstance(held, ast.Name) and is_ours(tops.get(held.id, "")):
                yield told(node)
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("setattr", "delattr")
            and beginning(node.args[0]) in tops
        ):
            yield told(node)


def imports_do_nothing(program: Program, name: str) -> Iterator[str]:
    """What runs while a module is imported only defines: it calls classes of ours and functions without effects."""
    tops = top_names(program, name)
    for statement in tree_of(program, name).body:
        if isinstance(statement, ast.If):
            continue
        decorators = {id(one) for node in ast.walk(statement) for one in getattr(node, "decorator_list", [])}
        for node in run_at_import(statement):
            if not isinstance(node, ast.Call) or id(node) in decorators:
                continue
            called = ast.unparse(node.func)
            method = called.rpartition(".")[2]
            known = called in PURE or method in ("split", "resolve")
            if not known and not (
                isinstance(node.func, ast.Name) and called[:1].isupper() and is_ours(tops.get(called, ""))
            ):
                yield told(node)


def places_are_not_read(program: Program, name: str) -> Iterator[str]:
    """Code does not ask where it lies, and reads no file that lies beside it."""
    yield from asking_for_places(tree_of(program, name))


def asking_for_places(tree: ast.AST) -> Iterator[str]:
    """Yield what asks for the place of code in a piece of syntax."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in ("__file__", "__path__", "__spec__", "__package__"):
            yield told(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "importlib.resources" in ast.unparse(node):
            yield told(node)


def knobs_are_those_of_the_stage(program: Program, name: str) -> Iterator[str]:
    """What is called ``knobs`` is a stage's knobs, which nobody changes: families of choices are narrowed by them."""
    for node in ast.walk(tree_of(program, name)):
        if not isinstance(
            node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension, ast.NamedExpr, ast.withitem)
        ):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("setattr", "delattr")
                and "knobs" in parts_of(node.args[0])
            ):
                yield told(node)
            continue
        for target, value in assigned(node):
            given = value is not None and ("knobs" in parts_of(value) or ast.unparse(value).startswith("job.read("))
            if parts_of(target)[-1:] == ["knobs"] and not given:
                yield told(node) if hasattr(node, "lineno") else ast.unparse(node)
            if "knobs" in parts_of(target)[:-1]:
                yield told(node)


def assigned(node: Any) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield what a statement binds, each with its value where there is one for it alone."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if (
                isinstance(target, ast.Tuple)
                and isinstance(node.value, ast.Tuple)
                and len(target.elts) == len(node.value.elts)
            ):
                yield from zip(target.elts, node.value.elts, strict=True)
            elif isinstance(target, ast.Tuple):
                yield from ((one, None) for one in target.elts)
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield node.target, node.value
    elif isinstance(node, ast.withitem):
        if node.optional_vars is not None:
            yield node.optional_vars, None
    else:
        yield from ((one, None) for one in ast.walk(node.target) if isinstance(one, (ast.Name, ast.Attribute)))


def parts_of(node: ast.AST) -> list[str]:
    """Return the names of a chain of attributes."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        parts.insert(0, node.attr if isinstance(node, ast.Attribute) else "[]")
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else parts


def what_never_counts_sets_no_number(program: Program, name: str) -> Iterator[str]:
    """A module that is in no key loads no library that computes, and sets no variable that one could read."""
    for node in ast.walk(tree_of(program, name)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (told(node) for _, (module, _) in imported(node) if module.split(".")[0] in NUMERIC)
        text = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if (
            text in ("os.putenv", "os.unsetenv")
            or text.rpartition(".")[0] == "os.environ"
            and text.rpartition(".")[2] in (*CHANGES, "__setitem__")
        ):
            yield told(node)
        if text.partition(".")[0] in NUMERIC:
            yield told(node)
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [getattr(node, "target", None)]
        for target in filter(None, targets):
            if isinstance(target, (ast.Attribute, ast.Subscript)) and ast.unparse(target).startswith(
                ("os.environ", "torch", "numpy")
            ):
                yield told(node)


EVERYWHERE: tuple[Rule, ...] = (names_are_bound_once, imports_say_what_they_import, annotations_are_not_run)
IN_KEYS: tuple[Rule, ...] = (
    nothing_is_found_by_a_string,
    nothing_registers_itself,
    nothing_is_changed_from_outside,
    imports_do_nothing,
    knobs_are_those_of_the_stage,
)
ALLOWED = {
    (
        "nothing_is_changed_from_outside",
        "tasks.training.precision",
        "torch.utils.deterministic",
    ): "every training calls the function that sets it",
    (
        "nothing_is_changed_from_outside",
        "tasks.training.models.attention",
        "_watches",
    ): "a stack that one context manager fills and empties",
    (
        "nothing_is_changed_from_outside",
        "tasks.ports.rows.table_files",
        "datasets.config.TORCH_AVAILABLE",
    ): "what a context manager sets while a table is opened, and sets back: no tensor is made of its rows",
    (
        "knobs_are_those_of_the_stage",
        "tasks.stage.orders",
        "Field(title='Knobs'",
    ): "an order's field, of which a stage's knobs are read",
    (
        "what_never_counts_sets_no_number",
        "tasks.engine.fork_server",
        "environ",
    ): "passes on what the environment of an engine says, which is in keys",
    (
        "what_never_counts_sets_no_number",
        "tasks.engine.job",
        "torch.cuda.is_initialized",
    ): "asks whether a GPU was used, for the ledger",
    (
        "what_never_counts_sets_no_number",
        "tasks.ports.tracking.client",
        "MLFLOW_",
    ): "address and uploads of the tracker",
}
"""Places that break a rule: the rule, the module, a part of the line, and why it is harmless."""


def broken(rule: Rule, program: Program, name: str) -> list[str]:
    """Return what breaks a rule in a module, but for what is allowed."""
    excused = [part for (broke, module, part) in ALLOWED if (broke, module) == (rule.__name__, name)]
    return [line for line in rule(program, name) if not any(part in line for part in excused)]


@pytest.mark.parametrize("rule", EVERYWHERE, ids=lambda rule: rule.__name__)
def test_all_code_keeps(rule: Rule) -> None:
    sources = set(program().sources) - {"tasks"}  # its own file only has the package loaded from what was read of it
    assert not {name: lines for name in sources if (lines := broken(rule, program(), name))}


@pytest.mark.parametrize("rule", IN_KEYS, ids=lambda rule: rule.__name__)
def test_code_in_keys_keeps(rule: Rule) -> None:
    sources = {name for name in program().sources if program().is_counted(name)} - {"tasks"}
    assert len(sources) > 80
    assert not {name: lines for name in sources if (lines := broken(rule, program(), name))}


def test_every_exception_is_needed() -> None:
    rules = {rule.__name__: rule for rule in (*EVERYWHERE, *IN_KEYS, what_never_counts_sets_no_number)}
    for rule, module, part in ALLOWED:
        assert any(part in line for line in rules[rule](program(), module)), (rule, module, part)


# --- modules that never count -----------------------------------------------------------------------------------------


@cache
def reached() -> dict[Definition, Any]:
    """Return every definition that some stage can reach, whatever its knobs."""
    return {definition: piece for spec in all_specs() for definition, piece in narrowing(spec.roots).reached.items()}


def test_what_never_counts_sets_nothing_that_reaches_a_number() -> None:
    never = [name for name in program().sources if not program().is_counted(name)]
    assert len(never) > 30
    assert not {name: lines for name in never if (lines := broken(what_never_counts_sets_no_number, program(), name))}


HANDED_OVER = {
    "stage": "makes a function a stage: what it declares is in keys by name",
    "serve": "reads an order and reports facts and errors",
    "serve_beside": "the same, for one of several processes",
    "die_with_parent": "ends a process",
    "sources_folder": "where sources lie; what they are is in keys",
    "purge_lines": "words for the log, of facts that stand in the result",
    "left_out_lines": "the same, of transfer text",
    "ENGINE_LIBRARIES": "a stage's libraries, whose versions are in its key by name",
}
"""What else code in keys takes from modules that never count, and what it does."""


def test_what_never_counts_gives_types_and_errors() -> None:
    taken = {
        mention.means.partition(": ")[2]
        for piece in reached().values()
        for mention in piece.mentions
        if isinstance(mention.means, str) and mention.means.startswith("not counted")
    }
    never = [program().module(name) for name in program().sources if not program().is_counted(name) and name != "tasks"]
    types = {name for module in never for name, node in module.definitions.items() if isinstance(node, ast.ClassDef)}
    assert taken & types and taken - types <= set(HANDED_OVER)


def test_knobs_are_plain_values_and_do_nothing() -> None:
    """Stages whose body reads its knobs itself get the recipe's own classes, whose code is in no key."""
    rooms = [name for name in program().sources if name.startswith("tasks.recipe.")]
    held = {
        name: node for room in [*rooms, "tasks.catalog"] for name, node in program().module(room).definitions.items()
    }
    for name in (
        "Knobs",
        "RowsSlice",
        "Data",
        "TaskSpec",
        "TransferText",
        "TransferSlice",
        "CorpusText",
        "Pretraining",
        "ScoreSlice",
        "Scoring",
        "Speed",
    ):
        functions = [one for one in ast.walk(held[name]) if isinstance(one, ast.FunctionDef)]
        deeds = {one.name for one in functions if "validator" not in "".join(map(ast.unparse, one.decorator_list))}
        assert deeds <= {"key_values"}, f"{name} does {deeds}"


def test_engines_get_the_very_knobs_that_are_in_their_keys() -> None:
    for spec in all_specs():
        body = program().node((spec.body.__module__, spec.body.__name__))
        runs = [node for node in ast.walk(body) if isinstance(node, ast.Call) and ast.unparse(node.func) == "bench.run"]
        given = {ast.unparse(call.args[0]) for call in runs}
        assert given <= {"knobs.model_dump(mode='json')"}, spec.name


@pytest.mark.parametrize("spec", [spec for spec in all_specs() if spec.engine], ids=lambda spec: spec.name)
def test_engines_read_their_knobs_as_the_class_that_their_stage_has(spec: Any) -> None:
    """So that mypy sees a knob that is misspelt, and no other class's defaults stand in."""
    job = import_module(f"{spec.module}.jobs").JOBS[spec.engine]
    read = {
        ast.unparse(node.args[0])
        for node in ast.walk(program().node((job.__module__, job.__name__)))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "job.read"
    }
    assert read == {spec.body.__annotations__["knobs"]}


# --- data beside code -------------------------------------------------------------------------------------------------


def test_no_data_lies_beside_code_in_keys() -> None:
    counted = {name for name in program().sources if program().is_counted(name)} - {"tasks"}
    for folder in {ROOT.joinpath(*name.split(".")).parent for name in counted}:
        beside = {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".py"} - {
            "README.md",
            "pyproject.toml",  # of the distribution limbeck-models, read by pip alone
            "py.typed",
        }
        assert not beside, f"{folder} holds {beside}, which is in no key"


def test_code_in_reach_does_not_ask_where_it_lies() -> None:
    found = {definition: list(asking_for_places(program().node(definition))) for definition in reached()}
    assert not {definition: lines for definition, lines in found.items() if lines}


# --- each rule fires --------------------------------------------------------------------------------------------------

BREAKS: list[tuple[Rule, str]] = [
    (names_are_bound_once, "def f(): pass\nf = wrap(f)\n"),
    (names_are_bound_once, "def f(): pass\ndef f(): return 1\n"),
    (names_are_bound_once, "from math import sqrt as f\ndef f(): pass\n"),
    (names_are_bound_once, "import math as m\nimport cmath as m\n"),
    (names_are_bound_once, "X = 1\nX += 1\n"),
    (names_are_bound_once, "X, Y = 1, 2\n(Y, Z) = 3, 4\n"),
    (names_are_bound_once, "if 1:\n    X = 1\n"),
    (names_are_bound_once, "try:\n    import fast as m\nexcept ImportError:\n    import slow as m\n"),
    (names_are_bound_once, "for X in (1, 2):\n    pass\n"),
    (names_are_bound_once, "with open('x') as X:\n    pass\n"),
    (names_are_bound_once, "X = [(Y := 1)]\n"),
    (names_are_bound_once, "def f(a=(Y := 1)): pass\n"),
    (names_are_bound_once, "X = 1\ndel X\n"),
    (names_are_bound_once, "KINDS = {}\nKINDS['a'] = 1\n"),
    (names_are_bound_once, "import torch\ntorch.backends.mkldnn.enabled = False\n"),
    (names_are_bound_once, "import torch\ntorch.set_num_threads(1)\n"),
    (imports_say_what_they_import, "from math import *\n"),
    (imports_say_what_they_import, "def f():\n    from .near import g\n    return g\n"),
    (imports_say_what_they_import, "import tasks.near\n"),
    (annotations_are_not_run, "def f(x: change()): pass\n"),
    (nothing_is_found_by_a_string, "from tasks import near\ndef f(x):\n    return getattr(near, x)()\n"),
    (nothing_is_found_by_a_string, "import transformers\ndef f(x):\n    return getattr(transformers, x)()\n"),
    (nothing_is_found_by_a_string, "def f(x):\n    return globals()[x]\n"),
    (nothing_is_found_by_a_string, "class A: pass\ndef f(x):\n    return [one for one in A.__subclasses__()]\n"),
    (nothing_is_found_by_a_string, "import importlib\ndef f(x):\n    return importlib.import_module(x)\n"),
    (nothing_is_found_by_a_string, "from importlib import import_module\ndef f(x):\n    return import_module(x)\n"),
    (nothing_is_found_by_a_string, "import sys\ndef f(x):\n    return sys.modules[x]\n"),
    (nothing_is_found_by_a_string, "def f(x):\n    return eval(x)\n"),
    (nothing_is_found_by_a_string, "from tasks import near\ndef f(x):\n    return near.__dict__[x]\n"),
    (nothing_is_found_by_a_string, "from operator import attrgetter\ndef f(x, y):\n    return attrgetter(x)(y)\n"),
    (nothing_registers_itself, "KINDS = {}\ndef kind(f):\n    return f\n@kind\ndef f(): pass\n"),
    (nothing_registers_itself, "@kinds.register('a')\ndef f(): pass\n"),
    (nothing_registers_itself, "class A:\n    def __init_subclass__(cls): ALL.append(cls)\n"),
    (nothing_registers_itself, "class A(metaclass=Register): pass\n"),
    (nothing_registers_itself, "def __getattr__(name): return 1\n"),
    (nothing_is_changed_from_outside, "from tasks import near\ndef f():\n    near.X = 1\n"),
    (nothing_is_changed_from_outside, "from tasks.near import X\ndef f():\n    X['a'] = 1\n"),
    (nothing_is_changed_from_outside, "KINDS = {}\ndef f(g):\n    KINDS.update(a=g)\n"),
    (nothing_is_changed_from_outside, "KINDS = []\ndef f(g):\n    KINDS.append(g)\n"),
    (nothing_is_changed_from_outside, "X = 1\ndef f():\n    global X\n    X = 2\n"),
    (nothing_is_changed_from_outside, "from tasks.near import g\ndef f():\n    g.__code__ = None\n"),
    (nothing_is_changed_from_outside, "import torch\ndef f(g):\n    torch.nn.functional.gelu = g\n"),
    (nothing_is_changed_from_outside, "import torch\ndef f(g):\n    setattr(torch.nn, 'Linear', g)\n"),
    (nothing_is_changed_from_outside, "from tasks.near import X\ndef f():\n    del X['a']\n"),
    (imports_do_nothing, "import torch\n_ = torch.use_deterministic_algorithms(True)\n"),
    (imports_do_nothing, "import torch\ndef f(x=torch.set_num_threads(1)): pass\n"),
    (imports_do_nothing, "import torch\nclass A:\n    x = torch.manual_seed(1)\n"),
    (imports_do_nothing, "from tasks.near import switch\nX = switch()\n"),
    (imports_do_nothing, "class A(make()): pass\n"),
    (knobs_are_those_of_the_stage, "def f(model):\n    knobs = model.config\n    return knobs\n"),
    (knobs_are_those_of_the_stage, "def f(card):\n    knobs = card.read(Knobs)\n    return knobs\n"),
    (knobs_are_those_of_the_stage, "def f(job, model):\n    job.knobs.kind = model.config.kind\n"),
    (knobs_are_those_of_the_stage, "def f(job, model):\n    setattr(job.knobs, 'kind', model.config.kind)\n"),
    (knobs_are_those_of_the_stage, "def f(configs):\n    return [knobs.kind for knobs in configs]\n"),
    (knobs_are_those_of_the_stage, "class A:\n    def __init__(self, config):\n        self.knobs = config\n"),
    (places_are_not_read, "from pathlib import Path\ndef f():\n    return Path(__file__).read_text()\n"),
    (places_are_not_read, "from importlib.resources import files\n"),
    (what_never_counts_sets_no_number, "import torch\n"),
    (what_never_counts_sets_no_number, "import os\ndef f():\n    os.environ['OMP_NUM_THREADS'] = '1'\n"),
    (what_never_counts_sets_no_number, "import os\ndef f():\n    os.environ.setdefault('MKL_CBWR', 'AVX2')\n"),
    (what_never_counts_sets_no_number, "import os\ndef f():\n    os.putenv('MKL_CBWR', 'AVX2')\n"),
    (what_never_counts_sets_no_number, "def f():\n    import numpy as np\n    np.random.seed(1)\n"),
]


@pytest.mark.parametrize(
    ("rule", "source"), BREAKS, ids=[f"{rule.__name__}-{number}" for number, (rule, _) in enumerate(BREAKS)]
)
def test_a_rule_fires(rule: Rule, source: str) -> None:
    near = "X = {}\ndef g(): pass\ndef switch(): pass\n"
    assert list(rule(Program({"tasks": "", "tasks.one": source, "tasks.near": near}), "tasks.one"))


def test_every_rule_is_shown_to_fire() -> None:
    assert {rule for rule, _ in BREAKS} == {
        *EVERYWHERE,
        *IN_KEYS,
        places_are_not_read,
        what_never_counts_sets_no_number,
    }
