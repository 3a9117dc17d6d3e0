"""The releases of Axolotl whose sources the rows were read from, and the packages of each."""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Releases, row_at

PACKAGE: Final = "axolotl"
SCHEMAS: Final = ("0.8.1", "0.13.2", "0.19.0")
"""The releases whose classes wrote a JSON Schema."""
RELEASES: Final = ("0.8.1", "0.13.2", "0.14.0", "0.15.0", "0.16.1", "0.17.0", "0.18.0", "0.19.0")
"""The known releases, of which the first is only read."""
WRITTEN: Final = "0.13"
"""The first release for which files are written; older ones are only read."""
SUPPORTED: Final = Releases(">=0.8,<0.20")

_PINS: Final = (
    ("0.13", {"transformers": "4.57.6", "trl": "0.27.0", "peft": "0.18.1", "accelerate": "1.12.0"}),
    ("0.14", {"transformers": "5.0.0", "trl": "0.27.1", "peft": "0.18.1", "accelerate": "1.12.0"}),
    ("0.15", {"transformers": "5.3.0", "trl": "0.29.0", "peft": "0.18.1", "accelerate": "1.13.0"}),
    ("0.16", {"transformers": "5.5.0", "trl": "0.29.0", "peft": "0.18.1", "accelerate": "1.13.0"}),
    ("0.17", {"transformers": "5.9.0", "trl": "1.5.1", "peft": "0.19.1", "accelerate": "1.13.0"}),
    ("0.18", {"transformers": "5.14.1", "trl": "1.8.0", "peft": "0.19.1", "accelerate": "1.13.0"}),
    ("0.19", {"transformers": "5.16.1", "trl": "1.9.0", "peft": "0.20.0", "accelerate": "1.13.0"}),
)
"""axolotl 0.13.2 to 0.16.1 requirements.txt, 0.17.0 to 0.19.0 `Requires-Dist` of the wheels: exact
pins, except that peft is at least 0.18.1 until 0.16 and 0.19 in 0.17."""
_DEEPSPEED: Final = "0.18.9"
"""The release for the extra `deepspeed`: from 0.18.3 on until 0.14, later from 0.18.6 on and below
0.19."""


_BESIDE: Final = (
    ("0.13", {"torch": "2.8.0", "vllm": "0.11.0"}),
    ("0.17", {"vllm": "0.20.2"}),
    ("0.18", {"torch": "2.12.1", "vllm": "0.20.2"}),
    ("0.19", {"vllm": "0.20.2"}),
)
"""The torch that a release accepts, none of which is 2.13 or later, and the newest vLLM that pip
finds for it: axolotl 0.13.2 to 0.16.1 setup.py `parse_requirements`, which pip runs without seeing
torch; `Requires-Dist` of the wheels of 0.17.0 to 0.19.0 and of vllm 0.20.2 to 0.31.0."""


def companions(version: Version) -> Mapping[str, str]:
    """The releases that go with a release of Axolotl in an environment, by package."""
    return {**installed_releases(version), **row_at(version, _BESIDE, {})}


def installed(version: Version) -> Mapping[str, Releases]:
    """The releases that a release of Axolotl requires; empty if it is older than those read."""
    pins = row_at(version, _PINS, {})
    return {name: Releases(f"=={pin}") for name, pin in pins.items() if name != "peft"}


def installed_releases(version: Version) -> Mapping[str, str]:
    """The releases that a release of Axolotl installs, by package."""
    return {**row_at(version, _PINS), "deepspeed": _DEEPSPEED}
