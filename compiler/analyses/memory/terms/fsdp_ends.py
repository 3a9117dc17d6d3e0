"""The ends of a model under FSDP 2: the embedding, and the output projection with its norm.

accelerate makes them separate units (from 1.14 `utils/fsdp_utils.py`, `fsdp2_prepare_model`).
"""

from typing import Final, Literal

from packaging.version import Version

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Fsdp
from tunec.schemas.models.architecture import Module

_OWN_UNITS: Final = Version("1.14")
"""The first accelerate release that makes the embedding and the head separate units."""
NEMO: Final = "nemo-automodel"
_NEMOS_OWN_UNITS: Final = Version("0.7")
"""The first NeMo AutoModel release that makes units of both ends, if they are trained and not tied
(components/distributed/parallelizer.py `_fully_shard_untied_input_output_embeddings`)."""

Head = Literal["unit", "loss", "host"]
"""What gathers the output projection for the loss: its unit, the loss on the device, or the loss on
the host."""


def has_ends(workload: Workload, fsdp: Fsdp) -> bool:
    """Whether the ends are separate units."""
    if (nemo := workload.version(NEMO)) is not None:
        is_whole = workload.adapter.kind == "none" and not workload.architecture.tied
        return fsdp.version == 2 and nemo >= _NEMOS_OWN_UNITS and is_whole
    version = workload.version("accelerate")
    return fsdp.version == 2 and (version is None or version >= _OWN_UNITS)


def end_of(workload: Workload, module: Module) -> str | None:
    """The end of the model that a module belongs to, if any."""
    model = workload.architecture
    if module.path == model.embedding:
        return "tail" if model.tied else "embedding"
    return "tail" if module.path == model.head or _is_final(workload, module) else None


_TOP: Final = 2
"""The number of names in the path of a direct child of the base model: `model.norm`,
`transformer.ln_f`."""


def _is_final(workload: Workload, module: Module) -> bool:
    """Whether accelerate recognizes a module as the norm before the head.

    accelerate looks among the base model's own children, which peft's wrapper hides; in a vision
    model the norm is deeper (accelerate 1.15 `utils/fsdp_utils.py`, `_find_final_norm`).
    """
    is_top = len(module.path.split(".")) <= _TOP and "{}" not in module.path
    return module.kind == "norm" and is_top and workload.adapter.kind == "none"


def norm_is_in_unit(workload: Workload, fsdp: Fsdp) -> bool:
    """Whether the norm before the head is in the head's unit, which casts what it gives."""
    modules = workload.architecture.modules
    return has_ends(workload, fsdp) and any(_is_final(workload, each) for each in modules)


def head_of(workload: Workload, fsdp: Fsdp) -> Head:
    """What gathers the output projection for the loss, and where.

    TRL's tiled loss reads the weight and never calls the head, so no hook gathers the weight unless
    the norm before the head, or a tied embedding, is in the same unit. Otherwise the loss itself
    gathers the weight, in its stored dtype, and is computed on the weight's device (trl 1.16
    `trainer/utils.py`, `add_fused_lm_head`: `hidden_states.to(lm_head.weight.device)`,
    `weight.full_tensor()`).
    """
    model = workload.architecture
    if workload.loss != "chunked" or not has_ends(workload, fsdp) or model.tied:
        return "unit"
    if norm_is_in_unit(workload, fsdp):
        return "unit"
    return "host" if fsdp.offload_params else "loss"


def head_on_host(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """Host memory of the output projection if each of a node's ranks gathers it there."""
    if head_of(workload, plan.fsdp) != "host":
        return {}
    size = plan.parameter if plan.counts.head else BYTES[plan.states.weights]
    return {"gathered output projection": float(size * plan.counts.output * ranks)}
