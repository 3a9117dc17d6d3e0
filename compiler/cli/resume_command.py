"""`tunec resume`: how training continues from a checkpoint on other hardware."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tunec.compiler.analyses.selection import select
from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import OK, Misuse, Session, is_colored
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.load import load_spec, with_settings
from tunec.compiler.frontend.names import check_hardware
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.project import Project
from tunec.compiler.ir.plan import Plan
from tunec.compiler.resolve import devices_of
from tunec.compiler.resume.folder import Checkpoint, Kind, NoCheckpoint, look
from tunec.compiler.resume.report import Report, batch_before, report_json, report_text
from tunec.compiler.resume.ways import Family, Goal, way_of
from tunec.compiler.review.screen.pen import Pen
from tunec.schemas.source import COMMAND_LINE, Span
from tunec.schemas.spec import DeviceChoice

_FAMILIES: Final[Mapping[Kind, Family]] = {
    "deepspeed": "deepspeed",
    "universal": "deepspeed",
    "fsdp-sharded": "fsdp",
    "fsdp-full": "fsdp",
    "trainer": "plain",
    "accelerate": "plain",
    "weights": "plain",
}
"""The default engine: the one that wrote the folder."""


def run(options: Namespace, session: Session) -> int:
    """Report what a folder holds, and how training continues from it."""
    try:
        found = look(Path(options.checkpoint))
    except NoCheckpoint as why:
        return session.refuse(
            (_fault(options.checkpoint, str(why), why.help),), _line(options.checkpoint)
        )
    except OSError as why:
        message = f"cannot read `{why.filename}`: {(why.strerror or str(why)).lower()}"
        return session.refuse((_fault(options.checkpoint, message),), _line(options.checkpoint))
    if options.spec is None:
        return _without_spec(found, options, session)
    planned = _planned(found, options, session)
    session.diagnose(planned.diagnostics, planned.loaded.sources)
    if planned.plan is None or has_errors(planned.diagnostics):
        if session.format == "json":
            session.json({"diagnostics": [each.to_json() for each in planned.diagnostics]})
        return 1
    goal = _goal(planned.plan)
    asked = asked_targets(options.targets, planned.loaded, session)
    resumes = next((target.resumes for target, _ in asked if target.resumes), "")
    way, before = way_of(found, goal), batch_before(found)
    report = Report(found, goal, way, before, planned, resumes, _compiling(found, options))
    return _show(report, session)


def _compiling(found: Checkpoint, options: Namespace) -> tuple[str, ...]:
    """The command that compiles the plan that is shown."""
    named = (("--hardware", options.hardware), *(("--target", each) for each in options.targets))
    sets = (*options.overrides, *_kept_batch(found, options.overrides))
    words = (*named, *(("--set", each) for each in sets))
    flags = ("--allow-outside",) if options.allow_outside else ()
    given = (word for flag, value in words if value for word in (flag, value))
    return ("tunec", "compile", options.spec, *given, *flags)


def _kept_batch(found: Checkpoint, overrides: Sequence[str]) -> tuple[str, ...]:
    """The batch of the original run, unless another is set."""
    before = batch_before(found)
    is_said = before is None or any(each.startswith("batch.global") for each in overrides)
    return () if is_said else (f"batch.global={before}",)


def _show(report: Report, session: Session) -> int:
    if session.format == "json":
        session.json(report_json(report))
    else:
        session.result(report_text(report, Pen(is_colored(session.stdout), session.draws)))
    return OK


def _planned(found: Checkpoint, options: Namespace, session: Session) -> Planned:
    """The spec's plan on the new hardware, with the batch of the original run."""
    loaded = load_spec(
        Path(options.spec),
        overrides=options.overrides,
        hardware=options.hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )
    kept = _kept_batch(found, options.overrides)
    if kept and loaded.spec is not None:
        loaded = with_settings(loaded, list(kept))
    return plan(loaded, asked_targets(options.targets, loaded, session))


def _goal(made: Plan) -> Goal:
    engine = made.parallel.engine
    family: Family = engine if engine in ("deepspeed", "fsdp") else "plain"
    ranks = made.parallel.data * made.parallel.sequence
    return Goal(family, ranks, made.zero.stage if family == "deepspeed" else None)


def _without_spec(found: Checkpoint, options: Namespace, session: Session) -> int:
    """Resume with the engine that wrote the folder, on every device of the new hardware."""
    if options.hardware is None:
        raise Misuse("name the new machines: --hardware H, or a spec of the run: --spec SPEC")
    if options.overrides or options.targets:
        raise Misuse("--set and --target change a spec: name it with --spec SPEC")
    line = f"--hardware {options.hardware}"
    node = Node(Span(COMMAND_LINE, 1, 12, 1, len(line) + 1), options.hardware)
    named = check_hardware(
        options.hardware, Node(node.span, fields={"hardware": node}), Project(Path())
    )
    if named.cluster is None:
        sources = {COMMAND_LINE: line, **dict(each.source for each in named.files)}
        return session.refuse(named.faults, sources)
    cluster = named.cluster
    world = select(cluster, devices_of(cluster), DeviceChoice()).count
    goal = Goal(_FAMILIES[found.kind], world)
    return _show(Report(found, goal, way_of(found, goal), batch_before(found)), session)


def _line(checkpoint: str) -> dict[str, str]:
    return {COMMAND_LINE: checkpoint}


def _fault(checkpoint: str, message: str, help: str | None = None) -> Diagnostic:
    at = Span(COMMAND_LINE, 1, 1, 1, max(len(checkpoint), 1) + 1)
    return error("E0201", message, at, help=help)
