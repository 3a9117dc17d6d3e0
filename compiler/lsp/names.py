"""Completions of names that a schema takes as any text: models, hardware, targets, files."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.index import rule_names
from tunec.compiler.lsp.analysis import Registry
from tunec.schemas.hardware.catalogue import device_names, hardware_names
from tunec.schemas.models.catalogue import card_names
from tunec.schemas.policy import MEASURES
from tunec.schemas.source import Path as Place

Names = Callable[[Path, str, Registry], Iterable[str]]
"""Gives names, from a file and the part of the name typed so far."""
_MOST: Final = 200
_OF_SPECS: Final = (".yaml", ".yml", ".json")


def _models(file: Path, word: str, _: Registry) -> Iterable[str]:
    return (*_paths(file, word), *card_names()) if _is_path(word) else card_names()


def _hardware(file: Path, word: str, _: Registry) -> Iterable[str]:
    return (*_paths(file, word), *hardware_names()) if _is_path(word) else hardware_names()


def _devices(_: Path, __: str, ___: Registry) -> Iterable[str]:
    return device_names()


def _files(file: Path, word: str, _: Registry) -> Iterable[str]:
    return _paths(file, word)


def _targets(_: Path, word: str, registry: Registry) -> Iterable[str]:
    """All targets; after a target's name and `@`, its releases."""
    name, at, _version = word.partition("@")
    if not at:
        return registry.names()
    if name not in registry.names():
        return ()
    target = registry.resolve(name)[0]
    releases = target.releases or (target.latest,)
    return [f"{name}@{release}" for release in reversed(releases)]


def _packages(_: Path, __: str, registry: Registry) -> Iterable[str]:
    targets = (registry.resolve(name)[0] for name in registry.names())
    found = {package for each in targets for package in (each.package, *each.beside)}
    return sorted(filter(None, {*found, "torch", "transformers", "peft", "bitsandbytes"}))


def _rules(_: Path, __: str, ___: Registry) -> Iterable[str]:
    return rule_names()


def _measures(_: Path, __: str, ___: Registry) -> Iterable[str]:
    return (*SLOTS, *MEASURES)


VALUES: Final[Mapping[tuple[str, ...], Names]] = {
    ("spec", "model"): _models,
    ("spec", "hardware"): _hardware,
    ("spec", "hardware", "nodes", "accelerators", "device"): _devices,
    ("spec", "targets"): _targets,
    ("spec", "extends"): _files,
    ("cluster", "nodes", "accelerators", "device"): _devices,
    ("fleet", "targets"): _targets,
    ("fleet", "clusters"): _hardware,
    ("fleet", "clusters", "include"): _hardware,
    ("fleet", "clusters", "exclude"): _hardware,
    ("fleet", "specs"): _files,
    ("fleet", "specs", "include"): _files,
    ("fleet", "policies"): _files,
    ("lint", "hardware"): _hardware,
}
"""By kind of file and path, without list indices."""

KEYS: Final[Mapping[tuple[str, ...], Names]] = {
    ("spec", "allow"): _rules,
    ("spec", "software"): _packages,
    ("cluster", "software"): _packages,
    ("policy", "rules", "require"): _measures,
    ("policy", "rules", "on", "plan"): _measures,
    ("lint", "rules"): _rules,
    ("lint", "software"): _packages,
}
"""Keys that are names, by the mapping that contains them."""


def known(table: Mapping[tuple[str, ...], Names], kind: str, path: Place) -> Names | None:
    """The function that gives the names at a place; None if no names are known there."""
    return table.get((kind, *(each for each in path if isinstance(each, str))))


def _is_path(word: str) -> bool:
    return word.startswith((".", "/"))


def _paths(file: Path, word: str) -> list[str]:
    """Files and folders, relative to a file, that complete a partial path."""
    folder = word.rpartition("/")[0]
    lead = f"{folder}/" if "/" in word else ""
    try:
        entries = sorted(os.scandir(file.parent / (folder or ".")), key=lambda each: each.name)
    except (OSError, ValueError):
        return []
    shown = (each for each in entries if not each.name.startswith("."))
    named = (
        f"{lead}{each.name}{'/' if each.is_dir() else ''}"
        for each in shown
        if each.is_dir() or each.name.endswith(_OF_SPECS)
    )
    return [each for each in named if each != file.name][:_MOST]
