"""Pins: each names a slot, and its value is of the slot's type and range."""

import re
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

from msgspec import Struct
from pydantic import ValidationError

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tunec.compiler.diagnostics.wording import (
    did_you_mean,
    joined,
    nearest,
    quoted,
    shortened,
    shown,
)
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.traps import trap
from tunec.compiler.frontend.validation import tuples
from tunec.compiler.frontend.words import VALUE_WORDS, place_of
from tunec.compiler.ir.slots import GROUPS, SLOTS, Slot
from tunec.compiler.ir.values import alternatives
from tunec.schemas.source import Path
from tunec.schemas.units import NotAQuantity, parse_bytes, parse_count, parse_share


class Pins(Struct, frozen=True):
    """The pins of a spec with typed values, and the faults of the others."""

    values: Mapping[str, Any]
    """By slot: the value, or `{value, reason}` if a reason is given."""
    faults: tuple[Diagnostic, ...]


_LIMITS: Final[Mapping[str, tuple[float, float | None]]] = {
    "zero.stage": (0, 3),
    "fsdp.version": (0, 2),
    "adapter.dropout": (0, 1),
    "optimizer.beta1": (0, 1),
    "optimizer.beta2": (0, 1),
    "runtime.seed": (0, 2**32 - 1),
    "precision.initial_scale_power": (0, 127),
    "precision.loss_scale_window": (1, None),
    "precision.hysteresis": (1, None),
    "precision.min_loss_scale": (1, None),
    "devices.nodes": (1, None),
    "devices.per_node": (1, None),
    "parallel.world": (1, None),
    "parallel.data": (1, None),
    "parallel.tensor": (1, None),
    "parallel.sequence": (1, None),
    "batch.micro": (1, None),
    "batch.accumulation": (1, None),
    "batch.global": (1, None),
    "batch.evaluation": (1, None),
    "schedule.steps": (1, None),
    "schedule.warmup_share": (0, 1),
    "schedule.log_steps": (1, None),
    "schedule.save_steps": (1, None),
    "schedule.evaluation_steps": (1, None),
    "schedule.keep_checkpoints": (1, None),
}
"""Least and greatest value; every other number is at least 0. ZeRO has the stages 0 to 3 (arXiv
1910.02054); seeds are limited as in `numpy.random.seed`; 2**127 is the largest power of two in
fp32, the dtype of the loss scale; its minimum must be above 0
(deepspeed/runtime/precision_config.py, `DeepSpeedFP16Config`, 0.19.8)."""
_LARGEST: Final = 2**63 - 1
_CAPABILITY: Final = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
"""A compute capability in NVIDIA's format; devices of other vendors have none."""


def check_pins(data: Any, tree: Node, hidden: Iterable[Path] = ()) -> Pins:
    """Check the `pin` mapping of a spec; the shape reports a value that is no mapping."""
    if not isinstance(data, Mapping):
        return Pins({}, ())
    covered = frozenset(hidden)
    values: dict[str, Any] = {}
    faults: list[Diagnostic] = []
    for name, given in data.items():
        if any(each[:2] == ("pin", name) for each in covered):
            continue
        found = _check(name, given, tree)
        if isinstance(found, Diagnostic):
            faults.append(found)
        else:
            values[name] = found[0]
    return Pins(values, tuple(faults))


def _check(name: str, given: Any, tree: Node) -> Diagnostic | tuple[Any]:
    """The checked value in a tuple of one, or the fault."""
    path: Path = ("pin", name)
    node, _ = descend(tree, path)
    slot = SLOTS.get(name)
    if slot is None:
        return _unknown(name, given, node)
    if not isinstance(given, Mapping):
        return _typed(slot, given, path, tree)
    wrong = _wrong_form(name, given, node)
    if wrong is not None:
        return wrong
    found = _typed(slot, given["value"], (*path, "value"), tree)
    if isinstance(found, Diagnostic):
        return found
    return ({"value": found[0], "reason": given["reason"]},)


def _typed(slot: Slot, given: Any, path: Path, tree: Node) -> Diagnostic | tuple[Any]:
    from pydantic import TypeAdapter

    node, _ = descend(tree, path)
    try:
        value = _with_unit(slot, tuples(given))
        value = TypeAdapter(slot.type).validate_python(value, strict=True)
    except ValidationError:
        return _wrong_value(slot, given, path, node)
    except NotAQuantity as fault:
        return _not_a_quantity(slot, fault, path, node)
    if slot.path == "devices.capability" and value is not None and not _CAPABILITY.fullmatch(value):
        return _not_a_capability(slot, given, path, node)
    return _out_of_range(slot, value, path, node) or (value,)


def _not_a_quantity(slot: Slot, fault: NotAQuantity, path: Path, node: Node) -> Diagnostic:
    from tunec.compiler.frontend.type_faults import quantity_remedy

    remedy = quantity_remedy(fault.quantity, fault.value)
    return _ill_written(slot, f": {fault}", "not understood", remedy, path, node)


def _not_a_capability(slot: Slot, given: Any, path: Path, node: Node) -> Diagnostic:
    what = f" must be a compute capability, and is {shown(given)}"
    remedy = 'write two numbers in quotes, such as `"8.0"`'
    return _ill_written(slot, what, "not a compute capability", remedy, path, node)


def _ill_written(
    slot: Slot, what: str, label: str, remedy: str, path: Path, node: Node
) -> Diagnostic:
    return error(
        "E0403",
        f"the pin of `{slot.path}`{what}",
        place(node),
        label=label,
        path=path,
        notes=(f"`{slot.path}`: {slot.doc}",),
        help=remedy,
    )


def _with_unit(slot: Slot, value: Any) -> Any:
    """A number with a unit: `5 GiB`, `200M`, `5%`."""
    kinds = alternatives(slot.type)
    if slot.unit == "bytes":
        return parse_bytes(value)
    if not isinstance(value, str) or str in kinds or any(get_origin(k) is Literal for k in kinds):
        return value
    if int in kinds:
        return parse_bytes(value) if slot.unit == "bytes" else parse_count(value)
    return parse_share(value) if float in kinds and value.strip().endswith("%") else value


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return joined(f"`{each}`" for each in get_args(kind))
    if get_origin(kind) is tuple:
        item = get_args(kind)[0]
        lists = {int: "a list of whole numbers", str: "a list of text"}
        return lists.get(item, "a list of pairs")
    words = {
        int: "a whole number",
        float: "a number",
        bool: "`true` or `false`",
        str: "text",
        NoneType: "`null`",
    }
    return words[kind]


def _wrong_value(slot: Slot, given: Any, path: Path, node: Node) -> Diagnostic:
    kinds = alternatives(slot.type)
    choices = [str(c) for kind in kinds if get_origin(kind) is Literal for c in get_args(kind)]
    if choices and isinstance(given, str):
        return _not_a_choice(slot, given, path, node, choices)
    wanted = [_in_words(kind) for kind in kinds]
    found = trap(given, wanted, node)
    is_now = "empty" if given is None else shown(given)
    items = given if isinstance(given, list) and "a list of text" in wanted else []
    other = [each for each in items if not isinstance(each, str)]
    is_now = f"{is_now} that holds {shown(other[0])}" if other else is_now
    return error(
        "E0403",
        f"the pin of `{slot.path}` must be {joined(wanted)}, and is {is_now}",
        place(node),
        label=f"not {wanted[0]}",
        path=path,
        notes=(*found.notes, f"`{slot.path}`: {slot.doc}"),
        help=found.help or f"write {joined(wanted)}",
        fix=Fix((Edit(place(node), found.text),), "safe") if found.text else None,
    )


def _not_a_choice(slot: Slot, given: str, path: Path, node: Node, choices: list[str]) -> Diagnostic:
    meant = [each for each in VALUE_WORDS.get(given.lower(), ()) if each in choices]
    near = meant or nearest(given, choices)
    return error(
        "E0404",
        f"the pin of `{slot.path}` cannot be `{shortened(given)}`",
        place(node),
        label="not one of the choices",
        path=path,
        notes=(f"it can be {quoted(choices)}", f"`{slot.path}`: {slot.doc}"),
        help=did_you_mean(near) or f"write one of {quoted(choices, 'and')}",
    )


def _out_of_range(slot: Slot, value: Any, path: Path, node: Node) -> Diagnostic | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    least, most = _LIMITS.get(slot.path, (0, None))
    most = _LARGEST if most is None else most
    if least <= value <= most:
        return None
    span_of = (
        f"from {least:g} to {most}"
        if slot.path in _LIMITS and most < _LARGEST
        else (f"at least {least:g}" if value < least or value != value else f"at most {most}")
    )
    return error(
        "E0405",
        f"the pin of `{slot.path}` must be {span_of}, and is {shown(value)}",
        place(node),
        label="out of range",
        path=path,
        notes=(f"`{slot.path}`: {slot.doc}",),
        help=f"write a number {span_of}",
    )


def _wrong_form(name: str, given: Mapping[str, Any], node: Node) -> Diagnostic | None:
    stray = [key for key in given if key not in ("value", "reason")]
    reason = given.get("reason")
    if not stray and "value" in given and isinstance(reason, str) and reason.strip():
        return None
    if stray:
        message = f"the pin of `{name}` has `{shortened(stray[0])}` besides value and reason"
    elif "value" not in given:
        message = f"the pin of `{name}` has no value"
    else:
        message = f"the pin of `{name}` has no reason"
    child = node.child(stray[0]) if stray else node.child("reason")
    span = (child.key_span if stray else place(child)) if child is not None else node.key_span
    return error(
        "E0406",
        message,
        span or place(node),
        path=("pin", name, *stray[:1]),
        help=f"write `{name}: ...`, or `{name}: {{value: ..., reason: ...}}`",
    )


def _unknown(name: str, given: Any, node: Node) -> Diagnostic:
    inner = _inner_slots(name, given)
    if inner:
        remedy: str | None = f"write {joined((f'`{each}: ...`' for each in inner), 'and')}"
    else:
        word = place_of(name.rpartition(".")[2]) or ""
        known = word.removeprefix("pin.") if word.startswith("pin.") else None
        remedy = f"did you mean `{known}`?" if known else did_you_mean(_near_slots(name))
    what = "a group of slots" if name in GROUPS else "not a slot"
    return error(
        "E0401",
        f"`{shortened(name)}` is {what}, so it cannot be pinned",
        node.key_span or place(node),
        label=what,
        path=("pin", name),
        notes=("a pin names a slot by its path, for example `zero.stage` or `batch.micro`",),
        help=remedy or "`tunec catalog slots` lists them",
    )


def _inner_slots(name: str, given: Any) -> list[str]:
    """The slots that a nested pin means: `zero: {stage: 2}` means `zero.stage`."""
    if not isinstance(given, Mapping):
        return []
    return [f"{name}.{part}" for part in given if f"{name}.{part}" in SLOTS]


def _near_slots(name: str) -> list[str]:
    last = name.rpartition(".")[2]
    same = [path for path in SLOTS if path.rpartition(".")[2] == last]
    return same[:3] or nearest(name, SLOTS)
