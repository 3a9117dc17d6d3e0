"""Which values the sections of Unsloth's file take.

Runs inside an environment that holds one release of unsloth. Verb: `takes`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from unsloth_cli.config import Config


def takes(question: Mapping[str, Any]) -> list[bool]:
    """For each pair of a dotted key and a value whether the file may say so."""
    return [_is_taken(key, value) for key, value in question["pairs"]]


def _is_taken(key: str, value: Any) -> bool:
    section, _, name = key.rpartition(".")
    try:
        Config.model_validate({section: {name: value}} if section else {name: value})
    except ValidationError:
        return False
    return True


VERBS = {"takes": takes}
