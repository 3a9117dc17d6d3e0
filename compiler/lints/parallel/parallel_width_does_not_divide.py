"""The processes cannot be split by the widths that are asked for."""

import math
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WIDTHS: Final = ("parallel.tensor", "parallel.sequence")


def _check(run: Run) -> Iterator[Finding]:
    world = run.world
    widths = [each for slot in _WIDTHS if (each := run.observed(slot)) and each.value > 1]
    if world is None or not isinstance(world.value, int):
        return
    if not widths:
        yield from _written(run, world.value)
        return
    product = math.prod(each.value for each in widths)
    places = [place for each in widths if (place := run.place(each)) is not None]
    if world.value % product == 0 or not places:
        return
    said = run.place(world)
    yield Finding(
        f"{world.value} processes do not divide into groups of {product}",
        (
            *(place.label("", primary=place is places[0]) for place in places),
            *([said.label("", primary=False)] if said is not None else []),
        ),
        ("each group of tensor x sequence parallel processes works on one sample",),
        f"start a multiple of {product} processes, or write a width that divides {world.value}",
        sum=tuple(Term(each.slot, each.value, "processes") for each in widths),
        severity="warning" if world.rank == Rank.CATALOGUE else None,
    )


def _written(run: Run, world: int) -> Iterator[Finding]:
    """Widths in a ds_config.json whose reader's table does not speak of them."""
    for key in ("tensor_parallel.autotp_size", "sequence_parallel_size"):
        for place in run.each("deepspeed", key):
            if type(place.value) is int and place.value > 1 and world % place.value:
                yield Finding(
                    f"{world} processes do not divide into groups of {place.value}",
                    (place.label(""),),
                    ("each group of tensor or sequence parallel processes works on one sample",),
                    f"start a multiple of {place.value} processes, or write a width that divides "
                    f"{world}",
                    sum=(Term(key, place.value, "processes"),),
                )


RULE = Rule(
    name="parallel-width-does-not-divide",
    severity="error",
    consequence="init",
    consumers=(
        "deepspeed",
        "accelerate",
        "axolotl",
    ),
    sources=(
        (
            "deepspeed 0.16.9 to 0.19.8 utils/groups.py `_ensure_divisibility`, "
            "`_init_tp_mesh_device`"
        ),
        (
            "accelerate 1.15.0 parallelism_config.py `ParallelismConfig`: total size must equal the"
            " number of processes"
        ),
    ),
    check=_check,
)
