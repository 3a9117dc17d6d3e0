"""`tunec calibrate`: compare a run with its plan, and update its cluster's measurements."""

import os
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Final

from msgspec import DecodeError, Struct, field, to_builtins
from msgspec.json import decode
from pydantic import ValidationError

from tunec.compiler.calibrate.formats.table import Unread, files_in, read_file
from tunec.compiler.calibrate.observation import Observation, together
from tunec.compiler.calibrate.record import derived, ran, text_of, why_another_run, with_run
from tunec.compiler.calibrate.smoke import ConditionResult, is_silent, judged, lines_in
from tunec.compiler.calibrate.wording import outcome_lines, run_lines, shown_line
from tunec.compiler.cli.inputs import asked_targets, load
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import plan
from tunec.compiler.frontend.document import load_document
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.measurements import SUFFIX, path_beside
from tunec.compiler.frontend.names import is_path
from tunec.compiler.frontend.project import Outside, lies_outside, project_root, require_inside
from tunec.compiler.watch.expectation import Expected, assumed, expected
from tunec.compiler.watch.probe_files import FOLDER, PLAN
from tunec.compiler.writing import write_all
from tunec.schemas.hardware.measurements import Measured, Ran
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import start_of


class _Subject(Struct, frozen=True):
    """The plan that a run is compared with, and the path of its cluster's file."""

    plan: Expected
    file: Path
    known: Measured | None


def run(options: Namespace, session: Session) -> int:
    """Read a run, compare it, and write the result; write nothing if there is any fault."""
    is_bundle = _plan_of_bundle(Path(options.spec)) is not None
    if not options.runs and not is_bundle:
        return _again(options, session)
    subject = _subject(options, session)
    if subject is None:
        return INPUT
    shown = _shown(Path(options.spec))
    paths, seen, faults = _read([Path(each) for each in options.runs or [options.spec]])
    if faults:
        return session.refuse(faults, {})
    found = together(seen)
    other = why_another_run(found, subject.plan)
    if other is not None:
        for each in shown if session.format == "text" else ():
            session.tell(shown_line(each))
        how = _ON_A_CPU if found.device == "cpu" else _OF_OTHERS
        return session.refuse((_of_another_plan(paths[0], other, how),), {})
    contents = [each.read_bytes() for each in paths]
    newest = max(each.stat().st_mtime for each in paths)
    day = datetime.fromtimestamp(newest, UTC).date().isoformat()
    try:
        made = ran(subject.plan, found, _names(paths, seen), contents, day)
    except ValidationError as fault:
        why = fault.errors()[0]["msg"].removeprefix("Value error, ")
        return session.refuse((_of_another_plan(paths[0], why),), {})
    after = with_run(subject.known, made, subject.plan.cluster, assumed(subject.plan.vendor))
    code = _deliver(made, after, subject, shown, options, session)
    if not found.device:
        session.note(f"no file says on what it ran: it is taken as a run on {subject.plan.cluster}")
    return code if all(each.verdict == "ok" or is_silent(each) for each in shown) else INPUT


_OF_OTHERS: Final = "name the spec of this run, or leave out files of others"
_ON_A_CPU: Final = "a CPU shows nothing of these devices: start the bundle on them"


def _of_another_plan(path: Path, why: str, how: str = _OF_OTHERS) -> Diagnostic:
    """The files do not show a run of this plan."""
    return error(
        "E0201", f"`{path}` shows no run of this plan: {why}", start_of(str(path)), help=how
    )


def _deliver(
    made: Ran,
    after: Measured,
    subject: _Subject,
    shown: Sequence[ConditionResult],
    options: Namespace,
    session: Session,
) -> int:
    path = Path(options.output) if options.output else subject.file
    if not options.dry_run:
        write_all({path: text_of(after, path.name)})
    if session.format == "json":
        before = subject.known.model_dump(mode="json") if subject.known else None
        after_json = after.model_dump(mode="json")
        about = {"run": made.model_dump(mode="json"), "before": before, "after": after_json}
        checks = {"must_show": [to_builtins(each) for each in shown]} if shown else {}
        session.json({**about, **checks, "file": None if options.dry_run else str(path)})
        return OK
    for each in shown:
        session.tell(shown_line(each))
    session.tell("\n".join(run_lines(made, subject.known, after)))
    session.tell("\n".join(outcome_lines(subject.known, after)))
    number = len(after.runs)
    what = "would be written" if options.dry_run else "written"
    session.note(f"{what}: {path}, {number} run{'' if number == 1 else 's'}")
    return OK


def _subject(options: Namespace, session: Session) -> _Subject | None:
    """The plan of the spec, and earlier measurements; None, after a report, if there is no plan."""
    kept = _plan_of_bundle(Path(options.spec))
    if kept is not None:
        return _of_bundle(kept, session, allow_outside=options.allow_outside)
    loaded = load(options.spec, options, session)
    result = plan(loaded, asked_targets(options.targets, loaded, session), repairing=False)
    facts, memory, time = result.facts, result.memory, result.time
    if facts is None or memory is None or time is None or loaded.spec is None:
        session.refuse(result.diagnostics, loaded.sources)
        return None
    hardware = loaded.spec.hardware
    if isinstance(hardware, Cluster):
        raise Misuse("the spec's `hardware` stands in the spec itself: move it to a file")
    file = loaded.base / hardware if is_path(hardware, loaded.base) else None
    path = path_beside(facts.cluster.name, loaded.base, file)
    return _Subject(expected(facts, memory, time), path, facts.cluster.measured)


def _plan_of_bundle(given: Path) -> Path | None:
    """The expectations of a bundle's probe, if a bundle is given instead of its spec."""
    found = (given / FOLDER / PLAN, given / PLAN)
    return next((each for each in found if each.is_file()), None) if given.is_dir() else None


def _of_bundle(kept: Path, session: Session, *, allow_outside: bool) -> _Subject | None:
    """The plan in a bundle; its cluster's file must be in the bundle's own project."""
    try:
        said = decode(kept.read_bytes(), type=_Kept)
    except (OSError, DecodeError) as fault:
        message = f"cannot use `{kept}`: {fault}"
        again = "compile the spec again: `tunec compile SPEC -o DIR`"
        session.refuse((error("E0201", message, start_of(str(kept)), help=again),), {})
        return None
    if said.measured is None:
        raise Misuse("the spec's `hardware` stands in the spec itself: move it to a file")
    path = Path(os.path.normpath(kept.parent.parent / said.measured))
    root = None if allow_outside else project_root(kept.resolve())
    try:
        require_inside(path, root)
    except Outside as fault:
        session.refuse((lies_outside(said.measured, fault, start_of(str(kept))),), {})
        return None
    if not path.name.endswith(SUFFIX):
        raise Misuse(f"{kept} names {path.name}, which is no file of measured runs: *{SUFFIX}")
    document = load_document(path, Measured) if path.is_file() else None
    if document is not None and document.value is None:
        session.refuse(document.diagnostics, document.sources)
        return None
    return _Subject(said.expected, path, document.value if document is not None else None)


def _shown(given: Path) -> tuple[ConditionResult, ...]:
    """What a short run has shown of what it must show; empty for any other run."""
    kept = _plan_of_bundle(given)
    if kept is None:
        return ()
    try:
        said = decode(kept.read_bytes(), type=_Kept)
    except (OSError, DecodeError):
        return ()  # said before
    return tuple(judged(said.must_show, said.expected.allowed, lines_in(kept.parent)))


class _Kept(Struct, frozen=True):
    """The files beside the probe in a bundle."""

    expected: Expected
    measured: str | None = None
    must_show: dict[str, str] = field(default_factory=dict)


_NOTHING: Final = "no file in this directory shows time or memory of a run"


def _remedy(path: Path) -> str:
    """What to do about a path that shows nothing: a bundle may not have run yet."""
    start = path / "run.sh"
    if start.is_file():
        return f"run it first: `bash {quote(str(start))}`"
    return "`tunec calibrate --help` lists what is read"


def _read(given: list[Path]) -> tuple[list[Path], list[Observation], list[Diagnostic]]:
    """The files of a run and what each shows, or every reason why one shows nothing."""
    paths: list[Path] = []
    seen: list[Observation] = []
    faults: list[tuple[Path, str]] = []
    for each in given:
        inside = list(files_in(each)) if each.is_dir() else [each]
        if not inside:
            faults.append((each, _NOTHING))
        for path in inside:
            try:
                shown = read_file(path)
            except Unread as fault:
                faults += [] if each.is_dir() else [(path, str(fault))]
            else:
                seen += shown
                paths.append(path)
        if inside and each.is_dir() and not any(path in paths for path in inside):
            faults.append((each, _NOTHING))
    said = [
        error("E0201", f"cannot use `{path}`: {fault}", start_of(str(path)), help=_remedy(path))
        for path, fault in faults
    ]
    return paths, seen, said


def _names(paths: list[Path], seen: list[Observation]) -> list[str]:
    """The files that were read, and their kinds."""
    forms = ", ".join(dict.fromkeys(each.source for each in seen if each.source))
    return [*(path.name for path in paths[:-1]), f"{paths[-1].name} ({forms})"]


def _again(options: Namespace, session: Session) -> int:
    """Recompute the numbers of a file from the runs in it."""
    path = Path(options.spec)
    if not path.name.endswith(SUFFIX):
        raise Misuse("name what the run left: `tunec calibrate SPEC RUN...`, files or directories")
    document = load_document(path, Measured)
    if document.value is None:
        return session.refuse(document.diagnostics, document.sources)
    before = document.value
    after = derived(before.runs, before.cluster, assumed())
    if not options.dry_run:
        write_all({path: text_of(after, path.name)})
    if session.format == "json":
        session.json({"after": after.model_dump(mode="json")})
        return OK
    for each in after.runs:
        session.tell("\n".join(run_lines(each, None, after)))
    session.tell("\n".join(outcome_lines(before, after)))
    return OK
