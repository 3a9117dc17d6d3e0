"""A Python file to the calls that configure something, each with its arguments as nodes.

read_calls(text, origin, is_wanted, given) -> (calls, fault)

The file is parsed, and never imported or run. A name is resolved by its import, so that a class of
the same name from another module differs.
"""

import ast
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_functions import called_with, function_of, returned
from tunec.compiler.frontend.python_names import Function, Module, Site
from tunec.compiler.frontend.python_scopes import survey
from tunec.compiler.frontend.python_settings import ScriptArguments
from tunec.compiler.frontend.python_values import Values
from tunec.compiler.frontend.text import Origin
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, lines_of

_MAGIC: Final = re.compile(r"(?m)^([ \t]*)[!%](?:\\\n|[^\n])*")
"""A line for the shell or for IPython, in a notebook that was saved as a script."""
_COPIES: Final = ("dataclasses.replace", "copy.replace")
_MOST_CALLERS: Final = 16
_PRINT: Final = re.compile(r"call to '(?:print|exec)'")


class Call(Struct, frozen=True, eq=False):
    """One call of something that was imported."""

    origin: str
    """The called name by its imports: `transformers.AutoModelForCausalLM.from_pretrained`."""
    site: Site
    span: Span
    """The place of the call, up to its opening parenthesis."""
    fields: dict[str, Node]
    """Keywords with their values, those of literal mappings included."""
    positional: tuple[Node, ...]
    arguments: tuple[ast.expr, ...]
    """The expressions of the positional arguments."""
    is_open: bool
    """Whether there are arguments that are only known at run time: `**config`."""
    own: Mapping[str, Node] = field(default_factory=dict)
    """The fields that a subclass of this file declares, each with its default."""

    @property
    def package(self) -> str:
        """The top-level package of the called name."""
        return self.origin.partition(".")[0]

    @property
    def name(self) -> str:
        """The last part of the called name."""
        return self.origin.rpartition(".")[2]

    @property
    def holder(self) -> str:
        """The class of a method."""
        return self.origin.rpartition(".")[0].rpartition(".")[2]

    def gives(self, name: str) -> bool:
        """Whether an argument is given, by a keyword or within `**mapping`, and is not None."""
        for each in self.site.call.keywords:
            if each.arg == name:
                return not (isinstance(each.value, ast.Constant) and each.value.value is None)
        return name in self.fields and self.fields[name].value is not None


class Calls(Struct, frozen=True):
    """The calls of a file."""

    found: tuple[Call, ...]
    module: Module
    values: Values

    def set_later(self, call: Call, name: str) -> Node | None:
        """The value to which a call's object has an attribute set, if one line does so.

        None if the line may not be run, or may refer to another object.
        """
        lines = self.module.later.get(name, ())
        site = call.site
        if len(lines) != 1 or lines[0].name not in site.targets:
            return None
        line = lines[0]
        held = site.block.names.get(line.name, ())
        follows = line.target.lineno > (site.call.end_lineno or site.call.lineno)
        is_its = len(held) == 1 and line.scope is site.block and line.arms == site.arms
        return self.values.later(line) if is_its and follows else None

    def set_of(self, call: Call, held: str, name: str) -> Iterator[Node]:
        """The values of an attribute of an object's attribute: `model.config.x = 1`."""
        site = call.site
        for line in self.module.later.get(name, ()):
            holders = [f"{each}.{held}" for each in site.targets]
            follows = line.target.lineno > (site.call.end_lineno or site.call.lineno)
            if line.name in holders and follows and line.scope is site.block:
                yield self.values.later(line)

    def given(self, call: Call, name: str) -> str | None:
        """The variable that is passed as a keyword of a call, if it is one."""
        for each in call.site.call.keywords:
            if each.arg == name and isinstance(each.value, ast.Name):
                return each.value.id
        return None


def read_calls(
    text: str,
    origin: Origin,
    is_wanted: Callable[[str], bool],
    given: ScriptArguments | None = None,
) -> tuple[Calls | None, Diagnostic | None]:
    """The calls whose origin is wanted, in the order of the file, or the fault of its syntax.

    `given`: the arguments of the command line; None: the parsed arguments are unknown.
    """
    tree, fault = _parsed(text, origin)
    if tree is None:
        return None, fault
    module = survey(tree)
    values = Values(module, origin=origin, lines=lines_of(text), given=given)
    found = tuple(_calls(module, values, is_wanted))
    return Calls(tuple(_replaced(found, values)), module, values), None


def _calls(module: Module, values: Values, is_wanted: Callable[[str], bool]) -> Iterator[Call]:
    for site in module.sites:
        origin = values.origin_of(site.call.func, site.scope)
        if origin is not None and is_wanted(origin):
            called = list(_called(site, module))
            yield from (_call(origin, each, values) for each in called or (site,))


def _called(site: Site, module: Module) -> Iterator[Site]:
    """The calls of a function that returns a call's result, each with its own arguments."""
    function = module.functions.get(id(site.scope))
    if function is None or not _hands_on(function, site.call):
        return
    callers = [each for each in module.sites if function_of(each.call, each.scope) is function]
    for each in callers[:_MOST_CALLERS]:
        inner = called_with(function, each.call, each.scope)
        if inner is not None:
            yield Site(site.call, inner, (*each.arms, *site.arms), each.targets, each.scope)


def _hands_on(function: Function, call: ast.Call) -> bool:
    """Whether a function returns a call's result, directly or by its only name."""
    value = returned(function)
    if isinstance(value, ast.Name):
        bindings = function.scope.names.get(value.id, [])
        value = bindings[0].value if len(bindings) == 1 else None
    return value is call


def _replaced(found: Sequence[Call], values: Values) -> Iterator[Call]:
    """Each call, or its changed copy by `dataclasses.replace`."""
    by_name = {(id(each.site.block), name): each for each in found for name in each.site.targets}
    copies = [each for each in values.module.sites if _is_copy(each, values)]
    used: set[int] = set()
    made: list[Call] = []
    for site in copies:
        first = site.call.args[0]
        held = site.scope.found(first.id) if isinstance(first, ast.Name) else None
        if held is None or len(held[0]) != 1 or not isinstance(first, ast.Name):
            continue
        before = by_name.get((id(held[1]), first.id))
        if before is not None:
            used.add(id(before))
            made.append(_copy(before, site, values))
    yield from (each for each in found if id(each) not in used)
    yield from made


def _is_copy(site: Site, values: Values) -> bool:
    return bool(site.call.args) and values.origin_of(site.call.func, site.scope) in _COPIES


def _copy(before: Call, site: Site, values: Values) -> Call:
    after = _call(before.origin, replace(site, call=_without_first(site.call)), values)
    return replace(
        before,
        site=site,
        fields={**before.fields, **after.fields},
        is_open=before.is_open or after.is_open,
    )


def _without_first(call: ast.Call) -> ast.Call:
    return ast.copy_location(ast.Call(call.func, call.args[1:], call.keywords), call)


def _call(origin: str, site: Site, values: Values) -> Call:
    node, fields, is_open = site.call, dict[str, Node](), False
    for each in node.keywords:
        if each.arg is not None:
            fields[each.arg] = values.keyword(each, site.scope)
            continue
        held = values.node(each.value, site.scope)
        fields |= held.fields or {}
        is_open |= held.fields is None
    args = [each for each in node.args if not isinstance(each, ast.Starred)]
    is_open |= len(args) < len(node.args)
    positional = () if is_open else tuple(values.node(each, site.scope) for each in args)
    own = values.declared(node.func, site.scope)
    at = values.span(node.func)
    return Call(origin, site, at, fields, positional, tuple(args), is_open, own)


# ── syntax ───────────────────────────────────────────────────────────────────────────────────────


def syntax_fault(text: str, origin: Origin) -> Diagnostic | None:
    """The syntax error of a text, if it is no Python."""
    return _parsed(text, origin)[1]


def _parsed(text: str, origin: Origin) -> tuple[ast.Module | None, Diagnostic | None]:
    try:
        return _tree(text), None
    except (RecursionError, MemoryError):
        return None, _too_deep(origin)
    except (SyntaxError, ValueError) as fault:
        plain = _MAGIC.sub(_passed_over, text)
        try:
            if isinstance(fault, IndentationError) and text[:1] in " \t\n":
                return _block(plain), None
            if plain != text:
                return _tree(plain), None
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        return None, _fault(fault, text, origin)


def is_python_text(text: str) -> bool:
    """Whether a text can be parsed as Python."""
    return _parsed(text, Origin(""))[0] is not None


def _block(text: str) -> ast.Module:
    """The statements of an indented excerpt, at their places."""
    around = _tree(f"if True:\n{text}").body
    if len(around) != 1 or not isinstance(around[0], ast.If):
        raise SyntaxError
    return ast.increment_lineno(ast.Module(around[0].body, []), -1)


def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes and of comparisons, which are for others
        tree = compile(text, "", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return tree if isinstance(tree, ast.Module) else ast.Module([], [])


def _passed_over(found: re.Match[str]) -> str:
    """A statement without effect, of as many lines."""
    return f"{found[1]}pass" + "\n" * found[0].count("\n")


def _fault(fault: SyntaxError | ValueError, text: str, origin: Origin) -> Diagnostic:
    lines = lines_of(text)
    said = fault.msg if isinstance(fault, SyntaxError) else "it holds a NUL character"
    line = min(max(getattr(fault, "lineno", None) or 1, 1), len(lines))
    column = min(max(getattr(fault, "offset", None) or 1, 1), len(lines[line - 1]) + 1)
    span = origin.span((line - 1, column - 1), (line - 1, column - 1))
    notes = ("it is written for Python 2",) if _PRINT.search(said) else ()
    is_later = said.startswith("f-string") and sys.version_info < _LATER_STRINGS
    notes = (
        ("Python 3.12 reads more in an f-string, and tunec runs on an older one",)
        if is_later
        else notes
    )
    found = error(
        "E0104", f"the Python cannot be read: {said[:1].lower()}{said[1:]}", span, notes=notes
    )
    return replace(found, severity="note") if is_later else found


_LATER_STRINGS: Final = (3, 12)
"""From this Python on, what stands in an f-string is parsed as any expression (PEP 701)."""


def _too_deep(origin: Origin) -> Diagnostic:
    span = origin.span((0, 0), (0, 0))
    return error("E0110", "the Python is nested too deeply to be read", span)
