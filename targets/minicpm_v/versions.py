"""The state of OpenBMB/MiniCPM-V for each release of transformers, which each state pins.

requirements.txt of 2024-08-15 pins transformers 4.40.0, finetune/requirements.txt of 2025-01-16
pins 4.44.2, and that of 2025-09-12, the last, 4.51.2.
"""

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import Package, Releases, row_at
from tunec.compiler.target import Dialect
from tunec.targets.deepspeed.config import DEEPSPEED
from tunec.targets.deepspeed.reader import PACKAGE
from tunec.targets.huggingface.packages import TRANSFORMERS
from tunec.targets.huggingface.packages import companions as usual

REPOSITORY: Final = "OpenBMB/MiniCPM-V"

_STATES: Final = (
    ("0", "cd64150b5122f8ee8c677d481c97918485129b52"),
    ("4.44", "2c0e7ff051b4f926cdeb0cdd86801f0ff7daeb9e"),
    ("4.51", "0dbb566de090067266abb76e702fb289f09934c5"),
)
COMMITS: Final = tuple(commit for _, commit in _STATES)
_SUPPORTED: Final = Releases(
    ",".join((">=4.40,<4.52", *(f"!=4.{minor}.*" for minor in range(45, 51))))
)
RELEASES: Final = Package(
    _SUPPORTED, tuple(each for each in TRANSFORMERS.releases if _SUPPORTED.contains(each))
)


def companions(version: Version) -> Mapping[str, str]:
    """The release of DeepSpeed beside one of transformers; the last state pins none."""
    latest = {PACKAGE: DEEPSPEED.latest} if version >= Version("4.51") else {}
    return {**usual(version), **latest}


def commit(dialect: Dialect) -> str:
    """The commit whose script is used with the dialect's transformers."""
    return row_at(dialect[""], _STATES)


def schema(dialect: Dialect) -> str:
    """The path below `schemas/json/` of the schema of that script's own flags."""
    return f"minicpm-v/{commit(dialect)[:7]}.json"
