"""Names in a spec that lead to something: models, hardware, devices, targets, versions."""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shortened
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.files import Unreadable, format_of, near_files, read_bytes
from tunec.compiler.frontend.nodes import Node, descend, place, plain
from tunec.compiler.frontend.parse import Format, parse
from tunec.compiler.frontend.typed import typed
from tunec.schemas.frozen import dataclass
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import Path as Place
from tunec.schemas.source import Span


@dataclass(frozen=True, slots=True)
class File:
    """A file that a name leads to, as it was read."""

    path: Path
    content: bytes


@dataclass(frozen=True, slots=True)
class Named:
    """What following a name gave."""

    faults: tuple[Diagnostic, ...] = ()
    files: tuple[File, ...] = ()
    cluster: Cluster | None = None
    config: Mapping[str, Any] | None = None
    """A model's config, where the name is the path of one."""


def is_path(name: str, base: Path) -> bool:
    """Whether a name means a file or directory rather than a catalogue entry."""
    if not name:
        return False
    if name.startswith((".", "/", "~")) or name.endswith((".json", ".yaml", ".yml")):
        return True
    try:
        return os.path.isdir(os.path.join(base, name))  # noqa: PTH112, PTH118  in every plan
    except (OSError, ValueError):
        return False


# ── models ───────────────────────────────────────────────────────────────────────────────────────


def check_model(value: Any, tree: Node, base: Path) -> Named:
    """Follow `model`: a catalogue name, a path, or the `config` of inline facts."""
    if isinstance(value, Mapping):
        config = value.get("config")
        here = Place(("model", "config"))
        return _config_file(config, tree, here, base) if isinstance(config, str) else Named()
    if not isinstance(value, str):
        return Named()
    if is_path(value, base):
        return _config_file(value, tree, ("model",), base)
    return Named(tuple(_unknown_model(value, tree)))


def _unknown_model(name: str, tree: Node) -> Iterator[Diagnostic]:
    from tunec.schemas.models.catalogue import UnknownName, card

    try:
        card(name)
    except UnknownName as unknown:
        last = name.rpartition("/")[2]
        near = nearest(name, unknown.known) or nearest(last, unknown.known)
        yield error(
            "E0305",
            f"no model is called `{shortened(name)}`",
            _at(tree, ("model",)),
            label="not in the catalogue",
            path=("model",),
            notes=("another model is given by its config.json: `model: path/to/config.json`",),
            help=did_you_mean(near) or "`tunec catalog models` lists the known ones",
        )


def _config_file(name: str, tree: Node, at: Place, base: Path) -> Named:
    path = base / name
    try:
        path = path / "config.json" if path.is_dir() else path
        content = read_bytes(path)
    except (Unreadable, OSError, ValueError) as fault:
        return Named((_unreadable(name, path, fault, tree, at),))
    node, faults = parse(content, str(path), _format_of_config(path))
    if node is not None and node.fields is None:
        message = f"`{shortened(name)}` is not a model's config: it holds no mapping"
        faults = (*faults, error("E0305", message, _at(tree, at), path=at))
    config = plain(node) if node is not None and not faults else None
    return Named(faults, (File(path, content),), config=config)


def _format_of_config(path: Path) -> Format:
    return "yaml" if path.suffix.lower() in (".yaml", ".yml") else "json"


def _unreadable(name: str, path: Path, fault: Exception, tree: Node, at: Place) -> Diagnostic:
    why = str(fault) if isinstance(fault, Unreadable) else "no such name"
    return error(
        "E0305",
        f"cannot read `{shortened(name)}`: {why}",
        _at(tree, at),
        path=at,
        notes=("the name is a path, relative to the spec's directory",),
        help=near_files(path),
    )


# ── hardware ─────────────────────────────────────────────────────────────────────────────────────


def check_hardware(value: Any, tree: Node, base: Path) -> Named:
    """Follow `hardware`: a catalogue name, a path, or an inline cluster's device names."""
    if isinstance(value, Mapping):
        return Named(tuple(_unknown_devices(value, tree, ("hardware",))))
    if not isinstance(value, str):
        return Named()
    if is_path(value, base):
        return _cluster_file(value, tree, base)
    return _catalogue_cluster(value, tree)


def _catalogue_cluster(name: str, tree: Node) -> Named:
    from tunec.schemas.hardware.catalogue import UnknownName, cluster

    try:
        return Named(cluster=cluster(name))
    except UnknownName as unknown:
        return Named((_unknown_hardware(name, unknown.near, _at(tree, ("hardware",))),))


def _unknown_hardware(name: str, near: tuple[str, ...], span: Span) -> Diagnostic:
    return error(
        "E0305",
        f"no hardware is called `{shortened(name)}`",
        span,
        label="not in the catalogue",
        path=("hardware",),
        notes=("it is a cluster's name, or `<device>-x<devices>[-n<nodes>]`, or a file",),
        help=did_you_mean(near) or "`tunec catalog clusters` and `devices` list the known ones",
    )


def _cluster_file(name: str, tree: Node, base: Path) -> Named:
    path = base / name
    try:
        content = read_bytes(path)
    except Unreadable as fault:
        return Named((_unreadable(name, path, fault, tree, ("hardware",)),))
    node, faults = parse(content, str(path), format_of(path))
    files = (File(path, content),)
    if node is None:
        return Named(faults, files)
    data = plain(node)
    found = typed(Cluster, data, node)
    names = tuple(_unknown_devices(data, node, ())) if isinstance(data, Mapping) else ()
    every = (*faults, *found.faults, *names)
    return Named(every, files, None if every else found.value)


def _unknown_devices(data: Mapping[str, Any], tree: Node, base: Place) -> Iterator[Diagnostic]:
    from tunec.schemas.hardware.catalogue import UnknownName, device

    for path, name in _device_names(data):
        try:
            device(name)
        except UnknownName as unknown:
            yield error(
                "E0305",
                f"no device is called `{shortened(name)}`",
                _at(tree, (*base, *path)),
                label="not in the catalogue",
                path=(*base, *path),
                help=did_you_mean(unknown.near) or "`tunec catalog devices` lists them",
            )


def _device_names(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    for n, node in _items(data.get("nodes")):
        for a, group in _items(node.get("accelerators")):
            if isinstance(group.get("device"), str):
                yield ("nodes", n, "accelerators", a, "device"), group["device"]


def _items(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(value, list):
        yield from ((at, each) for at, each in enumerate(value) if isinstance(each, Mapping))


# ── targets and versions ─────────────────────────────────────────────────────────────────────────


def check_targets(value: Any, tree: Node, known: Collection[str]) -> Iterator[Diagnostic]:
    """Check `targets`: each is `name` or `name@version`; any name passes where none is known."""
    for at, each in enumerate(value if isinstance(value, list) else ()):
        if isinstance(each, str):
            yield from _check_target(each, tree, ("targets", at), known)


def _check_target(
    text: str, tree: Node, path: Place, known: Collection[str]
) -> Iterator[Diagnostic]:
    name, at, version = text.partition("@")
    if known and name not in known:
        yield error(
            "E0309",
            f"no target is called `{shortened(name)}`",
            _at(tree, path),
            label="unknown target",
            path=path,
            notes=(f"there are {quoted(known, 'and')}",),
            help=did_you_mean(nearest(name, known)) or "name one of them",
        )
    if at and not _is_version(version):
        yield _not_a_version(version, _at(tree, path), path)


def check_software(value: Any, tree: Node) -> Iterator[Diagnostic]:
    """Check that `software` names versions; what is not text is for the shape to report."""
    if not isinstance(value, Mapping):
        return
    for name, version in value.items():
        if isinstance(version, str) and not _is_version(version):
            path = ("software", name)
            yield _not_a_version(version, _at(tree, path), path)


def _is_version(text: str) -> bool:
    from packaging.version import Version

    try:
        Version(text)
    except ValueError:  # InvalidVersion is one; so is a number of too many digits
        return False
    return True


def _not_a_version(text: str, span: Span, path: Place) -> Diagnostic:
    return error(
        "E0310",
        f"`{shortened(text)}` is not a version",
        span,
        path=path,
        notes=("defaults and keys differ from version to version, so one is meant, not a range",),
        help="write the version that runs, such as `4.40.2` or `0.19`",
    )


def _at(tree: Node, path: Place) -> Span:
    return place(descend(tree, path)[0])
