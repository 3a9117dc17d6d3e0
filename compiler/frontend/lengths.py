"""Sample lengths: `data.lengths`, in the spec or in a file that it names."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from pydantic import ValidationError

from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.disk import Unreadable, near_files
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.names import File
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.project import Outside, Project, lies_outside, require_inside
from tunec.schemas.data_paths import data_kind
from tunec.schemas.frozen import replace
from tunec.schemas.lengths import MARK, KeptLengths, MeasuredFile
from tunec.schemas.models.catalogue import repository
from tunec.schemas.models.chat_templates import PLAIN
from tunec.schemas.source import dotted
from tunec.schemas.terms import PLAIN_TEMPLATE

_AT: Final = ("data", "lengths")
_MEAN: Final = re.compile(r"mean\s+([1-9]\d*)", re.ASCII)
_MOST_READ: Final = 2**26
"""Bytes up to which a data file is read to detect changes; for larger files the size decides."""
_CHATS: Final = ("messages", "conversations", "instructions")
"""Forms of records that a chat template turns into texts."""
_HOW: Final = "measure it: `tunec data --spec SPEC -o FILE`; or write `mean 1200`, or a histogram"
_MOST: Final = 2**31
"""No sample has more tokens, and no row of a histogram has more samples."""


class SpecLengths(Struct, frozen=True):
    """The lengths of a spec; all fields are empty if there are none that can be read."""

    lengths: Lengths | None = None
    files: tuple[File, ...] = ()
    faults: tuple[Diagnostic, ...] = ()
    kept: KeptLengths | None = None
    """The file's header, if `tunec data` wrote it."""


class _Unusable(ValueError):
    """A document holds no lengths; the message says why."""


def check_lengths(data: Mapping[str, Any], tree: Node, project: Project) -> SpecLengths:
    """Read `data.lengths`: a mean, a histogram, or a file of one or of a list in order."""
    given = data.get("data")
    said = given.get("lengths") if isinstance(given, Mapping) else None
    try:
        if isinstance(said, Mapping):
            return SpecLengths(_histogram(said))
        if not isinstance(said, str):
            return SpecLengths()
        mean = _MEAN.fullmatch(said.strip())
        if mean is not None:
            return SpecLengths(Lengths(((int(mean[1]), 1),), is_mean=True))
        path = project.base / said
        told = _of_file(path, project.read(path, place(descend(tree, _AT)[0])))
        if told.kept is None:
            return told
        stale = tuple(_stale(told.kept, path, data, tree, project))
        return replace(told, faults=stale)
    except Outside as fault:
        return SpecLengths(
            faults=(lies_outside(str(said), fault, place(descend(tree, _AT)[0]), _AT),)
        )
    except (Unreadable, OSError) as fault:
        hint = near_files(project.base / str(said)) or _HOW
        return SpecLengths(faults=(_fault(f"cannot read `{said}`: {fault}", hint, tree),))
    except (_Unusable, ValueError, RecursionError) as fault:
        hint = "give the number of samples for each length: `{800: 1500, 2400: 500}`"
        return SpecLengths(faults=(_fault(f"data.lengths cannot be used: {fault}", hint, tree),))


def _of_file(path: Path, content: bytes) -> SpecLengths:
    found = json.loads(content)
    if isinstance(found, Mapping) and MARK in found:
        kept = _kept(found)
        return SpecLengths(lengths_of(kept), (File(path, content),), kept=kept)
    lengths = _in_order(found) if isinstance(found, list) else _histogram(found)
    return SpecLengths(lengths, (File(path, content),))


def lengths_of(kept: KeptLengths) -> Lengths:
    """The lengths of a file that `tunec data` wrote."""
    is_estimate = kept.tokenizer.sha256 is None
    return Lengths(kept.counts, kept.order, is_estimate=is_estimate, answers=kept.answers)


def _kept(found: Mapping[str, Any]) -> KeptLengths:
    try:
        kept = KeptLengths.model_validate_json(json.dumps(found))
    except ValidationError as fault:
        first = fault.errors()[0]
        at = ".".join(map(str, first["loc"]))
        raise _Unusable(
            f"{at}: {first['msg'].lower()}; `tunec data` writes the file anew"
        ) from None
    samples = sum(each.samples * each.times for each in kept.files)
    counted = {"counts": sum(count for _, count in kept.counts)}
    counted |= {"order": len(kept.order)} if kept.order else {}
    for name, number in counted.items():
        if number != samples:
            raise _Unusable(f"{name} has {number} samples, and files have {samples}")
    return kept


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


def _stale(
    kept: KeptLengths, path: Path, data: Mapping[str, Any], tree: Node, project: Project
) -> Iterator[Diagnostic]:
    """Report a file of lengths that belongs to other data, or to another model's tokenizer."""
    model, named = data.get("model"), kept.tokenizer.model
    folders = (path.parent / named, project.base / str(model))
    is_folder = os.path.normpath(folders[0]) == os.path.normpath(folders[1])
    if isinstance(model, str) and named and not is_folder and _weights(named) != _weights(model):
        why = f"it was measured with the tokenizer of {named}, and the model is {model}"
        yield _warning(why, tree)
    template = data["data"].get("chat_template")
    if template is not None and _is_of_another(kept, str(template), project):
        yield _warning(f"it was measured with another chat template than {template}", tree)
    train = frozenset(_train(data["data"].get("train"), project.base))
    for each in kept.files:
        file = path.parent / each.path
        if train and os.path.normpath(file) not in train:
            why = f"it was measured of `{each.path}`, which data.train does not name"
            yield _warning(why, tree)
        elif _differs(each, file, project):
            yield _warning(f"`{each.path}` is not the file that was measured", tree)


def _is_of_another(kept: KeptLengths, template: str, project: Project) -> bool:
    """Whether conversations were measured with another chat template, as far as it can be read."""
    if kept.form not in _CHATS or kept.tokenizer.sha256 is None:
        return False
    try:
        path = require_inside(project.base / template, project.root)
        text = PLAIN if template == PLAIN_TEMPLATE else path.read_text("utf-8")
    except (Unreadable, OSError, ValueError):
        return False  # the template lies where the run is
    return hashlib.sha256(text.encode()).hexdigest() != kept.tokenizer.template_sha256


def _weights(model: str) -> str:
    try:
        return repository(model).lower()
    except LookupError:
        return model.lower()


def _train(said: Any, base: Path) -> Iterator[str]:
    """The files that the spec trains on, by their paths; nothing where some are no files."""
    given = said if isinstance(said, list) else [said]
    paths = [each.get("path") if isinstance(each, Mapping) else each for each in given]
    named = [each for each in paths if isinstance(each, str) and data_kind(each) == "file"]
    if len(named) == len(paths):
        yield from (os.path.normpath(base / each) for each in named)


def _differs(each: MeasuredFile, path: Path, project: Project) -> bool:
    """Whether a data file that is at hand is another than was measured, as far as is read."""
    try:
        full = require_inside(path, project.root)
        size = full.stat().st_size
        if size != each.bytes or size > _MOST_READ:
            return size != each.bytes
        return hashlib.sha256(full.read_bytes()).hexdigest() != each.sha256
    except (Unreadable, OSError):
        return False  # the data lie where the run is


def _count(value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if type(number) is not int or not 0 < number < _MOST:
        raise _Unusable(f"`{str(value)[:40]}` is not a whole number above 0")
    return number


def _warning(why: str, tree: Node) -> Diagnostic:
    at, _ = descend(tree, _AT)
    return Diagnostic(
        "lengths-stale",
        "warning",
        f"the file of data.lengths is stale: {why}",
        (Label("", place(at), dotted(_AT)),),
        help="measure it again: `tunec data --spec SPEC -o FILE`",
    )


def _fault(message: str, hint: str, tree: Node) -> Diagnostic:
    return error("E0305", message, place(descend(tree, _AT)[0]), path=_AT, help=hint)
