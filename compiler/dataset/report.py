"""The output of `tunec data`: lengths, tokens cut off, cost of batches, and the plan."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.packing import Lengths, cut_tokens
from tunec.compiler.analyses.time.account import with_length
from tunec.compiler.dataset.batches import Way, ways
from tunec.compiler.dataset.measuring import Length, SampleLengths
from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.compiler.review.screen.screen import length_lines
from tunec.schemas.units import format_bytes

_LINES: Final = 12
"""The most lines of the histogram."""
_NAMED: Final = 20
"""The most samples that are listed by line; JSON lists all."""
_BAR: Final = 40


class Report(Struct, frozen=True):
    """The measured data, and the settings of a run on it."""

    measured: SampleLengths
    lengths: Lengths
    counted_by: str
    sequence: int
    micro: int
    accumulation: int = 1
    planned: Planned | None = None

    @property
    def unlearned(self) -> list[Length]:
        """Samples that train nothing if only answers are trained."""
        return self.measured.unlearned(self.sequence)

    @property
    def ways(self) -> list[Way]:
        """The ways to make batches."""
        return list(ways(self.lengths, self.sequence, self.micro, self.accumulation))


def quantile(lengths: Lengths, share: float) -> int:
    """The smallest length that at least this share of the samples does not exceed."""
    samples = sum(count for _, count in lengths.counts)
    passed = 0
    for length, count in lengths.counts:
        passed += count
        if passed >= share * samples:
            return length
    return lengths.counts[-1][0]


def report_text(report: Report, pen: Pen) -> str:
    """The report as text for a terminal."""
    parts = (_what(report, pen), _histogram(report, pen), _cut(report), _costs(report, pen))
    return "\n".join(line for part in (*parts, _plan(report, pen)) for line in part)


def _what(report: Report, pen: Pen) -> Iterator[str]:
    lengths, measured = report.lengths, report.measured
    samples = sum(count for _, count in lengths.counts)
    tokens = sum(length * count for length, count in lengths.counts)
    names = ", ".join(
        printable(source.path.name) + (f" x {source.times}" if source.times > 1 else "")
        for source, *_ in measured.files
    )
    about = "about " if lengths.is_estimate else ""
    head = f"{names}: {samples:,} samples ({measured.form.name}), {about}{tokens:,} tokens"
    yield pen.paint("bold", head)
    yield pen.paint("tight" if lengths.is_estimate else "dim", printable(report.counted_by))
    longest = max(measured.samples, key=lambda each: each.tokens)
    shares = (("half up to", 0.5), ("95% up to", 0.95), ("99% up to", 0.99))
    yield (
        f"mean {tokens / samples:,.0f}; "
        + ", ".join(f"{word} {quantile(lengths, share):,}" for word, share in shares)
        + f"; longest {longest.tokens:,} ({printable(longest.place)})"
    )
    yield ""


def _histogram(report: Report, pen: Pen) -> Iterator[str]:
    bins = _bins(report.lengths)
    most = max(count for *_, count in bins)
    for low, high, count in bins:
        bar = pen.bar(0, count / most, _BAR) if count else ""
        yield f"  {low:>7,} to {high:<7,} {count:>9,} {bar}"
    yield ""


def _bins(lengths: Lengths) -> list[tuple[int, int, int]]:
    """Bins of equal, round width up to the longest sample."""
    longest = lengths.counts[-1][0]
    width = next(
        each * 10**power
        for power in range(10)
        for each in (1, 2, 5)
        if each * 10**power * _LINES >= longest
    )
    found = [0] * -(-longest // width)
    for length, count in lengths.counts:
        found[(length - 1) // width] += count
    return [(at * width + 1, (at + 1) * width, count) for at, count in enumerate(found)]


def _cut(report: Report) -> Iterator[str]:
    samples = sum(count for _, count in report.lengths.counts)
    tokens = sum(length * count for length, count in report.lengths.counts)
    longer, over = cut_tokens(report.lengths, report.sequence)
    if longer:
        yield (
            f"a sequence of {report.sequence:,} truncates {longer:,} samples "
            f"({longer / samples:.1%}), {over:,} tokens ({over / tokens:.1%})"
        )
    else:
        yield f"a sequence of {report.sequence:,} truncates no sample"
    empty = report.unlearned
    if empty:
        more = f" and {len(empty) - _NAMED:,} more" if len(empty) > _NAMED else ""
        yield (
            f"{len(empty):,} sample{'s have' if len(empty) > 1 else ' has'} no answer before the "
            "cut, and nothing to learn where the loss is of answers alone:"
        )
        yield from wrap(
            f"  {'; '.join(_lines_of(empty[:_NAMED]))}{more}", WIDTH, subsequent_indent="    "
        )
    yield ""


def _lines_of(samples: Sequence[Length]) -> Iterator[str]:
    """Of each file, the lines of its samples."""
    lines: dict[str, list[str]] = {}
    for each in samples:
        file, _, line = each.place.rpartition(":")
        lines.setdefault(file, []).append(line)
    for file, found in lines.items():
        yield f"{printable(file)}:{', '.join(found)}"


def _costs(report: Report, pen: Pen) -> Iterator[str]:
    yield pen.paint("bold", f"an epoch in batches of {report.micro} at {report.sequence:,} tokens")
    yield f"  {'':<22}{'rows':>10}{'computed':>14}{'data':>7}"
    for way in report.ways:
        about = "" if way.is_exact else ", an estimate"
        yield (
            f"  {way.name:<22}{way.rows:>10,}{way.computed:>14,}{way.used:>7.1%}  "
            f"{pen.paint('dim', way.by + about)}"
        )


def _plan(report: Report, pen: Pen) -> Iterator[str]:
    planned = report.planned
    if planned is None or planned.plan is None or planned.memory is None:
        return
    memory, budget = planned.memory, format_bytes(planned.plan.devices.budget)
    yield ""
    yield from length_lines(planned, pen)
    longest = min(report.sequence, report.lengths.counts[-1][0])
    if planned.plan.data.packing or longest >= report.sequence:
        yield f"peak    {format_bytes(memory.required_bytes)} of {budget}, as planned"
        return
    fewer = peak(planned, longest)
    yield (
        f"peak    {format_bytes(fewer)} of {budget} in a batch of the longest, {longest:,} tokens; "
        f"planned for {report.sequence:,}: {format_bytes(memory.required_bytes)}"
    )


def peak(planned: Planned, longest: int) -> int:
    """Bytes of a device, margins included, if every sample of a batch has `longest` tokens."""
    memory = planned.memory
    if memory is None:
        return 0
    return account(
        with_length(memory.workload, longest), memory.layout, memory.vendor
    ).required_bytes


def report_json(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    lengths = report.lengths
    longer, over = cut_tokens(lengths, report.sequence)
    return {
        "form": report.measured.form.name,
        "is_estimate": lengths.is_estimate,
        "samples": sum(count for _, count in lengths.counts),
        "tokens": sum(length * count for length, count in lengths.counts),
        "longest": lengths.counts[-1][0],
        "quantiles": {f"{share:g}": quantile(lengths, share) for share in (0.5, 0.95, 0.99)},
        "sequence": report.sequence,
        "truncated": {"samples": longer, "tokens": over},
        "unlearned": _places(report.unlearned),
        "batches": [
            {
                "name": way.name,
                "by": way.by,
                "rows": way.rows,
                "computed": way.computed,
                "used": way.used,
                "is_exact": way.is_exact,
            }
            for way in report.ways
        ],
        **_planned_json(report),
    }


def _places(found: Sequence[Length]) -> list[dict[str, Any]]:
    return [{"file": str(each.path), "line": each.at, "tokens": each.tokens} for each in found]


def _planned_json(report: Report) -> dict[str, Any]:
    planned = report.planned
    if planned is None or planned.plan is None or planned.memory is None:
        return {}
    schedule, longest = planned.plan.schedule, min(report.sequence, report.lengths.counts[-1][0])
    packs = planned.plan.data.packing
    return {
        "steps": schedule.steps,
        "estimated_steps": schedule.estimated_steps,
        "step_seconds": planned.time.step_seconds if planned.time else None,
        "planned_bytes": planned.memory.required_bytes,
        "longest_batch_bytes": planned.memory.required_bytes if packs else peak(planned, longest),
    }
