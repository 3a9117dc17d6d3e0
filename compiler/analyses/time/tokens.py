"""How many tokens of one sample each part of a model works on, and what they keep."""

from typing import Final

from tunec.compiler.analyses.memory.activations import Pass, part_activations, text_tokens
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.diffusion import (
    denoiser_activations,
    denoiser_tokens,
    image_elements,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import States
from tunec.schemas.models.architecture import Part

PARTS: Final[tuple[Part, ...]] = ("text", "vision", "projector", "denoiser")
"""The parts that compute in every step."""


@cached(1024)
def part_tokens(workload: Workload, part: Part) -> float:
    """Tokens of one sample in one part; 0 where the model has no such part."""
    if not any(module.part == part for module in workload.architecture.modules):
        return 0
    data = workload.data
    by_part: dict[Part, int] = {
        "text": text_tokens(workload),
        "vision": data.vision_tokens,
        "projector": data.image_tokens,
        "denoiser": _denoiser(workload),
    }
    return by_part.get(part, 0)


def _denoiser(workload: Workload) -> int:
    """Tokens of a diffusion transformer; elements of the latent's channel for a UNet."""
    if workload.architecture.unet:
        width, height = image_elements(workload)
        return width * height
    return denoiser_tokens(workload) if workload.architecture.kind == "diffusion" else 0


def sample_tokens(workload: Workload) -> float:
    """Tokens by which throughput is counted: those of the model that is trained."""
    return part_tokens(workload, "text") or part_tokens(workload, "denoiser")


@cached(1024)
def kept_bytes(workload: Workload, states: States, part: Part) -> float:
    """Bytes of one sample that a part's layers keep without checkpointing."""
    tokens = part_tokens(workload, part)
    layered = any(stack.part == part for stack in workload.architecture.stacks)
    if not tokens or not (layered or workload.architecture.unet):
        return 0
    run = Pass(states, checkpointed=False, padded=False, sequence_parallel=1)
    if part == "denoiser":
        return sum(denoiser_activations(workload, run).kept.values())
    widths = arithmetic(workload, states, part)
    images = max(workload.data.images, 1) if part == "vision" else 1
    whole = part_activations(workload, run, part, widths, tokens, tokens / images)
    return sum(whole.kept.values())
