"""The names and calls that a walk of a Python module finds."""

import ast
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

Arms = tuple[tuple[int, int], ...]
"""The branches around a place: the statement, and which of its branches; outermost first."""


class Binding(Struct, frozen=True):
    """One assignment to a name."""

    origin: str | None = None
    """The imported name: `transformers.TrainingArguments`."""
    value: ast.expr | None = None
    """The right side of an assignment; None if the value is only known at run time."""
    body: "Scope | None" = None
    """The names of a class."""
    bases: tuple[ast.expr, ...] = ()
    """The base classes of a class."""
    function: "Function | None" = None
    """A function without decorators."""
    scope: "Scope | None" = None
    """The scope of an argument's value; None: the scope of the name."""


class Scope(Struct, eq=False):
    """The names of a module, a class, a function, or a comprehension."""

    kind: str
    outer: "Scope | None" = None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)
    """Modules from which all names are imported."""
    like: "Scope | None" = None
    """For a function in a call: its scope without the call."""

    def found(self, name: str) -> "tuple[Sequence[Binding], Scope] | None":
        """The assignments to a name seen from here, and their scope."""
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
    """An assignment to an attribute of a named object: `args.bf16 = True`, `model.config.x = 1`."""

    name: str
    scope: Scope
    arms: Arms
    target: ast.Attribute
    value: ast.expr


class Site(Struct, frozen=True, eq=False):
    """One call with its place."""

    call: ast.Call
    scope: Scope
    arms: Arms
    targets: tuple[str, ...] = ()
    """The names to which its result is assigned."""
    outside: "Scope | None" = None
    """For the result of a function: the scope in which that is called."""

    @property
    def block(self) -> "Scope":
        """The scope of the names of its result."""
        return self.outside or self.scope


class Module(Struct, frozen=True):
    """The results of walking a module."""

    scope: Scope
    sites: tuple[Site, ...]
    """The calls in the order of the file."""
    attributes: frozenset[str]
    """The names of all attributes that are set, on any object: `args.bf16 = True`."""
    later: Mapping[str, tuple[Later, ...]]
    """The attributes that are only set by such a line."""
    reset: frozenset[str]
    """Names of objects with attributes that are set by names only known at run time."""
    changed: frozenset[str]
    """Names whose value is changed in place: an item is set, `update` is called, or it is passed to
    a function of this file."""
    functions: Mapping[int, Function]
    """The functions without decorators, by the identity of their names."""
    decorated: Mapping[int, Function]
    """The functions with decorators."""
    changes: Mapping[str, tuple[Change, ...]]
    """Names whose items are set, and that are not changed in another way."""
    is_rewritten: bool
    """Whether the file runs code, or sets names, that are only known at run time."""
