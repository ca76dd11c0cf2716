"""Selects the entries of a family of choices that a stage can use: those that a knob names, if all code indexes the
family by that knob.

A family is a dict at the top level of a module, with literal keys. It is narrowed only if every reachable use of it is
one of these, with an index that can be resolved statically: ``FAMILY[x]``, ``FAMILY.get(x)``, ``x in FAMILY``, or any
use inside of a ``raise``, after which a stage has no result. An index can be resolved if it is a knob
(``knobs.method``: attributes of a name ``knobs``), a string, the architecture of a model's config, a name that is
bound to one of them, or a parameter for which every reachable caller passes one of them. The architectures of a
stage's models are given beside its knobs, as ``architectures``. A family with any other index, such as another field
of a model's config, is hashed completely.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tasks.ports.code.program import FAMILY_ENTRIES, Definition, Mention, Program, Root, is_family

KNOBS = "knobs"
ARCHITECTURE_OF, ARCHITECTURES = "model_type_of", "architectures"
"""The function that names the architecture of a model's config, and the name under which those of a stage's models are
given beside its knobs."""
Ask = tuple[str, str]
"""An index of a family: ``knob`` and the path of a knob, or ``entry`` and a string."""
Asks = frozenset[Ask]
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Narrowing:
    """The indices of the families in the code that the roots can reach if every family is hashed completely."""

    def __init__(self, program: Program, roots: Sequence[Root]) -> None:
        self.program, self.reached = program, program.reach(roots, {})
        self.under_way, self.places = set[tuple[Definition, str]](), dict[Definition, Place]()

    def place(self, definition: Definition) -> Place:
        """Return one definition with the parents of its syntax nodes."""
        if definition not in self.places:
            self.places[definition] = Place(self.program, definition)
        return self.places[definition]

    @cached_property
    def uses(self) -> dict[Definition, list[tuple[Definition, Mention]]]:
        """The mentions of each definition, each with the definition that contains it."""
        found: dict[Definition, list[tuple[Definition, Mention]]] = {}
        for user, piece in self.reached.items():
            for mention in piece.mentions:
                if isinstance(mention.means, tuple):
                    found.setdefault(mention.means, []).append((user, mention))
        return found

    @cached_property
    def asks(self) -> dict[Definition, Asks | None]:
        """The indices of each reachable family; None if one cannot be resolved."""
        return {family: self.of_family(family) for family in self.reached if is_family(self.program.node(family))}

    def of_family(self, family: Definition) -> Asks | None:
        """Return the indices of a family, or None if one cannot be resolved."""
        found = [self.of_use(self.place(user), mention.node) for user, mention in self.uses.get(family, ())]
        return joined(found) if found else None

    def of_use(self, place: Place, use: ast.expr) -> Asks | None:
        """Return the indices of one use of a family, or None if they cannot be resolved."""
        above = place.above(use)
        if any(isinstance(one, ast.Raise) for one in place.around(use)):
            return frozenset()
        if isinstance(above, ast.Subscript) and above.value is use and isinstance(above.ctx, ast.Load):
            return self.meaning(place, above.slice)
        if isinstance(above, ast.Attribute) and above.attr == "get":
            call = place.above(above)
            if isinstance(call, ast.Call) and call.func is above and call.args:
                return self.meaning(place, call.args[0])
        if (
            isinstance(above, ast.Compare)
            and len(above.ops) == 1
            and isinstance(above.ops[0], (ast.In, ast.NotIn))
            and above.left is not use
        ):
            return self.meaning(place, above.left)
        return None

    def meaning(self, place: Place, value: ast.expr) -> Asks | None:
        """Return the knobs or strings that an expression stands for, or None if it cannot be resolved."""
        if isinstance(value, ast.Constant):
            return frozenset([("entry", str(value.value))])
        if isinstance(value, ast.Call):
            return frozenset([("knob", ARCHITECTURES)]) if self.names_architecture(place, value.func) else None
        if isinstance(value, ast.Attribute):
            path = knob_of(value)
            return frozenset([("knob", path)]) if path else None
        if isinstance(value, ast.Name):
            given = place.value_of(value)
            return (
                self.of_parameter(place, value.id)  # type: ignore[return-value]
                if given is None and place.is_parameter(value)
                else given and self.meaning(place, given)
            )
        return None

    def names_architecture(self, place: Place, called: ast.expr) -> bool:
        """Tell whether a call is that of our function which names the architecture of a model's config."""
        mentions = self.reached[place.definition].mentions
        return any(
            mention.node is called and isinstance(mention.means, tuple) and mention.means[1] == ARCHITECTURE_OF
            for mention in mentions
        )

    def of_parameter(self, place: Place, name: str) -> Asks | None:
        """Return the values of a function's parameter: the arguments of every reachable caller."""
        asked = (place.definition, name)
        if asked in self.under_way:
            return frozenset()  # a recursive call that passes its own parameter
        self.under_way.add(asked)
        try:
            found = [
                self.of_call(place, name, self.place(user), mention.node)
                for user, mention in self.uses.get(place.definition, ())
            ]
            return joined(found) if found else None
        finally:
            self.under_way.discard(asked)

    def of_call(self, called: Place, name: str, place: Place, use: ast.expr) -> Asks | None:
        """Return the values of one caller's argument, or None if the function is passed on as a value: its callers are
        unknown then."""
        call = place.above(use)
        if not isinstance(call, ast.Call) or call.func is not use:
            return None
        given = argument(called.node, call, name)
        return None if given is None else self.meaning(called if given in defaults(called.node) else place, given)

    def entries(self, knobs: Any) -> FAMILY_ENTRIES:
        """Return the entries of the narrowed families that these knobs select."""
        values = list(leaves(knobs))
        found = {family: chosen(asks, values) for family, asks in self.asks.items() if asks is not None}
        return {family: entries for family, entries in found.items() if entries is not None}


class Place:
    """One definition, and the parent of each of its syntax nodes."""

    def __init__(self, program: Program, definition: Definition) -> None:
        self.definition, self.node = definition, program.node(definition)
        self.parents = {inner: outer for outer in ast.walk(self.node) for inner in ast.iter_child_nodes(outer)}

    def above(self, node: ast.AST) -> ast.AST | None:
        """Return the parent of a syntax node, or None."""
        return self.parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the ancestors of a syntax node, innermost first."""
        while (outer := self.above(node)) is not None:
            yield outer
            node = outer

    def value_of(self, name: ast.Name) -> ast.expr | None:
        """Return the expression that a name is bound to, or the list that a loop takes it from; None if that cannot be
        resolved."""
        for outer in self.around(name):
            if isinstance(outer, COMPREHENSIONS):
                bound = [one for one in outer.generators if name.id in names_in(one.target)]
                if bound:
                    return taken_from(name.id, bound[0].target, bound[0].iter) if len(bound) == 1 else None
            if isinstance(outer, NESTED) and outer is not self.node:
                return None
        bindings = [one for one in inside(self.node) if name.id in bound_by(one)]
        if len(bindings) != 1 or name.id in parameters(self.node):
            return None
        if isinstance(bindings[0], ast.For):
            return taken_from(name.id, bindings[0].target, bindings[0].iter)
        assigned = bindings[0]
        if (
            isinstance(assigned, ast.Assign)
            and len(assigned.targets) == 1
            and isinstance(assigned.targets[0], ast.Name)
        ):
            return assigned.value
        return None

    def is_parameter(self, name: ast.Name) -> bool:
        """Return whether a name is a parameter of the definition, and is never bound again."""
        nested = any(
            isinstance(outer, (*NESTED, *COMPREHENSIONS)) and outer is not self.node for outer in self.around(name)
        )
        return (
            not nested
            and name.id in parameters(self.node)
            and not any(name.id in bound_by(one) for one in inside(self.node))
        )


def knob_of(value: ast.expr) -> str:
    """Return the dotted path of the knob that an expression names; empty if it names none."""
    parts: list[str] = []
    while isinstance(value, ast.Attribute) and value.attr != KNOBS:
        parts.insert(0, value.attr)
        value = value.value
    is_knobs = isinstance(value, ast.Attribute) or (isinstance(value, ast.Name) and value.id == KNOBS)
    return ".".join(parts) if is_knobs else ""


def taken_from(name: str, target: ast.expr, source: ast.expr) -> ast.expr | None:
    """Return the list from which a loop takes the values of a name, or None if that cannot be resolved."""
    if (
        isinstance(source, ast.Call)
        and isinstance(source.func, ast.Name)
        and source.func.id == "enumerate"
        and source.args
    ):
        counted = (
            isinstance(target, ast.Tuple)
            and len(target.elts) == 2
            and isinstance(target.elts[1], ast.Name)
            and target.elts[1].id == name
        )
        return source.args[0] if counted else None
    return source if isinstance(target, ast.Name) and isinstance(source, ast.Attribute) else None


def names_in(target: ast.AST) -> set[str]:
    """Return the names that a target binds or deletes, without those that it only reads, as in ``scores[name] = 1``."""
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes inside of a definition, including those of inner functions and classes, except the targets of
    comprehensions."""
    for one in ast.iter_child_nodes(node):
        yield one
        if not isinstance(one, ast.comprehension):
            yield from inside(one)
        else:
            for part in (one.iter, *one.ifs):
                yield part
                yield from inside(part)


def bound_by(node: ast.AST) -> set[str]:
    """Return the names that a syntax node itself binds."""
    if isinstance(node, ast.Assign):
        return {name for target in node.targets for name in names_in(target)}
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.NamedExpr)):
        return names_in(node.target)
    if isinstance(node, ast.withitem):
        return names_in(node.optional_vars) if node.optional_vars else set()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return set(node.names)
    if isinstance(
        node, (ast.ExceptHandler, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.MatchAs, ast.MatchStar)
    ):
        return {node.name} if node.name else set()
    if isinstance(node, ast.MatchMapping):
        return {node.rest} if node.rest else set()
    return names_in(node) if isinstance(node, ast.Delete) else set()


def parameters(node: ast.AST) -> list[str]:
    """Return the names of a function's parameters; empty for any other node."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def defaults(node: ast.AST) -> list[ast.expr]:
    """Return the defaults of a function's parameters; empty for any other node."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    return [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]


def argument(function: ast.AST, call: ast.Call, name: str) -> ast.expr | None:
    """Return the argument of a call for a parameter, or its default; None if that cannot be resolved."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    named = {one.arg: one.value for one in call.keywords}
    by_place = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    given = dict(zip(by_place, call.args, strict=False)) | named
    preset = dict(zip(reversed(by_place), reversed(function.args.defaults), strict=False))
    preset |= {
        one.arg: value
        for one, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if value is not None
    }
    return given.get(name, preset.get(name))


def joined(found: Iterable[Asks | None]) -> Asks | None:
    """Return the union of several sets of indices, or None if one of them could not be resolved."""
    asks = list(found)
    return None if None in asks else frozenset(ask for one in asks for ask in one or ())


def leaves(knobs: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str | None]]:
    """Yield the path of every knob with each of its string values, or with None for any other value."""
    if isinstance(knobs, Mapping):
        for name, inner in knobs.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(knobs, (list, tuple)) and knobs:
        for inner in knobs:
            yield from leaves(inner, path)
    else:
        yield ".".join(path), knobs if isinstance(knobs, str) else None


def chosen(asks: Asks, values: Sequence[tuple[str, str | None]]) -> frozenset[str] | None:
    """Return the entries that the indices select; None if a family is indexed by a knob that the stage does not
    have."""
    found = set[str]()
    for kind, asked in asks:
        if kind == "entry":
            found.add(asked)
            continue
        held = [value for path, value in values if f".{path}".endswith(f".{asked}")]
        if not held:
            return None
        found |= {value for value in held if value is not None}
    return frozenset(found)
