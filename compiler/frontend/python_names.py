"""What a walk of a Python module tells of its names and calls."""

import ast
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

Arms = tuple[tuple[int, int], ...]
"""The branches around a place: which statement, and which of its arms; the outermost first."""


class Binding(Struct, frozen=True):
    """One time that a name is given something."""

    origin: str | None = None
    """Of an import, what it names: `transformers.TrainingArguments`."""
    value: ast.expr | None = None
    """Of an assignment, its right side; None where only running the file tells."""
    body: "Scope | None" = None
    """Of a class, its own names."""
    bases: tuple[ast.expr, ...] = ()
    """Of a class, what it inherits from."""
    function: "Function | None" = None
    """Of a function that nothing wraps."""
    scope: "Scope | None" = None
    """Of an argument, where its value is read; None: where the name is bound."""


class Scope(Struct, eq=False):
    """A module, a class, a function, or what a comprehension binds."""

    kind: str
    outer: "Scope | None" = None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)
    """Modules from which all names are taken."""
    like: "Scope | None" = None
    """Of a function that is called, its names where nobody calls it."""

    def found(self, name: str) -> "tuple[Sequence[Binding], Scope] | None":
        """What a name is given where it is looked up from here, and in which scope."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or scope.kind != "class"):
                return scope.names[name], scope
            scope = scope.outer
        return None

    @property
    def module(self) -> "Scope":
        """The outermost scope."""
        scope = self
        while scope.outer is not None:
            scope = scope.outer
        return scope


class Function(Struct, frozen=True, eq=False):
    """A function of the file, with its own names."""

    node: ast.FunctionDef
    scope: Scope


class Change(Struct, frozen=True, eq=False):
    """One item of a mapping that is set, or several by `update`."""

    scope: Scope
    arms: Arms
    line: int
    value: ast.expr
    key: ast.expr | None = None
    """None: the value is the call of `update`."""


class Later(Struct, frozen=True, eq=False):
    """One attribute of a named object that is set: `args.bf16 = True`, `model.config.x = 1`."""

    name: str
    scope: Scope
    arms: Arms
    target: ast.Attribute
    value: ast.expr


class Site(Struct, frozen=True, eq=False):
    """One call, with where it stands."""

    call: ast.Call
    scope: Scope
    arms: Arms
    targets: tuple[str, ...] = ()
    """The names that its result is given."""
    outside: "Scope | None" = None
    """Of what a function hands on, where that is called."""

    @property
    def block(self) -> "Scope":
        """The names among which its result is."""
        return self.outside or self.scope


class Module(Struct, frozen=True):
    """All that a walk of a module has found."""

    scope: Scope
    sites: tuple[Site, ...]
    """In the order of the file."""
    attributes: frozenset[str]
    """The names of all attributes that are set, on whatever object: `args.bf16 = True`."""
    later: Mapping[str, tuple[Later, ...]]
    """Those of them that are set in no other way than by such a line."""
    reset: frozenset[str]
    """Names of objects whose attributes are set by words that only running tells."""
    changed: frozenset[str]
    """Names whose value is changed where it lies: an item is set, `update` is called, it is given
    to a function of this file."""
    functions: Mapping[int, Function]
    """The functions that nothing wraps, by the identity of their names."""
    decorated: Mapping[int, Function]
    """Those that something wraps."""
    changes: Mapping[str, tuple[Change, ...]]
    """Names whose items are set, and that are changed in no other way."""
    is_rewritten: bool
    """Whether the file runs texts, or sets names by words, that only running tells."""
