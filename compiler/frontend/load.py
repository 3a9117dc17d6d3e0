"""load: from a file, a text or a mapping to a typed spec, with every fault at once."""

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.analyses.memory.calibration import Calibration
from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.frontend import checks, names
from tunec.compiler.frontend.calibration import check_calibration
from tunec.compiler.frontend.compose import Composition, compose, spans_of
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.files import (
    EXTENDS,
    Layers,
    Read,
    is_stream,
    read_layers,
    read_text_layers,
)
from tunec.compiler.frontend.lengths import check_lengths
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.parse import Format
from tunec.compiler.frontend.pins import check_pins
from tunec.compiler.frontend.project import Project
from tunec.compiler.frontend.samples import count_samples
from tunec.compiler.frontend.software import check_software
from tunec.compiler.frontend.target_names import check_targets
from tunec.compiler.frontend.validation import typed
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import COMMAND_LINE, Span, start_of
from tunec.schemas.source import Path as Place
from tunec.schemas.spec import Spec

MAPPING: Final = "<mapping>"
"""The file of a spec that was given as data; its text is the data as JSON."""


class Loaded(Struct, frozen=True):
    """A spec as it was read: typed where nothing is wrong with it."""

    spec: Spec | None
    """None if any diagnostic is an error."""
    spans: Mapping[Place, Span]
    """The place of each value, in whichever file."""
    diagnostics: tuple[Diagnostic, ...]
    """Sorted by file and line."""
    files: tuple[tuple[str, str], ...]
    """Every file read: its path relative to `base`, with slashes, and the SHA-256 of its bytes."""
    sources: Mapping[str, str]
    """Texts by the file name that spans use, for showing lines."""
    base: Path
    """The directory that paths in the spec are relative to."""
    cluster: Cluster | None = None
    """The hardware that `hardware` names, if it has no fault."""
    allowances: tuple[Allowance, ...] = ()
    """Diagnostics that the spec's `allow` and comments in its files accept."""
    followed: Mapping[str, Any] = field(default_factory=dict)
    """What paths in the spec lead to, by the path as written: a model's config as plain data, a
    cluster as a `Cluster`."""
    lengths: Lengths | None = None
    """The sample lengths of `data.lengths`."""
    counted: int | None = None
    """The samples of an epoch, if the training data lies beside the spec."""
    calibration: Calibration | None = None
    """A stored trace that `calibration` names, or that lies beside the model's config."""
    origin: "_Origin | None" = None
    """What the spec was read from."""

    @property
    def software(self) -> Mapping[str, str]:
        """The installed versions; the spec's own overrule those of its hardware."""
        cluster = self.cluster.software if self.cluster else {}
        return {**cluster, **(self.spec.software if self.spec else {})}


def with_settings(loaded: Loaded, settings: Sequence[str]) -> Loaded:
    """The spec with further `--set` arguments, which overrule those given."""
    if loaded.origin is None:
        return loaded
    layers, arguments, asked = loaded.origin
    return _load(layers, [*arguments, *settings], asked)


def for_hardware(loaded: Loaded, hardware: str) -> Loaded:
    """The spec with another `--hardware`; its own files are not read again."""
    if loaded.origin is None:
        return loaded
    layers, arguments, asked = loaded.origin
    others = [each for each in arguments if not each.startswith("hardware=")]
    return _load(layers, _arguments(others, hardware), asked)


def moved(loaded: Loaded, hardware: str | Cluster, cluster: Cluster) -> Loaded:
    """The spec on another cluster, which its `hardware` then names or contains; nothing is read."""
    if loaded.spec is None:
        return loaded
    spec = loaded.spec.model_copy(update={"hardware": hardware})
    return replace(loaded, spec=spec, cluster=cluster)


class _Asked(Struct, frozen=True):
    """What affects how a spec is read, besides its files."""

    project: Project
    stem: str
    targets: Collection[str]
    laid_over: Sequence[str] = ()
    """Settings of a fleet file; their paths are relative to the spec, and stay in the project."""

    @property
    def base(self) -> Path:
        """The directory that paths in the spec are relative to."""
        return self.project.base


_Origin = tuple[Layers, Sequence[str], _Asked]
"""Files, arguments, and what else affects how they are read."""


def load_spec(
    path: Path,
    overrides: Sequence[str] = (),
    hardware: str | None = None,
    *,
    laid_over: Sequence[str] = (),
    targets: Collection[str] = (),
    allow_outside: bool = False,
) -> Loaded:
    """Read a spec file, the files that it extends, and the command line's overrides.

    `overrides` are `path=value`, where later ones win; `hardware` replaces the spec's own, and a
    path there is relative to the working directory. `laid_over` are overrides of a fleet file: they
    are weaker, and read as if the spec contained them. `targets` are the known target names; if
    empty, any name passes. `allow_outside` lets the spec name files outside its project. Never
    raises, whatever the content of the files.
    """
    base, stem = _place(Path(path))
    layers = read_layers(Path(path), allow_outside=allow_outside)
    asked = _Asked(Project(base, layers.root), stem, targets, laid_over)
    return _load(layers, _arguments(overrides, hardware), asked)


def _place(path: Path) -> tuple[Path, str]:
    """The directory to which a spec's paths are relative, and the name that its file gives it."""
    return (Path(), "run") if is_stream(path) else (path.parent, path.stem)


def load_text(
    text: str | bytes,
    file: str = "<text>",
    overrides: Sequence[str] = (),
    hardware: str | None = None,
    *,
    base: Path = Path(),
    format: Format = "spec",
    targets: Collection[str] = (),
    allow_outside: bool = False,
) -> Loaded:
    """Read a spec from a text; paths in it are relative to `base`."""
    layers = read_text_layers(text, file, base, format, allow_outside=allow_outside)
    stem = "run" if file.startswith("<") else Path(file).stem
    asked = _Asked(Project(base, layers.root), stem, targets)
    return _load(layers, _arguments(overrides, hardware), asked)


def load_mapping(
    data: Mapping[str, Any],
    overrides: Sequence[str] = (),
    hardware: str | None = None,
    *,
    base: Path = Path(),
    targets: Collection[str] = (),
    allow_outside: bool = False,
) -> Loaded:
    """Read a spec given as plain data; faults point into that data as JSON."""
    try:
        text = json.dumps(data, indent=2, ensure_ascii=False, default=_as_plain)
    except (TypeError, ValueError, RecursionError) as fault:
        span = start_of(MAPPING)
        found = error("E0112", f"the mapping holds a value that is not plain data: {fault}", span)
        return Loaded(None, {}, (found,), (), {}, base)
    return load_text(
        text,
        MAPPING,
        overrides,
        hardware,
        base=base,
        format="json",
        targets=targets,
        allow_outside=allow_outside,
    )


def _as_plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not data")


def _arguments(overrides: Sequence[str], hardware: str | None) -> list[str]:
    last = [] if hardware is None else [f"hardware={json.dumps(hardware)}"]
    return [*overrides, *last]


def _load(layers: Layers, arguments: Sequence[str], asked: _Asked) -> Loaded:
    composed = compose(layers, arguments, asked.laid_over)
    if composed.tree is None:
        return _loaded(None, composed, composed.faults, asked)
    data = _completed(composed, asked)
    found = _check(data, composed, asked)
    loaded = _loaded(found, composed, (*composed.faults, *found.faults), asked)
    return replace(loaded, origin=(layers, arguments, asked))


class _Checked(Struct, frozen=True):
    """The result of checking a composed spec."""

    spec: Spec | None
    cluster: Cluster | None
    faults: tuple[Diagnostic, ...]
    files: tuple[names.File, ...]
    followed: Mapping[str, Any] = field(default_factory=dict)
    lengths: Lengths | None = None
    calibration: Calibration | None = None


def _completed(composed: Composition, asked: _Asked) -> Any:
    """The data, with its name taken from the file and paths of the command line rebased."""
    if not isinstance(composed.data, dict) or composed.tree is None:
        return composed.data
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", asked.stem).strip("-._")[:100]
    data = {"name": stem, **composed.data} if stem else dict(composed.data)
    for key in ("model", "hardware"):
        value = data.get(key)
        node = composed.tree.child(key)
        given = node is not None and node.span.file == COMMAND_LINE
        if given and isinstance(value, str) and names.is_path(value, Path()):
            data[key] = Path(os.path.relpath(value, asked.base)).as_posix()
    return data


def _check(data: Any, composed: Composition, asked: _Asked) -> _Checked:
    tree = composed.tree or Node(start_of(""))
    foreign = tuple(checks.check_kind(data, tree))
    if foreign:
        return _Checked(None, None, foreign, ())
    model = names.check_model(data.get("model"), tree, asked.project)
    hardware = names.check_hardware(data.get("hardware"), tree, asked.project)
    kept = check_calibration(data, model, tree, asked.project)
    told = check_lengths(data, tree, asked.project)
    pins = check_pins(data.get("pin"), tree, composed.broken)
    allowed = tuple(checks.check_allow(data.get("allow"), tree))
    exclusive = tuple(checks.check_exclusive(data, tree))
    hidden = [*composed.broken, *_paths(allowed)]
    shape = typed(Spec, _with_pins(data, pins.values), tree, hidden)
    faults = (
        *(each for each in shape.faults if not _repeats(each, exclusive)),
        *exclusive,
        *checks.check_parts(data, tree),
        *model.faults,
        *names.check_stored(data, model, tree),
        *hardware.faults,
        *kept.faults,
        *told.faults,
        *pins.faults,
        *check_targets(data.get("targets"), tree, asked.targets),
        *check_software(data.get("software"), tree),
        *allowed,
        *checks.check_characters(tree),
        *checks.check_dashes(tree),
    )
    cluster = _cluster(shape.value, hardware)
    files = (*model.files, *hardware.files, *kept.files, *told.files)
    followed = _followed(data, model, hardware)
    return _Checked(shape.value, cluster, faults, files, followed, told.lengths, kept.calibration)


def _followed(data: Any, model: names.ResolvedName, hardware: names.ResolvedName) -> dict[str, Any]:
    """What was read from other files, by the path in the spec, without catalogue entries."""
    given = data.get("model")
    config = given.get("config") if isinstance(given, Mapping) else given
    found: dict[str, Any] = {str(config): model.config} if model.config is not None else {}
    if hardware.files and hardware.cluster is not None:
        found[data["hardware"]] = hardware.cluster
    return found


def _cluster(spec: Spec | None, named: names.ResolvedName) -> Cluster | None:
    if spec is not None and isinstance(spec.hardware, Cluster):
        return spec.hardware
    return named.cluster


def _with_pins(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "pin": dict(values)} if isinstance(data.get("pin"), dict) else dict(data)


def _paths(faults: Iterable[Diagnostic]) -> list[Place]:
    return [tuple(each.primary.path.split(".", 1)) for each in faults if each.primary]


def _repeats(fault: Diagnostic, exclusive: Sequence[Diagnostic]) -> bool:
    """Whether a model's own validator repeats which fields exclude each other."""
    path = fault.primary.path if fault.primary else ""
    said = (each.primary.path for each in exclusive if each.primary)
    return fault.id == "E0308" and any(each.startswith(path) for each in said)


def _loaded(
    checked: _Checked | None, composed: Composition, faults: Iterable[Diagnostic], asked: _Asked
) -> Loaded:
    faults = _without_consequences(faults)
    read = _with_files(composed.read, checked.files if checked else (), asked.base)
    found = _ordered(faults, read.sources)
    used = _Checked(None, None, (), ()) if checked is None or has_errors(found) else checked
    spec = used.spec
    return Loaded(
        spec=spec,
        spans=spans_of(composed.tree) if composed.tree is not None else {},
        diagnostics=found,
        files=read.digests,
        sources=read.sources,
        base=asked.base,
        cluster=used.cluster,
        allowances=(*_allowed(spec), *read.allowances),
        followed=used.followed,
        lengths=used.lengths,
        counted=None if spec is None else count_samples(spec.data, asked.project),
        calibration=used.calibration,
    )


_OF_FILES: Final = frozenset(("E0201", "E0202", "E0203", "E0204", "E0205"))
_OF_SYNTAX: Final = frozenset(("E0108", "E0109", "E0112"))
_OF_VALUES: Final = frozenset(("E0303", "E0304", "E0306", "E0403", "E0404"))


def _without_consequences(faults: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Leave out faults of values that could not be read, or that an unreadable file may contain."""
    every = list(faults)
    unread = [each.primary.span for each in every if each.id in _OF_SYNTAX and each.primary]
    if any(each.id in _OF_FILES and _is_of_extends(each) for each in every):
        every = [each for each in every if each.id != "E0302"]
    return [each for each in every if each.id not in _OF_VALUES or not _holds_one(each, unread)]


def _is_of_extends(fault: Diagnostic) -> bool:
    return fault.primary is not None and fault.primary.path == EXTENDS


def _holds_one(fault: Diagnostic, spans: Iterable[Span | None]) -> bool:
    own = fault.span
    return own is not None and any(each is not None and _touches(own, each) for each in spans)


def _touches(value: Span, other: Span) -> bool:
    """Whether `other` is within a value, or is the tag before it."""
    if value.file != other.file or other.line > value.end_line or other.end_line < value.line:
        return False
    end = (other.end_line, other.end_column + 1)
    return (value.line, value.column) <= end and (other.line, other.column) < (
        value.end_line,
        value.end_column,
    )


def _allowed(spec: Spec | None) -> tuple[Allowance, ...]:
    return tuple(Allowance(name, why) for name, why in spec.allow.items()) if spec else ()


def _with_files(read: Read, files: Iterable[names.File], base: Path) -> Read:
    for file in files:
        relative = Path(os.path.relpath(file.path, base)).as_posix()
        digest = (relative, sha256(file.content).hexdigest())
        name, text = file.source
        read = replace(read, sources={**read.sources, name: text}, digests=(*read.digests, digest))
    return read


def _ordered(faults: Iterable[Diagnostic], sources: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Each fault once, sorted by file in reading order, then by place."""
    order = {file: at for at, file in enumerate(sources)}

    def key(each: Diagnostic) -> tuple[int, int, int]:
        span = each.span
        return (order.get(span.file, len(order)), span.line, span.column) if span else (-1, 0, 0)

    return tuple(sorted(dict.fromkeys(faults), key=key))
