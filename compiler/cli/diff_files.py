"""`tunec diff` of existing trainer files: the effect of their change on the run."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tunec.compiler.cli.diff_output import fails, file_diff, print_comparison
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.cli.spec_from_files import asking_of
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.files import unreadable
from tunec.compiler.lints.environment import Faulty
from tunec.compiler.review.diff.compare import Comparison
from tunec.compiler.review.sides import NoRevision, checked_out, is_spec, revisions_of, root_of
from tunec.compiler.translate.changes import Files, FilesOfRun, compare_files, files_of_run

_Pair = tuple[FilesOfRun, FilesOfRun]


def are_files_of_trainers(options: Namespace) -> bool:
    """Whether files are named, and none of them is a spec."""
    named = [Path(each) for each in options.new]
    if revisions_of(options.old) is None:
        named = [Path(options.old), *named] if named else []
    return bool(named) and not options.fleet and not any(map(_may_hold_specs, named))


def _may_hold_specs(path: Path) -> bool:
    return path.is_dir() or is_spec(path)


def run(options: Namespace, session: Session) -> int:
    """Compare two sides of one run; fail if one cannot be read, or as --fail-on requires."""
    with ExitStack() as folders:
        try:
            old, new = _sides(options, folders)
            found = _compared(old, new, options, session)
        except NoRevision as unknown:
            raise Misuse(f"cannot compare: {unknown}") from None
        except FileNotFoundError as missing:
            return session.refuse((unreadable(Path(str(missing))),), {})
        except Faulty as faulty:
            return session.refuse(faulty.diagnostics, faulty.sources)
        print_comparison(found, list(_texts(old, new)) if options.files else [], session)
    return INPUT if found.unreadable or fails(found, options.fail_on) else OK


# ── the sides ────────────────────────────────────────────────────────────────────────────────────


def _sides(options: Namespace, folders: ExitStack) -> tuple[Files, Files]:
    revisions = revisions_of(options.old)
    named = [Path(each) for each in options.new]
    if revisions is None:
        if len(named) > 1:
            raise Misuse("give one file on each side, or revisions and files: main.. FILE FILE")
        sides = Path(options.old), named[0]
        for each in sides:
            if not each.exists():
                raise FileNotFoundError(each)
        old, new = (Files(each.parent, {named[0].name: each}) for each in sides)
        return old, new
    top = root_of(named[0].resolve().parent)
    inside = [_inside(each.resolve(), top) for each in named]
    roots = [folders.enter_context(checked_out(each, top)) for each in revisions]
    nowhere = next((e for e in inside if not any((root / e).exists() for root in roots)), None)
    if nowhere is not None:
        raise NoRevision(f"neither side has {nowhere}")
    before, after = (
        Files(root, {e.as_posix(): root / e for e in inside if (root / e).exists()})
        for root in roots
    )
    return before, after


def _inside(path: Path, top: Path) -> Path:
    if not path.is_relative_to(top):
        raise Misuse(f"{path} is not in the repository {top}")
    return path.relative_to(top)


# ── the comparison ───────────────────────────────────────────────────────────────────────────────


def _compared(old: Files, new: Files, options: Namespace, session: Session) -> Comparison:
    if not (old.paths and new.paths):
        return Comparison((), tuple(new.paths), tuple(old.paths))
    name = " with ".join(new.paths)
    hardware: list[str | None] = options.hardware or [None]
    pairs = [_pair(old, new, each, options, session) for each in hardware]
    if not _are_read(pairs[0], session):
        return Comparison((), unreadable=(name,))
    _tell_new_faults(pairs[0], session)
    clusters = [each or _hardware_of(pairs[0][1]) for each in hardware]
    return Comparison((compare_files(name, pairs, clusters),))


def _pair(
    old: Files, new: Files, hardware: str | None, options: Namespace, session: Session
) -> _Pair:
    asking = asking_of(Namespace(**{**vars(options), "hardware": hardware}), session, None)
    return files_of_run(old, asking), files_of_run(new, asking)


def _hardware_of(side: FilesOfRun) -> str:
    """The hardware that files name themselves."""
    facts = side.planned.facts if side.planned is not None else None
    return facts.cluster.name if facts is not None else "this run"


def _are_read(pair: _Pair, session: Session) -> bool:
    """Whether every named file could be read; why not is reported."""
    lacking = [each for each in pair if each.unread]
    for side in lacking:
        session.diagnose(side.faults, side.texts)
    return not lacking


def _tell_new_faults(pair: _Pair, session: Session) -> None:
    """Show the errors that only the new side has, such as duplicate keys and unknown files."""
    old, new = pair
    known = {_identity(each) for each in old.faults}
    session.diagnose((each for each in new.faults if _identity(each) not in known), new.texts)


def _identity(fault: Diagnostic) -> tuple[str, str]:
    return fault.id, fault.message


def _texts(old: Files, new: Files) -> Iterator[str]:
    """Unified diffs of the named files."""
    for name in {**old.paths, **new.paths}:
        yield from file_diff(name, _text(old, name), _text(new, name))


def _text(side: Files, name: str) -> str:
    path = side.paths.get(name)
    return "" if path is None else path.read_text("utf-8", errors="replace")
