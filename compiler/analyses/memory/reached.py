"""What a run trains of what it may train: a tower that no picture passes gets no gradient.

Its parameters' gradients stay None, which autograd never fills, and optimizers pass over such
parameters without a state for them (torch 2.13 `optim/adamw.py` through `Adam._init_group`: `if
p.grad is not None`). FSDP reduces the units that a backward pass has reached, and no others.
DeepSpeed and DDP take every parameter that wants a gradient into partitions and buckets.
"""

from dataclasses import replace
from typing import Final

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.schemas.models.architecture import Part
from tunec.schemas.terms import Engine

_BY_GRADIENT: Final[frozenset[Engine]] = frozenset({"none", "fsdp"})
"""Engines that make states and reduce for what has a gradient, not for what wants one."""

_OF_PICTURES: Final[frozenset[Part]] = frozenset({"vision", "projector"})


def reached(workload: Workload, engine: Engine) -> Workload:
    """The workload without what it would train and no sample reaches: text alone has no pictures.

    Such a tower counts as frozen: its weights are there, and nothing else of it.
    """
    if workload.data.vision_tokens or engine not in _BY_GRADIENT:
        return workload
    return _without_tower(workload)


@cached(256)
def _without_tower(workload: Workload) -> Workload:
    trained = tuple(module for module in workload.trained if module.part not in _OF_PICTURES)
    return workload if trained == workload.trained else replace(workload, trained=trained)
