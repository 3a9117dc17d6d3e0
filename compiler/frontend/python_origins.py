"""What the names of a Python file refer to: imports, subclasses, single assignments."""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_names import Binding, Module, Scope
from tunec.compiler.frontend.text import Origin

_KNOWN_MODULES: Final = ("transformers", "trl", "peft", "torch", "unsloth", "accelerate")
_OF_ARGUMENTS: Final = ("Arguments", "Config")
_HOMES: Final = (
    (re.compile(r"(?:SFT|DPO|GRPO|KTO|Reward|RLOO|GKD|PPO|CPO|ORPO)(?:Config|Trainer)"), "trl"),
    (re.compile(r"(?:Seq2Seq)?Train(?:er|ingArguments)|BitsAndBytesConfig"), "transformers"),
    (re.compile(r"AutoModel(?:For\w+)?"), "transformers"),
    (re.compile(r"LoraConfig|PeftModel|get_peft_model"), "peft"),
    (re.compile(r"Fast(?:Language|Vision)?Model|is_bfloat16_supported"), "unsloth"),
)
"""The packages of classes whose names say enough. An excerpt, such as people show each other, is
without its imports."""
_DEEPEST: Final = 8
"""The most subclasses that are followed."""


class Origins(Struct):
    """Resolves names by the walk of their module."""

    module: Module

    def origin_of(self, node: ast.expr, scope: Scope, depth: int = 0) -> str | None:
        """The qualified name of an expression, by its imports: `transformers.TrainingArguments`."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        first = self._imported(node.id, scope, depth)
        return None if first is None else ".".join((first, *reversed(parts)))

    def _imported(self, name: str, scope: Scope, depth: int) -> str | None:
        found = scope.found(name)
        if found is None:
            stars = [each for each in scope.module.stars if each in _KNOWN_MODULES]
            if scope.module.stars:
                return f"{stars[0]}.{name}" if stars else None
            return _in_its_package(name, scope.module)
        origins = {each.origin for each in found[0]}
        if origins == {None} and len(found[0]) == 1:
            return self._inherited(found[0][0], found[1], depth)
        return next(iter(origins)) if len(origins) == 1 else None

    def _inherited(self, binding: Binding, scope: Scope, depth: int) -> str | None:
        """The class of arguments that a class of this file extends with the same constructor."""
        if binding.body is None or len(binding.bases) != 1 or depth > _DEEPEST:
            return None
        origin = self.origin_of(binding.bases[0], scope, depth + 1) or ""
        is_made_so = origin.endswith(_OF_ARGUMENTS) and "__init__" not in binding.body.names
        return origin if is_made_so else None

    def constant(self, name: str, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """The value of a name with a single assignment, and its scope."""
        found = scope.found(name)
        if found is None or self.module.is_rewritten:
            return None
        bindings, holder = found
        if len(bindings) != 1 or bindings[0].value is None:
            return None
        value = bindings[0].value
        is_fixed = isinstance(value, ast.Constant | ast.Tuple)
        is_kept = is_fixed or name not in self.module.changed
        return (value, bindings[0].scope or holder) if is_kept else None

    def member(self, node: ast.Attribute, scope: Scope) -> tuple[ast.expr, Scope] | None:
        """The value of `Config.lr`, or of `config.lr` for `config = Config()`, if unset."""
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


def _in_its_package(name: str, module: Scope) -> str:
    """The qualified name of what nothing in its file defines or imports."""
    if any(each.origin for bindings in module.names.values() for each in bindings):
        return f"builtins.{name}"
    if name in _KNOWN_MODULES:
        return name
    home = next((home for names, home in _HOMES if names.fullmatch(name)), "builtins")
    return f"{home}.{name}"


def imported(text: str, origin: Origin) -> Iterator[tuple[str, Node]]:
    """The names that a file imports from modules, `trl.SFTTrainer`, unconditionally."""
    tree = tree_of(text)
    yield from () if tree is None else _imported(tree.body, origin)


def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a Python file, which is not run; None if it has none."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(body: Sequence[ast.stmt], origin: Origin) -> Iterator[tuple[str, Node]]:
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _imported(each.body, origin)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            for name in each.names:
                at, end = name.lineno - 1, name.col_offset + len(name.name)
                span = origin.span((at, name.col_offset), (at, end))
                yield f"{each.module}.{name.name}", Node(span, value=name.name, key_span=span)
