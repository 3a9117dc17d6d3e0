"""A comparison as Markdown, for a comment on a pull request."""

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


def comparison_markdown(comparison: Comparison) -> str:
    """The gravest class as a heading, then every changed spec."""
    nothing = "not compared" if comparison.unreadable else "nothing changes"
    parts = [f"## tunec: {comparison.kind or nothing}"]
    parts += ["\n".join(_spec(each)) for each in comparison.changed if each.is_told]
    parts += [f"### `{name}` is new" for name in comparison.added]
    parts += [f"### `{name}` is gone" for name in comparison.removed]
    parts += [f"### `{name}` cannot be compared" for name in comparison.unreadable]
    return "\n\n".join(parts)


def _spec(change: SpecChange) -> Iterator[str]:
    yield f"### `{spec_title(change)}`: {change.kind if change.groups else 'no effect'}"
    yield ""
    yield from (f"- {_escaped(field_line(field))}" for field in change.intent)
    if change.intent:
        yield ""
    for line in untouched_lines(change):
        yield f"{_escaped(line[:1].upper() + line[1:])}."
    for group in change.groups:
        yield ""
        yield from _group(group)


def _group(group: Group) -> Iterator[str]:
    yield f"**{_escaped(group_title(group))}**"
    yield ""
    yield from (f"> {_escaped(line)}" for line in fate_lines(group))
    rows = list(slot_lines(group))
    if rows:
        yield "| decision | old → new | why |"
        yield "| --- | --- | --- |"
    for slot, values, reason in rows:
        yield f"| `{slot}` | {_arrow(values)} | {_escaped(reason)} |"
    if follows := follow_line(group):
        yield ""
        yield f"<sub>{_escaped(follows)}</sub>"
    measures = list(effect_lines(group))
    if measures and rows:
        yield ""
    yield from (f"- {name}: {_arrow(values)}" for name, values in measures)


def _arrow(text: str) -> str:
    return _escaped(text).replace("-&gt;", "→")


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    for special, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(special, shown)
    for special in "\\`*_[]|$":
        text = text.replace(special, f"\\{special}")
    return text.replace("\n", " ")
