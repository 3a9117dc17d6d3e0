"""What a fleet file selects: specs by file, clusters by name, label and file, and the overrides."""

import json
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import did_you_mean
from tunec.compiler.fleet.lock import is_own
from tunec.compiler.frontend.disk import Unreadable, near_files
from tunec.compiler.frontend.document import Document, load_document
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.frontend.measurements import SUFFIX, with_measured
from tunec.compiler.frontend.project import (
    Outside,
    Project,
    lies_outside,
    project_root,
    require_inside,
)
from tunec.compiler.frontend.target_names import check_targets
from tunec.schemas.fleet import Fleet, Override
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import UnknownName, cluster, hardware_names
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import Span

_FILES: Final = (".yaml", ".yml", ".json")


class Site(Struct, frozen=True):
    """A cluster of the fleet, by what a spec's `hardware` would say."""

    name: str
    """What its directory is called: the cluster's own name."""
    hardware: str
    """Catalogue name, or the path of its file."""
    cluster: Cluster | None
    """None where its file has faults, which planning reports."""
    span: Span | None = None
    """The entry of the fleet file that selects it."""

    @property
    def is_catalogued(self) -> bool:
        """Whether it is an entry of the catalogue, and no file."""
        return not self.hardware.endswith(_FILES)


class Selection(Struct, frozen=True, dict=True):
    """The specs, the clusters and what is laid over them."""

    file: Path
    fleet: Fleet
    specs: Mapping[str, Path]
    """By the spec's own name, sorted."""
    sites: tuple[Site, ...]
    text: str = ""
    """Of the fleet file."""
    targets: tuple[str, ...] = ()
    """The names of all targets; with none, any name passes."""
    allow_outside: bool = False
    """Whether its files may name others outside of their project."""

    @property
    def files(self) -> tuple[Path, ...]:
        """What the fleet is made of: its own file, and those of specs, clusters and policies."""
        base = self.file.parent
        sites = (Path(site.hardware) for site in self.sites if not site.is_catalogued)
        policies = (base / name for name in self.fleet.policies)
        return (self.file, *self.specs.values(), *sites, *policies)

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return len(self.specs) * len(self.sites)

    def overrides(self, spec: str, site: Site) -> tuple[str, ...]:
        """What holds for a pair, as `path=value`; the later are stronger."""
        return tuple(
            text for override, texts in self._laid if _means(override, spec, site) for text in texts
        )

    @cached_property
    def _laid(self) -> tuple[tuple[Override, tuple[str, ...]], ...]:
        return tuple((each, tuple(_assignments(each.set, ""))) for each in self.fleet.overrides)


class Selected(Struct, frozen=True):
    """What reading a fleet file gave."""

    selection: Selection | None
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]


def select(file: Path, targets: tuple[str, ...] = (), *, allow_outside: bool = False) -> Selected:
    """Read a fleet file and find what it names; every name that leads nowhere is an error.

    `targets` are the known target names; with none, any name passes. `allow_outside` lets it, and
    the specs, name files outside their project.
    """
    document = load_document(file, Fleet)
    if document.value is None:
        return Selected(None, document.diagnostics, document.sources)
    faults = list(_unknown_targets(document, targets))
    root = None if allow_outside else project_root(file.resolve())
    project = Project(file.parent, root)
    specs = _specs(document.value, project, document, faults)
    sites = _sites(document.value, project, document, faults)
    _policies(document.value, project, document, faults)
    if not faults:
        faults += _nothing(specs, sites, document)
    text = document.sources.get(str(file), "")
    found = Selection(file, document.value, specs, sites, text, targets, allow_outside)
    return Selected(None if faults else found, tuple(faults), document.sources)


def _unknown_targets(document: Document[Fleet], known: tuple[str, ...]) -> Iterator[Diagnostic]:
    if document.value is not None and document.tree is not None:
        yield from check_targets(list(document.value.targets), document.tree, known)


def _nothing(
    specs: Mapping[str, Path], sites: tuple[Site, ...], document: Document[Fleet]
) -> Iterator[Diagnostic]:
    """A fleet of nothing would be as it should be whatever it was meant to hold."""
    for name, found in (("specs", specs), ("clusters", sites)):
        if not found:
            span = document.spans.get(name)
            yield _fault(f"the fleet selects no {name}", span, "name one, or exclude fewer")


def _means(override: Override, spec: str, site: Site) -> bool:
    return (
        _matches(spec, override.specs)
        and _matches(site.name, override.clusters)
        and _has_labels(site.cluster, override.labels)
    )


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _has_labels(found: Cluster | None, labels: Mapping[str, str]) -> bool:
    known = found.labels if found else {}
    return all(fnmatchcase(known.get(name, ""), pattern) for name, pattern in labels.items())


def _assignments(part: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """A part of a spec as `path=value`; lists replace whole lists, as `--set` does."""
    for key, value in part.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value and prefix + key != "pin":
            yield from _assignments(value, f"{path}.")
        elif isinstance(value, Mapping) and value:
            yield from (f"pin.{slot}={_word(pinned)}" for slot, pinned in value.items())
        else:
            yield f"{path}={_word(value)}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=list)


# ── specs ────────────────────────────────────────────────────────────────────────────────────────


def _specs(
    fleet: Fleet, project: Project, document: Document[Fleet], faults: list[Diagnostic]
) -> dict[str, Path]:
    found: dict[str, Path] = {}
    base = project.base
    for at, pattern in enumerate(fleet.specs.include):
        span = _span(document, "specs", at)
        if misuse := _misuse(pattern):
            faults.append(_fault(f"`{pattern}` is no pattern of files", span, misuse))
            continue
        files = sorted(_files(pattern, base))
        if not files:
            faults.append(
                _fault(f"no spec file matches `{pattern}`", span, near_files(base / pattern))
            )
        for file in _inside(files, project, span, faults):
            if not _matches(file.relative_to(base).as_posix(), fleet.specs.exclude):
                name = _name(file)
                if is_own(name):
                    message = (
                        f"no spec may be called `{name}`: the tree uses that name for its own file"
                    )
                    faults.append(_fault(message, span, "give it another `name:`"))
                if found.setdefault(name, file) != file:
                    message = f"two specs are called `{name}`: {found[name]} and {file}"
                    faults.append(_fault(message, span, "give each a `name:` of its own"))
    return dict(sorted(found.items()))


def _name(file: Path) -> str:
    """What a spec calls itself; a spec with faults by its file, and planning reports them."""
    spec = load_spec(file).spec
    return spec.name if spec else file.stem


def _files(pattern: str, base: Path) -> Iterator[Path]:
    if not _is_pattern(pattern):
        yield from (file for file in (base / pattern,) if file.is_file())
        return
    for file in base.glob(pattern):
        if file.is_file() and file.suffix in _FILES and not file.name.endswith(SUFFIX):
            yield file


def _is_pattern(text: str) -> bool:
    return any(mark in text for mark in "*?[")


def _misuse(pattern: str) -> str:
    """Why `Path.glob` would not take a pattern, or nothing; what it takes differs by Python."""
    if _is_pattern(pattern) and Path(pattern).is_absolute():
        return "write it relative to the fleet file"
    if any("**" in part and part != "**" for part in pattern.split("/")):
        return "`**` stands for any number of directories, and stands alone between slashes"
    return ""


# ── clusters ─────────────────────────────────────────────────────────────────────────────────────


def _sites(
    fleet: Fleet, project: Project, document: Document[Fleet], faults: list[Diagnostic]
) -> tuple[Site, ...]:
    found: dict[str, Site] = {}
    for at, pattern in enumerate(fleet.clusters.include):
        span = _span(document, "clusters", at)
        if misuse := _misuse(pattern):
            faults.append(_fault(f"`{pattern}` is no pattern of clusters", span, misuse))
            continue
        files = sorted(_files(pattern, project.base)) if pattern.endswith(_FILES) else []
        named = map(_of_file, _inside(files, project, span, faults))
        sites = list(named) if files else list(_named(pattern, project.base))
        if not (files or sites):
            faults.append(_fault(f"no cluster matches `{pattern}`", span, _near(pattern)))
        for site in sites:
            left_out = _matches(site.name, fleet.clusters.exclude)
            if not left_out and _has_labels(site.cluster, fleet.clusters.labels):
                _add(found, replace(site, span=span), span, faults)
    return tuple(found[name] for name in sorted(found))


def _add(found: dict[str, Site], site: Site, span: Span | None, faults: list[Diagnostic]) -> None:
    other = found.setdefault(site.name, site)
    if other.hardware != site.hardware and not (site.is_catalogued and other.is_catalogued):
        message = f"two clusters are called `{site.name}`: {other.hardware} and {site.hardware}"
        faults.append(_fault(message, span, "give each cluster a name of its own"))


def _named(pattern: str, base: Path) -> Iterator[Site]:
    """The clusters of the catalogue that a name or a pattern means."""
    if pattern.endswith(_FILES):
        return
    if _is_pattern(pattern):
        for name in hardware_names():
            if fnmatchcase(name, pattern):
                yield _of_catalogue(name, base)
    else:
        try:
            yield _of_catalogue(pattern, base)
        except UnknownName:
            return


def _of_catalogue(name: str, base: Path) -> Site:
    found = with_measured(cluster(name), base).cluster
    return Site(found.name, name, found)


def _of_file(file: Path) -> Site:
    document = load_document(file, Cluster)
    if document.value is None:
        return Site(file.stem, str(file), None)
    found = with_measured(document.value, file.parent, file)
    return Site(document.value.name, str(file), None if found.faults else found.cluster)


# ── policies ─────────────────────────────────────────────────────────────────────────────────────


def _policies(
    fleet: Fleet, project: Project, document: Document[Fleet], faults: list[Diagnostic]
) -> None:
    """Report the policy files that lie outside the project; those that are read come later."""
    for at, name in enumerate(fleet.policies):
        list(_inside([project.base / name], project, _span(document, "policies", at), faults))


# ── faults ───────────────────────────────────────────────────────────────────────────────────────


def _span(document: Document[Fleet], field: str, at: int) -> Span | None:
    """Where the entry stands, whether it is written short, as a list, or under `include`."""
    paths = (f"{field}.include[{at}]", f"{field}[{at}]", f"{field}.include", field)
    return next((document.spans[path] for path in paths if path in document.spans), None)


def _inside(
    files: Iterable[Path], project: Project, span: Span | None, faults: list[Diagnostic]
) -> Iterator[Path]:
    """The files that lie in the fleet's project; reports the others."""
    for file in files:
        try:
            require_inside(file, project.root)
        except Outside as outside:
            faults.append(lies_outside(str(file), outside, span))
        except Unreadable:
            pass  # whoever reads it says so
        else:
            yield file


def _fault(message: str, span: Span | None, help: str | None) -> Diagnostic:
    labels = (Label("", span),) if span else ()
    return Diagnostic("E0314", "error", message, labels, help=help)


def _near(pattern: str) -> str | None:
    try:
        cluster(pattern)
    except UnknownName as unknown:
        return did_you_mean(unknown.near) or "`tunec catalog clusters` lists them"
    return None
