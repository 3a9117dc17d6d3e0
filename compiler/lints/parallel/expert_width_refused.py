"""Experts to be shared by processes in a way that AutoEP refuses."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also

_BLOCK: Final = "expert_parallel"


def _check(run: Run) -> Iterator[Finding]:
    for on in run.each("deepspeed", f"{_BLOCK}.enabled"):
        if on.value is True:
            yield from _width(run)
            yield from _within(run)
            yield from _beside_tensors(run, on)


def _width(run: Run) -> Iterator[Finding]:
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or not is_whole(world.value):
        return
    for each in run.each("deepspeed", f"{_BLOCK}.autoep_size"):
        if is_whole(each.value) and each.value > 1 and world.value % each.value:
            yield Finding(
                f"{world.value} processes do not divide into groups of {each.value} for experts",
                (each.label("refused"), *also(run.place(world))),
                ("expert_parallel.autoep_size must divide the stage size",),
                f"write an autoep_size that divides {world.value}",
            )


def _within(run: Run) -> Iterator[Finding]:
    for each in run.each("deepspeed", f"{_BLOCK}.expert_tensor_parallel_size"):
        if is_whole(each.value) and each.value != 1:
            yield Finding(
                f"expert_tensor_parallel_size {each.value}: an expert is not split",
                (each.label("refused"),),
                ("it is reserved for tensor parallelism within an expert, and is not there yet",),
                "write expert_tensor_parallel_size: 1",
            )


def _beside_tensors(run: Run, on: Place) -> Iterator[Finding]:
    width = run.said("deepspeed", f"{_BLOCK}.autoep_size")
    tensors = run.said("deepspeed", "tensor_parallel.autotp_size")
    is_split = tensors is not None and is_whole(tensors.value) and tensors.value > 1
    if tensors is not None and is_split and (width is None or width.value == 1):
        yield Finding(
            f"autotp_size {tensors.value} beside experts that are not shared",
            ((width or on).label("refused"), *also(tensors)),
            ("AutoEP+AutoTP folding requires expert_parallel.autoep_size > 1",),
            "write an autoep_size above 1, or remove expert_parallel",
        )


RULE = Rule(
    name="expert-width-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.19.8",),
    sources=(
        (
            "deepspeed 0.19.8 module_inject/auto_ep_folding.py `build_folding_spec`, "
            "`validate_folding_global`; runtime/engine.py `_configure_expert_parallel`; not in "
            "0.18.9"
        ),
    ),
    check=_check,
)
