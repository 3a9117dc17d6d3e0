"""The arguments of a script's command line: argparse, click, fire, and parsed classes.

A flag of the command line overrides the default that the script declares. The script is never run;
if several commands start it, a flag is known if all have the same value.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.python_functions import called_with, defaults, function_of, returned
from tunec.compiler.frontend.python_names import Function, Scope, Site
from tunec.compiler.frontend.python_origins import Origins
from tunec.compiler.frontend.shell_flags import typed
from tunec.compiler.frontend.shell_launch import NUMBER

Words = tuple[str, ...]
_Found = tuple[ast.expr, Scope]

_CONFIGS: Final = frozenset({"config", "config_file", "config_path", "cfg", "args_file", "c"})
_FILES: Final = (".yaml", ".yml", ".json", ".toml")
_ARGPARSE: Final = "argparse.ArgumentParser"
_OF_CLASSES: Final = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
"""transformers 5.23.0 hf_argparser.py; trl 1.16.0 scripts/utils.py; alignment-handbook
configs.py."""
_PARSED: Final = frozenset({"parse_args", "parse_known_args"})
_INTO_CLASSES: Final = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
_BY_FUNCTION: Final = frozenset({"fire.Fire", "typer.run", "tyro.cli"})
_REFILLS: Final = frozenset({"set_defaults", "add_subparsers"})
_DEEPEST: Final = 12
_NONE: Final = ast.Constant(None)


class ScriptArguments(Struct, frozen=True):
    """The words after a script on the command lines that start it."""

    flags: tuple[tuple[str, Words | None], ...] = ()
    """By name, with `_` for `-`; None: the commands differ, or the value is only known at run
    time."""
    is_open: bool = False
    """Whether there are words that may be any flag, or name a file of values."""
    is_started: bool = False
    """Whether any command line is known."""


BY_ITSELF: Final = ScriptArguments()


def given_by(lines: Sequence[Sequence[str | None]]) -> ScriptArguments:
    """The flags that several command lines share; None: a word that is only known at run time."""
    read = [_line(each) for each in lines]
    names = dict.fromkeys(name for each in read for name in each)
    every = {name: {each.get(name, ("", "absent")) for each in read} for name in names if name}
    flags = tuple((name, found.pop() if len(found) == 1 else None) for name, found in every.items())
    return ScriptArguments(flags, "" in names, is_started=bool(lines))


def _line(words: Sequence[str | None]) -> dict[str, Words | None]:
    """Flags with their words; the name "" if there may be others."""
    found: dict[str, list[str | None]] = {}
    name = ""
    for word in words:
        if word is not None and len(word) > 1 and word[0] == "-" and not NUMBER.fullmatch(word):
            flag, has_value, value = word.partition("=")
            name = flag.lstrip("-").replace("-", "_")
            found[name] = [value] if has_value else []
        elif name or word is None or word.endswith(_FILES):
            found.setdefault(name, []).append(word)
    told = {
        each: None if None in values else tuple(map(str, values)) for each, values in found.items()
    }
    is_filed = any((told.get(each) or ("",))[0].endswith(_FILES) for each in _CONFIGS)
    return {**told, "": None} if is_filed else told


class Settings(Origins, kw_only=True, dict=True):
    """The values of a file's names by its command line, and by the only call of a function."""

    given: ScriptArguments | None = None
    """None: the command line is not known."""

    def constant(self, name: str, scope: Scope) -> _Found | None:
        """The value of a name's only assignment, or of a parameter in its only call."""
        found = super().constant(name, scope)
        return self._parameter(name, scope) if found is None else found

    def member(self, node: ast.Attribute, scope: Scope) -> _Found | None:
        """`Config.lr`, `config.lr` of `config = Config()`, or `args.lr` of what a parser gives."""
        found = super().member(node, scope)
        if found is not None or self.given is None or node.attr in self.module.attributes:
            return found
        made = self._made(node.value, scope, 0)
        if made is None or self._is_refilled:
            return None
        if isinstance(made[0], ast.Attribute):
            return self._argument(node.attr)
        return self._field(node.attr, made[0], made[1])

    # ── parameters ───────────────────────────────────────────────────────────────────────────────

    def _parameter(self, name: str, scope: Scope) -> _Found | None:
        found = scope.found(name)
        if found is None or len(found[0]) != 1 or self.module.is_rewritten:
            return None
        holder = found[1]
        if (command := self.module.decorated.get(id(holder))) is not None:
            return self._option(name, command)
        function = self.module.functions.get(id(holder))
        if function is None or name not in _parameters(function):
            return None
        if any(self._starts(each, function) for each in self.module.sites):
            default = dict(defaults(function.node.args)).get(name)
            return _listed(self._value((name,), default, holder.outer or holder, None))
        inner = self._called_once(function)
        bindings = inner.names.get(name, []) if inner is not None else []
        value = bindings[0].value if len(bindings) == 1 else None
        return None if value is None else (value, bindings[0].scope or holder)

    def _called_once(self, function: Function) -> Scope | None:
        calls = [e for e in self.module.sites if function_of(e.call, e.scope) is function]
        if len(calls) != 1 or calls[0].scope is function.scope:
            return None
        return called_with(function, calls[0].call, calls[0].scope)

    def _starts(self, site: Site, function: Function) -> bool:
        """Whether a call passes the flags of the command line to a function: `fire.Fire(main)`."""
        first = site.call.args[0] if site.call.args else None
        found = site.scope.found(first.id) if isinstance(first, ast.Name) else None
        is_it = found is not None and [each.function for each in found[0]] == [function]
        return is_it and self.origin_of(site.call.func, site.scope) in _BY_FUNCTION

    def _option(self, name: str, command: Function) -> _Found | None:
        """The value of `@click.option("--lr", default=1e-4)` above `def main(lr)`."""
        outer = command.scope.outer or command.scope
        for each in command.node.decorator_list:
            if not isinstance(each, ast.Call):
                continue
            origin = self.origin_of(each.func, outer) or ""
            if origin == "click.option" and name in _names(each):
                words = {word.arg: word.value for word in each.keywords}
                default = _FALSE if _is_true(words.get("is_flag")) else None
                if _has_two(each) and not self._lacks(_names(each)):
                    return None
                return self._value(_names(each), words.get("default", default), outer, words)
        return None

    def _lacks(self, names: Words) -> bool:
        """Whether no command line has a flag of these names."""
        return self.given is not None and dict(self.given.flags).keys().isdisjoint(names)

    # ── parsers ──────────────────────────────────────────────────────────────────────────────────

    def _made(self, node: ast.expr, scope: Scope, depth: int) -> _Found | None:
        """The parser of an object's flags: a method, or the class that it fills."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            is_reset = node.id in self.module.reset
            followed = None if is_reset else self._held(node.id, scope)
            return None if followed is None else self._made(*followed, depth + 1)
        if isinstance(node, ast.Subscript):
            at = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self._parses(node.value, scope, at) if isinstance(at, int) else None
        if not isinstance(node, ast.Call):
            return None
        found = self._parses(node, scope, None)
        if found is not None:
            return found
        function = function_of(node, scope)
        value = None if function is None else returned(function)
        inner = None if function is None else called_with(function, node, scope)
        return None if value is None or inner is None else self._made(value, inner, depth + 1)

    def _held(self, name: str, scope: Scope) -> _Found | None:
        """The only value of a name, also if it is a parameter of a function of this file."""
        found = scope.found(name)
        value = found[0][0].value if found is not None and len(found[0]) == 1 else None
        if found is None or value is None:
            return self._parameter(name, scope)
        return value, found[0][0].scope or found[1]

    def _parses(self, call: ast.expr, scope: Scope, at: Any) -> _Found | None:
        if not isinstance(call, ast.Call):
            return None
        if self.origin_of(call.func, scope) == "tyro.cli":
            return (call.args[0], scope) if at is None and len(call.args) == 1 else None
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in _PARSED and not call.args and not call.keywords:
            is_it = len(self._parsers) == 1 and (at == 0) is (name != "parse_args")
            return (call.func, scope) if is_it else None
        classes = self._classes if name in _INTO_CLASSES else ()
        return classes[at] if isinstance(at, int) and -1 <= at < len(classes) else None

    @cached_property
    def _parsers(self) -> Sequence[Site]:
        every = self.module.sites
        return [e for e in every if self.origin_of(e.call.func, e.scope) == _ARGPARSE]

    @cached_property
    def _classes(self) -> Sequence[_Found]:
        """The classes that the only parser of classes fills, in order."""
        sites = [e for e in self.module.sites if self._is_of_classes(e) and e.call.args]
        if len(sites) != 1:
            return ()
        first = sites[0].call.args[0]
        several = first.elts if isinstance(first, ast.Tuple | ast.List) else [first]
        return [(each, sites[0].scope) for each in several]

    def _is_of_classes(self, site: Site) -> bool:
        origin = self.origin_of(site.call.func, site.scope) or ""
        return origin.rpartition(".")[2] in _OF_CLASSES

    @cached_property
    def _is_refilled(self) -> bool:
        """Whether the file changes parsed values in ways that are only known at run time."""
        return any(_refills(each.call.func) for each in self.module.sites)

    def _argument(self, name: str) -> _Found | None:
        """The value of a name by `add_argument`."""
        sites = [e for e in self.module.sites if _is_method(e.call, "add_argument")]
        mine = [each for each in sites if name in _names(each.call)[:1] and _names(each.call)]
        if len(mine) != 1:
            return None
        words = {each.arg: each.value for each in mine[0].call.keywords}
        action = words.get("action")
        word = action.value if isinstance(action, ast.Constant) else action or "store"
        switch = _SWITCHES.get(word) if isinstance(word, str) else None
        default = words.get("default", switch)
        if switch is None or _is_true(words.get("required")):
            default = None
        return self._value(_names(mine[0].call), default, mine[0].scope, words)

    def _field(self, name: str, of: ast.expr, scope: Scope) -> _Found | None:
        """The value of a dataclass's field, as its parser fills it."""
        found = scope.found(of.id) if isinstance(of, ast.Name) else None
        body = found[0][0].body if found is not None and len(found[0]) == 1 else None
        bindings = body.names.get(name, ()) if body is not None else ()
        if body is None or len(bindings) != 1 or "__post_init__" in body.names:
            return None
        value = bindings[0].value
        if isinstance(value, ast.Call) and self.origin_of(value.func, body) == "dataclasses.field":
            value = next((each.value for each in value.keywords if each.arg == "default"), None)
        return self._value((name,), value, body, None)

    def _value(
        self,
        names: Words,
        default: ast.expr | None,
        scope: Scope,
        words: Mapping[str | None, ast.expr] | None,
    ) -> _Found | None:
        """The value on the command line, else the default; None if it is only known at run time."""
        if self.given is None:
            return None
        flags = dict(self.given.flags)
        said = [each for each in names if each in flags]
        if said:
            value = flags[said[-1]]
            return None if value is None else _read(value, words or {}, scope)
        if self.given.is_open or default is None:
            return None
        text = default.value if isinstance(default, ast.Constant) else default
        if text in (None, "") and not self.given.is_started:
            return None  # whoever starts it gives it
        return _converted(text, words or {}, scope) if isinstance(text, str) else (default, scope)


_FALSE: Final = ast.Constant(False)
_SWITCHES: Final = {"store_true": _FALSE, "store_false": ast.Constant(True), "store": _NONE}
_KINDS: Final = {"int": int, "float": float}
_OF_TRUTH: Final = (
    "bool",
    "str2bool",
    "strtobool",
    "_str_to_bool",
    "str_to_bool",
    "string_to_bool",
)


def _read(value: Words, words: Mapping[str | None, ast.expr], scope: Scope) -> _Found | None:
    """The words after a flag, converted to its declared type."""
    action = words.get("action")
    if not value:
        is_off = isinstance(action, ast.Constant) and action.value == "store_false"
        return ast.Constant(not is_off), scope
    several = [_converted(each, words, scope) for each in value]
    known = [each[0] for each in several if each is not None]
    if len(known) < len(several):
        return None
    is_list = "nargs" in words or len(known) > 1
    return (ast.List(known) if is_list else known[0]), scope


def _listed(found: _Found | None) -> _Found | None:
    """A list as python-fire reads one word, `[q_proj, v_proj]`: its bare words are texts.

    fire 0.4.0 to 0.7.0 parser.py `_LiteralEval`.
    """
    text = getattr(found[0], "value", None) if found is not None else None
    if found is None or not (isinstance(text, str) and text.startswith("[")):
        return found
    try:
        read = ast.parse(text, mode="eval").body
    except SyntaxError:
        return found
    parts = read.elts if isinstance(read, ast.List) else ()
    words = [ast.Constant(e.id) if isinstance(e, ast.Name) else e for e in parts]
    is_whole = words and all(isinstance(each, ast.Constant) for each in words)
    return (ast.List(words), found[1]) if is_whole else found


def _converted(text: str, words: Mapping[str | None, ast.expr], scope: Scope) -> _Found | None:
    """A text converted by argparse's `type`; click and parsed classes use its form."""
    kind = words.get("type")
    name = kind.id if isinstance(kind, ast.Name) else ""
    if name in _KINDS:
        try:
            return ast.Constant(_KINDS[name](text)), scope
        except (ValueError, OverflowError):
            return None
    if name == "bool" and words:
        return ast.Constant(bool(text)), scope
    if name in _OF_TRUTH or not words:
        return ast.Constant(typed(text)), scope
    return (ast.Constant(text), scope) if name in ("", "str") else None


def _names(call: ast.Call) -> Words:
    """The names of a flag, first the one by which the script reads it."""
    texts = [each.value for each in call.args if isinstance(each, ast.Constant)]
    flags = [each for each in texts if isinstance(each, str)]
    plain = sorted(flags, key=lambda each: not each.startswith("--"))
    own = next((e.value for e in call.keywords if e.arg == "dest"), None)
    first = [own.value] if isinstance(own, ast.Constant) else []
    several = [part for each in (*first, *plain) for part in str(each).split("/")]
    return tuple(each.lstrip("-").replace("-", "_") for each in several)


def _has_two(call: ast.Call) -> bool:
    """`"--half/--no-half"`: click's two switches of one option."""
    return any(isinstance(e, ast.Constant) and "/" in str(e.value) for e in call.args)


def _parameters(function: Function) -> Iterator[str]:
    taken = function.node.args
    return (each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs))


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_method(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == name


def _refills(func: ast.expr) -> bool:
    """`parser.set_defaults(...)`, `vars(args).update(...)`, `args.__dict__.update(...)`."""
    if not isinstance(func, ast.Attribute):
        return False
    holder = func.value
    is_whole = isinstance(holder, ast.Call) and getattr(holder.func, "id", "") == "vars"
    is_whole |= isinstance(holder, ast.Attribute) and holder.attr == "__dict__"
    return func.attr in _REFILLS or (func.attr == "update" and is_whole)
