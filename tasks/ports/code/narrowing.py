"""Selects the entries of a family of choices that a stage can use: those that a knob names, if all code indexes the
family by that knob.

A family is a dict at the top level of a module, with literal keys. It is narrowed only if every reachable use of it is
one of these, with an index that can be resolved statically: ``FAMILY[x]``, ``FAMILY.get(x)``, ``x in FAMILY``, or any
use inside of a ``raise``, after which a stage has no result. An index can be resolved if it is a knob
(``knobs.method``: attributes of a name ``knobs``), a string, the architecture of a model's config, a name that is
bound to one of them, or a parameter for which every reachable caller passes one of them. The architectures of a
stage's models are given beside its knobs, as ``architectures``. A family with any other index, such as another field
of a model's config, is hashed completely. Where the entries are records of functions, only the fields that are read
of them are hashed (``fields.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tasks.ports.code.fields import Fields
from tasks.ports.code.program import FAMILY_ENTRIES, Definition, Mention, Program, Root, is_family
from tasks.ports.code.syntax import Place, argument, defaults, place_of

KNOBS = "knobs"
ARCHITECTURE_OF, ARCHITECTURES = "model_type_of", "architectures"
"""The function that names the architecture of a model's config, and the name under which those of a stage's models are
given beside its knobs."""
Ask = tuple[str, str]
"""An index of a family: ``knob`` and the path of a knob, or ``entry`` and a string."""
Asks = frozenset[Ask]


class Narrowing:
    """The indices of the families in the code that the roots can reach if every family is hashed completely."""

    def __init__(self, program: Program, roots: Sequence[Root]) -> None:
        self.program, self.reached = program, program.reach(roots, {})
        self.under_way = set[tuple[Definition, str]]()

    def place(self, definition: Definition) -> Place:
        """Return one definition with its syntax tree."""
        return place_of(definition, self.program.node(definition))

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
            if given is not None:
                return self.meaning(place, given)
            return self.of_parameter(place, value.id) if place.is_parameter(value) else None
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

    @cached_property
    def fields(self) -> FAMILY_ENTRIES:
        """The fields that are read of the records that families choose from; other records count whole."""
        return Fields(self.program, self.reached, self.uses, self.place).of_records

    def entries(self, knobs: Any) -> FAMILY_ENTRIES:
        """Return the entries of the narrowed families that these knobs select, and the fields of narrowed records."""
        values = list(leaves(knobs))
        found = {family: chosen(asks, values) for family, asks in self.asks.items() if asks is not None}
        return {family: entries for family, entries in found.items() if entries is not None} | dict(self.fields)


def knob_of(value: ast.expr) -> str:
    """Return the dotted path of the knob that an expression names; empty if it names none."""
    parts: list[str] = []
    while isinstance(value, ast.Attribute) and value.attr != KNOBS:
        parts.insert(0, value.attr)
        value = value.value
    is_knobs = isinstance(value, ast.Attribute) or (isinstance(value, ast.Name) and value.id == KNOBS)
    return ".".join(parts) if is_knobs else ""


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
