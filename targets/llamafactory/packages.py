"""The releases of LLaMA-Factory whose sources the rows were read from, and their transformers."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases

PACKAGE: Final = "llamafactory"
TRAINER: Final = "transformers"
RELEASES: Final = ("0.9.1", "0.9.3", "0.9.5")
SUPPORTED: Final = Releases(">=0.9,<0.10")

_TRAINERS: Final = {"0.9.1": "4.44.2", "0.9.3": "4.51.3", "0.9.5": "4.57.6"}
"""Each within the range of extras/misc.py `check_dependencies`: >=4.41.2,<=4.46.1 in 0.9.1,
>=4.55.0,<=5.6.0 in 0.9.5."""


def companions(version: Version) -> Mapping[str, str]:
    """The transformers that goes with a release."""
    older = [known for known in RELEASES if Version(known) <= version]
    return {TRAINER: _TRAINERS[older[-1] if older else RELEASES[0]]}
