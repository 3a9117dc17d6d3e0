"""An unknown field, and where what it says belongs: beside it, elsewhere in the spec, in a pin."""

from collections.abc import Iterable
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, quoted, shortened
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.fields import fields_at, places
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.words import place_of
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path, Span, dotted
from tunec.schemas.spec import Spec

_NEAR: Final = 0.72
"""Likeness from which on a field is offered for a word that begins otherwise: `neftune` (0.67) is
no slip for `tunec`, while `alfa` (0.67) is one for `alpha`."""


def unknown_field(shape: type[Shape], path: Path, name: str, tree: Node) -> Diagnostic:
    """The diagnostic of a key that no shape at a path has."""
    known = list(fields_at(shape, path))
    around, _ = descend(tree, path)
    node, reached = descend(tree, (*path, name))
    span = node.key_span if reached == (*path, name) else place(around)
    where = f"`{dotted(path)}`" if path else _what(shape)
    near = _near(name, known)
    return error(
        "E0301",
        f"`{shortened(name)}` is not a field of {where}",
        span,
        label="unknown field",
        path=(*path, name),
        notes=(f"{where} has {quoted(known, 'and')}",) if known else (),
        help=_help(shape, name, node, near, tree) or "remove it",
        fix=_rename(span, near),
    )


def _what(shape: type[Shape]) -> str:
    return {"Spec": "a spec", "Cluster": "a cluster", "Device": "a device"}.get(
        shape.__name__, "the document"
    )


def _near(name: str, known: Iterable[str]) -> list[str]:
    """The fields that a word is probably a slip for."""
    from difflib import SequenceMatcher

    return [
        each
        for each in nearest(name, known)
        if each[:2] == name[:2].lower() or SequenceMatcher(None, name, each).ratio() >= _NEAR
    ]


def _rename(span: Span | None, near: list[str]) -> Fix | None:
    return Fix((Edit(span, near[0]),), "unsafe") if span is not None and len(near) == 1 else None


def _help(shape: type[Shape], name: str, node: Node, near: list[str], tree: Node) -> str | None:
    """Where a spec says what the name says, or the name that was probably meant."""
    if shape is not Spec:
        return did_you_mean(near)
    exact = [path for path in places(Spec).get(name, ()) if path != (name,)]
    if exact:
        given = [path for path in exact if descend(tree, path[:-1])[1] == path[:-1]]
        paths = joined(f"`{dotted(each)}`" for each in (given or exact)[:3])
        return f"`{shortened(name)}` belongs at {paths}"
    elsewhere = place_of(name)
    if elsewhere is not None:
        return _say(elsewhere)
    return did_you_mean(near) or _slots_help(name, node) or _near_elsewhere(name)


def _say(place: str) -> str:
    head, _, slot = place.partition(".")
    if head == "pin":
        return f"tunec decides it; to decide it yourself, write `pin: {{{slot}: ...}}`"
    return f"write it at `{place}`"


def _slots_help(name: str, node: Node) -> str | None:
    slots = _slots(name, node)
    return f"pin it: {joined(f'`pin: {{{slot}: ...}}`' for slot in slots)}" if slots else None


def _slots(name: str, node: Node) -> list[str]:
    """Slots that a name means: `zero_stage`, `zero.stage`, or `zero: {stage: ...}`."""
    if name in SLOTS:
        return [name]
    if name in GROUPS and node.fields is not None:
        inner = [f"{name}.{part}" for part in node.fields if f"{name}.{part}" in SLOTS]
        return inner or [path for path in SLOTS if path.startswith(f"{name}.")][:1]
    return [path for path in SLOTS if path.replace(".", "_") == name or path.endswith(f".{name}")][
        :3
    ]


def _near_elsewhere(name: str) -> str | None:
    every = places(Spec)
    found = _near(name, every)[:1]
    paths = [dotted(path) for each in found for path in every[each]]
    return did_you_mean(paths[:3])
