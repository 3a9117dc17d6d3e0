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
"""The release, what reads its command line, and the libraries of its season."""


def documents() -> Iterator[tuple[str, Any]]:
    """Path below `schemas/json/` and content of the schema. Raises EnvironmentUnavailable."""
    (found,) = ask(prepare(REQUIREMENTS), CONSUMER, [{"verb": "schema"}])
    yield f"llama-cookbook/{VERSION}.json", found
