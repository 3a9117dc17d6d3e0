"""Errors of a typed value: what was expected, what was found, and the fix."""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tunec.compiler.diagnostics.wording import (
    did_you_mean,
    joined,
    kind_of,
    nearest,
    quoted,
    shortened,
    shown,
)
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.fields import description, fields_at, unknown_field
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.traps import Trap, trap
from tunec.compiler.frontend.unplanned_words import unplanned
from tunec.compiler.frontend.words import VALUE_WORDS
from tunec.schemas.frozen import replace
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path, Span, dotted
from tunec.schemas.units import NotAQuantity, Quantity, likely_bytes, likely_length


class Fault(Struct, frozen=True):
    """pydantic's errors at one place, which are several for a union."""

    path: Path
    name: str
    """The field that is missing or unknown at `path`; empty for a fault of the value itself."""
    errors: tuple[Mapping[str, Any], ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """pydantic's type of each error."""
        return tuple(each["type"] for each in self.errors)


_WANTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "string_too_short": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "`true` or `false`",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}
"""The expected value for each of pydantic's type errors."""

_SHORTHAND: Final[Mapping[Path, str]] = {
    ("method",): "the name of a method",
    ("train", "optimizer"): "the name of an optimizer",
    ("train", "warmup"): "a number of steps, a share",
    ("precision",): "a dtype",
    ("devices",): "`best`, `all`",
    ("data",): "a path",
}
"""Alternatives to a mapping."""

_LIMITS: Final[Mapping[str, tuple[str, str]]] = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}

_START: Final = "write a mapping; `tunec init` prints a spec to start from"

_REQUIRED_EXAMPLES: Final[Mapping[Path, str]] = {
    ("tunec",): "tunec: 1",
    ("model",): "model: llama-3.1-8b",
    ("method",): "method: lora",
    ("data",): "data: {train: train.jsonl, sequence: 1024}",
    ("data", "train"): "train: train.jsonl",
    ("hardware",): "hardware: a100-80g-x8",
    ("fleet",): "fleet: 1",
    ("specs",): "specs: specs/*.yaml",
    ("clusters",): "clusters: [a100-80g-x8]",
    ("policy",): "policy: 1",
    ("objective", "rewards"): "rewards: [accuracy_reward]",
    ("objective", "grpo", "rewards"): "rewards: [accuracy_reward]",
}


def explain(fault: Fault, shape: type[Shape], data: Any, tree: Node) -> Diagnostic:
    """The diagnostic of one fault."""
    node, _ = descend(tree, fault.path)
    value = _value(data, fault.path)
    if fault.kinds[0] == "missing":
        return _missing(fault, shape, node)
    if fault.kinds[0] == "extra_forbidden":
        if isinstance(value, Mapping):
            return unknown_field(shape, fault.path, fault.name, tree)
        return _not_a_choice(fault, value, node, list(fields_at(shape, fault.path)))
    return _wrong_value(fault, shape, value, node)


def _value(data: Any, path: Path) -> Any:
    for part in path:
        data = data[part]
    return data


def _wrong_value(fault: Fault, shape: type[Shape], value: Any, node: Node) -> Diagnostic:
    raised = [each for each in fault.errors if each["type"] == "value_error"]
    if raised and isinstance(value, Mapping):
        return _at_odds(fault.path, str(raised[0]["ctx"]["error"]), node)
    short = tuple(each for each in fault.errors if each["type"] == "too_short")
    if short and isinstance(value, list):
        return _malformed(replace(fault, errors=short), shape, value, node)
    choices = _choices(fault)
    wanted = _wanted(fault)
    if value == "" and "string_too_short" in fault.kinds:
        return _wrong_type(fault, shape, value, node, wanted or ["text"])
    if choices and not wanted and isinstance(value, str | int | float):
        return _not_a_choice(fault, value, node, choices)
    if choices or wanted:
        return _wrong_type(fault, shape, value, node, wanted or ["text"])
    limit = next((each for each in fault.errors if each["type"] in _LIMITS), None)
    if limit is not None:
        return _out_of_range(fault, limit, value, node)
    return _malformed(fault, shape, value, node)


def _choices(fault: Fault) -> list[str]:
    """The words that literal types allow, which pydantic gives as `'a', 'b' or 'c'`."""
    said = [str(e["ctx"]["expected"]) for e in fault.errors if e["type"] == "literal_error"]
    found = [pair for each in said for pair in re.findall(r"'([^']*)'|\b(\d+)\b", each)]
    return [word or number for word, number in found]


def _wanted(fault: Fault) -> list[str]:
    """The expected values of the type's branches, each once."""
    first = [_SHORTHAND[fault.path]] if fault.path in _SHORTHAND else []
    found = [_WANTED[kind] for kind in fault.kinds if kind in _WANTED]
    return list(dict.fromkeys([*first, *found])) if found else []


# ── one function a code ──────────────────────────────────────────────────────────────────────────


def _missing(fault: Fault, shape: type[Shape], node: Node) -> Diagnostic:
    path = (*fault.path, fault.name)
    says = description(shape, path)
    example = _REQUIRED_EXAMPLES.get(path, f"{fault.name}: ...")
    if node.is_leaf and path[0] == "objective":
        example = f"objective: {{{node.value}: {{{example}}}}}"
    return error(
        "E0302",
        f"`{dotted(path)}` is missing",
        head(node),
        label=f"`{fault.name}` belongs here",
        path=path,
        notes=(f"`{fault.name}`: {says}",) if says else (),
        help=_by_name(path, node) or f"{'write' if node.is_leaf else 'add'} `{example}`",
    )


def _by_name(path: Path, node: Node) -> str | None:
    """What to write for a mapping in whose place a name that tunec knows is enough."""
    if path == ("hardware", "nodes"):
        return "write `hardware: rtx-4090-x2` for two of a device that tunec knows, or add `nodes`"
    named = (node.fields or {}).get("path")
    if path != ("model", "config") or named is None or not named.is_leaf:
        return None
    return f"write `model: {named.value}` if tunec knows the name, or add `config: ...`"


def head(node: Node) -> Span:
    """A short span for a whole mapping: its key, or the first key in it."""
    if node.key_span is not None:
        return node.key_span
    first = next(iter((node.fields or {}).values()), None)
    return first.key_span if first is not None and first.key_span is not None else place(node)


def _wrong_type(
    fault: Fault, shape: type[Shape], value: Any, node: Node, wanted: list[str]
) -> Diagnostic:
    name = dotted(fault.path) or "the document"
    found = trap(value, wanted, node)
    says = description(shape, fault.path)
    notes = [*found.notes, *([f"`{fault.path[-1]}`: {says}"] if says else [])]
    if value is None or value == "":
        message = f"`{name}` is empty" + ("" if value == "" else f"; it must be {joined(wanted)}")
        remedy: str | None = "give it a value, or remove the key"
    else:
        is_now = shown(value) if isinstance(value, dict | list) else _described(value)
        message = f"`{name}` must be {joined(wanted)}, and is {is_now}"
        remedy = found.help or f"write {_written(shape, fault.path, wanted[0], value)}"
    if not fault.path:
        remedy = _START if shape.__name__ == "Spec" else "write a mapping"
        message = f"a document of this kind must be {joined(wanted)}; this is {_described(value)}"
    span = place(node)
    fix = Fix((Edit(span, found.text),), "safe") if found.text and node.is_leaf else None
    return error(
        "E0303",
        message,
        span,
        label="empty" if value == "" else f"not {wanted[0]}",
        path=fault.path,
        notes=notes,
        help=remedy,
        fix=fix,
    )


_FEW: Final = 6
"""The most fields that a line of help names."""


def _written(shape: type[Shape], path: Path, wanted: str, value: Any) -> str:
    """What to write; of a mapping also the fields that it may have, or the one that it has."""
    fields = [*fields_at(shape, path)] if wanted == "a mapping" else []
    if len(fields) == 1 and isinstance(value, str | int | float):
        return f"`{path[-1]}: {{{fields[0]}: {shortened(str(value))}}}`"
    return f"{wanted} of {quoted(fields, 'and')}" if 0 < len(fields) <= _FEW else wanted


def _described(value: Any) -> str:
    if value is None or isinstance(value, dict | list):
        return shown(value)
    return f"{kind_of(value)}, {shown(value)}" if not isinstance(value, bool) else shown(value)


def _not_a_choice(fault: Fault, value: Any, node: Node, choices: list[str]) -> Diagnostic:
    word = str(value)
    meant = [each for each in VALUE_WORDS.get(word.lower(), ()) if each in choices]
    span = place(node)
    near = meant or nearest(word, choices)
    fix = Fix((Edit(span, near[0]),), "unsafe") if len(near) == 1 and node.is_leaf else None
    why, instead = unplanned(word, fault.path) or ("", "")
    if why:
        fix = None
    return error(
        "E0304",
        f"`{dotted(fault.path)}` cannot be `{shortened(word)}`",
        span,
        label="not one of the choices",
        path=fault.path,
        notes=(*filter(None, (why,)), f"it can be {quoted(choices)}"),
        help=instead or did_you_mean(near) or f"write one of {quoted(choices, 'and')}",
        fix=fix,
    )


def _out_of_range(fault: Fault, limit: Mapping[str, Any], value: Any, node: Node) -> Diagnostic:
    key, word = _LIMITS[limit["type"]]
    bound = limit["ctx"][key]
    shown_bound = f"{bound:g}" if isinstance(bound, float) else str(bound)
    percent = key == "le" and bound == 1 and isinstance(value, int | float) and 1 < value <= 100
    return error(
        "E0307",
        f"`{dotted(fault.path)}` must be {word} {shown_bound}, and is {shown(value)}",
        place(node),
        label="out of range",
        path=fault.path,
        help=f"write `{value:g}%` for a share of a hundred"
        if percent
        else f"write a number {word} {shown_bound}",
    )


def _malformed(fault: Fault, shape: type[Shape], value: Any, node: Node) -> Diagnostic:
    first = fault.errors[0]
    path = dotted(fault.path)
    raised = first.get("ctx", {}).get("error")
    found = _counted(raised, value, node)
    says = description(shape, fault.path)
    meant = likely_quantity(raised, value)
    span = place(node)
    fix = Fix((Edit(span, meant),), "unsafe") if meant and node.is_leaf else None
    return error(
        "E0306",
        f"`{path}`: {raised}" if raised is not None else f"`{path}` {_say(first, value)}",
        span,
        label="not understood",
        path=fault.path,
        notes=[*found.notes, *([f"`{fault.path[-1]}`: {says}"] if says else [])],
        help=found.help or _remedy(raised, first, value),
        fix=fix if found.help is None else None,
    )


def _at_odds(path: Path, why: str, node: Node) -> Diagnostic:
    """The error of a shape's own validator about several of its fields."""
    name = f"`{dotted(path)}`: " if path else ""
    return error(
        "E0308",
        f"{name}{why}",
        head(node),
        path=path,
        help="change one of the fields that it names",
    )


def _counted(raised: Any, value: Any, node: Node) -> Trap:
    """The trap of a text that should be a number."""
    is_number = isinstance(raised, NotAQuantity) and isinstance(value, str)
    return trap(value, ["a whole number"], node) if is_number else Trap()


def _say(first: Mapping[str, Any], value: Any) -> str:
    context = first.get("ctx", {})
    match first["type"]:
        case "string_too_long":
            return f"is longer than {context['max_length']} characters"
        case "too_short":
            return f"needs {context['min_length']} or more items"
        case "too_long":
            return f"takes at most {context['max_length']} items"
        case "finite_number":
            return f"must be a finite number, and is {shown(value)}"
    return f"cannot be {shown(value)}"


def _remedy(raised: Any, first: Mapping[str, Any], value: Any) -> str:
    if isinstance(raised, NotAQuantity):
        return quantity_remedy(raised.quantity, value)
    if first["type"] == "too_short":
        return "give one more"
    if first["type"] == "string_pattern_mismatch":
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("-._")[:100]
        if not plain:
            return "use letters and digits"
        if re.match(first["ctx"]["pattern"], plain):
            return f"write `{plain}`"
    return "write a value in the form that the note describes"


def quantity_remedy(quantity: Quantity, value: Any) -> str:
    """The fix for a quantity that was not understood."""
    match quantity:
        case "count":
            return "write a whole number, `64k` or `2M`"
        case "share":
            return "write a share such as `90%` or `0.9`"
        case "time":
            return "write a time with a unit: `12h`, `90min`, `2d`"
        case "rate":
            return f"write `{value}GB/s` or `{value}Gbit/s`, whichever is meant"
        case "length":
            likely = likely_length(str(value))
            return f"write `{likely}`" if likely else "write a whole number of tokens: `4096`"
    amount = likely_bytes(str(value))
    return f"write `{amount}`" if amount else "write an amount with a unit: `80GiB`, `512MB`"


def likely_quantity(raised: Any, value: Any) -> str | None:
    """The intended quantity, if only one is likely."""
    if not isinstance(raised, NotAQuantity):
        return None
    if raised.quantity == "amount":
        return likely_bytes(str(value))
    length = likely_length(str(value)) if raised.quantity == "length" else None
    return str(length) if length else None
