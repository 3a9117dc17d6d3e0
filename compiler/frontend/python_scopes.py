"""A Python module's names and calls, from its syntax tree alone: nothing is imported or run.

survey(tree) -> Module

Every scope has the assignments to its names; every call has its scope and branches. The walk has
its own stack, so that deep trees do not stop it.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from tunec.compiler.frontend.python_names import (
    Arms,
    Binding,
    Change,
    Function,
    Later,
    Module,
    Scope,
    Site,
)

_MOST_ARMS: Final = 64

_Task = tuple[ast.AST, Scope, Arms]
_CHANGES: Final = frozenset(
    {
        *("update", "pop", "popitem", "setdefault", "clear", "append", "extend", "insert"),
        *("remove", "add", "discard", "sort", "reverse", "__setitem__"),
    }
)
_SETTER: Final = "set_"
"""transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.set_training` and others."""
_REWRITING: Final = frozenset({"exec", "globals"})
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def survey(tree: ast.Module) -> Module:
    """The assignments to a module's names, and every call in it."""
    walk = _Walk()
    walk.run(tree)
    functions = {name for name, each in walk.top.names.items() if any(_is_local(b) for b in each)}
    given = {name for function, name in walk.given if function in functions}
    return Module(
        walk.top,
        tuple(walk.sites),
        frozenset(walk.attributes),
        {name: tuple(e) for name, e in walk.later.items() if len(e) == walk.attributes[name]},
        frozenset(walk.reset),
        frozenset(walk.changed | given),
        walk.functions,
        walk.decorated,
        {name: tuple(each) for name, each in walk.changes.items() if name not in walk.changed},
        not _REWRITING.isdisjoint(function for function, _ in walk.given),
    )


def _is_local(binding: Binding) -> bool:
    return binding.origin is None and binding.value is None


class _Walk(Struct):
    """Collects names and calls while a tree is walked."""

    top: Scope = field(default_factory=lambda: Scope("module"))
    sites: list[Site] = field(default_factory=list)
    attributes: Counter[str] = field(default_factory=Counter)
    later: dict[str, list[Later]] = field(default_factory=dict)
    reset: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    given: set[tuple[str, str]] = field(default_factory=set)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    decorated: dict[int, Function] = field(default_factory=dict)
    targets: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def run(self, tree: ast.Module) -> None:
        """Walk a tree from its first statement to its last."""
        stack: list[_Task] = [(each, self.top, ()) for each in reversed(tree.body)]
        while stack:
            node, scope, arms = stack.pop()
            visit = _VISITS.get(type(node), _Walk.others)
            stack += reversed(list(visit(self, node, scope, arms)))

    def bind(self, scope: Scope, name: str, binding: Binding) -> None:
        """Record an assignment to a name of a scope."""
        if name in scope.globals:
            outer: Scope | None = scope.outer
            while outer is not None:
                if name in outer.names or outer.outer is None:
                    outer.names.setdefault(name, []).append(Binding())
                outer = outer.outer
            return
        scope.names.setdefault(name, []).append(binding)

    # ── what binds ───────────────────────────────────────────────────────────────────────────────

    def import_(self, node: ast.Import, scope: Scope, _: Arms) -> Iterator[_Task]:
        for each in node.names:
            name = each.asname or each.name.partition(".")[0]
            self.bind(scope, name, Binding(each.name if each.asname else name))
        yield from ()

    def import_from(self, node: ast.ImportFrom, scope: Scope, _: Arms) -> Iterator[_Task]:
        module = "." * node.level + (node.module or "")
        for each in node.names:
            if each.name == "*":
                scope.stars.append(module)
            else:
                self.bind(scope, each.asname or each.name, Binding(f"{module}.{each.name}"))
        yield from ()

    def assign(self, node: ast.Assign, scope: Scope, arms: Arms) -> Iterator[_Task]:
        names = tuple(each.id for each in node.targets if isinstance(each, ast.Name))
        if isinstance(node.value, ast.Call):
            self.targets[id(node.value)] = names
        for name in names:
            self.bind(scope, name, Binding(value=node.value))
        yield node.value, scope, arms
        for each in node.targets:
            if isinstance(each, ast.Tuple) and _is_pairwise(each, node.value):
                self._pairs(each, node.value, scope)
            elif isinstance(each, ast.Tuple) and _is_parsed(each, node.value):
                self._items(each, node.value, scope)
            elif isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name):
                change = Change(scope, arms, each.lineno, node.value, each.slice)
                self.changes.setdefault(each.value.id, []).append(change)
                yield each.slice, scope, arms
            elif not isinstance(each, ast.Name):
                if isinstance(each, ast.Attribute) and (holder := _holder(each.value)):
                    later = Later(holder, scope, arms, each, node.value)
                    self.later.setdefault(each.attr, []).append(later)
                yield each, scope, arms

    def _pairs(self, target: ast.Tuple, value: ast.expr, scope: Scope) -> None:
        """`a, b = 1, 2`."""
        for one, other in zip(target.elts, getattr(value, "elts", ()), strict=True):
            if isinstance(one, ast.Name):
                self.bind(scope, one.id, Binding(value=other))

    def _items(self, target: ast.Tuple, value: ast.expr, scope: Scope) -> None:
        """`args, rest = parser.parse_known_args()`: each name is an item of the result."""
        for at, one in enumerate(target.elts):
            item = ast.copy_location(ast.Subscript(value, ast.Constant(at), ast.Load()), value)
            if isinstance(one, ast.Name):
                self.bind(scope, one.id, Binding(value=item))

    def annotated(self, node: ast.AnnAssign, scope: Scope, arms: Arms) -> Iterator[_Task]:
        if not isinstance(node.target, ast.Name):
            yield node.target, scope, arms
        elif node.value is not None:
            self.bind(scope, node.target.id, Binding(value=node.value))
            if isinstance(node.value, ast.Call):
                self.targets[id(node.value)] = (node.target.id,)
        elif scope.kind == "class":
            self.bind(scope, node.target.id, Binding())
        if node.value is not None:
            yield node.value, scope, arms

    def name(self, node: ast.Name, scope: Scope, _: Arms) -> Iterator[_Task]:
        if not isinstance(node.ctx, ast.Load):
            self.bind(scope, node.id, Binding())
        yield from ()

    def outside(self, node: ast.Global | ast.Nonlocal, scope: Scope, _: Arms) -> Iterator[_Task]:
        scope.globals.update(node.names)
        yield from ()

    def attribute(self, node: ast.Attribute, scope: Scope, arms: Arms) -> Iterator[_Task]:
        if not isinstance(node.ctx, ast.Load):
            self.attributes[node.attr] += 1
        yield node.value, scope, arms

    def item(self, node: ast.Subscript, scope: Scope, arms: Arms) -> Iterator[_Task]:
        if not isinstance(node.ctx, ast.Load) and (name := _root(node.value)):
            self.changed.add(name)
        yield from ((node.value, scope, arms), (node.slice, scope, arms))

    def others(self, node: ast.AST, scope: Scope, arms: Arms) -> Iterator[_Task]:
        """Other nodes: a name that they bind is only known at run time."""
        for name in (getattr(node, "name", None), getattr(node, "rest", None)):
            if isinstance(name, str):
                self.bind(scope, name, Binding())
        yield from ((each, scope, arms) for each in ast.iter_child_nodes(node))

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, arms: Arms
    ) -> Iterator[_Task]:
        inner = self._with_parameters(node.args, scope)
        function = None
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            function = self.functions[id(inner)] = Function(node, inner)
        elif isinstance(node, ast.FunctionDef):
            self.decorated[id(inner)] = Function(node, inner)
        self.bind(scope, node.name, Binding(function=function))
        yield from ((each, scope, arms) for each in (*node.decorator_list, node.args))
        yield from ((each, inner, arms) for each in node.body)

    def lambda_(self, node: ast.Lambda, scope: Scope, arms: Arms) -> Iterator[_Task]:
        yield node.args, scope, arms
        yield node.body, self._with_parameters(node.args, scope), arms

    def _with_parameters(self, given: ast.arguments, outer: Scope) -> Scope:
        inner = Scope("function", outer)
        every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
        for each in every:
            if each is not None:
                self.bind(inner, each.arg, Binding())
        return inner

    def class_(self, node: ast.ClassDef, scope: Scope, arms: Arms) -> Iterator[_Task]:
        inner = Scope("class", scope)
        self.bind(scope, node.name, Binding(body=inner, bases=tuple(node.bases)))
        outside = (*node.decorator_list, *node.bases, *node.keywords)
        yield from ((each, scope, arms) for each in outside)
        yield from ((each, inner, arms) for each in node.body)

    def comprehension(self, node: ast.AST, scope: Scope, arms: Arms) -> Iterator[_Task]:
        inner = Scope("function", scope)
        yield from ((each, inner, arms) for each in ast.iter_child_nodes(node))

    # ── calls and branches ───────────────────────────────────────────────────────────────────────

    def call(self, node: ast.Call, scope: Scope, arms: Arms) -> Iterator[_Task]:
        self.sites.append(Site(node, scope, arms, self.targets.get(id(node), ())))
        if isinstance(node.func, ast.Attribute) and (name := _root(node.func.value)):
            if node.func.attr == "update" and isinstance(node.func.value, ast.Name):
                change = Change(scope, arms, node.lineno, node)
                self.changes.setdefault(name, []).append(change)
            elif node.func.attr in _CHANGES:
                self.changed.add(name)
            elif node.func.attr.startswith(_SETTER):
                self.reset.add(name)
        if isinstance(node.func, ast.Name):
            self._given(node.func.id, node.args)
        yield from ((each, scope, arms) for each in ast.iter_child_nodes(node))

    def _given(self, function: str, values: Sequence[ast.expr]) -> None:
        names = [each.id if isinstance(each, ast.Name) else "" for each in values]
        self.given.update((function, name) for name in (*names, ""))
        if function == "setattr" and len(values) > 1:
            key = values[1]
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                self.attributes[key.value] += 1
            else:
                self.reset.add(names[0])

    def branch(self, node: ast.If | ast.IfExp, scope: Scope, arms: Arms) -> Iterator[_Task]:
        yield node.test, scope, arms
        for arm, part in enumerate((node.body, node.orelse)):
            inside = arms if _is_main(node.test) else _deeper(arms, node, arm)
            yield from ((each, scope, inside) for each in _listed(part))

    def attempt(self, node: ast.Try, scope: Scope, arms: Arms) -> Iterator[_Task]:
        inside = _deeper(arms, node, 0)
        yield from ((each, scope, inside) for each in (*node.body, *node.orelse))
        for at, each in enumerate(node.handlers):
            yield each, scope, _deeper(arms, node, at + 1)
        yield from ((each, scope, arms) for each in node.finalbody)

    def match(self, node: ast.Match, scope: Scope, arms: Arms) -> Iterator[_Task]:
        yield node.subject, scope, arms
        for at, each in enumerate(node.cases):
            yield each, scope, _deeper(arms, node, at)


def _is_main(test: ast.expr) -> bool:
    """Whether a branch is the one that a script runs: `if __name__ == "__main__"`."""
    left = test.left if isinstance(test, ast.Compare) else None
    return isinstance(left, ast.Name) and left.id == "__name__"


def _is_pairwise(target: ast.Tuple, value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Tuple | ast.List)
        and len(value.elts) == len(target.elts)
        and all(isinstance(each, ast.Name) for each in target.elts)
        and not any(isinstance(each, ast.Starred) for each in value.elts)
    )


def _is_parsed(target: ast.Tuple, value: ast.expr) -> bool:
    """Whether a tuple of names holds the result of an argument parser."""
    is_method = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)
    name = value.func.attr if is_method else ""  # type: ignore[attr-defined]
    return name.startswith("parse_") and all(isinstance(e, ast.Name) for e in target.elts)


def _root(node: ast.expr) -> str:
    """The name at the left end of `name.x["y"]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _listed(part: list[ast.stmt] | ast.expr) -> Sequence[ast.AST]:
    return part if isinstance(part, list) else (part,)


def _deeper(arms: Arms, node: ast.AST, arm: int) -> Arms:
    return (*arms, (id(node), arm)) if len(arms) < _MOST_ARMS else arms


_VISITS: Final[Mapping[type[ast.AST], Callable[..., Iterator[_Task]]]] = {
    ast.Import: _Walk.import_,
    ast.ImportFrom: _Walk.import_from,
    ast.Assign: _Walk.assign,
    ast.AnnAssign: _Walk.annotated,
    ast.Name: _Walk.name,
    ast.Global: _Walk.outside,
    ast.Nonlocal: _Walk.outside,
    ast.Attribute: _Walk.attribute,
    ast.Subscript: _Walk.item,
    ast.FunctionDef: _Walk.function,
    ast.AsyncFunctionDef: _Walk.function,
    ast.Lambda: _Walk.lambda_,
    ast.ClassDef: _Walk.class_,
    **dict.fromkeys(_COMPREHENSIONS, _Walk.comprehension),
    ast.Call: _Walk.call,
    ast.If: _Walk.branch,
    ast.IfExp: _Walk.branch,
    ast.Try: _Walk.attempt,
    ast.TryStar: _Walk.attempt,
    ast.Match: _Walk.match,
}


def are_exclusive(one: Arms, other: Arms) -> bool:
    """Whether two places are in branches that exclude each other."""
    taken = dict(one)
    return any(taken.get(statement, arm) != arm for statement, arm in other)


def _holder(node: ast.expr) -> str:
    """The object whose attribute is set, `args` or `model.config`; empty if it has no name."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
