"""Links from names: to files that are extended or named, and to entries of the catalogue."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tunec.schemas
from tunec.compiler.frontend.names import is_written_as_path
from tunec.compiler.frontend.nodes import Node, walk
from tunec.compiler.lints.neighbours import references
from tunec.compiler.lints.repository import reach_of
from tunec.compiler.lsp import dialect
from tunec.compiler.lsp.analysis import Analysis
from tunec.schemas.hardware.catalogue import UnknownName as UnknownHardware
from tunec.schemas.hardware.catalogue import cluster, device
from tunec.schemas.hardware.families import FILE as FAMILIES
from tunec.schemas.hardware.families import sized_names
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card
from tunec.schemas.source import Span

_SCHEMAS = Path(tunec.schemas.__file__).resolve().parent
_FILES = frozenset({"extends", "include", "policies", "baseline", "specs", "calibration", "config"})
"""Keys whose values are files."""
_NAMED = frozenset({"model", "hardware", "clusters", "device", "lengths"})
"""Keys whose values may be files."""

Link = tuple[Span, Path]
"""A span of the text, and the file that it links to."""


def links(analysis: Analysis) -> Iterator[Link]:
    """Every link of a file."""
    if analysis.kind is None:
        yield from _of_config(analysis)
    elif analysis.tree is not None:
        for path, node in walk(analysis.tree):
            keys = [each for each in path if isinstance(each, str)]
            found = _file(node, keys, analysis.path.parent) if keys else None
            if found is not None:
                yield node.span, found


def _file(node: Node, keys: list[str], folder: Path) -> Path | None:
    value = node.value
    if not isinstance(value, str) or not value:
        return None
    for key in keys[-2:]:
        if key in _FILES or (key in _NAMED and is_written_as_path(value)):
            return _there(folder / value)
    return _entry(keys[-1], value) or (_entry("hardware", value) if "clusters" in keys else None)


def _there(path: Path) -> Path | None:
    """An existing file, or the config.json of an existing folder; None if there is none."""
    try:
        path = path / "config.json" if path.is_dir() else path
        return Path(os.path.realpath(path)) if path.is_file() else None
    except (OSError, ValueError):
        return None


def _entry(key: str, name: str) -> Path | None:
    """The file of the catalogue that defines a name."""
    try:
        if key == "model":
            return _there(_SCHEMAS / "models" / "cards" / f"{card(name).name}.yaml")
        if key == "hardware":
            return _cluster(cluster(name))
        if key == "device":
            return _there(_SCHEMAS / "hardware" / "devices" / f"{device(name).name}.yaml")
    except (UnknownModel, UnknownHardware):
        pass
    return None


def _cluster(found: Any) -> Path | None:
    """The file of a cluster, or of the device that it is made of."""
    own = _there(_SCHEMAS / "hardware" / "clusters" / f"{found.name}.yaml")
    if own is not None:
        return own
    if found.name in sized_names():
        return FAMILIES
    group = found.nodes[0].accelerators[0]
    return _there(_SCHEMAS / "hardware" / "devices" / f"{group.device}.yaml")


def _of_config(analysis: Analysis) -> Iterator[Link]:
    reach = reach_of([analysis.path])
    for _, document in dialect.documents(analysis):
        for place in references(document):
            for found, _content in reach.contents(Path(str(place.value)), analysis.path):
                yield place.node.span, Path(os.path.realpath(found))
                break
