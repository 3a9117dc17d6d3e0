"""The JSON Schema of the flags, from the configuration classes of the installed release."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.targets.llama_cookbook.target import VERSION

CONSUMER: Final = "tunec.targets.llama_cookbook.consumer"
REQUIREMENTS: Final = (
    f"llama-cookbook=={VERSION}",
    "fire==0.7.0",
    "termcolor==2.5.0",
    *choose("transformers", "4.51.3").requirements,
)
"""The release, the parser of its command line, and libraries of about the same date."""


def documents() -> Iterator[tuple[str, Any]]:
    """The schema by its path below `schemas/json/`. Raises EnvironmentUnavailable."""
    (found,) = ask(prepare(REQUIREMENTS), CONSUMER, [{"verb": "schema"}])
    yield f"llama-cookbook/{VERSION}.json", found
