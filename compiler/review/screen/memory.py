"""The memory of a device, and of its host where it matters, as bars that follow each other."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.ir.plan import Plan
from tunec.compiler.passes.defaults import RESERVE
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.schemas.units import format_bytes

_NAME, _AMOUNT = 28, 11
_BAR: Final = WIDTH - 2 - _NAME - _AMOUNT - 1
_MOST: Final = 5
_MOST_OF_BOTH: Final = 4
"""Terms with a bar of their own, and where the host has bars too; others are told together."""
_LEAST: Final = 0.01
"""Terms below this share of what there is have no bar of their own."""
_NEAR: Final = 0.5
"""From this share of its memory on, a host is looked at as closely as a device."""


def verdict(plan: Plan, memory: Account, pen: Pen) -> str:
    """Whether it fits, and how much is left."""
    devices, budget = plan.devices, plan.devices.budget
    left = budget - memory.required_bytes
    is_tight = devices.memory - memory.required_bytes < RESERVE.value * devices.memory
    word = pen.paint("tight" if is_tight else "good", "fits, barely" if is_tight else "fits")
    needs, has = format_bytes(memory.required_bytes), format_bytes(budget)
    where = "each device" if plan.parallel.world > 1 else "the device"
    return f"{word}: {needs} of {has} on {where}, {format_bytes(left)} left ({left / budget:.0%})"


def device_lines(plan: Plan, memory: Account, pen: Pen) -> Iterator[str]:
    """A bar for each large term of the worst moment, one for what is left."""
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
    """Whether a node's host holds much of what it has."""
    budget = plan.devices.host_budget
    return budget is not None and memory.host.peak_bytes > _NEAR * budget


def _with_margin(memory: Account) -> dict[str, int]:
    """The peak's terms, and what the account adds: context and collectives, then slack."""
    margin = dict(memory.margin)
    slack = {"allocator slack": margin.pop("allocator slack")}
    named = " and ".join(list(margin)[: 2 if len(margin) > 2 else 1])
    return {**memory.terms, named: sum(margin.values()), **slack}


def host_lines(plan: Plan, memory: Account, pen: Pen) -> Iterator[str]:
    """One line, and bars where the host holds much of what it has."""
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
    """Lines with a name, an amount and a stretch of `whole` bytes; where one ends the next begins.

    What is free comes last, and is drawn as such.
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
