"""The vision tower and the projector, in bytes a sample of the micro batch."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tunec.compiler.analyses.memory.activations import Activations, Pass, part_activations
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.workload import Workload

_NEVER_CHECKPOINTED: Final = frozenset({"chatglm"})
"""Families whose own vision code has no checkpointing. GLM-4V's `visual.py` could not be read; that
LoRA with its tower takes 75 GB on one card (THUDM/GLM-4 b9d6d38, `finetune_demo/README_en.md`,
checkpointing on) is only possible without it."""


@dataclass(frozen=True, slots=True)
class Images:
    """What the images of one sample cost."""

    forward: Terms
    """While a tower runs through which no gradient passes, one layer at a time."""
    kept: Terms
    """From the tower's forward pass until its backward pass."""
    backward: Terms
    """What differentiating one layer of the tower takes besides."""


NO_IMAGES: Final = Images({}, {}, {})


@lru_cache(maxsize=2048)
def image_activations(workload: Workload, run: Pass) -> Images:
    """Activations of vision tower and projector.

    A frozen tower keeps nothing, since nothing in it needs a gradient; with adapters or training it
    keeps everything, or each layer's input where it is checkpointed.
    """
    data = workload.data
    stacks = [stack for stack in workload.architecture.stacks if stack.part == "vision"]
    if not data.vision_tokens or not stacks:
        return NO_IMAGES
    counts = count(workload)
    tower = _tower(workload, run)
    projector = _projector(workload, counts, run)
    if "vision" in counts.trained_parts | counts.adapted_parts:
        return Images({}, {**tower.kept, **projector}, tower.last_layer)
    return Images(tower.forward, projector, {})


def _tower(workload: Workload, run: Pass) -> Activations:
    data = workload.data
    checkpointed = run.checkpointed and workload.architecture.family not in _NEVER_CHECKPOINTED
    alone = replace(run, checkpointed=checkpointed, padded=False, sequence_parallel=1)
    widths = arithmetic(workload, run.states, "vision")
    keys = data.vision_tokens / max(data.images, 1)
    return part_activations(workload, alone, "vision", widths, data.vision_tokens, keys)


def _projector(workload: Workload, counts: Counts, run: Pass) -> Terms:
    """Inputs of the projector's layers where it is trained, outputs where a gradient passes."""
    needs = counts.trained_parts | counts.adapted_parts
    if not needs & {"vision", "projector"}:
        return {}
    widths = arithmetic(workload, run.states, "projector")
    tokens = workload.data.image_tokens
    return {"projector activations": tokens * _projector_widths(workload, widths)}


def _projector_widths(workload: Workload, widths: Arithmetic) -> float:
    """Bytes a token: what lies between two layers, and each layer's input if it is trained."""
    linears = [
        module
        for module in workload.architecture.modules
        if module.part == "projector" and module.kind == "linear"
    ]
    between = sum(module.shape[0] * module.copies for module in linears)
    read = sum(module.shape[1] * module.copies for module in linears) if widths.trained else 0
    return widths.compute * (between + read)
