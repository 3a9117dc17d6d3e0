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
    """The schema of a method's file; there is none for releases that were not asked together.

    The file also holds the keys of TrainingArguments, which differ between majors of transformers.
    """

    def find(dialect: Dialect) -> str | None:
        name = _index()[method].get(str(dialect[TRL]))
        if name is None or _transformers_of(name).major != dialect["transformers"].major:
            return None
        return f"trl/{name}"

    return find


def _transformers_of(name: str) -> Version:
    """The release of transformers beside which a schema was asked for."""
    beside = dict(each.split("==") for each in _load(name)["x-beside"])
    return Version(beside["transformers"])


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
