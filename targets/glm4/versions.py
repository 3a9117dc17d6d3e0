"""The state of zai-org/GLM-4 that goes with a release of transformers.

The repository has no releases. Its history is ordered by the transformers that its requirements
name and its scripts can run with: 4.40.0 until 2024-07-16, 4.42.4 and 4.44.0 in summer and autumn
2024, 4.51.3 and later since 2025-04-14. The states between, for 4.46 to 4.50, changed every few
weeks.
"""

from typing import Final

from tunec.compiler.releases import Package, Releases, row_at
from tunec.compiler.target import Dialect
from tunec.targets.huggingface.packages import TRANSFORMERS

REPOSITORY: Final = "zai-org/GLM-4"

COMBINED: Final = "4.42"
"""The first release of transformers with the scripts that have `combine` and `freezeV`."""
TODAY: Final = "4.51"
"""The first release of transformers with the repository's last state."""

STATES: Final = (
    ("0", "da2fe372cc61692bd5837e9432304052e0a7971f"),
    (COMBINED, "f6ee34eb6e472c6c7cc2cc9786cbd217657456f0"),
    (TODAY, "3f79b543647b792aa167c712cd327475ec423f7b"),
)
"""(first release of transformers, commit): of 2024-07-08, 2024-09-17 and 2025-07-04."""

_LEFT_OUT: Final = tuple(f"4.{minor}" for minor in range(46, 51))
_SUPPORTED: Final = Releases(
    ",".join((str(TRANSFORMERS.supported), *(f"!={each}.*" for each in _LEFT_OUT)))
)
RELEASES: Final = Package(
    _SUPPORTED,
    tuple(each for each in TRANSFORMERS.releases if _SUPPORTED.contains(each)),
    TRANSFORMERS.usual,
)


def commit(dialect: Dialect) -> str:
    """The commit with the scripts for the dialect's transformers."""
    return row_at(dialect[""], STATES)


def schema(dialect: Dialect) -> str:
    """The path below `schemas/json/` of the schema for that commit's configuration file."""
    return f"glm4/{commit(dialect)[:7]}.json"
