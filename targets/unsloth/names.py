"""The repository that Unsloth loads instead of the planned one, which no key prevents."""

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.plan import Plan
from tunec.schemas.caches import cached
from tunec.targets.unsloth.packages import PACKAGE

_SOURCE: Final = (
    "unsloth 2026.9.8 to 2026.10.9 models/loader_utils.py `get_model_name`, models/mapper.py; "
    "studio/backend/core/training/trainer.py `load_model` asks for no exact name"
)
_PARTLY: Final = "-unsloth-bnb-4bit"
"""The suffix of copies in 4 bits that keep some layers in 16 bits."""


@cached()
def _known() -> Mapping[str, Mapping[str, tuple[str | None, str | None]]]:
    text = files("tunec.schemas").joinpath("json", PACKAGE, "names.json").read_text("utf-8")
    read: Mapping[str, Mapping[str, tuple[str | None, str | None]]] = json.loads(text)
    return read


def copy_of(name: str, version: Version, *, in_four_bits: bool) -> str | None:
    """The repository that a release loads for another, in lower case; None: the same one.

    The file holds the first release completely, and the differences of each later one.
    """
    found: tuple[str | None, str | None] = (None, None)
    for release in sorted(_known(), key=Version):
        if Version(release) <= version:
            found = _known()[release].get(name.lower(), found)
    return found[0 if in_four_bits else 1]


def copies(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    """Warns that another repository is loaded than the plan names."""
    packed = plan.quantization.format != "none"
    name = copy_of(plan.model.path, version, in_four_bits=packed)
    if name is None:
        return
    partly = "the copy may keep layers in 16 bits: the account holds all of them in 4 bits"
    yield Diagnostic(
        "model-loaded-from-a-copy",
        "warning",
        f"unsloth loads {name} in place of {plan.model.path}",
        (Label(f"model.path is {plan.model.path}", path="model.path"),),
        (*((partly,) if name.endswith(_PARTLY) else ()), _SOURCE),
        help="name a directory that holds the model, and its config: "
        "`model: {path: ./model, config: model/config.json}`",
    )
