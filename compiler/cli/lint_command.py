"""`tunec lint`: what is wrong with configs that are there, read together."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tunec.compiler.cli.session import INPUT, Misuse, Session, exit_code, is_colored
from tunec.compiler.cli.software_option import known_from, software_of, unknown_releases
from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.environment import Faulty, Unusable, environment_of
from tunec.compiler.lints.lint import Linted, lint_files
from tunec.compiler.version import __version__
from tunec.compiler.writing import write_all

_ROUNDS: Final = 20


def run(options: Namespace, session: Session) -> int:
    """Lint files; with --fix, apply the safe fixes, and say what remains."""
    try:
        linted = _lint(options, session)
    except Faulty as faulty:
        _show(faulty.diagnostics, faulty.sources, session)
        return INPUT
    if options.fix:
        linted = _mend(linted, options, session)
    if options.write_baseline:
        _write_baseline(options, linted)
        return exit_code(linted.diagnostics, fine=True)
    found = _new(linted.diagnostics, options)
    _show(found, linted.sources, session)
    _tell_what_was_read(linted, session)
    return _code(found, options.fail_on)


def _mend(linted: Linted, options: Namespace, session: Session) -> Linted:
    """Apply safe fixes until none is left: two that touch one place need two rounds."""
    changed: dict[Path, None] = {}
    for _ in range(_ROUNDS):
        fixed = {_behind(Path(name)): text for name, text in linted.fixed().items()}
        written = write_all(fixed)
        if not written:
            break
        changed |= dict.fromkeys(written)
        linted = _lint(options, session)
    if changed:
        session.note(f"fixed {', '.join(map(str, changed))}")
    return linted


def _behind(path: Path) -> Path:
    """The file that a link leads to: the link itself stays one."""
    return path.resolve() if path.is_symlink() else path


def _lint(options: Namespace, session: Session) -> Linted:
    targets = session.registry.readable()
    try:
        environment = environment_of(
            targets,
            hardware=options.hardware,
            model=options.model,
            world=options.world_size,
            readers=options.readers,
            software=software_of(options.software),
            allow_outside=options.allow_outside,
        )
    except Unusable as unusable:
        raise Misuse(str(unusable)) from None
    if environment.model_name and environment.model is None:
        session.note(_unknown_model(environment.model_name))
    for told in unknown_releases(environment.software, targets):
        session.note(told)
    allowed = [Allowance(name, "allowed on the command line") for name in _names(options.allow)]
    return lint_files([Path(each) for each in options.files], targets, environment, allowed)


_FEW: Final = 3


def _tell_what_was_read(linted: Linted, session: Session) -> None:
    """Say how files were taken together, and which were passed over, where that is not plain."""
    if len(linted.runs) > 1:
        session.note(f"read as {len(linted.runs)} runs, since several files are of the same kind")
    for folder in linted.cut_short:
        session.note(f"{folder} holds too many files to read at once: name a folder inside it")
    releases = known_from(linted.runs)
    if releases is not None:
        session.note(releases)
    strange = linted.passed_over
    if strange:
        more = f" and {len(strange) - _FEW} more" if len(strange) > _FEW else ""
        named = ", ".join(strange[:_FEW])
        session.note(f"skipped, since no known program reads them: {named}{more}")


def _unknown_model(name: str) -> str:
    """What is said of a model that is known by its name alone; the rest of the run is checked."""
    from tunec.compiler.diagnostics.wording import did_you_mean, nearest
    from tunec.schemas.models.catalogue import UnknownName, card

    try:
        card(name)
        known: tuple[str, ...] = ()
    except UnknownName as unknown:
        known = unknown.known
    hint = did_you_mean(nearest(name, known) or nearest(name.rpartition("/")[2], known))
    told = f"no model is called {name!r}: checks of its sizes and modules are skipped"
    return f"{told}; {hint}" if hint else f"{told}; --model also takes a config.json"


def _names(given: list[str]) -> list[str]:
    from tunec.compiler.lints.index import is_rule, rule_names

    for name in given:
        if not is_rule(name):
            from tunec.compiler.diagnostics.wording import did_you_mean, nearest

            hint = did_you_mean(nearest(name, rule_names()))
            raise Misuse(f"there is no rule {name!r}{f'; {hint}' if hint else ''}")
    return given


def _write_baseline(options: Namespace, linted: Linted) -> None:
    from tunec.compiler.lints.suppression import write_baseline

    if not options.baseline:
        raise Misuse("--write-baseline needs --baseline FILE to write to")
    write_all({Path(options.baseline): write_baseline(linted.diagnostics)})


def _new(found: tuple[Diagnostic, ...], options: Namespace) -> tuple[Diagnostic, ...]:
    """What the baseline does not hold."""
    if not options.baseline:
        return found
    from tunec.compiler.lints.suppression import NotABaseline, read_baseline, without

    try:
        return without(found, read_baseline(Path(options.baseline).read_text("utf-8")))
    except (OSError, UnicodeDecodeError, NotABaseline) as fault:
        why = getattr(fault, "strerror", None) or str(fault)
        raise Misuse(f"cannot use the baseline {options.baseline}: {why}") from None


def _show(found: tuple[Diagnostic, ...], sources: Mapping[str, str], session: Session) -> None:
    """Findings are the result of this command, and go to stdout."""
    if session.format == "json":
        from tunec.compiler.diagnostics.formats import render_json

        session.result(render_json(found))
    elif session.format == "sarif":
        from tunec.compiler.diagnostics.formats import render_sarif
        from tunec.compiler.lints.index import is_rule, rule_page, rule_title

        pages = {each.id: each.id for each in found if is_rule(each.id)}
        known = {name: (rule_title(name), rule_page(name)) for name in pages}
        session.result(render_sarif(found, __version__, known))
    elif session.format == "github":
        from tunec.compiler.diagnostics.formats import render_github

        session.write(render_github(found))
    else:
        from tunec.compiler.diagnostics.terminal import render_all

        session.write(render_all(found, sources, color=is_colored(session.stdout)))
        if any(each.consequence for each in found):
            session.note("tunec explain NAME gives details about a finding")


def _code(found: tuple[Diagnostic, ...], fail_on: str) -> int:
    failing = {"error"} if fail_on == "error" else {"error", "warning"}
    return exit_code(found, fine=failing.isdisjoint(each.severity for each in found))
