"""The package as a graph for keys: definitions, their mentions of others, and one digest of all that a stage can reach.

A definition is hashed by its syntax tree without docstrings, and by the meanings of its names: other definitions of
this package, or imports of other packages. The location of a definition is not hashed. The digest is that of the graph
from a stage's roots: definitions are numbered in the order in which they are reached, with names in sorted order, and
each is written as the digest of its shape and the numbers of the definitions that it mentions. Equal text means equal
graphs, including cycles, and contains no module names. It also means the same sharing: two modules with separate copies
of a state have another digest than two modules that share one.
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
"""The hashed entries of some families of choices, and the hashed fields of some records."""

Definition = tuple[str, str]
"""A module, and a name that its top level defines."""
Root = tuple[str, str, str | None]
"""A definition at which a stage starts; for a family of choices, also the one entry at which it starts."""


@dataclass(frozen=True)
class Mention:
    """A name in a piece of code and its meaning: a definition of this package, or a text for anything outside of
    keys."""

    local: str
    means: Definition | str
    node: ast.expr


@dataclass(frozen=True)
class Piece:
    """The hashed parts of a definition: the digest of its shape, and its mentions by name."""

    shape: str
    mentions: tuple[Mention, ...]


class Module:
    """The top level of one source file: definitions by name, and the meanings of imported names."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.definitions, self.imports = name, dict[str, ast.stmt](), dict[str, Definition]()
        for node in WithoutDocstrings().visit(ast.parse(source)).body:
            self.add_definition(node)

    def add_definition(self, node: ast.stmt) -> None:
        """Record the definitions and imports of one top-level statement."""
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
        """Return the error for a statement that a key could not include, or that redefines an earlier name."""
        return StoreError(
            f"a key cannot be computed: {self.name}, line {node.lineno}: {ast.unparse(node).splitlines()[0][:60]!r}; "
            "at the top level each name is bound once, by def, class, = or import"
        )


def is_guard(node: ast.stmt) -> bool:
    """Return whether a statement is only for type checkers or for execution as a script; other modules cannot use
    it."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'")
    )


def run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the syntax nodes that run at the import of a module: not the bodies of functions, but their decorators and
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
    """Removes every statement that is only a string."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Return None for a bare string, else the node."""
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node


def shape_of(value: Any) -> str:
    """Return a syntax tree as text, without positions and module paths of this package, identical in every version of
    Python."""
    if isinstance(value, ast.Constant):
        return repr(value.value)
    if isinstance(value, ast.AST):
        fields = ((name, inner) for name, inner in ast.iter_fields(value) if inner is not None and inner != [])
        return f"{type(value).__name__}({','.join(f'{name}={shape_of(inner)}' for name, inner in fields)})"
    if isinstance(value, list):
        return f"[{','.join(shape_of(inner) for inner in value if not is_place(inner))}]"
    return repr(value)


def is_place(node: Any) -> bool:
    """Return whether a syntax node only gives the location of this package's code; the named code is hashed where it is
    used.

    Such nodes are imports inside of functions, and the module of a stage's engine.
    """
    in_a_stage = (
        isinstance(node, ast.keyword)
        and node.arg == "module"
        and isinstance(node.value, ast.Constant)
        and is_ours(str(node.value.value))
    )
    return in_a_stage or (isinstance(node, ast.ImportFrom) and is_ours(node.module or ""))


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Definition]]:
    """Yield the local names that an import binds, each with a module and a name in it; the name is empty for the module
    itself."""
    if isinstance(node, ast.ImportFrom):
        if node.level or any(alias.name == "*" for alias in node.names):
            raise StoreError(
                f"a key cannot be computed for {ast.unparse(node)!r}: imports must be absolute and name each "
                f"imported definition"
            )
        yield from ((alias.asname or alias.name, (node.module or "", alias.name)) for alias in node.names)
        return
    for alias in node.names:
        if is_ours(alias.name):
            raise StoreError(f"a key cannot be computed for {ast.unparse(node)!r}: import own modules by from … import")
        yield (
            (alias.asname, (alias.name, ""))
            if alias.asname
            else (alias.name.split(".")[0], (alias.name.split(".")[0], ""))
        )


def is_ours(module: str) -> bool:
    """Return whether a module belongs to this package."""
    return module.split(".")[0] == PACKAGE


class Program:
    """All sources of the package; for the modules in ``never_counted``, and those below them, only names are hashed."""

    def __init__(self, sources: Mapping[str, str], never_counted: Collection[str] = ()) -> None:
        self.sources, self.never_counted = sources, tuple(never_counted)
        self.modules: dict[str, Module] = {}
        self.pieces: dict[Definition, Piece] = {}

    def module(self, name: str) -> Module:
        """Return a parsed module of this package."""
        if name not in self.modules:
            self.modules[name] = Module(name, self.sources[name])
        return self.modules[name]

    def is_counted(self, module: str) -> bool:
        """Return whether a module's code is part of keys."""
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
        """Return the hashed parts of a definition; for a family of choices optionally with some entries only."""
        if entries is None and definition in self.pieces:
            return self.pieces[definition]
        node = self.node(definition) if entries is None else with_entries(self.node(definition), entries)
        mentions = sorted(self.mentions(definition[0], node), key=lambda mention: mention.local)
        found = Piece(sha256(f"{definition[1]} {shape_of(node)}".encode()).hexdigest(), tuple(mentions))
        if entries is None:
            self.pieces[definition] = found
        return found

    def mentions(self, module: str, node: ast.AST) -> Iterator[Mention]:
        """Yield the mentions in a piece of a module's code."""
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
        spelled = set[ast.Name]()  # the names that are ``module`` in ``module.name``
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
        """Return the module of this package that an imported name stands for, or None."""
        name = f"{meant[0]}.{meant[1]}" if meant[1] else meant[0]
        return name if name in self.sources else None

    def meanings(self, local: str, meant: Definition, node: ast.expr, asker: str) -> Iterator[Mention]:
        """Yield the meanings of a name, which is followed through re-exports; a module means all of its definitions."""
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
        """Return all definitions that the roots can reach, in the order in which they are reached."""
        chosen = dict(entries) | {
            (module, name): frozenset([entry]) for module, name, entry in roots if entry is not None
        }
        # A stage that is defined outside of the package, for example in a test, is hashed only by its name.
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
        """Return the digest of all definitions that the roots can reach."""
        reached = self.reach(roots, entries)
        number = {definition: place for place, definition in enumerate(reached)}
        lines = [
            [piece.shape, *dict.fromkeys(written(mention, number) for mention in piece.mentions)]
            for piece in reached.values()
        ]
        starts = [[number.get((module, name), name), entry] for module, name, entry in roots]
        return sha256(repr((starts, lines)).encode()).hexdigest()


def written(mention: Mention, number: Mapping[Definition, int]) -> tuple[str, Any]:
    """Return a mention without a module path: the local name, and the definition's own name and number in the graph."""
    return mention.local, (mention.means[1], number[mention.means]) if isinstance(
        mention.means, tuple
    ) else mention.means


def is_family(node: ast.AST) -> bool:
    """Return whether a definition is a family of choices: a dict whose keys are all literal strings."""
    family = getattr(node, "value", None)
    return (
        isinstance(family, ast.Dict)
        and bool(family.keys)
        and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in family.keys)
    )


def with_entries(node: ast.stmt, entries: frozenset[str]) -> ast.stmt:
    """Return a family of choices with only the given entries, or a record with only the given fields."""
    family = getattr(node, "value", None)
    if isinstance(family, ast.Call):
        return ast.Expr(ast.Call(family.func, [], [one for one in family.keywords if one.arg in entries]))
    if not isinstance(family, ast.Dict):
        raise StoreError(f"a key cannot be computed: {ast.unparse(node)[:60]!r} is not a dict of choices")
    pairs = [
        (key, value)
        for key, value in zip(family.keys, family.values, strict=True)
        if getattr(key, "value", None) in entries
    ]
    return ast.Expr(ast.Dict([key for key, _ in pairs], [value for _, value in pairs]))
