"""The transformers release and the JSON Schema that belong to a release of TRL."""

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from packaging.version import Version

from tunec.compiler.releases import row_at
from tunec.compiler.target import Dialect, Json
from tunec.schemas.caches import cached
from tunec.targets.huggingface.methods import Method
from tunec.targets.huggingface.packages import TRL

_SEASONS: Final = (
    (
        "0.8",
        {"transformers": "4.40.2", "accelerate": "0.30.1", "peft": "0.10.0", "deepspeed": "0.14.5"},
    ),
    (
        "0.10",
        {"transformers": "4.44.2", "accelerate": "0.33.0", "peft": "0.12.0", "deepspeed": "0.14.5"},
    ),
    (
        "0.12",
        {"transformers": "4.46.3", "accelerate": "1.1.1", "peft": "0.13.2", "deepspeed": "0.15.4"},
    ),
    (
        "0.17",
        {"transformers": "4.51.3", "accelerate": "1.6.0", "peft": "0.15.2", "deepspeed": "0.16.9"},
    ),
    (
        "0.20",
        {"transformers": "4.53.3", "accelerate": "1.8.1", "peft": "0.16.0", "deepspeed": "0.17.6"},
    ),
    (
        "0.21",
        {"transformers": "4.55.4", "accelerate": "1.10.1", "peft": "0.17.1", "deepspeed": "0.17.6"},
    ),
    (
        "0.23",
        {"transformers": "4.57.6", "accelerate": "1.12.0", "peft": "0.18.1", "deepspeed": "0.18.9"},
    ),
    (
        "0.28",
        {"transformers": "5.0.0", "accelerate": "1.12.0", "peft": "0.18.1", "deepspeed": "0.18.9"},
    ),
    (
        "1.3",
        {"transformers": "5.6.2", "accelerate": "1.13.0", "peft": "0.19.1", "deepspeed": "0.18.9"},
    ),
    (
        "1.6",
        {"transformers": "5.10.4", "accelerate": "1.13.0", "peft": "0.19.1", "deepspeed": "0.18.9"},
    ),
    (
        "1.9",
        {"transformers": "5.15.1", "accelerate": "1.14.0", "peft": "0.20.0", "deepspeed": "0.19.8"},
    ),
    (
        "1.16",
        {
            "transformers": "5.23.0",
            "accelerate": "1.15.0",
            "peft": "0.21.2",
            "deepspeed": "0.19.8",
            "vllm": "0.30.0",
        },
    ),
)
"""Within the bounds of `Requires-Dist` in the wheels: transformers below 4.47 for 0.12, from 4.46
for 0.13, 4.50 for 0.18, 4.51 for 0.19, 4.53.2 for 0.20, 4.55 for 0.21, 4.56.1 for 0.23 and 4.56.2
for 0.27 to 1.16. If compiler/consumers/sets.py has a set of releases, that is used."""


def companions(version: Version) -> Mapping[str, str]:
    """Releases of transformers, accelerate, peft and deepspeed that go with a release of trl."""
    return row_at(version, _SEASONS)


def schema_of(method: Method) -> Callable[[Dialect], str | None]:
    """The schema of a method's file; none for releases whose schema was not made together.

    The file also holds the keys of TrainingArguments, which differ between majors of transformers.
    """

    def find(dialect: Dialect) -> str | None:
        name = _index()[method].get(str(dialect[TRL]))
        if name is None or _transformers_of(name).major != dialect["transformers"].major:
            return None
        return f"trl/{name}"

    return find


def _transformers_of(name: str) -> Version:
    """The release of transformers beside which a schema was made."""
    beside = dict(each.split("==") for each in _load(name)["x-beside"])
    return Version(beside["transformers"])


def known_keys(method: Method, version: Version) -> Mapping[str, Json]:
    """The schema of every key that the file of a method may have, by key.

    An unknown release gets the keys of the newest known one before it; empty if no such release has
    the script.
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


@cached()
def _load(name: str) -> Json:
    return json.loads(files("tunec.schemas").joinpath("json", "trl", name).read_text("utf-8"))
