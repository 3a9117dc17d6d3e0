"""Expressions of a Python file to nodes, as far as the file itself determines their value.

Literals, names with a single literal assignment, arithmetic on both, f-strings of both, attributes
that represent a word (`torch.bfloat16`). Everything else is an `Unknown`: nothing is guessed.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import join
from typing import Any, Final

from tunec.compiler.frontend.nodes import MAX_NODES, Node
from tunec.compiler.frontend.python_functions import called_with, function_of, returned
from tunec.compiler.frontend.python_leaves import (
    HIDDEN,
    LONGEST,
    is_bare,
    is_literal,
    is_number,
    is_plain,
    power,
)
from tunec.compiler.frontend.python_names import Binding, Change, Later, Scope
from tunec.compiler.frontend.python_settings import Settings
from tunec.compiler.frontend.text import Origin
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_DEEPEST: Final = 40
"""The most levels of names and nested expressions that are followed."""

_DTYPES: Final[Mapping[str, str]] = {
    **{f"torch.{name}": name for name in ("float16", "bfloat16", "float32", "float64")},
    **{f"torch.{name}": name for name in ("uint8", "int8", "float8_e4m3fn", "float8_e5m2")},
    "torch.half": "float16",
    "torch.float": "float32",
    "torch.double": "float64",
}
"""pytorch 2.13.0 torch/__init__.py: dtypes with their other names."""
_ENUMS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("IntervalStrategy", "EvaluationStrategy", "SaveStrategy"), str.lower),
    **dict.fromkeys(("HubStrategy", "SchedulerType", "FSDPOption"), str.lower),
    "TaskType": str.upper,
}
"""Enumerations whose members have their own names as values, in another case: transformers 4.40.2
to 5.23.0 trainer_utils.py; peft 0.10.0 to 0.21.2 utils/peft_types.py `TaskType`."""
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_NUMBERS: Final[Mapping[str, Callable[[Any], Any]]] = {"builtins.int": int, "builtins.float": float}


class Values(Settings, kw_only=True):
    """The values of one file's expressions."""

    origin: Origin
    lines: tuple[str, ...]
    left: int = MAX_NODES
    """The number of further expressions that may be followed, as names can refer to many others."""

    def span(self, node: ast.expr | ast.keyword) -> Span:
        """The place of an expression, or of a keyword with its value."""
        start = self._place(node.lineno, node.col_offset)
        end = self._place(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self.origin.span(start, end)

    def _place(self, line: int, column: int) -> tuple[int, int]:
        """Line and column from 0, from a column that counts bytes of UTF-8."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if text.isascii():
            return line - 1, column
        return line - 1, len(text.encode("utf-8", "replace")[:column].decode("utf-8", "replace"))

    def keyword(self, given: ast.keyword, scope: Scope) -> Node:
        """The value of a keyword, with the place of its name."""
        whole = self.span(given)
        end = whole.column + len(given.arg or "")
        key = Span(whole.file, whole.line, whole.column, whole.line, end)
        return replace(self.node(given.value, scope), key_span=key)

    def later(self, given: Later) -> Node:
        """The value of an attribute's assignment, with the place of its name."""
        whole = self.span(given.target)
        start = whole.end_column - len(given.target.attr)
        key = Span(whole.file, whole.end_line, start, whole.end_line, whole.end_column)
        return replace(self.node(given.value, given.scope), key_span=key, is_inline_json=True)

    # ── values ───────────────────────────────────────────────────────────────────────────────────

    def declared(self, node: ast.expr, scope: Scope) -> Mapping[str, Node]:
        """The fields that a class of this file declares, each with its default."""
        found = scope.found(node.id) if isinstance(node, ast.Name) else None
        body = found[0][0].body if found is not None and len(found[0]) == 1 else None
        if body is None:
            return {}
        return {name: self._default(each, node, body) for name, each in body.names.items()}

    def _default(self, bindings: Sequence[Binding], at: ast.expr, body: Scope) -> Node:
        value = bindings[0].value if len(bindings) == 1 else None
        if isinstance(value, ast.Call) and self.origin_of(value.func, body) == "dataclasses.field":
            value = next((each.value for each in value.keywords if each.arg == "default"), None)
        span = self.span(at)
        found = Node(span, HIDDEN) if value is None else self._node(value, body, span, 0)
        return replace(found, key_span=span)

    def node(self, node: ast.expr, scope: Scope) -> Node:
        """The value of an expression; it and its parts are `Unknown` if only a run shows them."""
        return self._node(node, scope, None, 0)

    def _node(self, node: ast.expr, scope: Scope, at: Span | None, depth: int) -> Node:
        """`at`: the place of the name that refers to this value, where no edit is possible."""
        self.left -= 1
        span = at or self.span(node)
        if depth > _DEEPEST or self.left < 0:
            return Node(span, HIDDEN)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return self._mapping(pairs, scope, at, depth, span)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._sequence(node.elts, scope, at, depth, span)
        if isinstance(node, ast.Call) and self.origin_of(node.func, scope) == "builtins.dict":
            return self._dict_call(node, scope, at, depth, span)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._mapping([(None, node.left), (None, node.right)], scope, at, depth, span)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, span, depth)
        followed = self._followed(node, scope)
        if followed is not None:
            found = self._node(*followed, span, depth + 1)
            return self._changed(node, found, scope, depth) if isinstance(node, ast.Name) else found
        value = self._leaf(node, scope, depth)
        return Node(span, value, is_inline_json=at is not None or not is_literal(node))

    def _followed(self, node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
        if isinstance(node, ast.Name):
            return self.constant(node.id, scope)
        if isinstance(node, ast.Call):
            return self._returned(node, scope)
        return self.member(node, scope) if isinstance(node, ast.Attribute) else None

    def _got(self, held: ast.expr, args: list[ast.expr], scope: Scope, depth: int) -> Any:
        around = self._node(held, scope, None, depth + 1)
        key = self._leaf(args[0], scope, depth)
        if around.fields is None or not isinstance(key, str):
            return HIDDEN
        found = around.fields.get(key)
        if found is None:
            return self._leaf(args[1], scope, depth) if len(args) > 1 else None
        return found.value if found.is_leaf else HIDDEN

    def _returned(self, node: ast.Call, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """The expression that a function of this file returns, with the names of this call."""
        function = function_of(node, scope)
        value = None if function is None or self.module.is_rewritten else returned(function)
        inner = None if function is None else called_with(function, node, scope)
        return None if value is None or inner is None else (value, inner)

    def _changed(self, node: ast.Name, found: Node, scope: Scope, depth: int) -> Node:
        """A mapping with the items that are set before this place, in the same block.

        Items that are set in other blocks, or conditionally, are unknown.
        """
        holder = _holder(node.id, scope)
        every = self.module.changes.get(node.id, ())
        changes = [each for each in every if _holder(node.id, each.scope) is holder]
        fields = dict(found.fields or {})
        for each in changes:
            said = self._said(each, scope, found.span, depth).fields
            if found.fields is None or said is None:
                return Node(found.span, HIDDEN)
            is_here = (scope.like or scope) is each.scope and each.arms == ()
            is_sure = is_here and each.line < node.lineno
            fields |= said if is_sure else _hidden(said)
        return replace(found, fields=fields) if changes else found

    def _said(self, change: Change, scope: Scope, at: Span, depth: int) -> Node:
        """The items of a change, as a mapping."""
        value, inner = change.value, scope if scope.like is change.scope else change.scope
        if change.key is not None:
            return self._mapping([(change.key, value)], inner, at, depth, at)
        if not isinstance(value, ast.Call) or len(value.args) > 1:
            return Node(at, HIDDEN)
        given = self._dict_call(ast.Call(value.func, [], value.keywords), inner, at, depth, at)
        if not value.args or given.fields is None:
            return given
        first = self._node(value.args[0], inner, at, depth + 1)
        is_known = first.fields is not None
        return (
            replace(given, fields={**(first.fields or {}), **given.fields}) if is_known else first
        )

    def _mapping(
        self,
        pairs: Iterable[tuple[ast.expr | None, ast.expr]],
        scope: Scope,
        at: Span | None,
        depth: int,
        span: Span,
    ) -> Node:
        fields: dict[str, Node] = {}
        for key, value in pairs:
            inner = self._node(value, scope, at, depth + 1)
            if key is None:
                if inner.fields is None:
                    return Node(span, HIDDEN)
                fields |= inner.fields
                continue
            name = self._leaf(key, scope, depth + 1)
            if not isinstance(name, str):
                return Node(span, HIDDEN)
            fields[name] = replace(inner, key_span=at or self.span(key))
        return Node(span, fields=fields, is_inline_json=at is not None)

    def _dict_call(
        self, node: ast.Call, scope: Scope, at: Span | None, depth: int, span: Span
    ) -> Node:
        """`dict(a=1, **others)`."""
        fields: dict[str, Node] = {}
        for each in node.keywords:
            inner = self._node(each.value, scope, at, depth + 1)
            if each.arg is not None:
                key = at or self.keyword(each, scope).key_span
                fields[each.arg] = replace(inner, key_span=key)
            elif inner.fields is not None:
                fields |= inner.fields
            else:
                return Node(span, HIDDEN)
        is_known = not node.args
        return Node(span, fields=fields, is_inline_json=True) if is_known else Node(span, HIDDEN)

    def _sequence(
        self, parts: list[ast.expr], scope: Scope, at: Span | None, depth: int, span: Span
    ) -> Node:
        items = tuple(self._node(each, scope, at, depth + 1) for each in parts)
        if any(each.value is HIDDEN for each in items) or len(parts) > LONGEST:
            return Node(span, HIDDEN)
        return Node(span, items=items, is_inline_json=at is not None)

    def _leaf(self, node: ast.expr, scope: Scope, depth: int) -> Any:
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            return HIDDEN
        read = _LEAVES.get(type(node))
        value = HIDDEN if read is None else read(self, node, scope, depth + 1)
        return value if is_plain(value) else HIDDEN

    def literal(self, node: ast.Constant, _: Scope, __: int) -> Any:
        """A literal is itself."""
        return node.value

    def named(self, node: ast.Name | ast.Attribute, scope: Scope, depth: int) -> Any:
        """The value of a name: a constant of this file, a dtype, a word."""
        followed = self._followed(node, scope)
        if followed is not None:
            return self._leaf(*followed, depth)
        origin = self.origin_of(node, scope) or ""
        *_, holder, word = ("", "", *origin.split("."))
        spelled = _ENUMS.get(holder)
        return spelled(word) if spelled is not None else _DTYPES.get(origin, HIDDEN)

    def signed(self, node: ast.UnaryOp, scope: Scope, depth: int) -> Any:
        """`-1`, and `not True`."""
        value = self._leaf(node.operand, scope, depth)
        if isinstance(node.op, ast.Not):
            return not value if isinstance(value, bool) else HIDDEN
        if isinstance(node.op, ast.USub) and is_number(value):
            return -value
        return value if isinstance(node.op, ast.UAdd) and is_number(value) else HIDDEN

    def computed(self, node: ast.BinOp, scope: Scope, depth: int) -> Any:
        """Arithmetic on numbers, and concatenated texts."""
        left, right = (self._leaf(each, scope, depth) for each in (node.left, node.right))
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return left + right
        if not (is_number(left) and is_number(right)):
            return HIDDEN
        if isinstance(node.op, ast.Pow):
            return power(left, right)
        operation = _OPERATIONS.get(type(node.op))
        try:
            return HIDDEN if operation is None else operation(left, right)
        except ArithmeticError:
            return HIDDEN

    def formatted(self, node: ast.JoinedStr, scope: Scope, depth: int) -> Any:
        """An f-string with known parts."""
        parts = []
        for each in node.values:
            inner = each.value if isinstance(each, ast.FormattedValue) else each
            value = self._leaf(inner, scope, depth)
            is_whole = not isinstance(each, ast.FormattedValue) or is_bare(each)
            if not is_whole or not isinstance(value, str | int | float):
                return HIDDEN
            parts.append(str(value))
        return "".join(parts)

    def chosen(self, node: ast.IfExp, scope: Scope, depth: int) -> Any:
        """`a if True else b`."""
        test = self._leaf(node.test, scope, depth)
        if not isinstance(test, bool):
            return HIDDEN
        return self._leaf(node.body if test else node.orelse, scope, depth)

    def compared(self, node: ast.Compare, scope: Scope, depth: int) -> Any:
        """`precision == "bf16"`."""
        values = [self._leaf(each, scope, depth) for each in (node.left, *node.comparators)]
        operation = _COMPARISONS.get(type(node.ops[0]))
        if len(values) != 2 or HIDDEN in values or operation is None:
            return HIDDEN
        return operation(*values)

    def joined(self, node: ast.BoolOp, scope: Scope, depth: int) -> Any:
        """`a and not b`, `a or 8`: the first that decides, or the last."""
        values = [self._leaf(each, scope, depth) for each in node.values]
        if HIDDEN in values:
            return HIDDEN
        is_or = isinstance(node.op, ast.Or)
        return next((each for each in values[:-1] if bool(each) is is_or), values[-1])

    def picked(self, node: ast.Subscript, scope: Scope, depth: int) -> Any:
        """`config["lr"]` of a known mapping."""
        found = self._item(node, scope, self.span(node), depth)
        return found.value if found.is_leaf else HIDDEN

    def _item(self, node: ast.Subscript, scope: Scope, at: Span, depth: int) -> Node:
        around = self._node(node.value, scope, at, depth + 1)
        key = self._leaf(node.slice, scope, depth)
        found = around.child(key) if isinstance(key, str | int) else None
        return Node(at, HIDDEN) if found is None else replace(found, key_span=None)

    def called(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        """`os.path.join("a", "b")`, `float(x)`, `config.get("lr", 1e-4)` of a known mapping."""
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            return self._got(node.func.value, node.args, scope, depth)
        origin = self.origin_of(node.func, scope)
        if node.keywords or origin not in ("os.path.join", *_NUMBERS):
            return HIDDEN
        parts = [self._leaf(each, scope, depth) for each in node.args]
        if origin in _NUMBERS:
            return _NUMBERS[origin](parts[0]) if len(parts) == 1 and is_number(parts[0]) else HIDDEN
        return join(*parts) if parts and all(isinstance(p, str) for p in parts) else HIDDEN


def _holder(name: str, scope: Scope) -> Scope | None:
    """The scope of a name, seen from one place."""
    found = scope.found(name)
    return None if found is None else found[1].like or found[1]


def _hidden(fields: Mapping[str, Node]) -> dict[str, Node]:
    return {k: replace(v, value=HIDDEN, fields=None, items=None) for k, v in fields.items()}


_LEAVES: Final[Mapping[type[ast.expr], Callable[..., Any]]] = {
    ast.Constant: Values.literal,
    ast.Name: Values.named,
    ast.Attribute: Values.named,
    ast.UnaryOp: Values.signed,
    ast.BinOp: Values.computed,
    ast.JoinedStr: Values.formatted,
    ast.IfExp: Values.chosen,
    ast.Subscript: Values.picked,
    ast.Compare: Values.compared,
    ast.BoolOp: Values.joined,
    ast.Call: Values.called,
}
