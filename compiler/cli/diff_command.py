"""`tunec diff`: the effect of changed specs on intent, decisions, clusters and files."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from tunec.compiler.cli import diff_files
from tunec.compiler.cli.diff_files import are_files_of_trainers
from tunec.compiler.cli.diff_output import fails, file_diff, print_comparison
from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.selection import Selection, select
from tunec.compiler.frontend.files import unreadable
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.requirements import Asked
from tunec.compiler.review.diff.compare import Comparison, SpecChange, compare_spec
from tunec.compiler.review.diff.intent import intent_changes, is_renamed
from tunec.compiler.review.outcome import Outcome, Pair, outcome_of
from tunec.compiler.review.sides import (
    NoRevision,
    Side,
    checked_out,
    revisions_of,
    root_of,
    side_of,
)
from tunec.schemas.frozen import replace

_OWN = ""
"""The hardware that a spec itself names."""


class Specs(Protocol):
    """Specs by name, each on some clusters."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the specs."""
        ...

    @property
    def clusters(self) -> Sequence[str]:
        """The clusters that they are planned for; the same for all of them."""
        ...

    @property
    def targets(self) -> Sequence[str]:
        """The targets that the side names; empty: each spec's own targets."""
        ...

    def read(self, name: str) -> Loaded:
        """A spec as it is written."""
        ...

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters."""
        ...


class SpecFiles:
    """The specs of a directory, on the hardware of the command line or on their own."""

    targets: Sequence[str] = ()

    def __init__(self, side: Side, options: Namespace, targets: Sequence[str]) -> None:
        self._files = side.files
        self._overrides: Sequence[str] = options.overrides
        self._known = targets
        self._outside: bool = options.allow_outside
        self.names = tuple(side.files)
        self.clusters: Sequence[str] = options.hardware or [_OWN]

    def read(self, name: str) -> Loaded:
        """A spec as it is written, with the command line's overrides."""
        return self.on(name, _OWN)

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters."""
        hardware = cluster or None
        return load_spec(
            self._files[name],
            self._overrides,
            hardware,
            targets=self._known,
            allow_outside=self._outside,
        )


class FleetSpecs:
    """The pairs of a fleet."""

    def __init__(self, selection: Selection) -> None:
        self._reader = Reader(selection)
        self._sites = {site.name: site for site in selection.sites}
        self._selection = selection
        self.names = tuple(selection.specs)
        self.clusters = tuple(self._sites)
        self.targets = selection.fleet.targets

    def read(self, name: str) -> Loaded:
        """A spec as it is written, without the fleet file's overrides."""
        chosen = self._selection
        return load_spec(chosen.specs[name], allow_outside=chosen.allow_outside)

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters, with the fleet file's overrides."""
        return self._reader.loaded(name, self._sites[cluster])


class BadFleet(ValueError):
    """A fleet file cannot be read."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], sources: Mapping[str, str]) -> None:
        super().__init__("the fleet file has faults")
        self.diagnostics = diagnostics
        self.sources = sources


def fleet_at(file: Path, *, allow_outside: bool) -> Selection:
    """The pairs that a fleet file selects. Raises BadFleet."""
    found = select(file, allow_outside=allow_outside)
    if found.selection is None:
        raise BadFleet(found.diagnostics, found.sources)
    return found.selection


def run(options: Namespace, session: Session) -> int:
    """Compare two sides; fail if a side cannot be read or, with --fail-on, if something changes."""
    if are_files_of_trainers(options):
        return diff_files.run(options, session)
    with ExitStack() as open_folders:
        try:
            old, new = _sides(options, open_folders, session)
        except NoRevision as unknown:
            raise Misuse(f"cannot compare: {unknown}") from None
        except FileNotFoundError as missing:
            return session.refuse((unreadable(Path(str(missing))),), {})
        except BadFleet as bad:
            return session.refuse(bad.diagnostics, bad.sources)
        review = _Review(old, new, options, session)
        comparison = review.comparison()
        print_comparison(comparison, list(review.files()) if options.files else [], session)
    failed = review.unreadable or review.unknown or fails(comparison, options.fail_on)
    return INPUT if failed else OK


def _sides(options: Namespace, folders: ExitStack, session: Session) -> tuple[Specs, Specs]:
    revisions = revisions_of(options.old)
    known = session.registry.names()
    if len(options.new) > 1:
        raise Misuse(f"give one spec or directory, not {len(options.new)}")
    if revisions is None:
        if not options.new:
            raise Misuse("give OLD and NEW, or two revisions such as main..HEAD")
        paths = (Path(options.old), Path(options.new[0]))
        if options.fleet:
            return _by_fleet(side_of(paths[0]), options), _by_fleet(side_of(paths[1]), options)
        old, new = (SpecFiles(side_of(path), options, known) for path in paths)
        return old, new
    here = Path(options.fleet or (options.new or ["."])[0]).resolve()
    top = root_of(here if here.is_dir() else here.parent)
    inside = here.relative_to(top)
    roots = [folders.enter_context(checked_out(each, top)) for each in revisions]
    for root, revision in zip(roots, revisions, strict=True):
        if not (root / inside).exists():
            raise NoRevision(f"{revision or 'the working tree'} has no {inside}")
    at = [root / inside for root in roots]
    if options.fleet:
        wide: bool = options.allow_outside
        before, after = (FleetSpecs(fleet_at(each, allow_outside=wide)) for each in at)
        return before, after
    return SpecFiles(side_of(at[0]), options, known), SpecFiles(side_of(at[1]), options, known)


def _by_fleet(side: Side, options: Namespace) -> Specs:
    """The specs of a side on the clusters of a fleet file, with its overrides."""
    fleet = fleet_at(Path(options.fleet), allow_outside=options.allow_outside)
    return FleetSpecs(replace(fleet, specs=side.files))


class _Review:
    """Reads and plans both sides, and records whether a spec could not be read."""

    def __init__(self, old: Specs, new: Specs, options: Namespace, session: Session) -> None:
        self.old = old
        self.new = new
        self.options = options
        self.session = session
        self.unreadable: list[str] = []
        """Specs with faults on one of the sides."""
        self.unknown: set[str] = set()
        """Clusters of the command line on which no spec can be planned."""

    def comparison(self) -> Comparison:
        """The differences, spec by spec; each outcome is dropped once it is compared."""
        names = self._names
        return Comparison(
            tuple(change for old, new in names if (change := self._compare(old, new))),
            added=tuple(sorted(set(self.new.names) - {new for _, new in names})),
            removed=tuple(sorted(set(self.old.names) - {old for old, _ in names})),
            unreadable=tuple(self.unreadable),
        )

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        """Old and new name of each pair; two single files form a pair, whatever their names."""
        old, new = self.old.names, self.new.names
        if len(old) == len(new) == 1:
            return [(old[0], new[0])]
        both = set(old) & set(new)
        return sorted([(name, name) for name in both] + self._renamed(both), key=itemgetter(1))

    def _renamed(self, both: set[str]) -> list[tuple[str, str]]:
        """Specs that disappeared under one name and appear under another with the same content."""
        gone = {name: self.old.read(name) for name in self.old.names if name not in both}
        found: list[tuple[str, str]] = []
        for name in self.new.names if gone else ():
            if name not in both:
                loaded = self.new.read(name)
                same = [old for old, each in gone.items() if is_renamed(each, loaded)]
                if same and loaded.spec is not None:
                    found.append((same[0], name))
                    del gone[same[0]]
        return found

    def _compare(self, old: str, new: str) -> SpecChange | None:
        before, after = self.old.read(old), self.new.read(new)
        faulty = next((each for each in (after, before) if each.spec is None), None)
        if faulty is not None:  # the new side's faults alone, which the old one mostly has too
            self.session.diagnose(faulty.diagnostics, faulty.sources)
            self.unreadable.append(new)
            return None
        found = compare_spec(new, intent_changes(before, after), self._outcomes(old, new))
        are_files = len(self.old.names) == len(self.new.names) == 1
        return found if old == new or are_files else replace(found, was=old)

    def _outcomes(self, old: str, new: str) -> Iterator[tuple[Outcome, Outcome]]:
        there = set(self.old.clusters)
        for cluster in self.new.clusters:
            if cluster in there:
                before = self._outcome(self.old.on(old, cluster), old, cluster)
                after = self._outcome(self.new.on(new, cluster), new, cluster, did_fit=before.fits)
                yield before, after

    def _outcome(
        self, loaded: Loaded, name: str, cluster: str, *, did_fit: bool = False
    ) -> Outcome:
        """The outcome of a pair; if it fails but `did_fit` before, changes that help are sought."""
        planned = plan(loaded, self._dialects(loaded), repairing=did_fit)
        if planned.facts is None and cluster and cluster not in self.unknown:
            self.unknown.add(cluster)
            self.session.diagnose(planned.diagnostics, loaded.sources)
        shown = planned.facts.cluster.name if planned.facts else cluster
        return outcome_of(planned, Pair(name, shown))

    def _dialects(self, loaded: Loaded) -> tuple[Asked, ...]:
        return asked_targets(self.options.targets or self.new.targets, loaded, self.session)

    def files(self) -> Iterator[str]:
        """Unified diffs of the files of both sides, for the requested targets."""
        for old, new in self._names:
            for cluster in self.new.clusters:
                before = self._texts(self.old.on(old, cluster))
                after = self._texts(self.new.on(new, cluster))
                for file in sorted(before.keys() | after.keys()):
                    name = "/".join(part for part in (new, cluster, file) if part)
                    yield from file_diff(name, before.get(file, ""), after.get(file, ""))

    def _texts(self, loaded: Loaded) -> dict[str, str]:
        compiled = compile_spec(loaded, self._dialects(loaded))
        return {
            f"{target}/{artifact.name}": _without_header(artifact.text)
            for target, artifacts in compiled.artifacts.items()
            for artifact in artifacts
        }


def _without_header(text: str) -> str:
    """The text without its line of digests, which changes with everything."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# tunec "))
