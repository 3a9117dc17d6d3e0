"""NVMe is to hold what only stage 3 puts there."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEVICE: Final = "zero_optimization.offload_optimizer.device"


def _check(run: Run) -> Iterator[Finding]:
    device, stage = (
        run.effective("deepspeed", _DEVICE),
        run.effective("deepspeed", "zero_optimization.stage"),
    )
    if device.value == "nvme" and device.place is not None and stage.value in (1, 2):
        yield Finding(
            f"offload_optimizer to nvme at stage {stage.value} keeps the states in CPU memory",
            (
                device.place.label("not NVMe"),
                *([stage.place.label("", primary=False)] if stage.place else []),
            ),
            ("stages 1 and 2 know an offload to the CPU only",),
            "use stage 3, or write cpu and count the host memory",
        )


RULE = Rule(
    name="nvme-offload-below-stage-3",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py `self.cpu_offload`: any "
            "device but none"
        ),
    ),
    check=_check,
)
