"""The results of a rehearsal, as a table and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.rehearse.compare import Check, Status

_STATUSES: Final[tuple[Status, ...]] = ("same", "differs", "not rehearsed")


def passes(checks: Sequence[Check]) -> bool:
    """Whether something was compared and nothing differs."""
    found = {each.status for each in checks}
    return "same" in found and "differs" not in found


def table(checks: Sequence[Check]) -> str:
    """A line for each slot that was read back, the others by reason, and the totals."""
    head = ("slot", "read from the engine", "plan", "ran", "result")
    compared = [each for each in checks if each.status != "not rehearsed"]
    rows = [head, *(_cells(each) for each in compared)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_by_reason(checks), _sum(checks)])


def _cells(check: Check) -> tuple[str, ...]:
    values = _show(check.expected), _show(check.found)
    return (check.slot or "-", check.key, *values, check.status)


def _show(value: Any) -> str:
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_show, value))
        return f"({inner})" if value and isinstance(value[0], list) else inner
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _by_reason(checks: Sequence[Check]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for check in checks:
        if check.status == "not rehearsed":
            reasons.setdefault(check.reason, []).append(check.slot)
    for reason, slots in reasons.items():
        yield f"not rehearsed: {', '.join(slots)}: {reason}"


def _sum(checks: Sequence[Check]) -> str:
    counts = {status: sum(each.status == status for each in checks) for status in _STATUSES}
    return ", ".join(f"{counts[status]} {status}" for status in _STATUSES)


def to_json(check: Check) -> Mapping[str, Any]:
    """A check as `--format json` prints it."""
    return {
        "slot": check.slot or None,
        "key": check.key or None,
        "status": check.status,
        "expected": check.expected,
        "found": check.found,
        "reason": check.reason or None,
    }
