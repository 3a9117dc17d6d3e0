"""The releases whose sources the rows were read from, the sets of them, and their schemas."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Package, Releases, row_at
from tunec.compiler.target import Dialect, Entry
from tunec.schemas.caches import cached

TRL, PEFT = "trl", "peft"

TRANSFORMERS: Final = Package(
    Releases(">=4.40,<5.25"),
    (
        *("4.40.2", "4.41.2", "4.42.4", "4.43.4", "4.44.2", "4.45.2", "4.46.3", "4.47.1"),
        *("4.48.3", "4.49.0", "4.50.3", "4.51.3", "4.52.4", "4.53.3", "4.54.1", "4.55.4"),
        *("4.56.2", "4.57.6", "5.0.0", "5.1.0", "5.2.0", "5.3.0", "5.4.0", "5.5.4", "5.6.2"),
        *("5.7.0", "5.8.1", "5.9.0", "5.10.4", "5.11.0", "5.12.1", "5.13.1", "5.14.1"),
        *("5.15.1", "5.16.1", "5.17.0", "5.18.0", "5.19.0", "5.20.2", "5.21.1", "5.22.2"),
        *("5.23.0", "5.24.0"),
    ),
    # 5.24.0 integrations/peft.py `MIN_PEFT_VERSION`: `add_adapter` asks for PEFT 0.22, which is not
    # out yet. The Trainer with PEFT 0.21.2 trains, resumes and loads as under 5.23.
    usual="5.23.0",
)
TRL_RELEASES: Final = Package(
    Releases(">=0.8,<1.17"),
    (
        *("0.8.6", "0.9.6", "0.10.1", "0.11.4", "0.12.2", "0.13.0", "0.14.0", "0.15.2", "0.16.1"),
        *("0.17.0", "0.18.2", "0.19.1", "0.20.0", "0.21.0", "0.22.2", "0.23.1", "0.24.0"),
        *("0.25.1", "0.26.2", "0.27.2", "0.28.0", "0.29.1", "1.0.0", "1.1.0", "1.2.0", "1.3.0"),
        *("1.4.0", "1.5.1", "1.6.0", "1.7.1", "1.8.0", "1.9.2", "1.10.0", "1.11.0", "1.12.0"),
        *("1.13.0", "1.14.2", "1.15.0", "1.16.0"),
    ),
)
PEFT_RELEASES: Final = Package(
    Releases(">=0.10,<0.22"),
    (
        *("0.10.0", "0.11.1", "0.12.0", "0.13.2", "0.14.0", "0.15.2", "0.16.0", "0.17.1"),
        *("0.18.1", "0.19.1", "0.20.0", "0.21.2"),
    ),
)

_SEASONS: Final = (
    ("4.40", {"accelerate": "0.30.1", "trl": "0.8.6", "peft": "0.10.0", "deepspeed": "0.14.5"}),
    ("4.44", {"accelerate": "0.33.0", "trl": "0.10.1", "peft": "0.12.0", "deepspeed": "0.14.5"}),
    ("4.46", {"accelerate": "1.1.1", "trl": "0.12.2", "peft": "0.13.2", "deepspeed": "0.15.4"}),
    ("4.51", {"accelerate": "1.6.0", "trl": "0.17.0", "peft": "0.15.2", "deepspeed": "0.16.9"}),
    ("4.57", {"accelerate": "1.12.0", "trl": "0.27.2", "peft": "0.18.1", "deepspeed": "0.18.9"}),
    ("5.0", {"accelerate": "1.12.0", "trl": "0.28.0", "peft": "0.18.1", "deepspeed": "0.18.9"}),
    ("5.6", {"accelerate": "1.13.0", "trl": "1.3.0", "peft": "0.19.1", "deepspeed": "0.18.9"}),
    ("5.15", {"accelerate": "1.14.0", "trl": "1.9.2", "peft": "0.20.0", "deepspeed": "0.19.8"}),
    ("5.23", {"accelerate": "1.15.0", "trl": "1.16.0", "peft": "0.21.2", "deepspeed": "0.19.8"}),
)
"""Sets of releases that import and work together; a release takes the newest set not newer than
it."""


def companions(version: Version) -> Mapping[str, str]:
    """Releases of accelerate, trl, peft and deepspeed that go with a release of transformers."""
    return row_at(version, _SEASONS)


_FOLDER = "huggingface"


def schema_of(name: str, package: str, entries: Sequence[Entry]) -> Callable[[Dialect], str | None]:
    """Select the schema of a class (such as `lora_config`) in the release of a package.

    Not every release has one. Another release's schema is equivalent if no key of the rows was
    added or removed between the two; None if there is no such release.
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


@cached()
def _index() -> Mapping[str, Mapping[str, str]]:
    text = files("tunec.schemas").joinpath("json", _FOLDER, "index.json").read_text("utf-8")
    index: Mapping[str, Mapping[str, str]] = json.loads(text)
    return index
