"""The host memory of a node while a checkpoint is written, in bytes."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.terms.optimizer import MASTER_BYTES, moments_of
from tunec.compiler.analyses.memory.terms.weights import frozen_bytes
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload

_ADAPTERS_ALONE: Final = Version("5.0")
_SHARDED_FILES: Final = Version("5.0")
_FILE: Final = (5 * 10**9, 50 * 10**9)
"""Largest checkpoint file: `save_pretrained(max_shard_size)` of transformers 4.40 and 5.23."""


def saving(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """The host memory of a node while a checkpoint's weights are written.

    At stage 3 rank 0 gathers all weights (deepspeed 0.19.8 `runtime/engine.py`,
    `_zero3_consolidated_16bit_state_dict`), with adapters only these since transformers 5.0
    (`trainer.py`, `save_model`: `exclude_frozen_parameters`; 4.57.6 gathers the base too). Below
    stage 3, every rank copies all of its weights to its own host, including a frozen base, and a
    tied weight once for each of its two names (accelerate 0.30.1 to 1.15.0 `accelerator.py`,
    `get_state_dict`: `clone_tensors_for_torch_save`, whose device is the CPU). Without an engine,
    it is the size of the file that is being written.
    """
    counts, size = plan.counts, BYTES[plan.states.weights]
    saved = counts.trainable if workload.adapter.kind != "none" else counts.base
    version = workload.version("transformers")
    if plan.fsdp.version:
        # full on rank 0, or every rank's shards (accelerate 1.15 utils/fsdp_utils.py
        # `save_fsdp_model`), of adapters nothing else
        return {"gathered weights": float(plan.parameter * saved)}
    if plan.stage == PARAMETERS:
        alone = version is None or version >= _ADAPTERS_ALONE
        kept = saved if alone else counts.base + counts.adapters
        return {"gathered weights": float(size * kept * plan.zero.gather_on_save)}
    if plan.deepspeed and workload.architecture.kind != "diffusion":
        trained = counts.trained + counts.adapters + counts.output * counts.tied
        held = frozen_bytes(workload, plan) + plan.parameter * trained
        if workload.architecture.tied and not counts.tied:
            held += size * counts.output
        return {"copied weights": ranks * held}
    largest = _FILE[0] if version is not None and version < _SHARDED_FILES else _FILE[1]
    return {"checkpoint file": float(min(BYTES[plan.states.trainable] * saved, largest))}


def moments_saved(plan: Sharding, ranks: int) -> Sizes:
    """The host memory of a node while the optimizer's states are written, after the weights.

    FSDP copies them all to the host: whole on rank 0, or every rank's own (accelerate 1.15
    `utils/fsdp_utils.py`, `save_fsdp_optimizer`). DeepSpeed passes its tensors to torch, which
    copies one storage after the other, each as large as a rank's part (0.19.8 `runtime/engine.py`,
    `_save_zero_checkpoint`; torch 2.13 `serialization.py`, `_save`: `storage.cpu()`).
    """
    if plan.optimizer_away:
        return {}
    if plan.fsdp.version:
        share = 1.0 if plan.fsdp.state_dict == "full" else ranks / plan.shards
        return {"gathered optimizer states": share * moments_of(plan.workload, plan)}
    if not plan.deepspeed or plan.stage == 0:
        return {}
    part = plan.counts.trainable / plan.shards
    part = min(part, plan.zero.sub_group_size) if plan.stage == PARAMETERS else part
    return {"states on their way to a file": float(MASTER_BYTES * part * ranks)}
