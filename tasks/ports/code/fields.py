"""Selects the fields of records that a stage can read, where the entries of a family of choices are records.

A record is a constant that calls a dataclass with keywords alone, such as ``CLASSES = Answers(decide=decide,
merge=merge)``. Of a record, only the fields that the reachable code reads are hashed, if that code takes the record
from its family, and if each use names a field: ``FAMILY[x].decide``, or the same of a local name that is bound once, or
of a parameter of our function that receives the record. A record with any other use is hashed completely.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from tasks.ports.code.program import Definition, Mention, Piece, Program, is_family
from tasks.ports.code.syntax import Place, parameter_of

Names = frozenset[str]
Uses = Mapping[Definition, list[tuple[Definition, Mention]]]


class Fields:
    """The fields that are read of each record, in the code that a stage's roots can reach."""

    def __init__(
        self, program: Program, reached: Mapping[Definition, Piece], uses: Uses, place: Callable[[Definition], Place]
    ) -> None:
        self.program, self.reached, self.uses, self.place = program, reached, uses, place
        self.under_way = set[tuple[Definition, str]]()

    @cached_property
    def of_records(self) -> dict[Definition, Names]:
        """The fields that are read of each record; records that are hashed completely are not among them."""
        families = [one for one in self.reached if is_family(self.program.node(one))]
        return {
            record: fields
            for family in families
            if (fields := self.of_family(family)) is not None
            for record in self.records(family)
        }

    def records(self, family: Definition) -> Iterator[Definition]:
        """Yield the entries of a family that are records, and that nothing else uses."""
        for mention in self.reached[family].mentions:
            record = mention.means
            if isinstance(record, tuple) and self.is_record(record):
                if all(user == family for user, _ in self.uses[record]) and self.is_entry(family, mention):
                    yield record

    def is_entry(self, family: Definition, mention: Mention) -> bool:
        """Tell whether a mention in a family is an entry of it, and no part of one."""
        return isinstance(self.place(family).above(mention.node), ast.Dict)

    def is_record(self, definition: Definition) -> bool:
        """Tell whether a definition is a call of a plain dataclass of ours with keywords alone."""
        made = getattr(self.program.node(definition), "value", None)
        if not isinstance(made, ast.Call) or made.args or any(one.arg is None for one in made.keywords):
            return False
        found = self.called(definition, made)
        return found is not None and is_plain_dataclass(self.program.node(found))

    def called(self, user: Definition, call: ast.Call) -> Definition | None:
        """Return our definition that a piece of code calls, or None."""
        found = {one.means for one in self.reached[user].mentions if one.node is call.func}
        (means,) = found if len(found) == 1 else (None,)
        return means if isinstance(means, tuple) else None

    def of_family(self, family: Definition) -> Names | None:
        """Return the fields that are read of a family's entries, or None if that cannot be resolved."""
        return united(self.of_use(self.place(user), mention.node) for user, mention in self.uses.get(family, ()))

    def of_use(self, place: Place, use: ast.expr) -> Names | None:
        """Return the fields that one use of a family reads, or None if they cannot be resolved."""
        above = place.above(use)
        if any(isinstance(one, ast.Raise) for one in place.around(use)):
            return frozenset()
        if isinstance(above, ast.Compare) and above.left is not use:
            return frozenset() if all(isinstance(one, (ast.In, ast.NotIn)) for one in above.ops) else None
        if isinstance(above, ast.Subscript) and above.value is use and isinstance(above.ctx, ast.Load):
            return self.of_value(place, above)
        return None

    def of_value(self, place: Place, value: ast.expr) -> Names | None:
        """Return the fields that are read of a record at one place of the code, or None if that cannot be resolved."""
        above = place.above(value)
        if isinstance(above, ast.Attribute) and isinstance(above.ctx, ast.Load):
            return frozenset([above.attr])
        if (name := bound_to(place, value)) is not None:
            return self.of_name(place, name, bindings=1)
        call = place.above(above) if isinstance(above, ast.keyword) else above
        return self.of_argument(place, call, value) if isinstance(call, ast.Call) else None

    def of_name(self, place: Place, name: str, bindings: int) -> Names | None:
        """Return the fields that a definition reads of a local name, or None if that cannot be resolved.

        ``bindings`` is the number of statements that may bind the name: none for a parameter, one for other names.
        """
        if len(place.bindings.get(name, ())) != bindings:
            return None
        return united(self.of_value(place, one) for one in place.reads.get(name, ()))

    def of_argument(self, place: Place, call: ast.Call, value: ast.expr) -> Names | None:
        """Return the fields that a called function of ours reads of an argument, or None if that cannot be resolved."""
        function = self.called(place.definition, call)
        name = parameter_of(self.program.node(function), call, value) if function else None
        if function is None or name is None:
            return None
        if (function, name) in self.under_way:
            return frozenset()  # a recursive call that passes its own parameter
        self.under_way.add((function, name))
        try:
            return self.of_name(self.place(function), name, bindings=0)
        finally:
            self.under_way.discard((function, name))


def is_plain_dataclass(node: ast.AST) -> bool:
    """Tell whether a definition is a dataclass whose body only declares fields: a method could read any of them."""
    return (
        isinstance(node, ast.ClassDef)
        and not node.bases
        and bool(node.decorator_list)
        and all(ast.unparse(one).startswith("dataclass") for one in node.decorator_list)
        and all(isinstance(one, (ast.AnnAssign, ast.Pass)) for one in node.body)
    )


def bound_to(place: Place, value: ast.expr) -> str | None:
    """Return the local name to which a value is assigned, alone or as one of several; None if there is none."""
    above = place.above(value)
    if isinstance(above, ast.Tuple):
        assigned = place.above(above)
        targets = assigned.targets if isinstance(assigned, ast.Assign) else []
        target = targets[0] if len(targets) == 1 else None
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(above.elts):
            return None
        if any(isinstance(one, ast.Starred) for one in (*target.elts, *above.elts)):
            return None
        target = target.elts[above.elts.index(value)]
    else:
        target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    is_local = isinstance(place.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and isinstance(target, ast.Name)
    return target.id if is_local and isinstance(target, ast.Name) else None


def united(found: Iterable[Names | None]) -> Names | None:
    """Return the union of several sets of fields, or None if one of them could not be resolved, or if there is none."""
    fields = list(found)
    return None if None in fields or not fields else frozenset[str]().union(*(one for one in fields if one))
