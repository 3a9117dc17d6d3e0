"""A comparison for the terminal."""

from collections.abc import Iterator

from tunec.compiler.review.diff.compare import Comparison, SpecChange
from tunec.compiler.review.diff.groups import Group
from tunec.compiler.review.diff.wording import (
    effect_lines,
    fate_lines,
    field_line,
    follow_line,
    group_title,
    slot_lines,
    spec_title,
    untouched_lines,
)

_SLOT, _VALUES, _NAME = 34, 30, 24


def comparison_text(comparison: Comparison) -> str:
    """Every changed spec as a section; one line where nothing differs."""
    sections = ["\n".join(_spec(each)) for each in comparison.changed if each.is_told]
    sections += [f"{name}: new" for name in comparison.added]
    sections += [f"{name}: gone" for name in comparison.removed]
    sections += [f"{name}: cannot be compared" for name in comparison.unreadable]
    return "\n\n".join(sections) if sections else "nothing changes"


def _spec(change: SpecChange) -> Iterator[str]:
    yield f"{spec_title(change)}: {change.kind if change.groups else 'no effect'}"
    if change.intent:
        yield "  intent"
    for field in change.intent:
        place = f"  ({field.span})" if field.span else ""
        yield f"    {field_line(field)}{place}"
    yield from (f"  {line}" for line in untouched_lines(change))
    for group in change.groups:
        yield from _group(group)


def _group(group: Group) -> Iterator[str]:
    yield f"  {group_title(group)}"
    for line in fate_lines(group):
        yield f"    {line}"
    for slot, values, reason in slot_lines(group):
        yield f"    {slot:<{_SLOT}} {values:<{_VALUES}} {reason}".rstrip()
    if follows := follow_line(group):
        yield f"    {follows}"
    for name, values in effect_lines(group):
        yield f"    {name:<{_NAME}} {values}"
