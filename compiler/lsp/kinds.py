"""What an open file is: a spec, another file of ours, or a config that lint reads."""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from tunec.compiler.lints.settings_file import OWN, SHARED
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
    marks: tuple[frozenset[str], ...] = ()
    """Keys at its top: a file with all of one set is of this kind."""


OURS: Final = (
    Kind("spec", Spec, (frozenset({"tunec"}), frozenset({"extends"}))),
    Kind("fleet", Fleet, (frozenset({"fleet"}),)),
    Kind("policy", Policy, (frozenset({"policy"}),)),
    Kind("model-card", ModelCard, (frozenset({"config_source"}),)),
    Kind("prices", PriceList, (frozenset({"provider", "dated"}),)),
    Kind("device", Device, (frozenset({"vendor", "bandwidth", "rates"}),)),
    Kind("cluster", Cluster, (frozenset({"name", "nodes"}),)),
)
"""In the order in which they are tried."""
SETTINGS: Final = Kind("lint", LintSettings)
_STRANGE: Final = frozenset({"services", "jobs", "stages", "steps", "repos", "rules"})
"""Keys of compose files, of CI and of linters, which have `extends` too."""
_TOP: Final = re.compile(r"""(?m)^(?:\{?[ \t]*["']|)([A-Za-z_][\w-]*)["']?[ \t]*:""")
"""A key at the margin, or in quotes at any depth: JSON is indented throughout."""
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
    keys = frozenset(_keys(text))
    return next((each for each in OURS if _is(each, keys)), None)


def _keys(text: str) -> Iterator[str]:
    return (found[1] for found in _TOP.finditer(text))


def _is(kind: Kind, keys: frozenset[str]) -> bool:
    if kind.name == "spec" and "tunec" not in keys and not keys.isdisjoint(_STRANGE):
        return False
    return any(mark <= keys for mark in kind.marks)


def may_be_linted(name: str) -> bool:
    """Whether lint may know what a file of that name is."""
    path = PurePath(name)
    return path.suffix.lower() in _READ_BY_LINT or path.name == "hostfile"
