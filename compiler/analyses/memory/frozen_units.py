"""What FSDP makes of a base that is not trained, beside its shards."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import ActivationCheckpointing, Fsdp, States

_MADE_FP32: Final = Version("1.6"), Version("1.13")
"""The accelerate releases that make every parameter fp32 under version 2 where precision is mixed,
frozen ones too (`utils/fsdp_utils.py`, `fsdp2_prepare_model`: `model.to(torch.float32)`; read in
the wheels 1.6.0, 1.10.1, 1.11.0, 1.12.0, 1.13.0, 1.14.0 and 1.15.0; accelerate issue 3844)."""


def makes_fp32(workload: Workload, fsdp: Fsdp, states: States) -> bool:
    """Whether a frozen base lies in fp32 shards, whatever it was loaded in."""
    version, (first, last) = workload.version("accelerate"), _MADE_FP32
    between = version is not None and first <= version < last
    return fsdp.version == 2 and states.autocast and between


def retains_inputs(workload: Workload, checkpointing: ActivationCheckpointing, fsdp: Fsdp) -> bool:
    """Whether the inputs of recomputed layers, and their gradients, stay to the end of the pass.

    Version 1 hooks the inputs of each frozen unit to know when it may let go of it (torch 2.13
    `distributed/fsdp/_runtime_utils.py`, `_register_post_backward_reshard_only_hook`). The hook
    holds them until all is done, and reentrant recomputation makes each a leaf, whose gradient
    autograd keeps in it. Frozen units are those of a base whose adapters have units of their own,
    which peft's policy sees to (transformers 5.23 `distributed/fsdp.py`,
    `update_fsdp_plugin_peft`).
    """
    by_trainer = checkpointing.mode != "none" and checkpointing.reentrant and not fsdp.checkpointing
    return fsdp.version == 1 and by_trainer and workload.adapter.kind != "none"


def retained(kept: Sizes, layers: int) -> Sizes:
    """What all but the first layer still hold while that is differentiated, in bytes a sample."""
    inputs = sum(size for name, size in kept.items() if name.endswith(" layer inputs"))
    others = inputs * (1 - 1 / max(layers, 1))
    return {"retained layer inputs": others, "gradients of layer inputs": others}
