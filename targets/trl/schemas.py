"""Which JSON Schema of a TRL script's file holds for a release."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

from packaging.version import Version

from tunec.compiler.target import Dialect, Json
from tunec.targets.huggingface.methods import Method
from tunec.targets.huggingface.packages import TRL


def schema_of(method: Method) -> Callable[[Dialect], str | None]:
    """The schema of a method's file; of a release that was not asked there is none."""

    def find(dialect: Dialect) -> str | None:
        name = _index()[method].get(str(dialect[TRL]))
        return None if name is None else f"trl/{name}"

    return find


def known_keys(method: Method, version: Version) -> Mapping[str, Json]:
    """The schema of every key that the file of a method may have, by key.

    A release that was not asked has the keys of the newest one before it, as far as is known; empty
    where no such release has the script.
    """
    table = {Version(text): name for text, name in _index()[method].items()}
    older = [known for known in table if known <= version]
    if not older:
        return {}
    found: Mapping[str, Json] = _load(table[max(older)])["properties"]
    return found


def _index() -> Mapping[str, Mapping[str, str]]:
    index: Mapping[str, Mapping[str, str]] = _load("index.json")
    return index


@cache
def _load(name: str) -> Json:
    return json.loads(files("tunec.schemas").joinpath("json", "trl", name).read_text("utf-8"))
