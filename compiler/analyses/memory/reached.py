"""What a run trains of what it may train: a tower that no picture passes gets no gradient.

Its parameters' gradients stay None, which autograd never fills, and optimizers pass over such
parameters without a state for them (torch 2.13 `optim/adamw.py` through `Adam._init_group`: `if
p.grad is not None`). FSDP reduces the units that a backward pass has reached, and no others; a unit
of version 1 is one flat tensor, whose gradient has all of it. DDP has room in its buckets for every
parameter that wants a gradient (`nn/parallel/distributed.py`, `_build_params_for_reducer`);
DeepSpeed has all of them in its partitions, with states.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from tunec.compiler.analyses.memory.modules import tower_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.caches import cached
from tunec.schemas.models.architecture import Module

_Stepped = Literal["all", "root", "none"]
"""Of what no sample reaches, what has states all the same."""

_IS_STEPPED: Final[dict[_Stepped, Callable[[Module], bool]]] = {
    "all": lambda _: True,
    "root": lambda module: "{}" not in module.path,
    "none": lambda _: False,
}


def reached(workload: Workload, layout: Layout) -> Workload:
    """The workload with what it would train and no sample reaches: text alone has no pictures."""
    if workload.data.vision_tokens:
        return workload
    return _without_tower(workload, _stepped(layout))


def _stepped(layout: Layout) -> _Stepped:
    if layout.parallel.engine == "deepspeed":
        return "all"
    if layout.fsdp.version != 1:
        return "none"
    return "all" if layout.fsdp.wrap == "none" else "root"


@cached(256)
def _without_tower(workload: Workload, stepped: _Stepped) -> Workload:
    idle, adapted = tower_of(workload.trained), tower_of(workload.adapted)
    if not idle and not adapted:
        return workload
    keeps = _IS_STEPPED[stepped]
    return replace(
        workload,
        idle=idle,
        idle_adapted=adapted,
        trained=tuple(each for each in workload.trained if each not in idle or keeps(each)),
        adapted=tuple(each for each in workload.adapted if each not in adapted or keeps(each)),
    )
