"""The kind of an open file: a spec, another of tunec's own files, or a config that lint reads."""

import re
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.lints.settings import OWN, SHARED
from tunec.schemas.fleet import Fleet
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.lint_settings import LintSettings
from tunec.schemas.models.card import ModelCard
from tunec.schemas.policy import Policy
from tunec.schemas.prices.price_list import PriceList
from tunec.schemas.shape import Shape
from tunec.schemas.spec import Spec


class Kind(Struct, frozen=True):
    """One of tunec's own kinds of files."""

    name: str
    """The name of its JSON Schema."""
    shape: type[Shape]
    marks: tuple[str, ...] = ()
    """Patterns that all match in a file of this kind, but rarely in other files."""


def _key(name: str, value: str = "") -> str:
    """The pattern of a key at the start of a line, or of a quoted one after spaces, as in JSON."""
    return rf"""(?m)^(?:\{{?[ \t]*["']|){name}["']?[ \t]*:{value}"""


_VERSION: Final = r"[ \t]*(?:\d|$)"
"""A version number of one of tunec's languages; other programs have policies and fleets too."""
_BASE: Final = r"""[ \t]*(?:["']?[^\s"']+\.ya?ml|\[|$|[^\n:]+\n(?:tunec|model|data|hardware):)"""
"""The value of a spec's `extends`; configs of linters and compilers extend JSON files, or names."""
OURS: Final = (
    Kind("spec", Spec, (_key("tunec"),)),
    Kind(
        "spec",
        Spec,
        (rf"(?m)^extends[ \t]*:{_BASE}", r"(?m)\A(?!(?s:.*)^(?:jobs|services|stages):)"),
    ),
    Kind("fleet", Fleet, (_key("fleet", _VERSION),)),
    Kind("policy", Policy, (_key("policy", _VERSION),)),
    Kind("model-card", ModelCard, (_key("config_source"),)),
    Kind("prices", PriceList, (_key("provider"), _key("dated"))),
    Kind("device", Device, (_key("vendor"), _key("bandwidth"), _key("rates"))),
    Kind("cluster", Cluster, (_key("name"), _key("nodes"), r"\baccelerators\b")),
)
"""In the order in which they are tried."""
SETTINGS: Final = Kind("lint", LintSettings)
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_READ_BY_LINT: Final = frozenset(
    {*_SUFFIXES, ".toml", ".env", ".sh", ".slurm", ".sbatch", ".hostfile", ".py"}
)


def kind_of(name: str, text: str) -> Kind | None:
    """The kind of tunec's own files that a text is; None if it is none of them."""
    path = PurePath(name)
    if path.name in (OWN, SHARED):
        return SETTINGS
    if path.suffix.lower() not in _SUFFIXES:
        return None
    return next((each for each in OURS if _is(each, text)), None)


def _is(kind: Kind, text: str) -> bool:
    return all(re.search(each, text) for each in kind.marks)


def may_be_linted(name: str) -> bool:
    """Whether lint may be able to read a file with that name."""
    path = PurePath(name)
    return path.suffix.lower() in _READ_BY_LINT or path.name == "hostfile"
