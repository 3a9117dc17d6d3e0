"""Everything known about one open file, as commands would report it for the same text on disk."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Final, Protocol

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.diagnostics.baseline import read_baseline, without
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned, plan, written
from tunec.compiler.fleet.selection import select
from tunec.compiler.frontend.disk import Instead, Unreadable, read_bytes, reading
from tunec.compiler.frontend.document import load_document
from tunec.compiler.frontend.files import format_of
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.frontend.names import check_hardware
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.project import Project
from tunec.compiler.frontend.shell_words import BATCH_ENDINGS
from tunec.compiler.frontend.text import Origin
from tunec.compiler.frontend.toml_nodes import parse_toml
from tunec.compiler.lints.environment import Environment, Faulty, Unusable, environment_of
from tunec.compiler.lints.kinds import is_a_config_by_name
from tunec.compiler.lints.lint import Linted, lint_files
from tunec.compiler.lints.own_source import OwnSource, own_source
from tunec.compiler.lints.repository import reach_of
from tunec.compiler.lints.settings import OWN, SHARED, Settings, read_settings, settings_file
from tunec.compiler.requirements import Asked, together
from tunec.compiler.review.policy import load_policy
from tunec.compiler.target import Target
from tunec.schemas.entries import BrokenEntry
from tunec.schemas.fleet import Fleet
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.lint_settings import LintSettings
from tunec.schemas.models.card import ModelCard
from tunec.schemas.policy import Policy
from tunec.schemas.prices.price_list import PriceList
from tunec.schemas.shape import Shape
from tunec.schemas.source import start_of
from tunec.schemas.spec import Spec


class Kind(Struct, frozen=True):
    """One of tunec's own kinds of files."""

    name: str
    """The name of its JSON Schema."""
    shape: type[Shape]
    marks: tuple[str, ...] = ()
    """Patterns that all match in a file of this kind, but rarely in other files."""


def _key(name: str, value: str = "") -> str:
    """The pattern of a key at the start of a line, or of a quoted one after spaces, as in JSON."""
    return rf"""(?m)^(?:\{{?[ \t]*["']|){name}["']?[ \t]*:{value}"""


_VERSION: Final = r"[ \t]*(?:\d|$)"
"""A version number of one of tunec's languages; other programs have policies and fleets too."""
_BASE: Final = r"""[ \t]*(?:["']?[^\s"']+\.ya?ml|\[|$|[^\n:]+\n(?:tunec|model|data|hardware):)"""
"""The value of a spec's `extends`; configs of linters and compilers extend JSON files, or names."""
OURS: Final = (
    Kind("spec", Spec, (_key("tunec"),)),
    Kind(
        "spec",
        Spec,
        (rf"(?m)^extends[ \t]*:{_BASE}", r"(?m)\A(?!(?s:.*)^(?:jobs|services|stages):)"),
    ),
    Kind("fleet", Fleet, (_key("fleet", _VERSION),)),
    Kind("policy", Policy, (_key("policy", _VERSION),)),
    Kind("model-card", ModelCard, (_key("config_source"),)),
    Kind("prices", PriceList, (_key("provider"), _key("dated"))),
    Kind("device", Device, (_key("vendor"), _key("bandwidth"), _key("rates"))),
    Kind("cluster", Cluster, (_key("name"), _key("nodes"), r"\baccelerators\b")),
)
"""In the order in which they are tried."""
SETTINGS: Final = Kind("lint", LintSettings)
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_READ_BY_LINT: Final = frozenset(
    {*_SUFFIXES, ".toml", ".env", ".sh", *BATCH_ENDINGS, ".hostfile", ".py"}
)


def kind_of(name: str, text: str) -> Kind | None:
    """The kind of tunec's own files that a text is; None if it is none of them."""
    path = PurePath(name)
    if path.name in (OWN, SHARED):
        return SETTINGS
    if path.suffix.lower() not in _SUFFIXES:
        return None
    return next((each for each in OURS if _is(each, text)), None)


def _is(kind: Kind, text: str) -> bool:
    return all(re.search(each, text) for each in kind.marks)


def may_be_linted(name: str) -> bool:
    """Whether lint may be able to read a file with that name."""
    path = PurePath(name)
    return path.suffix.lower() in _READ_BY_LINT or path.name == "hostfile"


class Registry(Protocol):
    """The installed targets."""

    def names(self) -> tuple[str, ...]:
        """The names of all targets."""
        ...

    def readable(self) -> Mapping[str, Target]:
        """Every consumer whose files can be read, by name."""
        ...

    def resolve(
        self, name: str, software: Mapping[str, str] | None = None
    ) -> tuple[Target, Version]:
        """The target and version that a name stands for; LookupError if there is none."""
        ...


class Analysis(Struct, frozen=True):
    """Everything known about one file with one text."""

    path: Path
    name: str
    """The file's name in spans: relative to the working directory if the file is inside it."""
    text: str
    kind: Kind | None = None
    """None for a config of another program, or for an unrelated file."""
    diagnostics: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """The texts of all files that were read, by their names in spans."""
    tree: Node | None = None
    """The file's own values with their places; None if it cannot be parsed, or is a script."""
    planned: Planned | None = None
    """The decisions for a spec, if the file is one that can be read."""
    linted: Linted | None = None
    asked: tuple[Asked, ...] = ()
    """The targets of a spec."""
    last_planned: Planned | None = None
    """The last plan that existed: there is none while a line is half written."""
    last_linted: Linted | None = None
    """The last result of lint in which it knew what the file is."""

    @property
    def is_known(self) -> bool:
        """Whether the file is one that tunec handles."""
        return self.kind is not None or self.linted is not None

    def after(self, other: "Analysis | None") -> "Analysis":
        """The analysis, with the last plan and lint result of an earlier one if it has none."""
        planned = self.planned if self.planned is not None and self.planned.plan else None
        linted = self.linted if self.holds_documents else None
        return replace(
            self,
            last_planned=planned or (other.last_planned if other else None),
            last_linted=linted or (other.last_linted if other else None),
        )

    @property
    def holds_documents(self) -> bool:
        """Whether lint knows what the file is."""
        runs = self.linted.runs if self.linted is not None else ()
        return any(each.name == self.name for run in runs for each in run.documents)


class Surroundings(Struct, frozen=True):
    """The inputs of an analysis besides the text: targets, other texts, sources of projects."""

    registry: Registry
    instead: Instead
    """Replaces the content of files on disk."""
    sources: dict[tuple[Path, ...], OwnSource] = field(default_factory=dict)
    """A cache of the Python files of projects; the owner of this object clears it."""


def unsaved(texts: Mapping[Path, str]) -> Instead:
    """A function that returns the bytes of open files, given by resolved path."""

    def instead(path: Path) -> bytes | None:
        found = texts.get(Path(os.path.realpath(path)))
        return None if found is None else found.encode("utf-8", "surrogatepass")

    return instead


def called(path: Path) -> str:
    """A file's name in spans: as a command in the working directory would name the file."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def analyse(
    path: Path, text: str, around: Surroundings, before: Analysis | None = None
) -> Analysis:
    """Read a file as it is in the editor; every fault becomes a diagnostic.

    A config that was known `before` stays known while it is half written. If nothing fits a spec,
    this does not look for repairs; `repaired` does.
    """
    return _analysed(path, text, around, is_known=before is not None and before.is_known).after(
        before
    )


def _analysed(path: Path, text: str, around: Surroundings, *, is_known: bool) -> Analysis:
    with reading(around.instead):
        kind, name = kind_of(str(path), text), called(path)
        empty = Analysis(path, name, text, kind, (), {name: text})
        try:
            if kind is not None:
                return _ANALYSES.get(kind.name, _document)(empty, kind, around)
            if not may_be_linted(name):
                return empty
            return _config(empty, around, is_known=is_known or is_a_config_by_name(name))
        except BrokenEntry as broken:
            from tunec.compiler.frontend.document import faults_of

            found, sources = faults_of(broken)
            return replace(empty, diagnostics=tuple(found), sources={**empty.sources, **sources})


def _spec(empty: Analysis, _: Kind, around: Surroundings) -> Analysis:
    loaded = load_spec(Path(empty.name), targets=around.registry.names())
    try:
        wanted = loaded.spec.targets if loaded.spec else ()
        asked = together(around.registry.resolve, wanted, loaded.software)
    except LookupError:  # a version that is none, which was told
        asked = ()
    compiled = written(plan(loaded, asked, repairing=False), asked)
    return replace(
        _with_tree(empty),
        diagnostics=compiled.diagnostics,
        sources={**empty.sources, **loaded.sources},
        planned=compiled.planned,
        asked=asked,
    )


def repaired(analysis: Analysis, around: Surroundings) -> Analysis | None:
    """A spec without a plan, with changes that would help; None for any other file."""
    planned = analysis.planned
    if planned is None or planned.facts is None or planned.plan is not None:
        return None
    with reading(around.instead):
        found = plan(planned.loaded, analysis.asked)
    return replace(analysis, planned=found, diagnostics=found.diagnostics)


def _fleet(empty: Analysis, _: Kind, around: Surroundings) -> Analysis:
    found = select(Path(empty.name), around.registry.names())
    return replace(_with_tree(empty), diagnostics=found.diagnostics)


def _policy(empty: Analysis, _: Kind, __: Surroundings) -> Analysis:
    rules = load_policy(Path(empty.name))
    return replace(empty, diagnostics=rules.faults, tree=rules.document.tree)


def _cluster(empty: Analysis, _: Kind, __: Surroundings) -> Analysis:
    found = check_hardware(
        str(empty.path), Node(start_of(empty.name)), Project(Path(), None)
    ).faults
    named = (_renamed(each, str(empty.path), empty.name) for each in found)
    return replace(_with_tree(empty), diagnostics=tuple(named))


def _renamed(found: Diagnostic, old: str, new: str) -> Diagnostic:
    labels = (
        replace(each, span=replace(each.span, file=new))
        if each.span is not None and each.span.file == old
        else each
        for each in found.labels
    )
    return replace(found, labels=tuple(labels))


def _settings(empty: Analysis, _: Kind, __: Surroundings) -> Analysis:
    if empty.path.name == SHARED and "tunec" not in empty.text:
        return replace(empty, kind=None)
    tree = parse_toml(empty.text, Origin(empty.name))[0]
    if empty.path.name == SHARED and (tree is None or not _has_section(tree)):
        return replace(empty, kind=None)
    return replace(empty, diagnostics=read_settings(empty.path, empty.name).faults, tree=tree)


def _has_section(tree: Node) -> bool:
    tools = tree.child("tool")
    return tools is not None and tools.child("tunec") is not None


def _document(empty: Analysis, kind: Kind, _: Surroundings) -> Analysis:
    found = load_document(Path(empty.name), kind.shape)
    return replace(empty, diagnostics=found.diagnostics, tree=found.tree)


_ANALYSES: Final[Mapping[str, Callable[[Analysis, Kind, Surroundings], Analysis]]] = {
    "spec": _spec,
    "fleet": _fleet,
    "policy": _policy,
    "cluster": _cluster,
    "lint": _settings,
}


def _with_tree(empty: Analysis) -> Analysis:
    return replace(empty, tree=parse(empty.text, empty.name, format_of(empty.path))[0])


# ── configs of other programs ────────────────────────────────────────────────────────────────────


def _config(empty: Analysis, around: Surroundings, *, is_known: bool) -> Analysis:
    """The lint results of a file and the files that it names; empty for an unknown kind of file."""
    path, targets = Path(empty.name), around.registry.readable()
    settings = _settings_of(path)
    if settings is not None and settings.excludes(path):
        return empty
    linted = lint_files(
        [path], targets, _environment(settings, targets), (), settings, own=_own(path, around)
    )
    documents = [each for run in linted.runs for each in run.documents]
    mine = next((each for each in documents if each.name == empty.name), None)
    if mine is None and not is_known:
        return empty
    return replace(
        empty,
        diagnostics=_new(linted.diagnostics, settings),
        sources={**empty.sources, **linted.sources},
        tree=mine.root if mine is not None and mine.format in ("yaml", "json", "toml") else None,
        linted=linted,
    )


def _settings_of(path: Path) -> Settings | None:
    """The lint settings for a file; None if there are none, or if they have errors."""
    file = settings_file([path])
    return None if file is None else read_settings(file, called(file)).settings


def _environment(settings: Settings | None, targets: Mapping[str, Target]) -> Environment | None:
    if settings is None:
        return None
    try:
        return environment_of(targets, hardware=settings.hardware, software=settings.software)
    except (Unusable, Faulty):  # told where the settings are linted
        return None


def _own(path: Path, around: Surroundings) -> OwnSource:
    found = own_source([path], reach_of([path]))
    return around.sources.setdefault(found.roots, found)


def _new(found: tuple[Diagnostic, ...], settings: Settings | None) -> tuple[Diagnostic, ...]:
    """Diagnostics that are not in the baseline of the settings."""
    if settings is None or settings.baseline is None:
        return found
    try:
        return without(found, read_baseline(read_bytes(settings.baseline).decode("utf-8")))
    except (Unreadable, ValueError):
        return found
