"""Functions of a Python file that only return an expression: nothing is run.

A function whose only `return` is its last statement has the value of that expression, with the
arguments of the call instead of its parameters.
"""

import ast
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from tunec.compiler.frontend.python_names import Binding, Function, Scope

_NOT_PLAIN: Final = (ast.Yield, ast.YieldFrom, ast.Await)
_MOST: Final = 2_000
"""The most nodes of a function that is followed."""


def function_of(call: ast.Call, scope: Scope) -> Function | None:
    """The function of this file that a call names, if it is the only thing of that name."""
    found = scope.found(call.func.id) if isinstance(call.func, ast.Name) else None
    bindings = found[0] if found is not None else ()
    return bindings[0].function if len(bindings) == 1 else None


def returned(function: Function) -> ast.expr | None:
    """The expression of a function's only `return`, if that is its last statement."""
    last = function.node.body[-1]
    if not isinstance(last, ast.Return):
        return None
    inside = list(islice(_inside(function.node), _MOST + 1))
    returns = [each for each in inside if isinstance(each, ast.Return)]
    is_plain = not any(isinstance(each, _NOT_PLAIN) for each in inside)
    return last.value if returns == [last] and is_plain and len(inside) <= _MOST else None


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes in a function, without those of nested functions."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def called_with(function: Function, call: ast.Call, scope: Scope) -> Scope | None:
    """The names of a function in a call; None if they are only known at run time."""
    given = _given(function.node.args, call)
    if given is None:
        return None
    inner, outer = function.scope, function.scope.outer
    names = dict(inner.names)
    for name, value in given.items():
        if len(inner.names.get(name, ())) == 1:
            names[name] = [Binding(value=value, scope=scope)]
    for name, value in defaults(function.node.args):
        if name not in given and len(inner.names.get(name, ())) == 1:
            names[name] = [Binding(value=value, scope=outer)]
    return Scope("function", outer, names, inner.globals, like=inner)


def _given(taken: ast.arguments, call: ast.Call) -> Mapping[str, ast.expr] | None:
    """The expression of each parameter that a call passes."""
    places = [each.arg for each in (*taken.posonlyargs, *taken.args)]
    is_plain = not any(isinstance(each, ast.Starred) for each in call.args)
    if not is_plain or taken.vararg is not None or len(call.args) > len(places):
        return None
    found: dict[str, ast.expr] = dict(zip(places, call.args, strict=False))
    known = {*(each.arg for each in (*taken.args, *taken.kwonlyargs))}
    others: list[ast.keyword] = []
    for each in call.keywords:
        if each.arg in known and each.arg is not None:
            found[each.arg] = each.value
        else:
            others.append(each)
    if taken.kwarg is not None:
        found[taken.kwarg.arg] = _mapping(others, call)
    return found if taken.kwarg is not None or not others else None


def _mapping(keywords: list[ast.keyword], call: ast.Call) -> ast.Dict:
    """Keywords as the dictionary of `**others`."""
    keys: list[ast.expr | None] = [None if each.arg is None else _key(each) for each in keywords]
    return ast.copy_location(ast.Dict(keys, [each.value for each in keywords]), call)


def _key(keyword: ast.keyword) -> ast.Constant:
    key = ast.copy_location(ast.Constant(keyword.arg), keyword)
    key.end_lineno, key.end_col_offset = key.lineno, key.col_offset + len(keyword.arg or "")
    return key


def defaults(taken: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """The parameters with a default, each with it."""
    places = [*taken.posonlyargs, *taken.args]
    late = places[len(places) - len(taken.defaults) :]
    yield from ((each.arg, value) for each, value in zip(late, taken.defaults, strict=True))
    for each, value in zip(taken.kwonlyargs, taken.kw_defaults, strict=True):
        if value is not None:
            yield each.arg, value
