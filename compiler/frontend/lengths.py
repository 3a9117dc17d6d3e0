"""How long the samples are: `data.lengths`, in the spec or in a file that it names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, near_files
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.names import File
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.project import Outside, Project, lies_outside

_AT: Final = ("data", "lengths")
_MEAN: Final = re.compile(r"mean\s+([1-9]\d*)", re.ASCII)
_MOST: Final = 2**31
"""No sample has more tokens, and no data set is longer in a histogram's row."""


class Told(Struct, frozen=True):
    """What a spec says of lengths; all empty where it says nothing that can be read."""

    lengths: Lengths | None = None
    files: tuple[File, ...] = ()
    faults: tuple[Diagnostic, ...] = ()


class _Unusable(ValueError):
    """A document that holds no lengths; says why."""


def check_lengths(data: Mapping[str, Any], tree: Node, project: Project) -> Told:
    """Read `data.lengths`: a mean, a histogram, or a file of one or of a list in order."""
    given = data.get("data")
    said = given.get("lengths") if isinstance(given, Mapping) else None
    try:
        if isinstance(said, Mapping):
            return Told(_histogram(said))
        if not isinstance(said, str):
            return Told()
        mean = _MEAN.fullmatch(said.strip())
        if mean is not None:
            return Told(Lengths(((int(mean[1]), 1),), is_mean=True))
        path = project.base / said
        return _of_file(path, project.read(path, place(descend(tree, _AT)[0])))
    except Outside as fault:
        return Told(faults=(lies_outside(str(said), fault, place(descend(tree, _AT)[0]), _AT),))
    except (Unreadable, OSError) as fault:
        hint = (
            near_files(project.base / str(said)) or "write `mean 1200`, a histogram, or a JSON file"
        )
        return Told(faults=(_fault(f"cannot read `{said}`: {fault}", hint, tree),))
    except (_Unusable, ValueError, RecursionError) as fault:
        hint = "give the number of samples for each length: `{800: 1500, 2400: 500}`"
        return Told(faults=(_fault(f"data.lengths cannot be used: {fault}", hint, tree),))


def _of_file(path: Path, content: bytes) -> Told:
    found = json.loads(content)
    lengths = _in_order(found) if isinstance(found, list) else _histogram(found)
    return Told(lengths, (File(path, content),))


def _histogram(found: Any) -> Lengths:
    if not isinstance(found, Mapping) or not found:
        raise _Unusable("expected a mapping from lengths to numbers of samples")
    pairs = sorted((_count(length), _count(number)) for length, number in found.items())
    return Lengths(tuple(pairs))


def _in_order(found: list[Any]) -> Lengths:
    if not found:
        raise _Unusable("the list is empty")
    order = tuple(_count(each) for each in found)
    numbers: dict[int, int] = {}
    for each in order:
        numbers[each] = numbers.get(each, 0) + 1
    return Lengths(tuple(sorted(numbers.items())), order)


def _count(value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or not 0 < number < _MOST:
        raise _Unusable(f"`{str(value)[:40]}` is not a whole number above 0")
    return number


def _fault(message: str, hint: str, tree: Node) -> Diagnostic:
    return error("E0305", message, place(descend(tree, _AT)[0]), path=_AT, help=hint)
