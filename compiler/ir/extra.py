"""Keys that a spec passes through to a target, as a plan holds them.

Each is a text such as `trl.dataset_num_proc=8`: the name of a target, or of the program that reads
one of its files; the dotted path of the key, after the file's name if one is given; and the value
as JSON.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.schemas.dotted_paths import flat

SLOT: Final = "runtime.extra"
"""The slot that emission itself handles, for every target."""


class Extra(Struct, frozen=True):
    """One key with its value, for a target or a program."""

    owner: str
    path: str
    value: Any

    @property
    def place(self) -> str:
        """The key's path in the spec."""
        return f"extra.{self.owner}.{self.path}"


def written(extra: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The `extra` section of a spec, as a plan holds it."""
    return tuple(
        f"{owner}.{path}={json.dumps(value, ensure_ascii=False)}"
        for owner, keys in extra.items()
        for path, value in flat(keys).items()
    )


def extras(plan: Plan) -> Iterator[Extra]:
    """Every key that a plan passes through."""
    for text in plan.runtime.extra:
        name, _, value = text.partition("=")
        owner, _, path = name.partition(".")
        yield Extra(owner, path, json.loads(value))
