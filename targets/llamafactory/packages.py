"""The releases of LLaMA-Factory that the rows were read from, and the packages of each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases, row_at

PACKAGE: Final = "llamafactory"
TRAINER: Final = "transformers"
RELEASES: Final = ("0.9.1", "0.9.3", "0.9.4", "0.9.5")
WRITTEN: Final = "0.9.3"
"""The first release that files are written for; older ones are read."""
SUPPORTED: Final = Releases(">=0.9,<0.10")

_RANGES: Final = (
    (
        "0.9",
        {
            "transformers": ">=4.41.2,<=4.46.1",
            "peft": ">=0.11.1,<=0.12.0",
            "accelerate": ">=0.34.0,<=1.0.1",
            "deepspeed": ">=0.10.0,<=0.14.5",
        },
    ),
    (
        "0.9.3",
        {
            "transformers": ">=4.45.0,<=4.52.4",
            "peft": ">=0.14.0,<=0.15.2",
            "accelerate": ">=0.34.0,<=1.7.0",
            "deepspeed": ">=0.10.0,<=0.16.9",
        },
    ),
    (
        "0.9.4",
        {
            "transformers": ">=4.51.0,<=4.57.1",
            "peft": ">=0.14.0,<=0.17.1",
            "accelerate": ">=1.3.0,<=1.11.0",
            "deepspeed": ">=0.10.0,<=0.16.9",
        },
    ),
    (
        "0.9.5",
        {
            "transformers": ">=4.55.0,<=5.6.0",
            "peft": ">=0.18.0,<=0.18.1",
            "accelerate": ">=1.3.0,<=1.11.0",
            "deepspeed": ">=0.10.0,<=0.18.4",
        },
    ),
)
"""`Requires-Dist` of the wheels; DeepSpeed is an extra, of 0.9.5 requirements/deepspeed.txt.
extras/misc.py `check_dependencies` checks some again at import."""
_TRAINERS: Final = (
    ("0.9", "4.44.2"),
    ("0.9.3", "4.51.3"),
    ("0.9.4", "4.57.1"),
    ("0.9.5", "4.57.6"),
)
"""The release of transformers beside which each release's parser was run."""


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of LLaMA-Factory accepts, by package."""
    return {name: Releases(text) for name, text in row_at(version, _RANGES).items()}


def installed(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of LLaMA-Factory requires; none before the first known release."""
    return ranges(version) if version >= Version(RELEASES[0]) else {}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release of LLaMA-Factory, by package."""
    newest = {name: str(each).rpartition("<=")[2] for name, each in ranges(version).items()}
    return {**newest, TRAINER: row_at(version, _TRAINERS)}
