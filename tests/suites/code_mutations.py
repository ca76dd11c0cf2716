"""Mutations of code: what a stage executed must count in its key, what it cannot load must not, and no move counts.

Two oracles that share nothing with keys: a stage's job is run under a profiler that notes every function of ours that
it enters, with the constants that these read; and which files a job can load at all is read from their imports. Each
edit is made in a copy of the sources in memory, and keys are computed.
"""

from __future__ import annotations

import ast
import dis
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest

from tasks.engine.job import Job
from tasks.ports.code.fingerprint import program
from tasks.ports.code.narrowing import Narrowing
from tasks.ports.code.program import Definition, Program, imported, is_family
from tests.forked import start_fork
from tests.ports.code.test_program import Moved
from tests.stage_tasks import all_specs, edited

Executed = dict[str, set[Definition]]
"""Each stage with the definitions of ours that its job entered, or read."""


# --- what jobs execute ------------------------------------------------------------------------------------------------


@dataclass
class Watch:
    """Notes what is executed while it looks on."""

    found: set[Definition] = field(default_factory=set)
    known: set[CodeType] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a function that is entered."""
        module = frame.f_globals.get("__name__", "")
        if event != "call" or frame.f_code in self.known or module not in program().sources:
            return
        self.known.add(frame.f_code)
        defined = program().module(module).definitions
        top = frame.f_code.co_qualname.split(".")[0]
        if top in defined:
            self.found.add((module, top))
        if top in defined and program().is_counted(module):
            # What a declaration of knobs reads is in the key by the knobs' values: its code never counts.
            self.found.update(constants_of(module, frame.f_code))


def constants_of(module: str, code: CodeType) -> Iterator[Definition]:
    """Yield the constants of ours that a function reads; a family of choices may be read in part."""
    for one in dis.get_instructions(code):
        if one.opname == "LOAD_GLOBAL":
            home, name = program().module(module).imports.get(one.argval, (module, one.argval))
            node = program().module(home).definitions.get(name) if home in program().sources else None
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and not is_family(node):
                yield home, name


@contextmanager
def watched() -> Iterator[Executed]:
    """Run engines in this process, each under a watch, and fork the packer."""
    found: Executed = {}

    async def here(
        module: str, order: Mapping[str, Any], workspace: Any, listen: Callable[..., None], server: Any
    ) -> Any:
        job, watch = Job(order), Watch()
        job.say = lambda event, **content: listen({"event": event, **content})
        do = importlib.import_module(f"{module}.jobs").JOBS[order["job"]]
        sys.setprofile(watch)
        try:
            return do(job)
        finally:
            sys.setprofile(None)
            found.setdefault(listen.__self__.record.display_name, set()).update(watch.found)  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.stage.context.run_engine", here)
        patch.setattr("tasks.register_model.started", start_fork)
        yield found


# --- keys of an edited program ----------------------------------------------------------------------------------------


@cache
def specs() -> dict[str, Any]:
    """Return what every stage declares, by its name."""
    return {spec.name: spec for spec in all_specs()}


def changed_stages(records: list[Any], there: Program, places: Mapping[str, str] | None = None) -> set[str]:
    """Return the stages whose code digest is another one in an edited program, where files may lie elsewhere."""
    narrowings, found = dict[str, Narrowing](), set[str]()
    for record in records:
        roots = [
            ((places or {}).get(module, module), name, entry) for module, name, entry in specs()[record.name].roots
        ]
        if record.name not in narrowings:
            narrowings[record.name] = Narrowing(there, roots)
        if there.digest(roots, narrowings[record.name].entries(asked_by(record))) != record.explanation["code"]:
            found.add(record.display_name)
    return found


# --- the edits --------------------------------------------------------------------------------------------------------


def without_effect(definition: Definition) -> str:
    """Return a module's source with one definition changed in a way that a key must see, whatever it does."""
    module, name = definition
    tree = ast.parse(program().sources[module])
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            node.body.append(ast.Expr(ast.Constant(0)))
        elif isinstance(node, ast.ClassDef) and node.name == name:
            node.body.append(ast.Assign([ast.Name("_edited", ast.Store())], ast.Constant(0)))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}:
                node.value = ast.BoolOp(ast.Or(), [node.value, node.value])
    return ast.unparse(ast.fix_missing_locations(tree))


@cache
def loadable(module: str) -> frozenset[str]:
    """Return the modules of ours that a module can load, itself among them, wherever its imports stand."""
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name in found or name not in program().sources:
            continue
        found.add(name)
        for node in ast.walk(ast.parse(program().sources[name])):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                waiting += [one for _, (home, inner) in imported(node) for one in (home, f"{home}.{inner}")]
    return frozenset(found)


@cache
def modules_of(stage: str) -> frozenset[str]:
    """Return the modules of which a stage's digest holds something while every family counts whole."""
    return frozenset(module for module, _ in program().reach(specs()[stage].roots, {}))


def can_load(stage: str, module: str) -> bool:
    """Tell whether a stage's body, its job, or what sets its engine up can load a module."""
    spec = specs()[stage]
    starts = [root[0] for root in spec.roots if root[1] not in ("JOBS", "main")]
    if spec.engine is not None:
        jobs = program().module(f"{spec.module}.jobs")
        family = jobs.definitions["JOBS"].value  # type: ignore[attr-defined]
        job = {ast.literal_eval(key): value.id for key, value in zip(family.keys, family.values, strict=True)}[
            spec.engine
        ]
        starts.append(jobs.imports[job][0] if job in jobs.imports else jobs.name)
        starts.append(f"{spec.module}.__main__") if module == f"{spec.module}.__main__" else None
    return module.endswith(".jobs") or any(module in loadable(start) for start in starts)


def executed_edits(records: list[Any], executed: Executed) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield every definition that some job executed, with the stages that an edit may and must change, and does.

    What one stage executed, all must count that pass the same job with the same choices: it may only have been made
    once for all of them. Stages that choose otherwise go other ways, and their keys need not count each other's.
    """
    alike = {record.display_name: alike_by(record) for record in records}
    passed: dict[Any, set[Definition]] = {}
    for shown, entered in executed.items():
        passed.setdefault(alike[shown], set()).update(entered)
    for definition in sorted(set().union(*executed.values())):
        if not program().is_counted(definition[0]):
            continue
        near = [record for record in records if definition[0] in modules_of(record.name)]  # no other can see the edit
        seen = changed_stages(near, edited({definition[0]: without_effect(definition)}))
        must = {record.display_name for record in records if definition in passed.get(alike[record.display_name], ())}
        may = {record.display_name for record in records if can_load(record.name, definition[0])}
        yield f"{definition[0]}.{definition[1]}", must | (seen & may), seen


def alike_by(record: Any) -> tuple[str, ...]:
    """Return by what stages go one way: their job, and what they choose from every family of choices."""
    spec, knobs = specs()[record.name], asked_by(record)
    return (f"{spec.module}:{spec.engine}", *(str(sorted(map(str, chosen(knobs, by)))) for by in CHOSEN_BY.values()))


def moves(records: list[Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield every file whose code some stage can reach, with the stages that its move to another place changes."""
    here = program()
    reached = {module for record in records for module, _ in here.reach(specs()[record.name].roots, {})}
    for number, name in enumerate(sorted(reached)):
        new = f"tasks.moved.place{number}"
        last = name.rpartition(".")[2]
        texts = {
            new if other == name else other: rewritten(source, {name: new}) if last in source else source
            for other, source in here.sources.items()
        }
        never = [new if one == name else one for one in here.sources if not here.is_counted(one)]
        yield name, changed_stages(records, Program(texts, never), {name: new})


def rewritten(source: str, places: Mapping[str, str]) -> str:
    """Return a source with the imports that name a file that was moved."""
    return ast.unparse(ast.fix_missing_locations(Moved(places).visit(ast.parse(source))))


CHOSEN_BY = {
    "READERS": ("task_type", "kind"),
    "OBJECTIVES": ("method",),
    "STRATEGIES": ("strategy", "start"),
    "STARTS": ("start",),
    "ANSWERS": ("task_type", "kind"),
    "HEADS": ("task_type",),
    "GRAPHS": ("task_type", "kind"),
    "TASK_TYPES": ("task_type", "kind"),
    "WAYS": ("ways",),
    "ARCHITECTURES": ("architectures", "start"),
}
"""By which knob a family is asked, as the recipe's own help says it; architectures are those of a stage's models."""
DRAWN = {"pretrain-base": {"architectures": ["bert"]}}
"""Architectures of models that a stage draws from nothing."""


def family_edits(records: list[Any]) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield every entry of a family that a knob chooses from, with the stages whose knob names it, and those
    changed."""
    reached = {record.display_name: program().reach(specs()[record.name].roots, {}) for record in records}
    found = {
        one for reach in reached.values() for one in reach if one[1] in CHOSEN_BY and is_family(program().node(one))
    }
    for module, family in sorted(found):
        dict_of_choices = program().node((module, family)).value  # type: ignore[attr-defined]
        for name in [ast.literal_eval(key) for key in dict_of_choices.keys]:
            seen = changed_stages(records, edited({module: with_other_entry(module, family, name)}))
            asked = {one.display_name: asked_by(one) | DRAWN.get(one.name, {}) for one in records}
            asking = {shown for shown, knobs in asked.items() if name in chosen(knobs, CHOSEN_BY[family])}
            yield f"{family}[{name!r}]", {shown for shown in asking if (module, family) in reached[shown]}, seen


def with_other_entry(module: str, family: str, name: str) -> str:
    """Return a module's source with one entry of a family changed."""
    tree = ast.parse(program().sources[module])
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if ast.unparse(targets[0]) == family:
                pairs = zip(node.value.keys, node.value.values, strict=True)
                values = [
                    ast.Tuple([one], ast.Load()) if key and ast.literal_eval(key) == name else one for key, one in pairs
                ]
                node.value.values = values
    return ast.unparse(ast.fix_missing_locations(tree))


def asked_by(record: Any) -> dict[str, Any]:
    """Return what a stage's families are asked by: its knobs, and the architectures of its models."""
    explained = record.explanation
    return {**explained["knobs"], "architectures": explained.get("architectures", [])}


def chosen(knobs: Any, names: tuple[str, ...]) -> set[str]:
    """Return what knobs of these names say, wherever they stand."""
    if isinstance(knobs, Mapping):
        own = {
            one
            for name in names
            if name in knobs
            for one in (knobs[name] if isinstance(knobs[name], list) else [knobs[name]])
        }
        return own.union(*(chosen(inner, names) for inner in knobs.values()))
    return set()
