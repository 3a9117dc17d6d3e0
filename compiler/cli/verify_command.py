"""`tunec verify`: have each file read by its own program."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from tunec.compiler.bundle import LAUNCH, Outset, outset
from tunec.compiler.cli.inputs import asked_targets, load
from tunec.compiler.cli.session import Misuse, Session, ended_by_signals, exit_code
from tunec.compiler.consumers.network import Network, network
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.requirements import Asked
from tunec.compiler.verify import decisions
from tunec.compiler.verify.bundles import bundle_checks
from tunec.compiler.verify.cases import cases_of, compiled_folder, distinct, rounds, specs_in
from tunec.compiler.verify.check import Check
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.queries import Progress, verify
from tunec.compiler.verify.report import diagnostics, passes, places_of, sources, table, to_json
from tunec.schemas.frozen import replace


def run(options: Namespace, session: Session) -> int:
    """Verify every spec and directory; 0 only if every program resolves the planned values."""
    told = _Told()
    clones = tuple(Path(each) for each in options.sources)
    for each in clones:
        if not each.is_dir():
            raise Misuse(f"--sources needs a folder, and {each} is not one")
    asked = [each for given in options.what for each in _cases(given, options, session, told)]
    cases = [replace(each, clones=clones) for each in distinct(asked)]
    with ended_by_signals(), network(Network(options.offline, session.note)):
        checks = (*verify(cases, _progress(session), options.time_limit), *told.checks)
    where = places_of(cases)
    lost = tuple(decisions.diagnostics(told.bundles, checks, where))
    said = (*diagnostics(checks, where), *lost)
    session.diagnose(said, sources(cases))
    if session.format == "json":
        session.json(_as_json(checks, told, said))
    elif checks:
        session.tell("\n".join([table(checks), *decisions.lines(told.bundles)]))
    fine = passes(checks, allow_unchecked=options.allow_unchecked)
    found = (*told.diagnostics, *lost)
    return exit_code(found, fine=fine and not has_errors(found))


class _Told(Struct, frozen=True):
    """Findings collected while cases are made."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    """Checks of bundles."""
    bundles: list[decisions.Decisions] = field(default_factory=list)


def _as_json(checks: Sequence[Check], told: _Told, said: Sequence[Diagnostic]) -> dict[str, Any]:
    return {
        "checks": [to_json(each) for each in checks],
        "decisions": [decisions.to_json(each) for each in told.bundles],
        "diagnostics": [each.to_json() for each in (*told.diagnostics, *said)],
    }


def _progress(session: Session) -> Progress:
    return session.note if session.stderr.isatty() else lambda _: None


# ── what is verified ─────────────────────────────────────────────────────────────────────────────


def _cases(given: str, options: Namespace, session: Session, told: _Told) -> Iterator[Case]:
    """The cases of a spec, of a directory of files, or of a directory of specs."""
    folder = Path(given)
    if not folder.is_dir():
        yield from _of_spec(given, options, session, told)
        return
    specs = [Path(options.spec)] if options.spec else list(specs_in(folder))
    if options.spec or _holds_files(folder, session):
        yield from _of_folder(folder, specs, options, session, told)
        return
    if not specs:
        raise Misuse(f"{given} holds neither a spec nor files of a target")
    for spec in specs:
        yield from _of_spec(str(spec), options, session, told)


def _holds_files(folder: Path, session: Session) -> bool:
    return bool(compiled_folder(folder, "", session.registry.names())[1])


def _of_spec(spec: str, options: Namespace, session: Session, told: _Told) -> Iterator[Case]:
    loaded = load(spec, options, session)
    asked = asked_targets(options.targets, loaded, session)
    if asked or loaded.spec is None:
        yield from _compiled(loaded, asked, None, session, told)
    else:
        yield from _of_every_target(loaded, session, told)


def _of_every_target(loaded: Loaded, session: Session, told: _Told) -> Iterator[Case]:
    """If no target is named: each one that can express the plan and has a program, alone."""
    able = 0
    for name in session.registry.names():
        asked = session.registry.resolve(name, loaded.software)
        compiled = compile_spec(loaded, [asked])
        if asked[0].verify and compiled.ok:
            able += 1
            yield from _decided(cases_of(compiled, [asked]), told)
    if not able:
        yield from _compiled(loaded, (), None, session, told)


def _of_folder(
    folder: Path, specs: Sequence[Path], options: Namespace, session: Session, told: _Told
) -> Iterator[Case]:
    if len(specs) != 1:
        held = ", ".join(path.name for path in specs) or "none"
        raise Misuse(f"name the spec of {folder} with --spec: specs found in it: {held}")
    loaded = load(str(specs[0]), options, session)
    name = loaded.spec.name if loaded.spec else ""
    place, held_targets = compiled_folder(folder, name, session.registry.names())
    asked = asked_targets(options.targets or held_targets, loaded, session)
    if not asked:
        raise Misuse(f"{folder} holds no file of a target")
    yield from _compiled(loaded, asked, place, session, told)


def _compiled(
    loaded: Loaded, asked: Sequence[Asked], folder: Path | None, session: Session, told: _Told
) -> Iterator[Case]:
    """Compile in every combination of versions; what cannot be compiled is reported once."""
    for combination in rounds(asked) if asked else ((),):
        compiled = compile_spec(loaded, combination, _outset(loaded, folder, session))
        new = [each for each in compiled.diagnostics if each not in told.diagnostics]
        session.diagnose(new, loaded.sources)
        told.diagnostics.extend(new)
        if compiled.ok:
            yield from _decided(cases_of(compiled, combination, folder), told)
        if compiled.ok and folder is not None:
            told.checks.extend(bundle_checks(compiled, combination, folder))


def _decided(cases: list[Case], told: _Told) -> list[Case]:
    """The cases of a bundle; the check of its decisions is added once."""
    found = decisions.decisions(cases)
    if found not in told.bundles:
        told.bundles.append(found)
    return cases


def _outset(loaded: Loaded, folder: Path | None, session: Session) -> Outset | None:
    if folder is None:
        return None
    return outset(loaded, folder, session.registry.resolve(LAUNCH, loaded.software))
