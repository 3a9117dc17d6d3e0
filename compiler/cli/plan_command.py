"""`tunec plan`: one screen about a run, or every decision with both accounts."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import Misuse, Session, exit_code, is_colored
from tunec.compiler.cli.trace_command import beside
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.terminal import printable_lines
from tunec.compiler.driver import Planned, plan, written
from tunec.compiler.frontend.files import is_stream
from tunec.compiler.ir.ledger import Ledger
from tunec.compiler.ir.values import plain, show
from tunec.compiler.passes.contract import Pass
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.compiler.requirements import Asked
from tunec.compiler.review.plan_view import plan_json, plan_text
from tunec.compiler.review.screen.pen import Pen
from tunec.compiler.review.screen.screen import Command, plan_screen
from tunec.compiler.tracing.comparison import Comparison
from tunec.compiler.tracing.report import peaks_text, trace_json
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.refusals import TAKEN_OUT
from tunec.schemas.objective_facts import OBJECTIVES


def run(options: Namespace, session: Session) -> int:
    """Plan one spec and print it."""
    if options.after and options.after not in {each.name for each in PIPELINE}:
        names = ", ".join(each.name for each in PIPELINE)
        raise Misuse(f"there is no pass {options.after!r}; the passes are {names}")
    loaded = load(options.spec, options, session)
    ledgers: dict[str, Ledger] = {}

    def keep(each: Pass, ledger: Ledger) -> None:
        ledgers[each.name] = ledger

    asked = asked_targets(options.targets, loaded, session)
    result = plan(loaded, asked, hook=keep)
    found, sources = judged(result, options)
    result = replace(result, diagnostics=(*result.diagnostics, *_unwritable(result, asked), *found))
    session.diagnose(result.diagnostics, {**loaded.sources, **sources})
    if options.after and options.after in ledgers:
        _print_after(ledgers[options.after], session)
        return exit_code(result.diagnostics, fine=result.ok)
    comparison, refused = _traced(result) if options.trace else (None, "")
    if session.format == "json":
        about = trace_json(comparison) if comparison else {"refused": refused}
        session.json({**plan_json(result), **({"trace": about} if options.trace else {})})
    elif result.plan is not None:
        session.result(_text(result, options, session))
        if comparison is not None:
            session.result(peaks_text(comparison))
    if refused:
        session.note(f"tunec plan --trace: {refused}")
    return exit_code(result.diagnostics, fine=result.ok and not refused)


def _traced(result: Planned) -> tuple[Comparison | None, str]:
    """The plan compared with a trace of its layout, or why there is none."""
    if not result.ok:
        return None, "there is no plan to trace"
    try:
        return beside(result), ""
    except Untraceable as reason:
        return None, str(reason)


def _unwritable(planned: Planned, asked: Sequence[Asked]) -> Iterator[Diagnostic]:
    """The faults of the requested targets' files, as compiling would report them."""
    told = set(planned.diagnostics)
    for each in written(planned, asked).diagnostics:
        if each not in told and each.severity != "note":
            yield each


def _text(planned: Planned, options: Namespace, session: Session) -> str:
    if options.all:
        return printable_lines(plan_text(planned))
    pen = Pen(is_colored(session.stdout), session.draws)
    return plan_screen(planned, pen, _next(planned, options))


def _next(planned: Planned, options: Namespace) -> tuple[Command, ...]:
    """The commands to run next, with the arguments that made this plan."""
    if is_stream(Path(options.spec)):
        return ()
    spec = planned.loaded.spec
    given = [f"--hardware={options.hardware}"] if options.hardware else []
    given += [f"--set={each}" for each in options.overrides]
    given += [f"--target={each}" for each in options.targets]
    given += ["--allow-outside"] if options.allow_outside else []
    rules = [f"--policy={each}" for each in options.policies]
    nobody = spec is not None and not spec.targets and not options.targets
    usual = [f"--target={_usual_target(planned)}"] if nobody else []
    compiling = Command(("tunec", "compile", options.spec), (*given, *rules), (*usual, "-o", "out"))
    explaining = Command(("tunec", "explain", options.spec), tuple(given), ("batch.micro",))
    if not planned.ok:
        return (explaining,)
    return compiling, explaining, Command(("tunec", "plan", options.spec), tuple(given), ("--all",))


def _usual_target(planned: Planned) -> str:
    """The usual target for a kind of model, with a program that starts it."""
    model = planned.plan.model if planned.plan is not None else None
    if model is not None and model.kind == "diffusion":
        return "simpletuner"
    if model is not None and model.family in TAKEN_OUT:
        return TAKEN_OUT[model.family]
    few = OBJECTIVES[planned.plan.objective.kind].written_by if planned.plan is not None else ()
    if few:
        return few[0]
    spec = planned.loaded.spec
    is_own = model is None or model.trust_remote_code or (spec is not None and spec.run.script)
    writes = model is not None and model.kind in ("causal-lm", "vision-language")
    return "trl" if writes and not is_own and spec is not None and not spec.task else "huggingface"


def _print_after(ledger: Ledger, session: Session) -> None:
    winners = {each.slot: each.value for each in ledger.winners()}
    if session.format == "json":
        session.json({"plan": {slot: plain(value) for slot, value in winners.items()}})
    else:
        session.tell("\n".join(f"{slot:<32} {show(slot, v)}" for slot, v in winners.items()))
