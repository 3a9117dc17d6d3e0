"""The releases of OpenRLHF that rows were read from, the packages that each pins, and programs."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases, row_at

PACKAGE: Final = "openrlhf"
RELEASES: Final = ("0.10.4", "0.11.0", "0.11.2")
SUPPORTED: Final = Releases(">=0.10.4,<0.12")
SOURCE: Final = "openrlhf 0.10.4 to 0.11.2"

_BROUGHT: Final = (
    ("0.10.4", {"transformers": "5.7.0", "deepspeed": "0.19.1", "peft": "0.19.1"}),
    ("0.11.0", {"transformers": "5.15.0", "deepspeed": "0.19.5", "peft": "0.20.0"}),
    ("0.11.2", {"transformers": "5.15.0", "deepspeed": "0.19.6", "peft": "0.20.0"}),
)
"""`Requires-Dist` of the wheels pins transformers and DeepSpeed; peft has no bound, so a release of
about the same date was used."""
_PINNED: Final = ("transformers", "deepspeed")


def companions(version: Version) -> Mapping[str, str]:
    """The packages beside a release of OpenRLHF; its wheels pin FlashAttention."""
    return {**installed_releases(version), "flash-attn": "2.8.3"}


def ranges(version: Version) -> Mapping[str, Releases]:
    """The ranges that a release of OpenRLHF accepts, by package."""
    return {name: Releases(f"=={installed_releases(version)[name]}") for name in _PINNED}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that are used beside a release of OpenRLHF, by package."""
    return row_at(version, _BROUGHT)
