"""Checks as a table, as JSON, and as diagnostics with places."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.values import plain
from tunec.compiler.verify.check import Check, Difference, Status
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.delivery import places
from tunec.compiler.verify.queries import programs
from tunec.schemas.source import Span, start_of

Places = Mapping[str, Mapping[str, Span]]
"""The spans of the keys of each file, by the file's path and the key's dotted path."""

_WORDS: Final[Mapping[Status, str]] = {
    "same": "same",
    "differs": "differs",
    "refused": "refused",
    "unchecked": "not checked",
}


def passes(checks: Sequence[Check], *, allow_unchecked: bool = False) -> bool:
    """Whether there is at least one check, and each is "same", or allowed to be "unchecked"."""
    fine = {"same", "unchecked"} if allow_unchecked else {"same"}
    return bool(checks) and all(each.status in fine for each in checks)


# ── for people ───────────────────────────────────────────────────────────────────────────────────


def table(checks: Sequence[Check]) -> str:
    """One line for each file and program, then the unchecked ones with reasons, and the totals."""
    head = ("file", "program", "consumer", "result", "slots", "not said")
    several = len({each.spec for each in checks}) > 1
    rows = [head, *(_cells(each, named=several) for each in checks)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_unchecked(checks), _sum(checks)])


def _cells(check: Check, *, named: bool) -> tuple[str, ...]:
    counted = check.status in ("same", "differs") and not check.reason
    return (
        f"{check.spec}: {check.file}" if named else check.file,
        check.program,
        check.consumer,
        _WORDS[check.status],
        str(len(check.compared)) if counted else "-",
        str(len(check.unsaid)) if counted else "-",
    )


def _unchecked(checks: Sequence[Check]) -> Iterator[str]:
    for check in checks:
        if check.status == "unchecked":
            yield f"not checked: {check.file} by {check.program} ({check.consumer}): {check.reason}"


def _sum(checks: Sequence[Check]) -> str:
    counts = {status: sum(each.status == status for each in checks) for status in _WORDS}
    parts = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items())
    return f"{len(checks)} checks: {parts}"


# ── for machines ─────────────────────────────────────────────────────────────────────────────────


def to_json(check: Check) -> dict[str, Any]:
    """A check as `--format json` prints it."""
    consumer, _, version = check.consumer.partition("@")
    return {
        "spec": check.spec,
        "artifact": check.file,
        "program": check.program,
        "consumer": consumer,
        "version": version,
        "status": check.status,
        "compared": list(check.compared),
        "unsaid": list(check.unsaid),
        "differences": [
            {
                "slot": each.slot or None,
                "key": each.key or None,
                "file": each.file,
                "expected": plain(each.expected),
                "resolved": plain(each.resolved),
            }
            for each in check.differences
        ],
        "extra": list(check.extra),
        "reason": check.reason or None,
    }


# ── as diagnostics ───────────────────────────────────────────────────────────────────────────────


def places_of(cases: Sequence[Case]) -> Places:
    """The spans of the keys of all delivered files."""
    return {
        delivered.path: {
            key: found.span for key, found in _found(case, name).items() if found.span is not None
        }
        for case in cases
        for name, delivered in case.delivered.items()
    }


def _found(case: Case, name: str) -> Mapping[str, Any]:
    delivered = case.delivered[name]
    for program in programs(case):
        if program.file == name and (found := program.places(delivered.text, delivered.path)):
            return found
    return places(case.file(name), delivered)


def sources(cases: Sequence[Case]) -> dict[str, str]:
    """The texts of all delivered files by path."""
    return {each.path: each.text for case in cases for each in case.delivered.values()}


def diagnostics(checks: Sequence[Check], where: Places) -> tuple[Diagnostic, ...]:
    """The faults, each difference with its file, line and key, then other findings."""
    found: list[Diagnostic] = []
    for check in checks:
        if check.status == "refused":
            found.append(_refused(check, where))
        elif check.status == "differs":
            found += [_differs(check, each, where) for each in check.differences]
        if check.extra:
            found.append(_extra(check, where))
    return tuple(each for at, each in enumerate(found) if each not in found[:at])


def _reader(check: Check) -> str:
    return f"{check.program} ({check.consumer})"


def _differs(check: Check, difference: Difference, where: Places) -> Diagnostic:
    key, slot = difference.key, difference.slot
    if not key:
        message = f"{difference.file} is missing: {check.consumer} reads it"
        at = _at_file(difference.file)
        return Diagnostic("E1001", "error", message, (at,), help=_HELP)
    planned = "nothing there" if difference.expected is None else _show(difference.expected)
    resolved = "nothing" if difference.resolved is None else _show(difference.resolved)
    message = f"{key} of {difference.file} resolves to {resolved}, but the plan has {planned}"
    notes = (
        f"as {_reader(check)} resolves it",
        *([f"the key sets the slot {slot}"] if slot else []),
    )
    return Diagnostic("E1001", "error", message, (_label(difference, where),), notes, help=_HELP)


def _refused(check: Check, where: Places) -> Diagnostic:
    labels = tuple(
        _label(each, where, f"the plan has {_show(each.expected)}") for each in check.differences
    )
    message = f"{_reader(check)} refuses {check.file}: {' '.join(check.reason.split())}"
    return Diagnostic("E1002", "error", message, labels or (_at_file(check.file),), help=_HELP)


def _extra(check: Check, where: Places) -> Diagnostic:
    labels = tuple(
        _label(Difference("", key, check.file, None, None), where, "the plan does not write it")
        for key in check.extra
    )
    message = f"{check.file} has keys that the plan does not write: {', '.join(check.extra)}"
    return Diagnostic("beyond-the-plan", "note", message, labels)


_HELP: Final = "compile the spec again, or change the spec to match the file"


def _show(value: Any) -> str:
    return "nothing" if value is None else repr(plain(value))


def _label(difference: Difference, where: Places, text: str = "") -> Label:
    said = "nothing there" if difference.expected is None else _show(difference.expected)
    return label_of(difference.file, difference.key, text or f"the plan has {said}", where)


def label_of(file: str, key: str, text: str, where: Places) -> Label:
    """A label at a key's place, else at the nearest key around it, else at the file's start."""
    spans, around = where.get(file, {}), key
    while around and around not in spans:
        around = around.rpartition(".")[0]
    return Label(text, spans.get(around) or start_of(file), key)


def _at_file(file: str) -> Label:
    return Label("this file", start_of(file))
