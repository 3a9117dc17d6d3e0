"""A share of the optimizer is to stay on the device, and its states are on NVMe."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_BLOCK: Final = "zero_optimization.offload_optimizer"
_WHY: Final = (
    "every state is read from NVMe into RAM, and what should be updated on the device is updated "
    "by torch's AdamW on the host"
)


def _check(run: Run) -> Iterator[Finding]:
    ratio, device = (run.effective("deepspeed", f"{_BLOCK}.{key}") for key in ("ratio", "device"))
    if ratio.place is None or not is_number(ratio.value) or not 0 <= ratio.value < 1:
        return
    if stage_of(run).value != 3 or device.value != "nvme":
        return
    yield Finding(
        f"offload_optimizer.ratio {ratio.value} beside device nvme",
        (ratio.place.label("divides what is offloaded to cpu"), *also(device.place)),
        (_WHY,),
        "write device: cpu, or remove ratio",
        # FusedAdam, which stood there before, takes no tensor of the host
        consequence="init" if run.runs("deepspeed<0.13") else None,
    )


RULE = Rule(
    name="partial-offload-to-nvme",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py `_optimizer_step`: "
            "`backup_optimizer` steps `fp32_partitioned_groups_flat`, which `_swap_in` fills on "
            "the host"
        ),
        (
            "deepspeedai/DeepSpeed#4872: `expected input to be on cuda` when the optimizer is "
            "made; device should be cpu, not nvme"
        ),
    ),
    check=_check,
)
