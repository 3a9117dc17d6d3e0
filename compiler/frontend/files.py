"""Reads the files of a spec: the chain of `extends`, within the project, each file once."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import shortened, shown
from tunec.compiler.frontend.checks import without_reason
from tunec.compiler.frontend.comments import allowances
from tunec.compiler.frontend.disk import Unreadable, near_files, read_bytes
from tunec.compiler.frontend.faults import beside, error
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.parse import Format, parse
from tunec.compiler.frontend.project import Outside, lies_outside, project_root, require_inside
from tunec.compiler.frontend.text import MAX_BYTES
from tunec.schemas.frozen import replace
from tunec.schemas.source import start_of

MAX_EXTENDS: Final = 16
"""The longest chain of files that extend one another."""
MAX_FILES: Final = 64
"""The most files in one spec."""
MAX_TOGETHER: Final = 2**18
"""The most bytes that a spec may extend; a file that is named several times counts as often."""
EXTENDS: Final = "extends"


class Read(Struct, frozen=True):
    """The files that were read: their text to show lines, and their digests for the lock."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """Text by the name that spans use."""
    digests: tuple[tuple[str, str], ...] = ()
    """Path relative to the spec's directory, with slashes, and the SHA-256 of the bytes."""
    allowances: tuple[Allowance, ...] = ()
    """Allowances in comments of the files."""


class Layers(Struct, frozen=True):
    """Documents to merge, the first at the bottom."""

    nodes: tuple[Node, ...]
    faults: tuple[Diagnostic, ...]
    read: Read
    root: Path | None = None
    """The project's root, outside of which no file may be named; None: any file may be named."""


def is_stream(path: Path) -> bool:
    """Whether a spec comes from another program: `-`, `/dev/stdin`, `<(...)`."""
    return str(path) in ("-", "/dev/stdin") or path.parent == Path("/dev/fd")


_STREAM: Final = "spec.yaml"
"""The name of such a spec; its paths are relative to the working directory."""


def read_stream(path: Path) -> bytes:
    """The bytes of a stream up to its end, one more than allowed at most; raise Unreadable."""
    try:
        with os.fdopen(os.dup(0) if str(path) == "-" else os.open(path, os.O_RDONLY), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise Unreadable((fault.strerror or "it cannot be read").lower()) from None


def format_of(path: Path) -> Format:
    """The format of a file of tunec: JSON by its suffix, otherwise YAML."""
    return "json" if path.suffix.lower() == ".json" else "spec"


def read_layers(path: Path, *, allow_outside: bool) -> Layers:
    """Read a spec and what it extends, the most basic file first."""
    try:
        full = Path.cwd() / _STREAM if is_stream(path) else path.resolve()
        content = read_stream(path) if is_stream(path) else read_bytes(path)
    except (Unreadable, OSError, ValueError, RuntimeError) as fault:
        return Layers((), (unreadable(path, fault),), Read())
    reader = _Reader(full, None if allow_outside else project_root(full))
    nodes = tuple(reader.layers(full, str(path), content, ()))
    return Layers(nodes, tuple(reader.faults), reader.read(), reader.root)


def unreadable(path: Path, fault: Exception | None = None) -> Diagnostic:
    """A file that the command line names cannot be read; without a fault, it does not exist."""
    why = "there is no such file" if fault is None else "its symbolic links are broken"
    why = str(fault) if isinstance(fault, Unreadable) else why
    span = start_of(str(path))
    return error("E0201", f"cannot read `{path}`: {why}", span, help=_meant(path))


def _meant(path: Path) -> str | None:
    """The file to name instead: one in the named directory, or one with a similar name."""
    try:
        inside = sorted(each.name for each in path.glob("*.y*ml"))[:1] if path.is_dir() else []
        is_there = path.exists()
    except (OSError, ValueError):
        return near_files(path)
    if inside:
        return f"name a file in it, such as `{path / inside[0]}`"
    return None if is_there else near_files(path)


def read_text_layers(
    text: str | bytes, file: str, directory: Path, format: Format, *, allow_outside: bool
) -> Layers:
    """The layers of a text that is not in a file; `extends` is relative to `directory`."""
    full = directory.resolve() / (Path(file).name or "spec")
    reader = _Reader(full, None if allow_outside else project_root(full))
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    nodes = tuple(reader.layers(full, file, content, (), format))
    return Layers(nodes, tuple(reader.faults), reader.read(), reader.root)


class _Reader(Struct):
    top: Path
    root: Path | None
    faults: list[Diagnostic] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    digests: list[tuple[str, str]] = field(default_factory=list)
    parsed: dict[Path, Node | None] = field(default_factory=dict)
    allowed: list[Allowance] = field(default_factory=list)
    count: int = 0
    laid: int = 0
    """Bytes of the extended files, each counted as often as it was extended."""

    def layers(
        self,
        path: Path,
        name: str,
        content: bytes,
        chain: tuple[Path, ...],
        format: Format | None = None,
    ) -> Iterator[Node]:
        """The documents of a file: those that it extends, then its own."""
        node = self._parse(path, name, content, format or format_of(path))
        if node is None or node.fields is None:
            yield from () if node is None else (node,)
            return
        listed = node.fields.get(EXTENDS)
        if listed is not None:
            for target in self._targets(listed):
                yield from self._base(target, path, name, (*chain, path))
        own = {key: child for key, child in node.fields.items() if key != EXTENDS}
        yield replace(node, fields=own)

    def _parse(self, path: Path, name: str, content: bytes, format: Format) -> Node | None:
        if path not in self.parsed:
            node, faults = parse(content, name, format)
            self.parsed[path] = node
            self.faults += faults
            text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
            self.sources[name] = text
            if format != "json":
                self._allow(allowances(text, name, node))
            relative = Path(os.path.relpath(path, self.top.parent)).as_posix()
            self.digests.append((relative, hashlib.sha256(content).hexdigest()))
        return self.parsed[path]

    def _allow(self, found: Iterator[Allowance]) -> None:
        for each in found:
            if not each.reason and each.span is not None:
                form = f"# tunec: allow({each.name}) why it is right here"
                self.faults.append(without_reason(each.name, each.span, (), form))
            self.allowed.append(each)

    def read(self) -> Read:
        """Everything that was read."""
        return Read(self.sources, tuple(self.digests), tuple(self.allowed))

    def _targets(self, listed: Node) -> Iterator[Node]:
        """The leaves of `extends` that are paths; reports the others."""
        if listed.is_leaf and listed.value is None:
            return
        for each in listed.items if listed.items is not None else (listed,):
            if each.is_leaf and isinstance(each.value, str) and "${" not in each.value:
                yield each
            else:
                self.faults.append(_not_a_path(each))

    def _base(self, target: Node, path: Path, name: str, chain: tuple[Path, ...]) -> Iterator[Node]:
        self.count += 1
        base, content, fault = self._open(target, path, chain)
        if fault is not None:
            self.faults.append(fault)
            return
        shown_as = os.path.normpath(Path(name).parent / target.value)
        self.laid += len(content)
        if self.laid > MAX_TOGETHER:
            self.faults.append(_too_large(target))
            return
        for layer in self.layers(base, shown_as, content, chain):
            if layer.fields is None:
                self.faults.append(_not_a_mapping(layer, target))
            else:
                yield layer

    def _open(
        self, target: Node, path: Path, chain: tuple[Path, ...]
    ) -> tuple[Path, bytes, Diagnostic | None]:
        try:
            base = require_inside(path.parent / target.value, self.root)
        except Outside as fault:
            return path, b"", lies_outside(target.value, fault, target.span, (EXTENDS,))
        except Unreadable as fault:
            return path, b"", _unreadable(target, str(fault), None)
        if base in chain:
            return base, b"", self._circle(target, (*chain[chain.index(base) :], base))
        if len(chain) >= MAX_EXTENDS or self.count > MAX_FILES:
            return base, b"", _too_many(target, len(chain) >= MAX_EXTENDS)
        try:
            return base, read_bytes(base), None
        except Unreadable as fault:
            return base, b"", _unreadable(target, str(fault), near_files(base))

    def _circle(self, target: Node, paths: tuple[Path, ...]) -> Diagnostic:
        names = [Path(os.path.relpath(each, self.top.parent)).as_posix() for each in paths]
        return error(
            "E0203",
            f"files extend each other in a circle: {' → '.join(names)}",
            target.span,
            path=(EXTENDS,),
            help="remove one `extends`, or move what they share to a third file",
        )


def _not_a_path(node: Node) -> Diagnostic:
    what = shown(node.value) if node.is_leaf else "a mapping or a list in it"
    return error(
        "E0205",
        f"`extends` names files, not {what}",
        node.span,
        path=(EXTENDS,),
        help="write a path relative to this file, or a list of paths",
    )


def _not_a_mapping(layer: Node, target: Node) -> Diagnostic:
    return error(
        "E0205",
        f"`extends` names files that hold a mapping, and this is {shown(plain(layer))}",
        target.span,
        path=(EXTENDS,),
        others=(beside("not a mapping", layer.span),),
        help="write a mapping there, or take the file out of `extends`",
    )


def _too_many(target: Node, deep: bool) -> Diagnostic:
    if deep:
        message = f"more than {MAX_EXTENDS} files extend one another in a chain"
    else:
        message = f"the spec is made of more than {MAX_FILES} files"
    return error("E0204", message, target.span, path=(EXTENDS,), help="merge some of the files")


def _too_large(target: Node) -> Diagnostic:
    message = f"the files that the spec extends hold more than {MAX_TOGETHER} bytes together"
    return error("E0204", message, target.span, path=(EXTENDS,), help="extend each file once")


def _unreadable(target: Node, why: str, remedy: str | None) -> Diagnostic:
    return error(
        "E0201",
        f"cannot read `{shortened(target.value)}`: {why}",
        target.span,
        path=(EXTENDS,),
        notes=("paths in `extends` are relative to the file that they stand in",),
        help=remedy,
    )
