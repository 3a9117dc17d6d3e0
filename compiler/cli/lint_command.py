"""`tunec lint`: find faults in existing configs, which are read together."""

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tunec.compiler.cli.lint_summary import ProgressLine, notes, summary
from tunec.compiler.cli.session import INPUT, Misuse, Session, exit_code, is_colored
from tunec.compiler.cli.software_option import known_from, software_of, unknown_releases
from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.diagnostics.terminal import printable_lines
from tunec.compiler.lints.environment import Faulty, Unusable, environment_of
from tunec.compiler.lints.lint import Linted, lint_files
from tunec.compiler.lints.settings import settings_file
from tunec.compiler.version import __version__
from tunec.compiler.writing import write_all

if TYPE_CHECKING:
    from tunec.compiler.lints.settings import Settings

_FAILING: Final[Mapping[str, tuple[Severity, ...]]] = {
    "error": ("error",),
    "warning": ("error", "warning"),
}
"""The severities that fail, for each value of --fail-on."""
_MOST_KNOWN: Final = 64 << 20
"""Most bytes of a baseline, which a program writes and which grows with a repository."""


def run(options: Namespace, session: Session) -> int:
    """Lint files; with --fix, apply fixes or show them, and report what remains."""
    check_options(options)
    try:
        settings = _settings(options)
        linted = _lint(options, session, settings)
    except Faulty as faulty:
        _show(faulty.diagnostics, faulty.sources, session)
        return INPUT
    if options.fix and not options.diff:
        linted = mend(linted, lambda: _lint(options, session, settings), options, session)
    baseline = _baseline(options, settings)
    if options.write_baseline:
        _write_baseline(baseline, linted)
        return exit_code(linted.diagnostics, fine=True)
    found = _new(linted.diagnostics, baseline)
    if not options.diff:
        failing = _FAILING[options.fail_on]
        _show(found, linted.sources, session, failing)
    if options.fix:
        show(linted, options, session)
    _tell_what_was_read(linted, session, settings)
    return _code(found, options.fail_on)


def _settings(options: Namespace) -> "Settings | None":
    """The settings in the file of --config, or in the nearest one in a parent folder; None: none.

    Raises Faulty if the file has any fault.
    """
    if options.no_config:
        return None
    path = Path(options.config) if options.config else settings_file(map(Path, options.files))
    if path is None:
        return None
    from tunec.compiler.lints.settings import read_settings

    read = read_settings(
        path,
        options.config or os.path.relpath(path),
        allow_outside=options.allow_outside,
        needs_baseline=not (options.baseline or options.write_baseline),
    )
    if read.settings is None:
        raise Faulty(read.faults, read.sources)
    return read.settings


def _lint(options: Namespace, session: Session, settings: "Settings | None") -> Linted:
    targets = session.registry.readable()
    try:
        environment = environment_of(
            targets,
            hardware=options.hardware or (settings.hardware if settings else None),
            model=options.model,
            world=options.world_size,
            readers=options.readers,
            software={**(settings.software if settings else {}), **software_of(options.software)},
            allow_outside=options.allow_outside,
        )
    except Unusable as unusable:
        raise Misuse(str(unusable)) from None
    if environment.model_name and environment.model is None:
        session.note(_unknown_model(environment.model_name))
    for told in unknown_releases(environment.software, targets):
        session.note(told)
    allowed = [Allowance(name, "allowed on the command line") for name in _names(options.allow)]
    paths = [Path(each) for each in options.files]
    shown = ProgressLine(session)
    try:
        return lint_files(paths, targets, environment, allowed, settings, shown.step)
    finally:
        shown.end()


def _tell_what_was_read(linted: Linted, session: Session, settings: "Settings | None") -> None:
    """Report which files were read, and how they were grouped, if that is not obvious."""
    for note in notes(linted):
        session.note(note)
    if settings is not None:
        session.note(f"settings: {settings.name}")
    releases = known_from(linted.runs)
    if releases is not None:
        session.note(releases)
    said = summary(linted)
    if said is not None:
        session.note(said)


def _unknown_model(name: str) -> str:
    """The note about a model of which only the name is known; the rest of the run is checked."""
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


def _baseline(options: Namespace, settings: "Settings | None") -> Path | None:
    if options.baseline:
        return Path(options.baseline)
    return settings.baseline if settings is not None else None


def _write_baseline(baseline: Path | None, linted: Linted) -> None:
    from tunec.compiler.diagnostics.baseline import write_baseline

    if baseline is None:
        raise Misuse("--write-baseline needs --baseline FILE, or `baseline` in tunec.toml")
    write_all({baseline: write_baseline(linted.diagnostics)})


def _new(found: tuple[Diagnostic, ...], baseline: Path | None) -> tuple[Diagnostic, ...]:
    """The findings that the baseline does not contain."""
    if baseline is None:
        return found
    from tunec.compiler.diagnostics.baseline import NotABaseline, read_baseline, without
    from tunec.compiler.frontend.disk import Unreadable, read_bytes

    try:
        return without(found, read_baseline(read_bytes(baseline, _MOST_KNOWN).decode()))
    except (Unreadable, UnicodeDecodeError, NotABaseline) as fault:
        raise Misuse(f"cannot use the baseline {baseline}: {fault}") from None


def _show(
    found: tuple[Diagnostic, ...],
    sources: Mapping[str, str],
    session: Session,
    failing: tuple[Severity, ...] = ("error",),
) -> None:
    """Print the findings to stdout, since they are this command's result."""
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
    elif session.format == "gitlab":
        from tunec.compiler.diagnostics.reports import render_gitlab

        session.result(render_gitlab(found))
    elif session.format == "junit":
        from tunec.compiler.diagnostics.reports import render_junit

        session.result(render_junit(found, tuple(sources), failing))
    else:
        from tunec.compiler.diagnostics.terminal import render_all

        session.write(render_all(found, sources, color=is_colored(session.stdout), folds=True))
        if any(each.consequence for each in found):
            session.note("tunec explain NAME gives details about a finding")


def _code(found: tuple[Diagnostic, ...], fail_on: str) -> int:
    failing = _FAILING[fail_on]
    return exit_code(found, fine=not any(each.severity in failing for each in found))


_ROUNDS: Final = 20


def check_options(options: Namespace) -> None:
    """Raise Misuse for options about fixes without --fix."""
    if (options.unsafe or options.diff) and not options.fix:
        raise Misuse(f"--{'unsafe' if options.unsafe else 'diff'} goes with --fix")
    if options.diff and options.format != "text":
        raise Misuse(f"--diff prints a diff, and no {options.format}")


def mend(
    linted: Linted, again: Callable[[], Linted], options: Namespace, session: Session
) -> Linted:
    """Apply fixes until none is left: two fixes of one place need two rounds."""
    changed: dict[Path, None] = {}
    for _ in range(_ROUNDS):
        texts = linted.fixed(unsafe=options.unsafe)
        written = write_all({_behind(Path(name)): text for name, text in texts.items()})
        if not written:
            break
        changed |= dict.fromkeys(written)
        linted = again()
    if changed:
        session.note(f"fixed {', '.join(map(str, changed))}")
    return linted


def _behind(path: Path) -> Path:
    """The file that a symbolic link points to; the link itself stays."""
    return path.resolve() if path.is_symlink() else path


def show(linted: Linted, options: Namespace, session: Session) -> None:
    """Print the fixes that were not applied as a diff, and how to apply them."""
    if session.format == "text":
        session.write("".join(map(_printable, diff_of(linted.sources, linted.fixed(unsafe=True)))))
    safe, left = len(linted.fixes("safe")), len(linted.fixes("unsafe"))
    if options.diff and safe:
        session.note(f"nothing was written: --fix alone applies the safe ones ({safe})")
    if left and not options.unsafe:
        session.note(f"fixes that change what is trained: {left}; --fix --unsafe applies them")


def _printable(line: str) -> str:
    """A line without control characters, which `patch` still accepts."""
    end = "\r\n" if line.endswith("\r\n") else "\n"
    return "\t".join(map(printable_lines, line.removesuffix(end).split("\t"))) + end


def diff_of(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """The changes of each file as a unified diff."""
    for name in sorted(new):
        before, after = (text.splitlines(keepends=True) for text in (old[name], new[name]))
        for line in unified_diff(before, after, f"a/{name}", f"b/{name}"):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
