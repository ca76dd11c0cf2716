"""The package as keys see it: definitions, what each mentions, and one digest of all that a stage can reach.

A definition counts by its syntax tree without docstrings, and by what its names mean: other definitions of ours, or
imports from outside. Where a definition lies does not count. The digest is that of the graph which starts at a
stage's roots: definitions are numbered as they are reached, names in their order, and each is written down as its
shape and the numbers of what it mentions. Equal text means equal graphs, circles included, without a name of a module
in it; and it means the same sharing: two modules that each hold a copy of some state are not taken for two that share
one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tasks.errors import StoreError

PACKAGE = "tasks"
FAMILY_ENTRIES = Mapping[tuple[str, str], frozenset[str]]
"""Of some families of choices, the entries that count."""

Definition = tuple[str, str]
"""A module and the name of something defined at its top level."""
Root = tuple[str, str, str | None]
"""A definition that a stage starts from; of a family of choices, the one entry that it starts from."""


@dataclass(frozen=True)
class Mention:
    """A name in a piece of code and what it means: a definition of ours, or what lies outside of keys, in words."""

    local: str
    means: Definition | str
    node: ast.expr


@dataclass(frozen=True)
class Piece:
    """A definition as it counts: the digest of its shape, and its mentions by name."""

    shape: str
    mentions: tuple[Mention, ...]


class Module:
    """The top level of one source file: definitions by name, and what imported names mean."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.definitions, self.imports = name, dict[str, ast.stmt](), dict[str, Definition]()
        for node in WithoutDocstrings().visit(ast.parse(source)).body:
            self.enter(node)

    def enter(self, node: ast.stmt) -> None:
        """Note what one top-level statement defines."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound = [node.name]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target)]
            if any(isinstance(part, (ast.Attribute, ast.Subscript)) for part in parts):
                raise self.unseen(node)
            bound = [part.id for part in parts if isinstance(part, ast.Name)]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound = []
            for local, meant in imported(node):
                if local in self.definitions or self.imports.setdefault(local, meant) != meant:
                    raise self.unseen(node)
        elif is_guard(node):
            bound = []
        else:
            raise self.unseen(node)
        twice = {*bound} & {*self.definitions, *self.imports}
        if twice or any(isinstance(part, ast.NamedExpr) for part in run_at_import(node)):
            raise self.unseen(node)
        self.definitions |= dict.fromkeys(bound, node)

    def unseen(self, node: ast.stmt) -> StoreError:
        """Return the error of a statement that a key would not see, or that hides what was defined before it."""
        return StoreError(
            f"a key cannot be computed: {self.name}, line {node.lineno}: {ast.unparse(node).splitlines()[0][:60]!r}; "
            "at the top level each name is bound once, by def, class, = or import"
        )


def is_guard(node: ast.stmt) -> bool:
    """Tell whether a statement is for type checkers or for a file that is started: others reach nothing of it."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    )


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax that runs when a module is imported: not what is inside of functions, but decorators and
    defaults."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        inner: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        inner += [] if isinstance(node, ast.Lambda) else node.decorator_list
    elif isinstance(node, ast.AnnAssign):
        inner = [node.value] if node.value else []
    else:
        inner = list(ast.iter_child_nodes(node))
    for one in inner:
        yield from run_at_import(one)


class WithoutDocstrings(ast.NodeTransformer):
    """Strikes out every string that stands alone as a statement."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Drop a bare string."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def shape_of(value: Any) -> str:
    """Return a syntax tree as text: no positions, no places of our code, alike in every version of Python."""
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if isinstance(value, ast.AST):
        fields = ((name, inner) for name, inner in ast.iter_fields(value) if inner is not None and inner != [])
        return f"{type(value).__name__}({','.join(f'{name}={shape_of(inner)}' for name, inner in fields)})"
    if isinstance(value, list):
        return f"[{','.join(shape_of(inner) for inner in value if not is_place(inner))}]"
    return repr(value)


def is_place(node: Any) -> bool:
    """Tell whether a piece of syntax says only where code of ours lies: what it names is counted where it is used.

    That is an import inside of a function, and the room that a stage's engine is in.
    """
    in_a_stage = (
        isinstance(node, ast.keyword)
        and node.arg == "module"
        and isinstance(node.value, ast.Constant)
        and is_ours(str(node.value.value))
    )
    return in_a_stage or (isinstance(node, ast.ImportFrom) and is_ours(node.module or ""))


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Definition]]:
    """Yield what an import binds: local names, each with a module and a name in it, empty for the module itself."""
    if isinstance(node, ast.ImportFrom):
        if node.level or any(alias.name == "*" for alias in node.names):
            raise StoreError(
                f"a key cannot be computed of {ast.unparse(node)!r}: imports are absolute, and name what they import"
            )
        yield from ((alias.asname or alias.name, (node.module or "", alias.name)) for alias in node.names)
        return
    for alias in node.names:
        if is_ours(alias.name):
            raise StoreError(
                f"a key cannot be computed of {ast.unparse(node)!r}: what is ours is imported by from … import"
            )
        yield (
            (alias.asname, (alias.name, ""))
            if alias.asname
            else (alias.name.split(".")[0], (alias.name.split(".")[0], ""))
        )


def is_ours(module: str) -> bool:
    """Tell whether a module belongs to this package."""
    return module.split(".")[0] == PACKAGE


class Program:
    """All sources of the package; of the modules in ``never_counted``, and those below them, only names count."""

    def __init__(self, sources: Mapping[str, str], never_counted: Collection[str] = ()) -> None:
        self.sources, self.never_counted = sources, tuple(never_counted)
        self.modules: dict[str, Module] = {}
        self.pieces: dict[Definition, Piece] = {}

    def module(self, name: str) -> Module:
        """Parse a module of ours."""
        if name not in self.modules:
            self.modules[name] = Module(name, self.sources[name])
        return self.modules[name]

    def is_counted(self, module: str) -> bool:
        """Tell whether a module's code is part of keys."""
        return module in self.sources and not any(
            module == name or module.startswith(name + ".") for name in self.never_counted
        )

    def node(self, definition: Definition) -> ast.stmt:
        """Return a definition's syntax tree."""
        module, name = definition
        found = self.module(module).definitions.get(name) if module in self.sources else None
        if found is None:
            raise StoreError(f"a key cannot be computed: {module} does not define {name} at its top level")
        return found

    def piece(self, definition: Definition, entries: frozenset[str] | None = None) -> Piece:
        """Return a definition as it counts; of a family of choices perhaps some entries alone."""
        if entries is None and definition in self.pieces:
            return self.pieces[definition]
        node = self.node(definition) if entries is None else with_entries(self.node(definition), entries)
        mentions = sorted(self.mentions(definition[0], node), key=lambda mention: mention.local)
        found = Piece(sha256(f"{definition[1]} {shape_of(node)}".encode()).hexdigest(), tuple(mentions))
        if entries is None:
            self.pieces[definition] = found
        return found

    def mentions(self, module: str, node: ast.AST) -> Iterator[Mention]:
        """Yield what a piece of code of a module mentions, in the order of its text."""
        inner = [
            (local, meant)
            for one in ast.walk(node)
            if isinstance(one, (ast.Import, ast.ImportFrom))
            for local, meant in imported(one)
        ]
        found = self.module(module)
        names = {local: [meant] for local, meant in found.imports.items()}
        for local, meant in inner:
            names.setdefault(local, []).append(meant)
        spelled = set[ast.Name]()  # names that are the beginning of module.name
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
                for meant in names.get(one.value.id, ()):
                    if (inside := self.as_module(meant)) is not None:
                        spelled.add(one.value)
                        yield from self.meanings(f"{one.value.id}.{one.attr}", (inside, one.attr), one, module)
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one not in spelled:
                for meant in names.get(one.id, ()):
                    yield from self.meanings(one.id, meant, one, module)
                if one.id in found.definitions:
                    yield from self.meanings(one.id, (module, one.id), one, module)

    def as_module(self, meant: Definition) -> str | None:
        """Return the module of ours that an imported name stands for, if it stands for one."""
        name = f"{meant[0]}.{meant[1]}" if meant[1] else meant[0]
        return name if name in self.sources else None

    def meanings(self, local: str, meant: Definition, node: ast.expr, asker: str) -> Iterator[Mention]:
        """Yield what a name means: it is followed from module to module; a whole module means all that it defines."""
        whole = self.as_module(meant)
        if whole is not None:
            yield from (
                Mention(f"{local}.{name}", (whole, name), node) for name in sorted(self.module(whole).definitions)
            )
            return
        module, name = meant
        if not is_ours(module):
            yield Mention(local, ":".join(meant), node)
        elif module in self.sources and not self.is_counted(module) and module != asker:
            yield Mention(local, f"not counted: {name}", node)
        elif (
            module in self.sources
            and name not in self.module(module).definitions
            and name in self.module(module).imports
        ):
            yield from self.meanings(local, self.module(module).imports[name], node, asker)
        else:
            yield Mention(local, meant, node)

    def reach(self, roots: Sequence[Root], entries: FAMILY_ENTRIES) -> dict[Definition, Piece]:
        """Return all that roots can reach, in the order in which it is reached."""
        chosen = dict(entries) | {
            (module, name): frozenset([entry]) for module, name, entry in roots if entry is not None
        }
        # A stage that is defined outside of the package, as tests do, counts by its name alone.
        waiting = [(module, name) for module, name, _ in roots if is_ours(module)]
        found = dict[Definition, Piece]()
        for definition in waiting:
            if definition not in found:
                found[definition] = self.piece(definition, chosen.get(definition))
                waiting.extend(
                    mention.means for mention in found[definition].mentions if isinstance(mention.means, tuple)
                )
        return found

    def digest(self, roots: Sequence[Root], entries: FAMILY_ENTRIES) -> str:
        """Return the digest of all that roots can reach."""
        reached = self.reach(roots, entries)
        number = {definition: place for place, definition in enumerate(reached)}
        lines = [
            [piece.shape, *dict.fromkeys(written(mention, number) for mention in piece.mentions)]
            for piece in reached.values()
        ]
        starts = [[number.get((module, name), name), entry] for module, name, entry in roots]
        return sha256(repr((starts, lines)).encode()).hexdigest()


def written(mention: Mention, number: Mapping[Definition, int]) -> tuple[str, Any]:
    """Return a mention without the place of what it means: by its name there, and its number in the graph."""
    return mention.local, (mention.means[1], number[mention.means]) if isinstance(
        mention.means, tuple
    ) else mention.means


def is_family(node: ast.AST) -> bool:
    """Tell whether a definition is a family of choices: a dict whose keys are all written out as strings."""
    family = getattr(node, "value", None)
    return (
        isinstance(family, ast.Dict)
        and bool(family.keys)
        and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in family.keys)
    )


def with_entries(node: ast.stmt, entries: frozenset[str]) -> ast.stmt:
    """Return a family of choices with some of its entries."""
    family = getattr(node, "value", None)
    if not isinstance(family, ast.Dict):
        raise StoreError(f"a key cannot be computed: {ast.unparse(node)[:60]!r} is no dict of choices")
    pairs = [
        (key, value)
        for key, value in zip(family.keys, family.values, strict=True)
        if getattr(key, "value", None) in entries
    ]
    return ast.Expr(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]))
