"""`tunec plan`: every decision, the memory account, the time account."""

from argparse import Namespace
from dataclasses import replace

from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.driver import plan
from tunec.compiler.ir.ledger import Ledger
from tunec.compiler.ir.show import plain, show
from tunec.compiler.passes.contract import Pass
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.review.plan_view import plan_json, plan_text


def run(options: Namespace, session: Session) -> int:
    """Plan one spec and print it."""
    if options.after and options.after not in {each.name for each in PIPELINE}:
        names = ", ".join(each.name for each in PIPELINE)
        raise Misuse(f"there is no pass {options.after!r}; the passes are {names}")
    loaded = load(options.spec, options, session)
    ledgers: dict[str, Ledger] = {}

    def keep(each: Pass, ledger: Ledger) -> None:
        ledgers[each.name] = ledger

    result = plan(loaded, asked_targets(options.targets, loaded, session), hook=keep)
    found, sources = judged(result, options)
    result = replace(result, diagnostics=(*result.diagnostics, *found))
    session.diagnose(result.diagnostics, {**loaded.sources, **sources})
    if options.after and options.after in ledgers:
        _print_after(ledgers[options.after], session)
    elif session.format == "json":
        session.json(plan_json(result))
    elif result.plan is not None:
        session.result(plan_text(result))
    return OK if result.ok else INPUT


def _print_after(ledger: Ledger, session: Session) -> None:
    winners = {each.slot: each.value for each in ledger.winners()}
    if session.format == "json":
        session.json({"plan": {slot: plain(value) for slot, value in winners.items()}})
    else:
        session.result("\n".join(f"{slot:<32} {show(slot, v)}" for slot, v in winners.items()))
