"""ZeRO settings that follow from stage and offload; settings that a stage ignores are off."""

from tunec.compiler.ir.slots import Zero
from tunec.schemas.caches import cached
from tunec.schemas.terms import Offload, OptimizerName

BUCKET_LIMIT = 50_000_000
"""Elements: 100 MB in bf16. Larger messages are no faster on NVLink or InfiniBand, and DeepSpeed's
default of 5e8 would hold up to 2 GB on the device."""
MAX_LIVE = 1_000_000_000
"""DeepSpeed's default (runtime/zero/config.py `max_live_parameters`, 0.14 to 0.19)."""
SUB_GROUP = 1_000_000_000
"""DeepSpeed's default (runtime/zero/config.py `sub_group_size`, 0.14 to 0.19)."""


@cached(256)
def zero_of(
    stage: int,
    offload_optimizer: Offload,
    offload_param: Offload,
    *,
    hidden: int,
    trainable: int,
    nvme_path: str | None,
    optimizer: OptimizerName = "adamw",
    stacked: bool = False,
) -> Zero:
    """Settings for a stage. `hidden` is the model's width, `trainable` the trained parameters.

    `stacked`: whether the weights of a layer's experts are one tensor.

    Muon needs the gradients of whole matrices, which reduce-scatter does not give (deepspeed 0.19.8
    runtime/zero/stage3.py raises; before 0.19.3 stages 1 and 2 stepped by partly reduced ones).

    Sizes of stage 3 follow the hidden width as transformers fills in `auto` (5.23
    integrations/deepspeed.py, `HfTrainerDeepSpeedConfig.trainer_config_finalize`): prefetch
    0.9 hidden^2, persistence 10 hidden. Stacks of experts are gathered ahead alone: what comes with
    others comes in a buffer of them all, beside which each is copied out of it (deepspeed 0.19.8
    runtime/zero/partition_parameters.py `AllGatherCoalescedHandle`). As nothing smaller than the
    threshold of persistence is gathered, no more elements ahead are one parameter.
    """
    offloads = offload_optimizer != "none" or offload_param != "none"
    uses_nvme = "nvme" in (offload_optimizer, offload_param)
    bucket = min(BUCKET_LIMIT, max(hidden * hidden, 1), max(trainable, 1)) if stage else 0
    whole = stage == 3
    persistent = 10 * hidden if whole else 0
    return Zero(
        stage=stage,
        offload_optimizer=offload_optimizer,
        offload_param=offload_param,
        nvme_path=nvme_path if uses_nvme else None,
        pin_memory=offloads,
        overlap_comm=stage > 0,
        contiguous_gradients=stage > 0,
        reduce_scatter=stage in (1, 2) and optimizer != "muon",
        reduce_bucket=bucket,
        allgather_bucket=bucket if stage in (1, 2) else 0,
        prefetch_bucket=persistent if stacked or not whole else int(0.9 * hidden * hidden),
        persistence_threshold=persistent,
        max_live_parameters=MAX_LIVE if whole else 0,
        max_reuse_distance=MAX_LIVE if whole else 0,
        sub_group_size=SUB_GROUP if whole else 0,
        gather_on_save=whole,
        hpz_partition=1,
        leaf_modules=None,
    )
