"""Plain data to a shape: pydantic finds the faults, which are reported where they were written.

pydantic names a fault by a path through its own schema, with branches of unions, and with
shorthands (`method: lora`) written out. Paths here are those of the document.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct
from pydantic import ValidationError

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.nodes import Node
from tunec.schemas.shape import Shape
from tunec.schemas.source import Path, dotted

ShapeT = TypeVar("ShapeT", bound=Shape)

if TYPE_CHECKING:
    from tunec.compiler.frontend.type_faults import Fault

_FREE: Final = frozenset({"config", "processor"})
"""Fields that hold a foreign document unchanged, with its lists."""


class TypingResult(Struct, Generic[ShapeT], frozen=True):
    """The result of typing: the value, or its faults."""

    value: ShapeT | None
    faults: tuple[Diagnostic, ...]


def typed(
    shape: type[ShapeT], data: Any, tree: Node, hidden: Iterable[Path] = ()
) -> TypingResult[ShapeT]:
    """Type a document strictly: a text is no number and a number no text.

    Faults at or below the paths in `hidden` are left out, since others have reported them.
    """
    try:
        return TypingResult(shape.model_validate(tuples(data), strict=True), ())
    except ValidationError as problem:
        found = _faults(problem, data)
    from tunec.compiler.frontend.type_faults import explain

    covered = tuple(hidden)
    kept = [each for each in found if not _is_hidden(each.path, covered)]
    told = [(each, explain(each, shape, data, tree)) for each in kept]
    meant = {each.help for _, each in told}
    return TypingResult(None, tuple(each for fault, each in told if not _is_meant(fault, meant)))


def _is_meant(fault: "Fault", helps: Container[str | None]) -> bool:
    """Whether a field is missing because it is there under another name, which is told."""
    place = f"write it at `{dotted((*fault.path, fault.name))}`"
    return fault.kinds[0] == "missing" and place in helps


def _is_hidden(path: Path, covered: Iterable[Path]) -> bool:
    return any(path[: len(each)] == each for each in covered)


def tuples(value: Any) -> Any:
    """Data with tuples for lists, as in shapes; foreign documents stay unchanged."""
    if isinstance(value, Mapping):
        return {
            key: child if key in _FREE and isinstance(child, Mapping) else tuples(child)
            for key, child in value.items()
        }
    return tuple(tuples(child) for child in value) if isinstance(value, list) else value


def _faults(problem: ValidationError, data: Any) -> "list[Fault]":
    """pydantic's errors by path of the document; faults within a value hide those of the whole."""
    from tunec.compiler.frontend.type_faults import Fault

    by_path: dict[tuple[Path, str], list[Any]] = {}
    for each in problem.errors(include_url=False, include_input=False):
        path, name = _document_path(each["loc"], data, each["type"])
        if each["type"] == "too_short" and _length(data, path) >= each["ctx"]["min_length"]:
            continue  # counted after faulty items were dropped
        by_path.setdefault((path, name), []).append(each)
    found = [Fault(path, name, tuple(errors)) for (path, name), errors in by_path.items()]
    around = {path for each in found for path in _around(each)}
    return [each for each in found if each.name or each.path not in around]


def _around(fault: "Fault") -> "Iterator[Path]":
    """The values around a fault, whose own faults are less specific."""
    yield from (fault.path[:end] for end in range(len(fault.path)))
    if fault.name:
        yield fault.path


def _document_path(loc: Sequence[str | int], data: Any, kind: str) -> tuple[Path, str]:
    """The path in the document, and the name of a field that is missing or unknown there."""
    path: list[str | int] = []
    node: Any = data
    for part in loc:
        if _leads_on(node, part):
            node = node[part]
            path.append(part)
    if kind == "missing":
        return tuple(path), str(loc[-1])
    if kind == "extra_forbidden":
        at_field = bool(path) and path[-1] == loc[-1]
        return tuple(path[:-1] if at_field else path), str(loc[-1])
    return tuple(path), ""


def _leads_on(node: Any, part: str | int) -> bool:
    """Whether a part of pydantic's path is a key or an index here; else it names a branch."""
    if isinstance(node, list):
        return isinstance(part, int) and part < len(node)
    return isinstance(node, Mapping) and part in node


def _length(data: Any, path: Path) -> int:
    for part in path:
        data = data[part]
    return len(data) if isinstance(data, list) else 0
