"""The releases of NeMo AutoModel that rows were read from, and the packages that each pins."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases, row_at

NAME: Final = "nemo-automodel"
RELEASES: Final = ("0.5.0", "0.6.0", "0.7.0")
SUPPORTED: Final = Releases(">=0.5,<0.8")
SOURCE: Final = "nemo-automodel 0.5.0 to 0.7.0"

_BROUGHT: Final = (
    ("0.5", {"transformers": "5.8.1", "peft": "0.19.1"}),
    ("0.6", {"transformers": "5.12.1", "peft": "0.19.1"}),
    ("0.7", {"transformers": "5.18.0", "peft": "0.20.0"}),
)
"""`Requires-Dist` of the wheels pins transformers; adapters are its own, and it only writes peft's
checkpoint format."""


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release accepts, by package."""
    return {"transformers": Releases(f"=={installed_releases(version)['transformers']}")}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release, by package."""
    return row_at(version, _BROUGHT)
