"""A plan on one screen: at most 40 lines of 100 columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import join, quote
from textwrap import wrap
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.passes.defaults import RESERVE
from tunec.compiler.review.measurements import in_short, measured_of
from tunec.compiler.review.outcome import doubt_of, expected_steps, is_at_most, needs_of
from tunec.compiler.review.screen.decisions import decision_lines
from tunec.compiler.review.screen.pen import HEIGHT, WIDTH, Pen
from tunec.schemas.units import format_bytes, format_count

_LABEL: Final = 8
"""Columns of the label before the commands."""
_WIDTH: Final = WIDTH - _LABEL
_LONGEST: Final = 4
"""The most lines of the first command; each other command gets one line."""


class Command(Struct, frozen=True):
    """A command line as a list of words."""

    begins: tuple[str, ...]
    given: tuple[str, ...] = ()
    """The arguments with which the plan was requested."""
    ends: tuple[str, ...] = ()


def command_lines(commands: Sequence[Command], pen: Pen) -> Iterator[str]:
    """The commands on successive lines; the first in full if possible."""
    for at, command in enumerate(commands):
        for number, line in enumerate(_lines(command, 1 if at else _LONGEST, pen)):
            label = "" if at or number else "next"
            yield f"{pen.paint('bold', f'{label:<{_LABEL}}')}{line}"


def _lines(command: Command, most: int, pen: Pen) -> list[str]:
    """A command in at most `most` lines; if it is longer, dots replace the given arguments."""
    lines = _broken((*command.begins, *command.given, *command.ends))
    if len(lines) <= most and all(len(line) <= _WIDTH for line in lines):
        return lines
    dots = "..." if command.given else ""
    short = " ".join(filter(None, (join(command.begins), dots, join(command.ends))))
    return [pen.shortened(short, _WIDTH)]


def _broken(words: Sequence[str]) -> list[str]:
    """A command line, broken between arguments if it is long."""
    lines: list[str] = []
    for word in map(quote, words):
        if lines and len(lines[-1]) + len(word) + 3 <= _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {word}" if lines else word)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def length_lines(planned: Planned, pen: Pen) -> Iterator[str]:
    """The steps with their time, the tokens, and the price if the hardware has one."""
    if planned.plan is None or planned.time is None:
        return
    for line in (_steps(planned, planned.plan, planned.time), _tokens(planned.plan, planned.time)):
        if line:
            yield _labelled(line, pen)
    for at, part in enumerate(wrap(doubt_of(planned) or "", _WIDTH)):
        yield _labelled(("" if at else "doubt", part), pen)
    price = _price(planned)
    if price:
        yield _labelled(price, pen)
    if (found := measured_of(planned)) is not None:
        yield _labelled(("runs", in_short(found)), pen)


def _labelled(line: tuple[str, str], pen: Pen) -> str:
    label, text = line
    return f"{pen.paint('bold', f'{label:<8}')}{pen.shortened(printable(text), WIDTH - 8)}"


def _steps(planned: Planned, plan: Plan, time: TimeAccount) -> tuple[str, str]:
    about = _about(planned)
    step = f"a step takes {about} {duration(time.step_seconds)}"
    steps = expected_steps(plan)
    if steps is None:
        winner = planned.ledger.winner("schedule.steps")
        why = f" ({winner.reason})" if winner else ""
        return "run", f"{_epochs(plan)}; {step}; number of steps unknown{why}"
    total = duration(steps * time.step_seconds)
    passes = f" in {_epochs(plan)}" if plan.schedule.epochs is not None else ""
    rough = "" if plan.schedule.steps else "about "
    named = f"{rough}{steps:,} step{'' if steps == 1 else 's'}{passes}"
    return "run", f"{named}, {about} {total}; {step}"


def _about(planned: Planned) -> str:
    return "at most about" if is_at_most(planned) else "about"


def _epochs(plan: Plan) -> str:
    epochs = plan.schedule.epochs
    if epochs is None:
        return "a run"
    return f"{epochs:g} epoch{'' if epochs == 1 else 's'}"


def _tokens(plan: Plan, time: TimeAccount) -> tuple[str, str] | None:
    if plan.model.kind == "diffusion" or not time.tokens:
        return "speed", f"{time.samples_per_second:.3g} samples a second"
    rate = f"{format_count(time.tokens)} a step, {time.tokens_per_second:,.0f} a second"
    steps = expected_steps(plan)
    if steps is None:
        return "tokens", f"at most {rate}"
    return "tokens", f"at most {format_count(steps * time.tokens)}, {rate}"


def _price(planned: Planned) -> tuple[str, str] | None:
    needs, facts = needs_of(planned), planned.facts
    hourly = facts.cluster.price_per_hour if facts else None
    if hourly is None:
        return None
    if needs is None or needs.run_cost is None:
        return "price", f"${hourly:,.2f} an hour"
    return "price", f"{_about(planned)} ${needs.run_cost:,.2f}, at ${hourly:,.2f} an hour"


def duration(seconds: float) -> str:
    """A duration in a convenient unit: `1.7 s`, `9 min`, `5.5 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:,.1f} h" + (f" ({hours / 24:,.1f} days)" if hours >= 48 else "")


_NAME, _AMOUNT = 28, 11
_BAR: Final = WIDTH - 2 - _NAME - _AMOUNT - 1
_MOST: Final = 5
_MOST_OF_BOTH: Final = 4
"""The most terms with a bar: `_MOST`, or this if the host has bars too; the others are combined."""
_LEAST: Final = 0.01
"""Terms below this share of the memory have no bar."""
_NEAR: Final = 0.5
"""Share of its memory above which a host is shown in as much detail as a device."""


def verdict(plan: Plan, memory: Account, pen: Pen) -> str:
    """Whether the plan fits, and how much memory is left."""
    devices, budget = plan.devices, plan.devices.budget
    left = budget - memory.required_bytes
    is_tight = devices.memory - memory.required_bytes < RESERVE.value * devices.memory
    word = pen.paint("tight" if is_tight else "good", "fits, barely" if is_tight else "fits")
    needs, has = format_bytes(memory.required_bytes), format_bytes(budget)
    where = "each device" if plan.parallel.world > 1 else "the device"
    return f"{word}: {needs} of {has} on {where}, {format_bytes(left)} left ({left / budget:.0%})"


def device_lines(plan: Plan, memory: Account, pen: Pen) -> Iterator[str]:
    """A bar for each large term of the peak, and one for the free memory."""
    devices = plan.devices
    left = devices.budget - memory.required_bytes
    kept = min(left, devices.reserve)
    yield f"{pen.paint('bold', 'memory of a device')}: highest in {memory.peak_phase}"
    rest = {
        "left": left - kept,
        "kept in reserve": kept,
        "kept out of the run": devices.memory - devices.budget,
    }
    most = _MOST_OF_BOTH if _is_near(plan, memory) else _MOST
    yield from _bars(_with_margin(memory), rest, devices.memory, pen, most)


def _is_near(plan: Plan, memory: Account) -> bool:
    """Whether a node's host uses much of its memory."""
    budget = plan.devices.host_budget
    return budget is not None and memory.host.peak_bytes > _NEAR * budget


def _with_margin(memory: Account) -> dict[str, int]:
    """The peak's terms and the margin: context and collectives, then the allocator slack."""
    margin = dict(memory.margin)
    slack = {"allocator slack": margin.pop("allocator slack")}
    named = " and ".join(list(margin)[: 2 if len(margin) > 2 else 1])
    return {**memory.terms, named: sum(margin.values()), **slack}


def host_lines(plan: Plan, memory: Account, pen: Pen) -> Iterator[str]:
    """One line, and bars if the host uses much of its memory."""
    host, budget = memory.host, plan.devices.host_budget
    of = f" of {format_bytes(budget)}" if budget is not None else ""
    if memory.workload.shares_host_memory:
        of = " of the same memory"
    title = "memory of its host"
    largest, amount = next(iter(host.terms.items()))
    text = f": {format_bytes(host.peak_bytes)}{of}, highest in {host.peak_phase}"
    why = f" ({largest} {format_bytes(amount)})"
    yield pen.paint("bold", title) + pen.shortened(text + why, WIDTH - len(title))
    if budget is not None and _is_near(plan, memory) and not memory.workload.shares_host_memory:
        free = {"left": budget - host.peak_bytes}
        yield from _bars(host.terms, free, budget, pen, _MOST_OF_BOTH)


def _bars(
    terms: Mapping[str, int], free: Mapping[str, int], whole: int, pen: Pen, most: int
) -> Iterator[str]:
    """Lines with a name, an amount and its part of a bar of `whole` bytes; parts are consecutive.

    Free memory comes last, and is drawn differently.
    """
    large = [item for item in terms.items() if item[1] >= _LEAST * whole]
    shown = dict(sorted(large, key=lambda item: -item[1])[:most])
    shown["all else"] = sum(terms.values()) - sum(shown.values())
    at = 0
    for term, amount in (*shown.items(), *free.items()):
        if amount > 0:
            bar = pen.bar(at / whole, amount / whole, _BAR, free=term in free)
            name = pen.shortened(term, _NAME - 1)
            yield f"  {name:<{_NAME}}{format_bytes(amount):>{_AMOUNT}} {bar}"
        at += amount


_MOST_SAID: Final = 3
"""The most diagnostics that are shown; stderr has all of them in full."""
_STYLES_OF_SEVERITY: Final[dict[Severity, str]] = {
    "error": "bad",
    "warning": "tight",
    "note": "dim",
}


def plan_screen(planned: Planned, pen: Pen, commands: Sequence[Command] = ()) -> str:
    """A plan's summary; empty if there is no plan. `commands` are suggested next commands."""
    plan, memory = planned.plan, planned.memory
    if plan is None or memory is None:
        return ""
    above = [*_title(planned, plan, pen), "", verdict(plan, memory, pen)]
    above += [*device_lines(plan, memory, pen), *host_lines(plan, memory, pen), ""]
    below = ["", *length_lines(planned, pen)]
    below += [*_diagnostic_lines(planned.diagnostics, pen), *command_lines(commands, pen)]
    decisions = decision_lines(planned, pen, HEIGHT - len(above) - len(below))
    return "\n".join([*above, *decisions, *below])


def _title(planned: Planned, plan: Plan, pen: Pen) -> Iterator[str]:
    spec, facts = planned.loaded.spec, planned.facts
    if spec is None or facts is None:
        return
    model = spec.model if isinstance(spec.model, str) else spec.model.path
    name, method = f"{spec.name}: ", spec.method.name.replace("_", " ")
    head = printable(f"{method} of {model} on {facts.cluster.name}")
    yield pen.paint("bold", pen.shortened(name, WIDTH // 3)) + pen.shortened(head, 2 * WIDTH // 3)
    trained, every = plan.adapter.trainable_parameters, plan.model.parameters
    devices = {each.name: each.title for each in facts.devices.values()}
    device = devices.get(plan.devices.model, plan.devices.model)
    parts = (
        f"{format_count(every)} parameters, {format_count(trained)} trained",
        f"{plan.parallel.world} x {device}" + _nodes(plan),
    )
    yield pen.paint("dim", pen.shortened("; ".join(parts), WIDTH))


def _nodes(plan: Plan) -> str:
    used = -(-plan.parallel.world // plan.devices.per_node)
    return f" on {used} nodes" if used > 1 else ""


def _diagnostic_lines(diagnostics: Iterable[Diagnostic], pen: Pen) -> Iterator[str]:
    """The diagnostics, errors first, each on one line."""
    every = sorted(diagnostics, key=lambda each: list(_STYLES_OF_SEVERITY).index(each.severity))
    shown = every if len(every) <= _MOST_SAID else every[: _MOST_SAID - 1]
    for each in shown:
        head = f"{each.severity}[{each.id}]"
        text = pen.shortened(printable(f"{head}: {each.message}"), WIDTH)[len(head) :]
        yield pen.paint(_STYLES_OF_SEVERITY[each.severity], head) + text
    if len(every) > len(shown):
        yield f"and {len(every) - len(shown)} more"
