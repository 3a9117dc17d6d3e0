"""Expressions of a Python file to nodes, as far as the file itself tells what they come to.

Literals, names that are given one literal once, arithmetic on both, f-strings of both, attributes
that stand for a word (`torch.bfloat16`). Whatever else is an `Unknown`: nothing is guessed.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from posixpath import join
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import MAX_NODES, Node, is_too_large
from tunec.compiler.frontend.python_scopes import Binding, Module, Scope
from tunec.compiler.frontend.shell_flags import Unknown
from tunec.compiler.frontend.text import Origin
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_DEEPEST: Final = 40
"""How far names, and expressions within them, are followed."""
_LONGEST: Final = 10_000
"""Characters of a text that is put together."""
_MOST_BITS: Final = 128
_HIDDEN: Final = Unknown("", "only running the file tells")
_KNOWN_MODULES: Final = ("transformers", "trl", "peft", "torch", "unsloth", "accelerate")

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
"""Enumerations whose members are their own values in other letters: transformers 4.40.2 to 5.23.0
trainer_utils.py; peft 0.10.0 to 0.21.2 utils/peft_types.py `TaskType`."""
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_Numbers = int | float


class Values(Struct):
    """What the expressions of one file come to."""

    module: Module
    origin: Origin
    lines: tuple[str, ...]
    left: int = MAX_NODES
    """How many more expressions are looked at: names that stand for each other may be many."""

    def span(self, node: ast.expr | ast.keyword) -> Span:
        """Where an expression, or a keyword with its value, is written."""
        start = self._place(node.lineno, node.col_offset)
        end = self._place(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return self.origin.span(start, end)

    def _place(self, line: int, column: int) -> tuple[int, int]:
        """Line and column from 0: the tree counts the bytes of UTF-8."""
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

    # ── names ────────────────────────────────────────────────────────────────────────────────────

    def origin_of(self, node: ast.expr, scope: Scope) -> str | None:
        """What an expression names, by its imports: `transformers.TrainingArguments`."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        first = self._imported(node.id, scope)
        return None if first is None else ".".join((first, *reversed(parts)))

    def _imported(self, name: str, scope: Scope) -> str | None:
        found = scope.found(name)
        if found is None:
            stars = [each for each in scope.module.stars if each in _KNOWN_MODULES]
            if scope.module.stars:
                return f"{stars[0]}.{name}" if stars else None
            return f"builtins.{name}"
        origins = {each.origin for each in found[0]}
        return next(iter(origins)) if len(origins) == 1 else None

    def _constant(self, name: str, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """What the one assignment to a name gives it, and where that is read."""
        found = scope.found(name)
        if found is None or self.module.is_rewritten:
            return None
        bindings, holder = found
        if len(bindings) != 1 or bindings[0].value is None:
            return None
        value = bindings[0].value
        is_fixed = isinstance(value, ast.Constant | ast.Tuple)
        return None if name in self.module.changed and not is_fixed else (value, holder)

    def _member(self, node: ast.Attribute, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """`Config.lr`, or `config.lr` of `config = Config()`, which nothing sets."""
        if not isinstance(node.value, ast.Name) or node.attr in self.module.attributes:
            return None
        body = self._class(node.value.id, scope)
        bindings: list[Binding] = body.names.get(node.attr, []) if body is not None else []
        if body is None or len(bindings) != 1 or bindings[0].value is None:
            return None
        return bindings[0].value, body

    def _class(self, name: str, scope: Scope) -> Scope | None:
        found = scope.found(name)
        bindings = found[0] if found is not None else ()
        if len(bindings) != 1:
            return None
        value = bindings[0].value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            inner = None if value.args or value.keywords else scope.found(value.func.id)
            bindings = inner[0] if inner is not None else ()
        if len(bindings) != 1 or bindings[0].body is None:
            return None
        return None if "__init__" in bindings[0].body.names else bindings[0].body

    # ── values ───────────────────────────────────────────────────────────────────────────────────

    def node(self, node: ast.expr, scope: Scope) -> Node:
        """What an expression comes to; what only running tells is an `Unknown`, also below it."""
        return self._node(node, scope, None, 0)

    def _node(self, node: ast.expr, scope: Scope, at: Span | None, depth: int) -> Node:
        """`at`: the place of the name by which this is reached, where no edit can be made."""
        self.left -= 1
        span = at or self.span(node)
        if depth > _DEEPEST or self.left < 0:
            return Node(span, _HIDDEN)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return self._mapping(pairs, scope, at, depth, span)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._sequence(node.elts, scope, at, depth, span)
        if isinstance(node, ast.Call) and self.origin_of(node.func, scope) == "builtins.dict":
            return self._dict_call(node, scope, at, depth, span)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, span, depth)
        followed = self._followed(node, scope)
        if followed is not None:
            return self._node(*followed, span, depth + 1)
        value = self._leaf(node, scope, depth)
        return Node(span, value, is_inline_json=at is not None or not _is_literal(node))

    def _followed(self, node: ast.expr, scope: Scope) -> tuple[ast.expr, Scope] | None:
        if isinstance(node, ast.Name):
            return self._constant(node.id, scope)
        return self._member(node, scope) if isinstance(node, ast.Attribute) else None

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
                    return Node(span, _HIDDEN)
                fields |= inner.fields
                continue
            name = self._leaf(key, scope, depth + 1)
            if not isinstance(name, str):
                return Node(span, _HIDDEN)
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
                return Node(span, _HIDDEN)
        is_known = not node.args
        return Node(span, fields=fields, is_inline_json=True) if is_known else Node(span, _HIDDEN)

    def _sequence(
        self, parts: list[ast.expr], scope: Scope, at: Span | None, depth: int, span: Span
    ) -> Node:
        items = tuple(self._node(each, scope, at, depth + 1) for each in parts)
        if any(each.value is _HIDDEN for each in items) or len(parts) > _LONGEST:
            return Node(span, _HIDDEN)
        return Node(span, items=items, is_inline_json=at is not None)

    def _leaf(self, node: ast.expr, scope: Scope, depth: int) -> Any:
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            return _HIDDEN
        read = _LEAVES.get(type(node))
        value = _HIDDEN if read is None else read(self, node, scope, depth + 1)
        return value if _is_plain(value) else _HIDDEN

    def literal(self, node: ast.Constant, _: Scope, __: int) -> Any:
        """A literal is itself."""
        return node.value

    def named(self, node: ast.Name | ast.Attribute, scope: Scope, depth: int) -> Any:
        """What a name stands for: a constant of this file, a dtype, a word."""
        followed = self._followed(node, scope)
        if followed is not None:
            return self._leaf(*followed, depth)
        origin = self.origin_of(node, scope) or ""
        *_, holder, word = ("", "", *origin.split("."))
        spelled = _ENUMS.get(holder)
        return spelled(word) if spelled is not None else _DTYPES.get(origin, _HIDDEN)

    def signed(self, node: ast.UnaryOp, scope: Scope, depth: int) -> Any:
        """`-1`, and `not True`."""
        value = self._leaf(node.operand, scope, depth)
        if isinstance(node.op, ast.Not):
            return not value if isinstance(value, bool) else _HIDDEN
        if isinstance(node.op, ast.USub) and _is_number(value):
            return -value
        return value if isinstance(node.op, ast.UAdd) and _is_number(value) else _HIDDEN

    def computed(self, node: ast.BinOp, scope: Scope, depth: int) -> Any:
        """Arithmetic on numbers, and texts put together."""
        left, right = (self._leaf(each, scope, depth) for each in (node.left, node.right))
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return left + right
        if not (_is_number(left) and _is_number(right)):
            return _HIDDEN
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        operation = _OPERATIONS.get(type(node.op))
        try:
            return _HIDDEN if operation is None else operation(left, right)
        except ArithmeticError:
            return _HIDDEN

    def formatted(self, node: ast.JoinedStr, scope: Scope, depth: int) -> Any:
        """An f-string of parts that are known."""
        parts = []
        for each in node.values:
            inner = each.value if isinstance(each, ast.FormattedValue) else each
            value = self._leaf(inner, scope, depth)
            is_bare = not isinstance(each, ast.FormattedValue) or _is_bare(each)
            if not is_bare or not isinstance(value, str | int | float):
                return _HIDDEN
            parts.append(str(value))
        return "".join(parts)

    def chosen(self, node: ast.IfExp, scope: Scope, depth: int) -> Any:
        """`a if True else b`."""
        test = self._leaf(node.test, scope, depth)
        if not isinstance(test, bool):
            return _HIDDEN
        return self._leaf(node.body if test else node.orelse, scope, depth)

    def picked(self, node: ast.Subscript, scope: Scope, depth: int) -> Any:
        """`config["lr"]` of a mapping that is known."""
        found = self._item(node, scope, self.span(node), depth)
        return found.value if found.is_leaf else _HIDDEN

    def _item(self, node: ast.Subscript, scope: Scope, at: Span, depth: int) -> Node:
        around = self._node(node.value, scope, at, depth + 1)
        key = self._leaf(node.slice, scope, depth)
        found = around.child(key) if isinstance(key, str | int) else None
        return Node(at, _HIDDEN) if found is None else replace(found, key_span=None)

    def called(self, node: ast.Call, scope: Scope, depth: int) -> Any:
        """`os.path.join("a", "b")`."""
        if self.origin_of(node.func, scope) != "os.path.join" or node.keywords:
            return _HIDDEN
        parts = [self._leaf(each, scope, depth) for each in node.args]
        return join(*parts) if parts and all(isinstance(p, str) for p in parts) else _HIDDEN


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    """Whether a value is one that a configuration may hold, and of a sensible size."""
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, float):
        return isfinite(value)
    return value is None or (isinstance(value, int) and not is_too_large(value))


def _power(base: _Numbers, exponent: _Numbers) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        is_small = exponent >= 0 and base.bit_length() * exponent <= _MOST_BITS
        return base**exponent if is_small else _fraction(base, exponent)
    return _fraction(base, exponent)


def _fraction(base: _Numbers, exponent: _Numbers) -> Any:
    try:
        return float(base) ** float(exponent)
    except (ArithmeticError, ValueError):
        return _HIDDEN


def _is_bare(node: ast.FormattedValue) -> bool:
    return node.conversion == -1 and node.format_spec is None


def _is_literal(node: ast.expr) -> bool:
    """Whether another literal may stand in its place."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


_LEAVES: Final[Mapping[type[ast.expr], Callable[..., Any]]] = {
    ast.Constant: Values.literal,
    ast.Name: Values.named,
    ast.Attribute: Values.named,
    ast.UnaryOp: Values.signed,
    ast.BinOp: Values.computed,
    ast.JoinedStr: Values.formatted,
    ast.IfExp: Values.chosen,
    ast.Subscript: Values.picked,
    ast.Call: Values.called,
}


def is_hidden(node: Node) -> bool:
    """Whether only running the file tells what a node is."""
    return isinstance(node.value, Unknown)
