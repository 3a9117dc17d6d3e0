"""Offloaded state crosses to the device from pageable memory."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also


def _check(run: Run) -> Iterator[Finding]:
    for block in ("offload_optimizer", "offload_param"):
        device = run.effective("deepspeed", f"zero_optimization.{block}.device")
        if device.value not in ("cpu", "nvme"):
            continue
        for place in run.each("deepspeed", f"zero_optimization.{block}.pin_memory"):
            if place.value is False:
                yield Finding(
                    f"{block} to {device.value} without pinned memory",
                    (place.label("pageable"), *also(device.place)),
                    (
                        "a copy from pageable memory goes through a staging buffer, and waits",
                        "pinned memory cannot be swapped out: it needs the RAM, and ulimit -l",
                    ),
                    "write pin_memory: true where the host has the memory",
                    Fix((place.replaced(True),), "unsafe"),
                )


RULE = Rule(
    name="offload-without-pinned-memory",
    severity="note",
    consequence="slow",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/zero/offload_config.py "
            "`DeepSpeedZeroOffloadParamConfig.pin_memory`: required for asynchronous, full-"
            "bandwidth transfers; default false up to 0.18.9, true in 0.19.8"
        ),
        "NVIDIA CUDA C++ Best Practices Guide 12.8, section 10.1.1 Pinned Memory",
    ),
    check=_check,
)
