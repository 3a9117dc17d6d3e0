"""`tunec diff`: what a change of specs does, to intent, decisions, clusters and files."""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Final

from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.review.diff.compare import Comparison, SpecChange, compare_spec
from tunec.compiler.review.diff.data import comparison_json
from tunec.compiler.review.diff.intent import intent_changes
from tunec.compiler.review.diff.markdown import comparison_markdown
from tunec.compiler.review.diff.meaning import KINDS
from tunec.compiler.review.diff.text import comparison_text
from tunec.compiler.review.outcome import Outcome, Pair, outcome_of
from tunec.compiler.review.revisions import NoRevision, checked_out, revisions_of, root_of
from tunec.compiler.review.sides import Side, side_of

_OWN: Final = ""
"""Stands for the hardware that a spec itself names."""


def run(options: Namespace, session: Session) -> int:
    """Compare two sides; fail where a side cannot be read, or with --fail-on for what changes."""
    with ExitStack() as open_folders:
        try:
            old, new = _sides(options, open_folders)
        except (NoRevision, FileNotFoundError) as unknown:
            raise Misuse(f"cannot compare: {unknown}") from None
        review = _Review(old, new, options, session)
        comparison = review.comparison()
        _print(comparison, review, options, session)
    return INPUT if review.unreadable or _fails(comparison, options.fail_on) else OK


def _sides(options: Namespace, folders: ExitStack) -> tuple[Side, Side]:
    revisions = revisions_of(options.old)
    if revisions is None:
        if options.new is None:
            raise Misuse("give OLD and NEW, or two revisions such as main..HEAD")
        return side_of(Path(options.old)), side_of(Path(options.new))
    here = Path(options.new or ".").resolve()
    top = root_of(here if here.is_dir() else here.parent)
    inside = here.relative_to(top)
    roots = (folders.enter_context(checked_out(each, top)) for each in revisions)
    old, new = (side_of(root / inside) for root in roots)
    return old, new


def _fails(comparison: Comparison, at: str | None) -> bool:
    if at is None or comparison.kind is None:
        return False
    grave = [str(kind) for kind in KINDS]
    return grave.index(comparison.kind) <= grave.index(at)


@dataclass(slots=True)
class _Review:
    """The reading and planning of both sides; remembers whether a spec could not be read."""

    old: Side
    new: Side
    options: Namespace
    session: Session
    unreadable: bool = False

    def comparison(self) -> Comparison:
        old, new = self._named()
        return Comparison(
            tuple(self._compare(name, old[name], new[name]) for name in sorted(new) if name in old),
            added=tuple(sorted(new.keys() - old.keys())),
            removed=tuple(sorted(old.keys() - new.keys())),
        )

    def _named(self) -> tuple[Mapping[str, Path], Mapping[str, Path]]:
        """Files by name; two single files are compared whatever they are called."""
        old, new = self.old.files, self.new.files
        if len(old) == len(new) == 1:
            name = next(iter(new))
            return {name: next(iter(old.values()))}, new
        return old, new

    def _compare(self, name: str, old: Path, new: Path) -> SpecChange:
        before, after = self._read(old, None), self._read(new, None)
        for loaded in (before, after):
            if loaded.spec is None:
                self.unreadable = True
                self.session.diagnose(loaded.diagnostics, loaded.sources)
        if before.spec is None or after.spec is None:
            return SpecChange(name, (), (), ())
        intent = intent_changes(before, after)
        clusters = self.options.hardware or [_OWN]
        return compare_spec(
            name, intent, self._outcomes(name, old, clusters), self._outcomes(name, new, clusters)
        )

    def _outcomes(self, name: str, file: Path, clusters: Sequence[str]) -> dict[str, Outcome]:
        return {each: self._outcome(name, file, each) for each in clusters}

    def _outcome(self, name: str, file: Path, cluster: str) -> Outcome:
        loaded = self._read(file, cluster or None)
        asked = asked_targets(self.options.targets, loaded, self.session)
        planned = plan(loaded, asked)
        shown = planned.facts.cluster.name if planned.facts else cluster
        return outcome_of(planned, Pair(name, shown))

    def _read(self, file: Path, hardware: str | None) -> Loaded:
        return load_spec(
            file,
            overrides=self.options.overrides,
            hardware=hardware,
            targets=self.session.registry.names(),
        )

    def files(self) -> Iterator[str]:
        """Unified differences of the files of both sides, for the targets asked."""
        old, new = self._named()
        for name in sorted(new.keys() & old.keys()):
            for cluster in self.options.hardware or [_OWN]:
                before = self._texts(old[name], cluster)
                after = self._texts(new[name], cluster)
                for file in sorted(before.keys() | after.keys()):
                    yield from _file_diff(
                        "/".join(part for part in (name, cluster, file) if part),
                        before.get(file, ""),
                        after.get(file, ""),
                    )

    def _texts(self, file: Path, cluster: str) -> dict[str, str]:
        loaded = self._read(file, cluster or None)
        asked = asked_targets(self.options.targets, loaded, self.session)
        compiled = compile_spec(loaded, asked)
        return {
            f"{target}/{artifact.name}": _without_header(artifact.text)
            for target, artifacts in compiled.artifacts.items()
            for artifact in artifacts
        }


def _without_header(text: str) -> str:
    """The text without the line of digests, which differs wherever anything does."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# tunec "))


def _file_diff(name: str, old: str, new: str) -> Iterator[str]:
    lines = unified_diff(old.splitlines(), new.splitlines(), f"old/{name}", f"new/{name}", n=2)
    yield from (line.rstrip("\n") for line in lines)


def _print(comparison: Comparison, review: _Review, options: Namespace, session: Session) -> None:
    files = list(review.files()) if options.files else []
    if session.format == "json":
        session.json({**comparison_json(comparison), "files": files})
    elif session.format == "markdown":
        block = ["", "```diff", *files, "```"] if files else []
        session.result("\n".join([comparison_markdown(comparison), *block]))
    else:
        session.result("\n".join([comparison_text(comparison), *([""] if files else []), *files]))
