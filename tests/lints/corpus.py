"""The cases of `data/misconfigurations.yaml` as files to lint."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.tables import loaded

_DATA = Path(__file__).parent / "data"
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where it is


@dataclass(frozen=True, slots=True)
class Case:
    """One misconfiguration of the world."""

    id: str
    source: str
    consequence: str
    files: Mapping[str, Any]
    arguments: tuple[str, ...]
    rules: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Paths at which something has to be found."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Files that are replaced to mend it; None: the file is dropped."""
    fixed_arguments: tuple[str, ...] | None = None

    def texts(self) -> dict[str, str]:
        """The files as they are."""
        return {name: text_of(name, data) for name, data in self.files.items()}

    def mended(self) -> dict[str, str]:
        """The files when it is mended."""
        every = {**self.files, **self.fixed}
        return {name: text_of(name, data) for name, data in every.items() if data is not None}

    def command(self, texts: Mapping[str, str], *, is_fixed: bool = False) -> list[str]:
        """The arguments of `tunec lint`: the files, then the flags."""
        flags = self.arguments
        if is_fixed and self.fixed_arguments is not None:
            flags = self.fixed_arguments
        named = [name for name in texts if name not in flags and "/" not in name]
        return [*named, *flags]


def text_of(name: str, data: Any) -> str:
    """A file's data as its text."""
    if isinstance(data, str):
        return data
    if name.endswith(".json"):
        return json.dumps(data, indent=2) + "\n"
    return str(yaml.dump(data, Dumper=_DUMPER, sort_keys=False))


def held(name: str) -> Any:
    """What a file of `data/` holds."""
    return loaded((_DATA / name).read_text("utf-8"))


def cases() -> list[Case]:
    """Every case, in the order of the file."""
    data = held("misconfigurations.yaml")["cases"]
    return [Case(**{key: _frozen(value) for key, value in each.items()}) for each in data]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
