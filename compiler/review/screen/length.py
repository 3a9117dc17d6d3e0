"""How long a run lasts, how much it reads, and what it costs, as far as that is known."""

from collections.abc import Iterator

from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.diagnostics.source_lines import printable
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.review.outcome import expected_steps, needs_of
from tunec.compiler.review.screen.pen import WIDTH, Pen
from tunec.schemas.units import format_count


def length_lines(planned: Planned, pen: Pen) -> Iterator[str]:
    """Steps with their time, tokens, and the price where the hardware has one."""
    if planned.plan is None or planned.time is None:
        return
    for line in (_steps(planned, planned.plan, planned.time), _tokens(planned.plan, planned.time)):
        if line:
            yield _labelled(line, pen)
    price = _price(planned)
    if price:
        yield _labelled(price, pen)


def _labelled(line: tuple[str, str], pen: Pen) -> str:
    label, text = line
    return f"{pen.paint('bold', f'{label:<8}')}{pen.shortened(printable(text), WIDTH - 8)}"


def _steps(planned: Planned, plan: Plan, time: TimeAccount) -> tuple[str, str]:
    step = f"a step takes about {duration(time.step_seconds)}"
    steps = expected_steps(plan)
    if steps is None:
        winner = planned.ledger.winner("schedule.steps")
        why = f" ({winner.reason})" if winner else ""
        return "run", f"{_epochs(plan)}, number of steps unknown{why}; {step}"
    total = duration(steps * time.step_seconds)
    passes = f" in {_epochs(plan)}" if plan.schedule.epochs is not None else ""
    rough = "" if plan.schedule.steps else "about "
    return "run", f"{rough}{steps:,} step{'' if steps == 1 else 's'}{passes}, about {total}; {step}"


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
    return "price", f"about ${needs.run_cost:,.2f}, at ${hourly:,.2f} an hour"


def duration(seconds: float) -> str:
    """A stretch of time in the unit in which people think of it: `1.7 s`, `9 min`, `5.5 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:,.1f} h" + (f" ({hours / 24:,.1f} days)" if hours >= 48 else "")
