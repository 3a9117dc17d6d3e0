"""Where files ask for ranks that share a sequence."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.place import Place

SECTION: Final = "parallelism_config.parallelism_config_"
"""accelerate's own section; its keys repeat its name."""


def shared_sequences(run: LintContext) -> Iterator[Place]:
    """Each width of more than one rank that DeepSpeed is to share sequences over."""
    for place in run.each("accelerate", f"{SECTION}sp_size"):
        ways = place.value
        if is_whole(ways) and ways > 1:
            yield place
