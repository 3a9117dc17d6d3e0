"""`tunec fleet`: many specs on many clusters, incrementally; drift; the summary."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tunec.compiler.cli.inputs import targets_for
from tunec.compiler.cli.session import BUG, INPUT, OK, Misuse, Session
from tunec.compiler.fleet.build import build
from tunec.compiler.fleet.drift import Drift, drifts, edited, inside, outside, prune, visible
from tunec.compiler.fleet.inputs import Reader, digest
from tunec.compiler.fleet.lock import LOCK, PART, exclusive, lock_lines
from tunec.compiler.fleet.pair import Builder
from tunec.compiler.fleet.processes import ProcessEnded
from tunec.compiler.fleet.progress import Progress
from tunec.compiler.fleet.selection import Selection, select
from tunec.compiler.fleet.summary import COLUMNS, FORMATS, HEADERS, Tally, ordered, rows
from tunec.compiler.fleet.survey import Strays, survey
from tunec.compiler.review.outcome import Pair
from tunec.compiler.review.policy import Rules, load_policy
from tunec.compiler.writing import Busy, Unwritable

_TOLD: Final = 20
"""Pairs whose diagnostics are printed; the summary lists all that do not fit."""


def run(options: Namespace, session: Session) -> int:
    """Build a fleet's tree, or compare it with what it should be."""
    if options.sort is not None and options.sort not in (*COLUMNS, *HEADERS):
        raise Misuse(f"there is no column {options.sort!r}; there are {', '.join(COLUMNS)}")
    found = select(
        Path(options.file), session.registry.names(), allow_outside=options.allow_outside
    )
    if found.selection is None:
        return session.refuse(found.diagnostics, found.sources)
    session.diagnose(found.diagnostics, found.sources)
    rules = _rules(found.selection)
    faults = [fault for each in rules for fault in each.faults]
    if faults:
        return session.refuse(faults, _texts(rules))
    _guard(found.selection, options)
    builder = _builder(found.selection, rules, options, session)
    try:
        if options.check:
            return _check(builder, session)
        with exclusive(builder.folder):
            return _build(builder, options, session)
    except (Busy, ProcessEnded, Unwritable) as fault:
        raise Misuse(str(fault)) from None
    except BrokenPipeError:
        raise
    except OSError as fault:
        at = fault.filename or builder.folder
        raise Misuse(f"cannot build in {at}: {fault.strerror}") from None


def _guard(selection: Selection, options: Namespace) -> None:
    """Refuse a tree with foreign files: `--prune` removes everything that belongs to no pair."""
    folder = Path(options.output)
    for file in selection.files:
        if file.resolve().is_relative_to(folder.resolve()):
            raise Misuse(
                f"{folder} cannot be the tree: {file}, one of the fleet's own inputs, is in it"
            )
    is_ours = not any(visible(folder)) or any((folder / name).exists() for name in (LOCK, PART))
    if options.prune and not is_ours:
        raise Misuse(
            f"{folder} is not a tree of `tunec fleet`: it has no {LOCK}; nothing was pruned"
        )


def _rules(selection: Selection) -> tuple[Rules, ...]:
    base = selection.file.parent
    return tuple(load_policy(base / name) for name in selection.fleet.policies)


def _texts(rules: Iterable[Rules]) -> dict[str, str]:
    return {name: text for each in rules for name, text in each.document.sources.items()}


def _builder(
    selection: Selection, rules: tuple[Rules, ...], options: Namespace, session: Session
) -> Builder:
    policies = digest(*(text for each in rules for text in each.document.sources.values()))
    asking = partial(targets_for, session.registry)
    return Builder(Reader(selection, asking, policies), Path(options.output), rules)


def _check(builder: Builder, session: Session) -> int:
    found = list(drifts(builder))
    if session.format == "json":
        session.json([{"path": d.path, "kind": d.kind, "why": d.why} for d in found])
    else:
        session.tell("\n".join(map(str, found)) or "nothing differs")
    return INPUT if found else OK


def _build(builder: Builder, options: Namespace, session: Session) -> int:
    work = survey(builder, options.jobs)
    mine = () if options.overwrite else tuple(edited(builder.folder, work.pending))
    if mine:
        return _refuse(mine, session)
    session.note(f"{work.fresh:,} pairs are up to date, {len(work.pending):,} will be compiled")
    teller = _Teller(work.builder, session, Progress(len(work.pending), session.stderr))
    seen = work.strays
    if work.changes:
        seen = build(work, options.jobs, teller)
        teller.end()
    _orphans(_found_orphans(builder, seen), builder.folder, options, session)
    fits = Tally()
    table = ordered(fits.counting(rows(lock_lines(builder.folder))), options.sort)
    session.tell(FORMATS[options.format](table))
    if fits.failed:
        session.note(f"tunec failed to check some pairs: {', '.join(sorted(fits.failed))}")
        return BUG
    return OK if fits.all_fit else INPUT


def _refuse(edits: Sequence[Drift], session: Session) -> int:
    """Report the edits that would be lost."""
    for each in edits[:_TOLD]:
        session.note(f"{each.path}: edited since it was written")
    if len(edits) > _TOLD:
        session.note(f"{len(edits) - _TOLD:,} more files were edited")
    session.note(
        "nothing was written: --overwrite replaces edited files; to keep an edit, make it in the "
        "spec or the fleet file"
    )
    return INPUT


class _Teller:
    """Follows a build: shows the first diagnostics, and the progress."""

    def __init__(self, builder: Builder, session: Session, progress: Progress) -> None:
        self.builder = builder
        self.session = session
        self.progress = progress
        self.told = 0

    def done(self) -> None:
        """Count a pair."""
        self.progress.step()

    def failed(self, pair: Pair) -> None:
        """Report the faults of a pair."""
        self.told += 1
        if self.told <= _TOLD:
            self.progress.end()
            self.session.note(f"{pair}:")
            self.session.diagnose(*self.builder.explain(pair))

    def end(self) -> None:
        """End the line that shows the progress."""
        self.progress.end()
        if self.told > _TOLD:
            self.session.note(f"{self.told - _TOLD:,} more pairs have errors; see the summary")


def _found_orphans(builder: Builder, seen: Strays) -> Iterator[Drift]:
    """Files that belong to no pair, outside of the pairs' own directories."""
    yield from outside(builder.folder, builder.reader.selection)
    for pair, names in sorted(seen.items()):
        yield from inside(f"{pair.spec}/{pair.cluster}", names)


def _orphans(found: Iterable[Drift], folder: Path, options: Namespace, session: Session) -> None:
    if options.prune:
        for path in prune(folder, found):
            session.note(f"removed {path}")
        return
    names = [each.path for each in found]
    for name in names[:_TOLD]:
        session.note(f"{name}: belongs to no pair (--prune removes it)")
    if len(names) > _TOLD:
        session.note(f"{len(names) - _TOLD:,} more files belong to no pair")
