"""The section about time: where the seconds of an optimizer step go."""

from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.review.report.bars import Chart, waterfall
from tunec.compiler.review.report.html import tag
from tunec.compiler.review.report.page import Section, figure, folded
from tunec.compiler.review.report.tables import Column, table


def time_section(time: TimeAccount, micro_batches: int) -> Section:
    """The terms of a step, one after the other."""
    terms = {name: seconds for name, seconds in time.terms.items() if seconds}
    step = time.step_seconds
    words = (
        f"An optimizer step of {time.samples:,} samples takes {seconds_text(step)}: "
        f"{rate_text(time)}.{_summed(micro_batches)} The account ranks layouts; it may be off by "
        "tens of percent between devices."
    )
    described = ", ".join(f"{name} {seconds_text(value)}" for name, value in terms.items())
    colours = dict.fromkeys(terms, "c1")
    chart = Chart("time of an optimizer step by term", described, seconds_text, colours)
    rows = [(n, seconds_text(s), f"{s / step:.1%}") for n, s in terms.items()]
    columns = (Column("term"), Column("time", is_number=True), Column("share", is_number=True))
    content = (
        tag("p", words),
        figure(waterfall(chart, terms), "Seconds of a step, one term after the other."),
        folded("As a table", table("Time of a step by term", columns, rows)),
    )
    return Section("time", "Time", content)


def _summed(micro_batches: int) -> str:
    if micro_batches == 1:
        return ""
    return f" What occurs in each of its {micro_batches:,} micro batches is summed."


def rate_text(time: TimeAccount) -> str:
    """How fast it goes: tokens and samples a second."""
    samples = f"{time.samples_per_second:.3g} samples/s"
    tokens = time.tokens_per_second
    return f"{tokens:,.0f} tokens/s, {samples}" if tokens else samples


def seconds_text(seconds: float) -> str:
    """`4.22 s`, `38.0 ms`, `0 s`."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds * 1e6:#.3g}".rstrip(".") + " µs"
