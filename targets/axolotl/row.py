"""A row of Axolotl's YAML, and what plans its rows ask for."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, in_every_plan

WRITTEN: Final = "0.13"
"""The first release that files are written for; older ones are read."""


def row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: Mapping[str, Any] | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    yields: bool = False,
) -> Entry:
    """A row that is read and written; `absent` holds in every release with the keys."""
    defaults = ((ALWAYS, absent),) if absent is not None else ()
    return Entry(keys, slots, write, read, source, since, until, defaults, when=when, yields=yields)


def is_supervised(plan: Plan) -> bool:
    """Whether the model is trained towards given texts."""
    return plan.objective.kind == "sft"


def has_images(plan: Plan) -> bool:
    """Whether samples hold images."""
    return plan.data.images > 0


def is_packed_base(plan: Plan) -> bool:
    """Whether the base is stored in 4 bits."""
    return plan.quantization.format in ("nf4", "fp4")
