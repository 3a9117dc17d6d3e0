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
from tunec.compiler.frontend.load import Loaded, load_spec, with_settings
from tunec.compiler.frontend.names import ResolvedName, check_hardware
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
    found = _found(options.checkpoint)
    if isinstance(found, NoCheckpoint):
        return _refuse(found, options, session)
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
    loaded = _loaded(options, session)
    kept = _kept_batch(found, options.overrides)
    if kept and loaded.spec is not None:
        loaded = with_settings(loaded, list(kept))
    return plan(loaded, asked_targets(options.targets, loaded, session))


def _loaded(options: Namespace, session: Session) -> Loaded:
    return load_spec(
        Path(options.spec),
        overrides=options.overrides,
        hardware=options.hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )


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
    named, sources = _hardware(options.hardware)
    if named.cluster is None:
        return session.refuse(named.faults, sources)
    cluster = named.cluster
    world = select(cluster, devices_of(cluster), DeviceChoice()).count
    goal = Goal(_FAMILIES[found.kind], world)
    return _show(Report(found, goal, way_of(found, goal), batch_before(found)), session)


def _hardware(name: str) -> tuple[ResolvedName, dict[str, str]]:
    """The machines that the command names, and the texts of its faults."""
    line = f"--hardware {name}"
    node = Node(Span(COMMAND_LINE, 1, 12, 1, len(line) + 1), name)
    named = check_hardware(name, Node(node.span, fields={"hardware": node}), Project(Path()))
    return named, {COMMAND_LINE: line, **dict(each.source for each in named.files)}


def _found(checkpoint: str) -> Checkpoint | NoCheckpoint:
    """The contents of a folder, or why they cannot be read."""
    try:
        return look(Path(checkpoint))
    except NoCheckpoint as why:
        return why
    except OSError as why:
        return NoCheckpoint(f"cannot read `{why.filename}`: {(why.strerror or str(why)).lower()}")


def _refuse(why: NoCheckpoint, options: Namespace, session: Session) -> int:
    """Report a folder that cannot be read, and every other fault of the command."""
    others, sources = _other_faults(options, session)
    name = options.checkpoint
    given = [*sources.get(COMMAND_LINE, "").splitlines(), name]
    at = Span(COMMAND_LINE, len(given), 1, len(given), max(len(name), 1) + 1)
    fault = error("E0201", str(why), at, help=why.help)
    return session.refuse((fault, *others), {**sources, COMMAND_LINE: "\n".join(given)})


def _other_faults(
    options: Namespace, session: Session
) -> tuple[tuple[Diagnostic, ...], Mapping[str, str]]:
    """The faults of the spec and of the machines, without those of a plan."""
    if options.spec is not None:
        loaded = _loaded(options, session)
        return loaded.diagnostics, loaded.sources
    if options.hardware is not None:
        named, sources = _hardware(options.hardware)
        return named.faults, sources
    return (), {}
