"""A typed reader of a model's config: faults are collected, and all are raised together."""

import json
import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from tunec.schemas.frozen import replace

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = json.loads(
    Path(__file__).with_name("defaults.json").read_text("utf-8")
)
"""Defaults of config classes for keys that a config omits, by `model_type` or class name.

Read from transformers 5.23.0, `models/<family>/configuration_<family>.py` (class attributes), and
diffusers 0.42.1 (arguments of `__init__`), for the keys that the derivations read; the test
`tests/analyses/architecture/test_defaults.py` compares the table with those classes.

Of OpenGVLab/InternVL (2410d1dbf208), `internvl_chat/internvl/model`, are internlm2
(internlm2/configuration_internlm2.py), intern_vit_6b and internvl_chat (internvl_chat/
configuration_intern_vit.py, configuration_internvl_chat.py). The image processors are transformers'
`models/<family>/image_processing_<family>.py` (class attributes).
"""


_NOTHING: Final[Mapping[str, Any]] = {}

_MOST: Final = 2**31 - 1
"""An upper bound of any side or count of a model; a larger number is a mistake, and would overflow
a float."""
_MOST_BUILT: Final = 10_000
_BUILT: Final = ("layer", "block", "depth", "expert")
"""What is built piece by piece, and how many pieces a model can have. A judgement: the deepest that
is known has a few hundred layers, the widest a few hundred experts."""

T = TypeVar("T")


_ALSO: Final[Mapping[str, str]] = {"num_experts": "num_local_experts"}
"""Other names of keys, under which the config class of a release writes them: transformers 5.23.0
models/qwen3_moe/configuration_qwen3_moe.py `attribute_map`."""


class Fault(Struct, frozen=True):
    """One key of a config that cannot be used."""

    path: str
    """The key's dotted path in the config."""
    expected: str
    found: str
    """The value in the config, or `nothing`."""

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


class UnusableConfig(ValueError):
    """A config from which no architecture can be derived, with all its faults."""

    def __init__(self, family: str, faults: Sequence[Fault]) -> None:
        self.family = family
        self.faults = tuple(faults)
        super().__init__(f"config of {family!r}: " + "; ".join(str(fault) for fault in faults))


class UnknownArchitecture(LookupError):
    """A config whose family has no derivation."""

    def __init__(self, family: str, known: Sequence[str]) -> None:
        self.family = family
        self.known = tuple(known)
        super().__init__(f"no architecture is known for the family {family!r}")


class Findings(Struct):
    """Faults and assumptions found so far while a config is read, shared by all its sections."""

    faults: list[Fault] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)


class Facts(Struct, frozen=True):
    """One section of a config.

    An absent key takes the default of the config class of `family` (`DEFAULTS`); a key that is
    neither there nor has a default, or has the wrong type, is a fault and reads as the smallest
    value of its type, so that reading goes on and finds the next fault too.
    """

    values: Mapping[str, Any]
    family: str
    path: str = ""
    findings: Findings = field(default_factory=Findings)
    processing: Mapping[str, Any] = field(default_factory=dict)
    """The model's preprocessor_config.json, if it is known."""

    def has(self, key: str) -> bool:
        """Whether the config itself sets the key to something other than null."""
        return self.values.get(key) is not None

    def get(self, key: str) -> Any:
        """Return the value as it is, or the class's default; None if there is neither."""
        for name in (key, _ALSO.get(key, key)):
            if name in self.values:
                return self.values[name]
        default = DEFAULTS.get(self.family, _NOTHING).get(key)
        if default is not None:
            self.findings.assumed.append(self.path + key)
        return default

    def count(self, key: str) -> int:
        """Read an integer of at least 1."""
        value = self.get(key)
        return self._counted(key, value)

    def count_or(self, key: str, fallback: int) -> int:
        """Read an integer of at least 1; `fallback` if it is null, or absent without a default."""
        value = self.get(key)
        if value is None:
            return fallback
        return self._counted(key, value)

    def _counted(self, key: str, value: Any) -> int:
        most = _MOST_BUILT if any(word in key for word in _BUILT) else _MOST
        if isinstance(value, int) and value > most:
            return self._fault(key, f"at most {most}", value, 1)
        return value if _is_integer(value, 1) else self._fault(key, "a positive integer", value, 1)

    def size(self, key: str) -> int:
        """Read an integer of at least 0; null reads as 0."""
        value = self.get(key)
        if value is None:
            return 0
        return value if _is_integer(value, 0) else self._fault(key, "an integer", value, 0)

    def flag(self, key: str) -> bool:
        """Read a truth value; null reads as false."""
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        return self._fault(key, "true or false", value, False)

    def number(self, key: str) -> float:
        """Read a number; null reads as 0."""
        value = self.get(key)
        if value is None:
            return 0.0
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and abs(value) <= _MOST
        return float(value) if good else self._fault(key, "a number", value, 0.0)

    def parts(self, key: str) -> int:
        """Read a share, such as 0.5, as the number of whole parts that make one."""
        value = self.number(key)
        if not 0 < value <= 1 or math.isinf(1 / value):
            return self._fault(key, "a share above 0, at most 1", self.get(key), 1)
        return int(1 / value)

    def text(self, key: str) -> str:
        """Read a string; null reads as the empty one."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        return self._fault(key, "a string", value, "")

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of strings; null reads as the empty one."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        return self._fault(key, "a list of strings", value, ())

    def sizes(self, key: str) -> tuple[int, ...]:
        """Read a list of integers of at least 0; null reads as the empty one."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, list | tuple) and all(_is_integer(item, 0) for item in value):
            return tuple(value)
        return self._fault(key, "a list of integers", value, ())

    def channels(self, key: str) -> tuple[int, ...]:
        """Read a list of at least one positive integer."""
        value = self.get(key)
        good = isinstance(value, list | tuple) and value and all(_is_integer(v, 1) for v in value)
        return tuple(value) if good else self._fault(key, "a list of channels", value, (1,))

    def each_of(self, key: str, count: int) -> tuple[int, ...]:
        """Read one positive integer for each of `count` blocks; a single one holds for all."""
        value = self.get(key)
        if _is_integer(value, 1):
            return (value,) * count
        good = isinstance(value, list | tuple) and all(_is_integer(item, 1) for item in value)
        if good and len(value) == count:
            return tuple(value)
        return self._fault(key, f"a positive integer, or {count} of them", value, (1,) * count)

    def side(self, key: str) -> int:
        """Read the side of a square: one positive integer, or two or more equal ones."""
        value = self.get(key)
        if isinstance(value, list | tuple) and value and all(item == value[0] for item in value):
            value = value[0]
        return value if _is_integer(value, 1) else self._fault(key, "a side in pixels", value, 1)

    def choice(self, key: str, *choices: str) -> str:
        """Read one of the given strings."""
        value = self.get(key)
        wanted = "one of " + ", ".join(choices)
        return value if value in choices else self._fault(key, wanted, value, choices[0])

    def section(self, key: str, family: str) -> "Facts":
        """Read a nested config with the defaults of `family`; absent, it has only those."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            value = self._fault(key, "a mapping", value, {})
        return replace(self, values=value, family=family, path=f"{self.path}{key}.")

    def member(self, key: str, family: str, known: Container[str]) -> "Facts":
        """Read a nested config whose own `model_type` says its family; absent, it is `family`."""
        section = self.section(key, family)
        named = section.text("model_type") or family
        if named not in known:
            section.refuse("model_type", "a family that is known here")
            named = family
        return section.as_family(named)

    def as_family(self, family: str) -> "Facts":
        """Read the same section with the defaults of another config class."""
        return replace(self, family=family)

    def with_value(self, key: str, value: Any) -> "Facts":
        """Read the same section with one value changed, as the model's own code changes it."""
        return replace(self, values={**self.values, key: value})

    def processor(self, family: str) -> "Facts":
        """Read the preprocessor's config with the defaults of the image processor `family`."""
        path = "preprocessor_config."
        return replace(self, values=self.processing, family=family, path=path)

    def refuse(self, key: str, expected: str) -> None:
        """Remember that this key's value contradicts the rest of the config."""
        self._fault(key, expected, self.get(key), None)

    def _fault(self, key: str, expected: str, found: Any, instead: T) -> T:
        seen = "nothing" if found is None else repr(found)
        self.findings.faults.append(Fault(self.path + key, expected, seen))
        return instead


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST
