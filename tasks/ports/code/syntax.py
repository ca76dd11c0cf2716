"""Questions about the syntax of one definition: names and their bindings, parameters and arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

from tasks.ports.code.program import Definition

NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@cache
def place_of(definition: Definition, node: ast.stmt) -> Place:
    """Return a definition with its syntax tree; all stages that reach it share what is found out about it."""
    return Place(definition, node)


class Place:
    """One definition, the parent of each of its syntax nodes, and the names in it."""

    def __init__(self, definition: Definition, node: ast.stmt) -> None:
        self.definition, self.node = definition, node
        self.parents = {inner: outer for outer in ast.walk(self.node) for inner in ast.iter_child_nodes(outer)}

    @cached_property
    def bindings(self) -> Mapping[str, Sequence[ast.AST]]:
        """The syntax nodes that bind each name; names that are bound nowhere are missing."""
        found: dict[str, list[ast.AST]] = {}
        for one in inside(self.node):
            for name in bound_by(one):
                found.setdefault(name, []).append(one)
        return found

    @cached_property
    def reads(self) -> Mapping[str, Sequence[ast.Name]]:
        """The syntax nodes that read each name."""
        found: dict[str, list[ast.Name]] = {}
        for one in ast.walk(self.node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                found.setdefault(one.id, []).append(one)
        return found

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
        bindings = self.bindings.get(name.id, ())
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
        return not nested and name.id in parameters(self.node) and name.id not in self.bindings


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


def parameter_of(function: ast.AST, call: ast.Call, value: ast.expr) -> str | None:
    """Return the parameter for which a call passes a value; None if that cannot be resolved."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.decorator_list:
        return None
    if any(isinstance(one, ast.Starred) for one in call.args):
        return None
    by_place = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    passed = [name for name, given in zip(by_place, call.args, strict=False) if given is value]
    passed += [one.arg for one in call.keywords if one.value is value and one.arg in parameters(function)]
    return passed[0] if len(passed) == 1 else None
