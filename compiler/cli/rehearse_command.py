"""`tunec rehearse`: run the written files for real, at a small size, on this machine."""

import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.bundle import outset
from tunec.compiler.cli.inputs import load, targets_for
from tunec.compiler.cli.session import Misuse, Session, ended_by_signals, exit_code
from tunec.compiler.cli.trace_command import config_of
from tunec.compiler.consumers.network import Network, network
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.rehearse.adapt import Device
from tunec.compiler.rehearse.compare import Check, compare
from tunec.compiler.rehearse.prepare import (
    FILES,
    LAUNCH,
    Rehearsal,
    absent,
    interpreter,
    needed,
    prepare,
)
from tunec.compiler.rehearse.rank_processes import SECONDS, RehearsalFailed
from tunec.compiler.rehearse.rank_processes import run as run_job
from tunec.compiler.rehearse.report import passes, table, to_json
from tunec.compiler.rehearse.shrink import Unrehearsable
from tunec.compiler.requirements import Asked
from tunec.compiler.verify.cases import cases_of, compiled_folder
from tunec.compiler.verify.contract import Case

_INSTALL: Final = "install tunec[consumers], which includes torch, transformers, peft and deepspeed"


def run(options: Namespace, session: Session) -> int:
    """Rehearse one spec; 0 only if it ran and nothing differs from the plan."""
    loaded = load(options.spec, options, session)
    asked = _dialects(options, loaded, session)
    folder = _folder(options, loaded)
    starter = session.registry.resolve(LAUNCH, loaded.software)
    compiled = compile_spec(loaded, asked, outset(loaded, folder, starter) if folder else None)
    session.diagnose(compiled.diagnostics, loaded.sources)
    if not compiled.ok:
        return _say((), "there are no files to rehearse", compiled.diagnostics, session)
    cases = cases_of(compiled, asked, folder)
    try:
        checks = _rehearsed(cases, loaded, options, session)
    except (Unrehearsable, RehearsalFailed) as reason:
        if isinstance(reason, RehearsalFailed) and reason.output:
            session.note(reason.output)
        return _say((), str(reason), compiled.diagnostics, session)
    return _say(checks, "", compiled.diagnostics, session)


def _say(
    checks: Sequence[Check], refused: str, found: Sequence[Diagnostic], session: Session
) -> int:
    if session.format == "json":
        said = [each.to_json() for each in found]
        rows = [to_json(each) for each in checks]
        session.json({"checks": rows, "refused": refused or None, "diagnostics": said})
    elif refused:
        session.note(f"tunec rehearse: {refused}")
    else:
        session.tell(table(checks))
    return exit_code(found, fine=passes(checks))


def _rehearsed(
    cases: Sequence[Case], loaded: Loaded, options: Namespace, session: Session
) -> tuple[Check, ...]:
    missing = absent(needed(cases))
    if missing:
        raise Unrehearsable(f"{' and '.join(missing)} cannot be imported: {_INSTALL}")
    _same_release(cases)
    device, count = _device()
    ranks = options.ranks if device == "cpu" else min(options.ranks, count)
    with network(Network(options.offline, session.note)):
        chosen = interpreter(cases)
    rehearsal = prepare(cases, _config(loaded), device, ranks, options.steps, chosen)
    seconds = SECONDS if options.time_limit is None else options.time_limit
    with ended_by_signals():
        told = run_job(rehearsal.job, session.note, seconds)
    return _compared(rehearsal, told)


def _compared(rehearsal: Rehearsal, told: Sequence[dict[str, Any]]) -> tuple[Check, ...]:
    return compare(rehearsal.plan, told, rehearsal.ranks, rehearsal.trainable, rehearsal.hidden)


def _dialects(options: Namespace, loaded: Loaded, session: Session) -> tuple[Asked, ...]:
    """The targets to rehearse, in the named versions or the installed ones."""
    names = {name.partition("@")[0]: name for name in options.targets}
    if others := [name for name in names if name not in (*FILES, LAUNCH)]:
        known = ", ".join((*FILES, LAUNCH))
        raise Misuse(f"files of {', '.join(others)} cannot be rehearsed, only those of {known}")
    trainers = [name for name in FILES if name in names]
    if len(trainers) > 1:
        raise Misuse(f"choose one of {' and '.join(trainers)}: only one run is rehearsed at a time")
    trainer = trainers[0] if trainers else next(iter(FILES))
    named = names.get(trainer, trainer)
    try:
        wanted = [
            named if "@" in named else _installed(trainer, loaded, session),
            names.get(LAUNCH, LAUNCH),
        ]
        return targets_for(session.registry, wanted, loaded)
    except LookupError as unknown:
        raise Misuse(str(unknown.args[0])) from None


def _installed(trainer: str, loaded: Loaded, session: Session) -> str:
    """The trainer in its installed release, unless the spec names one."""
    package = session.registry.readable()[trainer].package
    if package in loaded.software or absent([package]):
        return trainer
    return f"{trainer}@{version(package)}"


def _same_release(cases: Sequence[Case]) -> None:
    """Check that files are for the installed release, since only that one can run."""
    for case in cases:
        if case.target.name in FILES:
            here = Version(version(case.target.package))
            if here.release[:2] != case.version.release[:2]:
                raise Unrehearsable(
                    f"the files are for {case.target.package} {case.version}, and {here} is "
                    "installed"
                )


def _config(loaded: Loaded) -> Any:
    if loaded.spec is None:
        raise ValueError("files without a spec")  # the driver makes none
    return for_task(config_of(loaded.spec.model, loaded.base), loaded.spec.head)


def _folder(options: Namespace, loaded: Loaded) -> Path | None:
    """The folder that `tunec compile -o` wrote; None: the files are compiled now."""
    if options.files is None:
        return None
    name = loaded.spec.name if loaded.spec else ""
    place, held = compiled_folder(Path(options.files), name, (*FILES, LAUNCH))
    if not set(FILES) & set(held):
        raise Misuse(f"{options.files} holds no files of {' or '.join(FILES)}")
    return place


def _device() -> tuple[Device, int]:
    """The kind and number of devices that torch sees, found in a separate process."""
    question = "import torch; print(torch.cuda.device_count() * torch.cuda.is_available())"
    asked = subprocess.run(  # noqa: S603
        [sys.executable, "-P", "-c", question], capture_output=True, text=True, check=False
    )
    count = int(asked.stdout.strip() or 0) if asked.returncode == 0 else 0
    return ("cuda", count) if count else ("cpu", 0)
