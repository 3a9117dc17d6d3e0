"""Which of the consumers' JSON Schemas holds for a release."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files

from packaging.version import Version

from tunec.compiler.target import Dialect, Entry

_FOLDER = "huggingface"


def schema_of(name: str, package: str, entries: Sequence[Entry]) -> Callable[[Dialect], str | None]:
    """The schema of a class (`lora_config`) in the release of a package.

    Not every release has one. Another release's is as good where none of the rows' keys came or
    went between the two; None where there is no such release.
    """
    bounds = sorted(
        {
            Version(bound)
            for entry in entries
            if entry.package == package
            for bound in (entry.since, entry.until)
            if bound is not None
        }
    )

    def find(dialect: Dialect) -> str | None:
        version = dialect[package]
        era = _era(version, bounds)
        known = {Version(text): file for text, file in _index()[name].items()}
        fitting = [each for each in known if _era(each, bounds) == era]
        older = [each for each in fitting if each <= version]
        best = max(older, default=min(fitting, default=None))
        return None if best is None else f"{_FOLDER}/{known[best]}"

    return find


def _era(version: Version, bounds: Sequence[Version]) -> int:
    return sum(bound <= version for bound in bounds)


@cache
def _index() -> Mapping[str, Mapping[str, str]]:
    text = files("tunec.schemas").joinpath("json", _FOLDER, "index.json").read_text("utf-8")
    index: Mapping[str, Mapping[str, str]] = json.loads(text)
    return index
