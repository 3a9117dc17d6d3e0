"""Keys that only stage 3 reads, at a stage that does not."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of

_KEYS: Final = (
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "stage3_module_granularity_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "gather_16bit_weights_on_model_save",
    "sub_group_size",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
    "offload_optimizer.super_offload",
)
_NOTHING: Final = (False, None, "auto")


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value not in (0, 1, 2) or not stage.is_written:
        return
    said = [each for each in said_in(run, _KEYS) if each.value not in _NOTHING]
    said = [
        each for each in said if not each.path.endswith("hpz_partition_size") or each.value != 1
    ]
    if not said:
        return
    names = ", ".join(each.path.rpartition(".")[2] for each in said)
    is_own = not any(each.document.kind == "accelerate" for each in said)
    yield Finding(
        f"{names} only counts at ZeRO stage 3, and the stage is {stage.value}",
        (
            *(each.key_label("not read", primary=each is said[0]) for each in said),
            *also(stage.place),
        ),
        ("stages 0 to 2 keep every parameter whole on each device",),
        "use stage 3 if the parameters are to be sharded; otherwise remove them",
        Fix((said[0].removed(),), "safe") if is_own and len(said) == 1 else None,
    )


RULE = Rule(
    name="stage-3-keys-below-stage-3",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_zero_optimizer`: the branch "
            "of stages 1 and 2 passes none of them on"
        ),
    ),
    check=_check,
)
