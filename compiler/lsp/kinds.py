"""What an open file is: a spec, another file of ours, or a config that lint reads."""

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
    """One kind of file that is written in tunec's own words."""

    name: str
    """As its JSON Schema is called."""
    shape: type[Shape]
    marks: tuple[str, ...] = ()
    """Patterns that all match in a file of this kind, and in few others."""


def _key(name: str, value: str = "") -> str:
    """The pattern of a key at the margin, or of one in quotes at any depth, as JSON has them."""
    return rf"""(?m)^(?:\{{?[ \t]*["']|){name}["']?[ \t]*:{value}"""


_VERSION: Final = r"[ \t]*(?:\d|$)"
"""Of a language of ours; other programs have policies and fleets too."""
_BASE: Final = r"""[ \t]*(?:["']?[^\s"']+\.ya?ml|\[|$|[^\n:]+\n(?:tunec|model|data|hardware):)"""
"""What a spec extends; configs of linters and compilers extend JSON, and names."""
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
    """Which of our own files a text is; None where it is none of them."""
    path = PurePath(name)
    if path.name in (OWN, SHARED):
        return SETTINGS
    if path.suffix.lower() not in _SUFFIXES:
        return None
    return next((each for each in OURS if _is(each, text)), None)


def _is(kind: Kind, text: str) -> bool:
    return all(re.search(each, text) for each in kind.marks)


def may_be_linted(name: str) -> bool:
    """Whether lint may know what a file of that name is."""
    path = PurePath(name)
    return path.suffix.lower() in _READ_BY_LINT or path.name == "hostfile"
