"""A plan on one screen: at most 40 lines of 100 columns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.diagnostics.source_lines import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.review.screen.commands import Command, command_lines
from tunec.compiler.review.screen.decisions import decision_lines
from tunec.compiler.review.screen.length import length_lines
from tunec.compiler.review.screen.memory import device_lines, host_lines, verdict
from tunec.compiler.review.screen.pen import HEIGHT, WIDTH, Pen
from tunec.schemas.units import format_count

_MOST_SAID: Final = 3
"""Diagnostics that are named; stderr has them whole."""
_STYLES: Final[dict[Severity, str]] = {"error": "bad", "warning": "tight", "note": "dim"}


def plan_screen(planned: Planned, pen: Pen, commands: Sequence[Command] = ()) -> str:
    """What matters of a plan; empty if there is none. `commands` are what could be run next."""
    plan, memory = planned.plan, planned.memory
    if plan is None or memory is None:
        return ""
    above = [*_title(planned, plan, pen), "", verdict(plan, memory, pen)]
    above += [*device_lines(plan, memory, pen), *host_lines(plan, memory, pen), ""]
    below = ["", *length_lines(planned, pen)]
    below += [*_said(planned.diagnostics, pen), *command_lines(commands, pen)]
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


def _said(diagnostics: Iterable[Diagnostic], pen: Pen) -> Iterator[str]:
    """The diagnostics, errors first, each in one line."""
    every = sorted(diagnostics, key=lambda each: list(_STYLES).index(each.severity))
    shown = every if len(every) <= _MOST_SAID else every[: _MOST_SAID - 1]
    for each in shown:
        head = f"{each.severity}[{each.id}]"
        text = pen.shortened(printable(f"{head}: {each.message}"), WIDTH)[len(head) :]
        yield pen.paint(_STYLES[each.severity], head) + text
    if len(every) > len(shown):
        yield f"and {len(every) - len(shown)} more"
