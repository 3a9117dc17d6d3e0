"""What may stand where in a shape, and where an unknown field belongs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, quoted, shortened
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.unplanned_words import unplanned
from tunec.compiler.frontend.words import place_of, unsaid
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.schemas.caches import cached
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path, Span, dotted
from tunec.schemas.spec import Spec


def shapes_in(annotation: Any) -> Iterator[type[Shape]]:
    """The shapes that a type contains, also in unions, tuples and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, Shape):
        yield annotation
        return
    for argument in get_args(annotation):
        yield from shapes_in(argument)


def named_fields(shape: type[Shape]) -> dict[str, FieldInfo]:
    """The fields of a shape by the names that people write."""
    return {info.alias or name: info for name, info in shape.model_fields.items()}


def shapes_at(shape: type[Shape], path: Path) -> tuple[type[Shape], ...]:
    """The shapes that may stand at a path; empty if none can."""
    found: tuple[type[Shape], ...] = (shape,)
    for part in path:
        if isinstance(part, str):
            infos = [named_fields(each).get(part) for each in found]
            found = tuple(s for info in infos if info for s in shapes_in(info.annotation))
    return found


def fields_at(shape: type[Shape], path: Path) -> dict[str, FieldInfo]:
    """Every field that a mapping at a path may have."""
    return {
        name: info for each in shapes_at(shape, path) for name, info in named_fields(each).items()
    }


def description(shape: type[Shape], path: Path) -> str | None:
    """The description of a field, as the text of a note."""
    if not path or not isinstance(path[-1], str):
        return None
    found = (field_docs(each).get(path[-1]) for each in shapes_at(shape, path[:-1]))
    text = next((each for each in found if each), "").rstrip(".")
    return (text if text[:2].isupper() else text[:1].lower() + text[1:]) or None


@cached(64)
def field_docs(shape: type[Shape]) -> Mapping[str, str]:
    """The description of each field on one line, by the names that people write.

    Read from the source on demand: having pydantic do it costs a third of the time that building a
    shape takes.
    """
    docs: dict[str, str] = {}
    for each in reversed(shape.__mro__):
        if issubclass(each, Shape) and each is not Shape:
            docs |= _docs_of(each)
    written = {name: info.alias or name for name, info in shape.model_fields.items()}
    return {written[name]: text for name, text in docs.items() if name in written}


def _docs_of(shape: type[Shape]) -> dict[str, str]:
    import ast
    import inspect
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(shape)))
    except OSError:
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cached(8)
def places(shape: type[Shape]) -> dict[str, tuple[Path, ...]]:
    """Every path of a field in a tree of shapes, by the field's name; lists are left out."""
    found: dict[str, list[Path]] = {}
    for path in _paths(shape, ()):
        found.setdefault(str(path[-1]), []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def _paths(shape: type[Shape], base: Path) -> Iterator[Path]:
    for name, info in named_fields(shape).items():
        path = (*base, name)
        yield path
        if "tuple" not in str(info.annotation):
            for inner in shapes_in(info.annotation):
                yield from _paths(inner, path)


_NEAR: Final = 0.72
"""Likeness from which a field is suggested for a word with another beginning: `neftune` (0.67) is
no typo for `tunec`, while `alfa` (0.67) is one for `alpha`."""
_NEAR_WITH_SAME_START: Final = 0.65
"""For a word with the same first two letters: `scale` (0.62) is no typo for `schedule`."""


def unknown_field(shape: type[Shape], path: Path, name: str, tree: Node) -> Diagnostic:
    """The diagnostic of a key that no shape at a path has."""
    known = list(fields_at(shape, path))
    around, _ = descend(tree, path)
    node, reached = descend(tree, (*path, name))
    span = node.key_span if reached == (*path, name) else place(around)
    where = f"`{dotted(path)}`" if path else _what(shape)
    near = _near(name, known)
    why, instead = unplanned(name, path) or ("", None)
    settled = (
        instead
        or unsaid((*path, name))
        or _by_word(shape, path, name, around, known)
        or _slot_here(shape, path, name)
        or _place(shape, path, name, tree)
    )
    if not why and known and settled is None:
        why = f"{where} has {quoted(known, 'and')}"
    return error(
        "E0301",
        f"`{shortened(name)}` is not a field of {where}",
        span,
        label="unknown field",
        path=(*path, name),
        notes=(why,) if why else (),
        help=settled or _guess(shape, name, node, near) or _only(known, around) or "remove it",
        fix=None if instead else _rename(span, near),
    )


def _slot_here(shape: type[Shape], path: Path, name: str) -> str | None:
    """How to pin the slot of that very path, which tunec decides."""
    slot = dotted((*path, name))
    return f"pin it: `pin: {{{slot}: ...}}`" if shape is Spec and slot in SLOTS else None


def _by_word(
    shape: type[Shape], path: Path, name: str, around: Node, known: Iterable[str]
) -> str | None:
    """What to write where a word makes a choice for which tunec has a field.

    `{kind: lora, rank: 8}` is `{lora: {rank: 8}}`.
    """
    beside = (around.fields or {}).items()
    chosen = {key: each.value for key, each in beside if key not in known and each.value in known}
    if name in chosen:
        return f"write `{chosen[name]}: {{...}}` in its place"
    for choice in chosen.values():
        fields = fields_at(shape, (*path, choice))
        for near in (name, *_near(name, fields)):
            if near in fields:
                return f"write it at `{dotted((*path, choice, near))}`"
    return None


def _only(known: Iterable[str], around: Node) -> str | None:
    """The one field that a mapping has, where it is not given yet."""
    match [each for each in known if each not in (around.fields or {})]:
        case [only]:
            return f"write `{only}`, which it has alone, or remove it"
        case _:
            return None


_WHAT: Final = {
    "Spec": "a spec",
    "Cluster": "a cluster",
    "Device": "a device",
    "LintSettings": "the settings",
}


def _what(shape: type[Shape]) -> str:
    return _WHAT.get(shape.__name__, "the document")


def _near(name: str, known: Collection[str]) -> list[str]:
    """The fields for which a word is probably a typo, or of whose names it is a word."""
    from difflib import SequenceMatcher

    def least(other: str) -> float:
        return _NEAR_WITH_SAME_START if other[:2] == name[:2].lower() else _NEAR

    typos = [
        each
        for each in nearest(name, known)
        if SequenceMatcher(None, name, each).ratio() >= least(each)
    ]
    return typos or [each for each in known if name.lower() in each.split("_")]


def _rename(span: Span | None, near: list[str]) -> Fix | None:
    return Fix((Edit(span, near[0]),), "unsafe") if span is not None and len(near) == 1 else None


def _place(shape: type[Shape], path: Path, name: str, tree: Node) -> str | None:
    """The field of a spec with that name or that meaning, first one below the same path."""
    if shape is not Spec:
        return None
    exact = [each for each in places(Spec).get(name, ()) if each != (name,)]
    if exact:
        below = [each for each in exact if path and each[: len(path)] == path]
        given = [each for each in exact if descend(tree, each[:-1])[1] == each[:-1]]
        paths = joined(f"`{dotted(each)}`" for each in (below or given or exact)[:3])
        return f"`{shortened(name)}` belongs at {paths}"
    elsewhere = place_of(name)
    return None if elsewhere is None else _say(elsewhere)


def _guess(shape: type[Shape], name: str, node: Node, near: list[str]) -> str | None:
    """The name that was probably meant."""
    if shape is not Spec:
        return did_you_mean(near)
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
    """Slots that a name may mean: `zero_stage`, `zero.stage`, or `zero: {stage: ...}`."""
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
