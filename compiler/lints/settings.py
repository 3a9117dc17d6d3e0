"""Settings of lint: their file, its faults, and their effect on files and findings.

Files that the settings name have to be inside the project, as everywhere.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.codes import is_code, known_names
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix, Severity
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, shortened
from tunec.compiler.frontend.disk import Unreadable, near_files, read_bytes
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.names import check_hardware, is_path
from tunec.compiler.frontend.nodes import Node, descend, place, plain
from tunec.compiler.frontend.project import (
    Outside,
    Project,
    lies_outside,
    project_root,
    require_inside,
)
from tunec.compiler.frontend.software import check_software, is_version
from tunec.compiler.frontend.text import Origin, decode, forbidden_character
from tunec.compiler.frontend.toml_nodes import parse_toml
from tunec.compiler.frontend.validation import typed
from tunec.compiler.lints.index import rule_names
from tunec.compiler.lints.rule import UNCERTAIN
from tunec.compiler.releases import Releases
from tunec.schemas.frozen import replace
from tunec.schemas.lint_settings import Level, LintSettings
from tunec.schemas.source import Path as Place
from tunec.schemas.source import start_of

_SECTION: Final = ("tool", "tunec")
_SEVERITIES: Final[Mapping[Level, Severity]] = {
    "error": "error",
    "warn": "warning",
    "note": "note",
}
_ANY: Final = "**"


class Settings(Struct, frozen=True, dict=True):
    """The settings in a file, with the folder that their paths are relative to."""

    name: str
    """The file's name as shown to users."""
    folder: Path
    """The folder, with symbolic links resolved."""
    said: LintSettings

    def excludes(self, path: Path) -> bool:
        """Whether a file or folder is excluded from reading."""
        return bool(self._left_out) and self._is_among(path, self._left_out)

    def levelled(self, found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
        """Findings with the severity set for their rules, without those that are turned off.

        Hard errors keep their severity. A finding that rests on something unknown stays a note.
        """
        if not (self.said.rules or self.said.paths):
            return tuple(found)
        every = ((each, self._level(each)) for each in found)
        return tuple(_with(each, level) for each, level in every if level != "off")

    @property
    def hardware(self) -> str | None:
        """The hardware; a file's path is relative to the folder in which the command runs."""
        name = self.said.hardware
        return str(self.folder / name) if name and is_path(name, self.folder) else name

    @property
    def baseline(self) -> Path | None:
        """The file of accepted findings."""
        name = self.said.baseline
        return Path(os.path.relpath(self.folder / name)) if name else None

    @property
    def software(self) -> dict[str, str]:
        """The version, or version bounds, of each package."""
        return {name: _without_sign(text) for name, text in self.said.software.items()}

    def _level(self, found: Diagnostic) -> Level | None:
        if is_code(found.id) or found.is_bug:
            return None
        here = (
            levels[found.id]
            for pattern, levels in self._by_path
            if found.id in levels and self._is_among(Path(found.file), (pattern,))
        )
        return next(here, self.said.rules.get(found.id))

    @cached_property
    def _left_out(self) -> "tuple[Pattern, ...]":
        return tuple(map(_pattern, self.said.exclude))

    @cached_property
    def _by_path(self) -> "tuple[tuple[Pattern, Mapping[str, Level]], ...]":
        """The levels by path pattern, the last pattern first."""
        every = ((_pattern(glob), levels) for glob, levels in self.said.paths.items())
        return tuple(every)[::-1]

    def _is_among(self, path: Path, patterns: "Iterable[Pattern]") -> bool:
        full = Path(os.path.realpath(path.parent), path.name)
        if not full.is_relative_to(self.folder):
            return False
        parts = full.relative_to(self.folder).parts
        return any(_covers(pattern, parts) for pattern in patterns)


def _with(found: Diagnostic, level: Level | None) -> Diagnostic:
    is_open = found.severity == "note" and found.message.startswith(UNCERTAIN)
    if level is None or level == "off" or is_open:
        return found
    return replace(found, severity=_SEVERITIES[level])


def _without_sign(text: str) -> str:
    """A version without the `==` that pip writes before it."""
    version = text.strip().lstrip("=").strip()
    return version if text.strip().startswith("=") and is_version(version) else text.strip()


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────

Pattern = tuple[str, ...]
"""The parts of a glob between slashes; `**` stands for any number of folders."""


def _pattern(glob: str) -> Pattern:
    parts = PurePosixPath(glob.removeprefix("./")).parts
    return parts if len(parts) > 1 else (_ANY, *parts)


def _covers(pattern: Pattern, parts: tuple[str, ...]) -> bool:
    """Whether a pattern matches a path or a folder that contains it."""
    at = _onward(pattern, {0})
    for part in parts:
        stays = {n for n in at if n < len(pattern) and pattern[n] == _ANY}
        steps = {n + 1 for n in at - stays if n < len(pattern) and fnmatchcase(part, pattern[n])}
        at = _onward(pattern, stays | steps)
        if len(pattern) in at:
            return True
    return False


def _onward(pattern: Pattern, at: set[int]) -> set[int]:
    """Positions in a pattern, plus those after a `**`, which may match nothing."""
    for n, part in enumerate(pattern):
        if n in at and part == _ANY:
            at = at | {n + 1}
    return at


# ── the file ─────────────────────────────────────────────────────────────────────────────────────


class Read(Struct, frozen=True):
    """The settings, or the faults of their file."""

    settings: Settings | None = None
    faults: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


def read_settings(
    path: Path, name: str, *, allow_outside: bool = False, needs_baseline: bool = True
) -> Read:
    """Read a settings file: the settings, or every fault in it; raises nothing.

    `needs_baseline`: the baseline file has to exist. It need not if another baseline is used, or if
    it is about to be written.
    """
    try:
        content = read_bytes(path)
    except Unreadable as why:
        message, at = f"{name} cannot be read: {why}", start_of(name)
        return Read(faults=(error("E0201", message, at, help=near_files(path)),))
    sources = {name: content.decode("utf-8", "replace")}
    tree, faults = _tree(content, name)
    if tree is None:
        return Read(faults=faults, sources=sources)
    section: Place = _SECTION if path.name == SHARED else ()
    mine, reached = descend(tree, section)
    if reached != section:
        fault = error("E0302", f"{name} has no section [tool.tunec]", start_of(name))
        return Read(faults=(fault,), sources=sources)
    folder = Path(os.path.realpath(path)).parent
    project = Project(folder, None if allow_outside else project_root(folder / path.name))
    shaped = typed(LintSettings, plain(mine), mine)
    found = (*shaped.faults, *_faults(mine, project, needs_baseline=needs_baseline))
    if found or shaped.value is None:
        return Read(faults=found, sources=sources)
    return Read(Settings(name, folder, shaped.value), sources=sources)


def _tree(content: bytes, name: str) -> tuple[Node | None, tuple[Diagnostic, ...]]:
    origin = Origin(name)
    text, fault = decode(content, origin, bom_allowed=False)
    fault = fault or forbidden_character(text, origin, json=False)
    return (None, (fault,)) if fault is not None else parse_toml(text, origin)


def _faults(tree: Node, project: Project, *, needs_baseline: bool) -> Iterator[Diagnostic]:
    """Faults of the values; wrong types are reported by the shape."""
    for at, rule in _rules(tree):
        yield from _faults_of_rule(rule, at, tree)
    for at, glob in _globs(tree):
        yield from _faults_of_glob(glob, at, tree)
    data = plain(tree)
    yield from _faults_of_software(data.get("software"), tree)
    if isinstance(data.get("hardware"), str):
        yield from check_hardware(data["hardware"], tree, project).faults
    if isinstance(data.get("baseline"), str):
        yield from _faults_of_baseline(
            data["baseline"], tree, project, needs_baseline=needs_baseline
        )


def _keys(tree: Node, at: Place) -> Iterator[tuple[Place, str]]:
    node, reached = descend(tree, at)
    if reached == at:
        yield from (((*at, key), key) for key in node.fields or ())


def _rules(tree: Node) -> Iterator[tuple[Place, str]]:
    yield from _keys(tree, ("rules",))
    for at, _ in _keys(tree, ("paths",)):
        yield from _keys(tree, at)


def _globs(tree: Node) -> Iterator[tuple[Place, str]]:
    node, reached = descend(tree, ("exclude",))
    items = node.items or () if reached else ()
    yield from (
        (("exclude", n), each.value) for n, each in enumerate(items) if isinstance(each.value, str)
    )
    yield from _keys(tree, ("paths",))


def _faults_of_rule(name: str, at: Place, tree: Node) -> Iterator[Diagnostic]:
    known = (*rule_names(), *known_names())
    if name in known:
        return
    span = _key_span(tree, at)
    near = nearest(shortened(name), known)
    fix = Fix((Edit(span, near[0]),), "unsafe") if len(near) == 1 and span is not None else None
    if is_code(name):
        told, how = f"{shortened(name)} is a hard error, whose level is fixed", "remove it"
    else:
        told = f"there is no rule `{shortened(name)}`"
        how = did_you_mean(near) or "`tunec catalog rules` lists them"
    yield error("E0317", told, span, label="no such rule", path=at, help=how, fix=fix)


def _key_span(tree: Node, at: Place) -> Any:
    node, _ = descend(tree, at)
    return node.key_span or place(node)


def _faults_of_glob(glob: str, at: Place, tree: Node) -> Iterator[Diagnostic]:
    path = PurePosixPath(glob)
    if not path.parts:
        told = "a pattern is empty"
    elif path.is_absolute() or ".." in path.parts:
        told = f"`{shortened(glob)}` leads out of the folder of this file"
    else:
        return
    how = "write a pattern from this file's folder on, such as `old/**`"
    yield error("E0306", told, _key_span(tree, at), path=at, help=how)


def _faults_of_software(said: Any, tree: Node) -> Iterator[Diagnostic]:
    """Misspelt package names, and texts that are neither a version nor bounds."""
    named = said if isinstance(said, Mapping) else {}
    yield from check_software(dict.fromkeys(named, "1"), tree)  # names alone
    for name, text in named.items():
        if isinstance(text, str) and not _is_requirement(_without_sign(text)):
            at = ("software", name)
            how = "write a version, such as `4.57.1`, or bounds, such as `>=4.50,<5`"
            told = f"`{shortened(text)}` is neither a version nor bounds of one"
            yield error("E0310", told, place(descend(tree, at)[0]), path=at, help=how)


def _is_requirement(text: str) -> bool:
    try:
        return is_version(text) or (text[:1] in tuple("<>=!~") and _holds(text))
    except ValueError:  # InvalidVersion is one
        return False


def _holds(text: str) -> bool:
    Releases(text).contains("1")
    return True


def _faults_of_baseline(
    name: str, tree: Node, project: Project, *, needs_baseline: bool
) -> Iterator[Diagnostic]:
    at = ("baseline",)
    span = place(descend(tree, at)[0])
    path = project.base / name
    try:
        require_inside(path, project.root)
        if needs_baseline:
            read_bytes(path)
    except Outside as outside:
        yield lies_outside(name, outside, span, at)
    except Unreadable as why:
        how = near_files(path) or "write it: `tunec lint . --write-baseline`"
        yield error("E0305", f"`{shortened(name)}`: {why}", span, path=at, help=how)


OWN: Final = "tunec.toml"
SHARED: Final = "pyproject.toml"
_HEADER: Final = re.compile(r"(?m)^\s*\[+\s*tool\s*\.\s*tunec\b")


def settings_file(paths: Iterable[Path]) -> Path | None:
    """The settings file for linted paths, searched upward from their common folder."""
    folders = {os.path.realpath(each if each.is_dir() else each.parent) for each in paths}
    try:
        start = Path(os.path.commonpath(folders))
    except ValueError:  # no folder, or several disks
        return None
    around = (start, *start.parents)
    root = next((each for each in around if (each / ".git").exists()), None)
    root = root or project_root(start / OWN)
    inside = (each for each in around if each.is_relative_to(root))
    return next(filter(None, map(_in_folder, inside)), None)


def _in_folder(folder: Path) -> Path | None:
    if (folder / OWN).is_file():
        return folder / OWN
    shared = folder / SHARED
    return shared if shared.is_file() and _has_section(shared) else None


def _has_section(path: Path) -> bool:
    """Whether a pyproject.toml has settings of tunec; faults of other files are not reported."""
    try:
        text = read_bytes(path).decode("utf-8", "replace")
    except Unreadable:
        return False
    if "tunec" not in text:
        return False
    try:
        return "tunec" in tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError, TypeError, AttributeError):
        return _HEADER.search(text) is not None
