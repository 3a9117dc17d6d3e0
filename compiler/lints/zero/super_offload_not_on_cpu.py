"""SuperOffload where the optimizer is not in RAM."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_BLOCK: Final = "zero_optimization.offload_optimizer"
_WHY: Final[dict[str, tuple[Consequence, str]]] = {
    "none": ("init", "its optimizer asks on which device each group is, which only offload says"),
    "nvme": ("step", "it writes gradients beside the parameters, which are not there but on NVMe"),
}


def _check(run: Run) -> Iterator[Finding]:
    if stage_of(run).value != 3:
        return
    device = run.said("deepspeed", f"{_BLOCK}.device")
    found = _WHY.get("none" if device is None or device.value is None else str(device.value))
    for each in run.each("deepspeed", f"{_BLOCK}.super_offload"):
        if each.value is True and found is not None:
            consequence, why = found
            yield Finding(
                f"super_offload with device {device.value if device else 'none'}",
                (each.label("needs its states in RAM"), *also(device)),
                (why,),
                "write device: cpu, or remove super_offload",
                consequence=consequence,
            )


RULE = Rule(
    name="super-offload-not-on-cpu",
    severity="error",
    consequence="step",
    consumers=("deepspeed>=0.18",),
    sources=(
        (
            "deepspeed 0.18.9, 0.19.8 runtime/superoffload/superoffload_stage3.py "
            "`partition_grads`: copies into `fp32_partitioned_groups_flat[i].grad`, which "
            "runtime/zero/stage3.py leaves to its swapper; `_optimizer_step`: `subgroup_to_device`"
        ),
        (
            "deepspeed 0.18.9, 0.19.8 runtime/zero/stage3.py: `subgroup_to_device` is made where "
            "`offload_optimizer` is on"
        ),
    ),
    check=_check,
)
