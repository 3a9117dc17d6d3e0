"""The optimizer is offloaded, and neither DeepSpeed's file nor accelerate builds a CPU one."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEVICE: Final = "zero_optimization.offload_optimizer.device"


def _check(run: Run) -> Iterator[Finding]:
    device = run.effective("deepspeed", _DEVICE)
    force = run.effective("deepspeed", "zero_force_ds_cpu_optimizer")
    if device.value not in ("cpu", "nvme") or device.place is None or force.value is False:
        return
    is_older = device.place.path.endswith("cpu_offload")  # accelerate exchanges for the newer name
    if run.said("deepspeed", "optimizer") is not None:
        return
    if run.of("trainer", "simpletuner") and not is_older:
        return
    yield Finding(
        f"offload_optimizer to {device.value} with an optimizer that the file does not build",
        (device.place.label("needs DeepSpeed's CPU Adam"),),
        (
            "DeepSpeed refuses a client's optimizer unless zero_force_ds_cpu_optimizer is false",
            "a script that prepares it by accelerate 0.30 or newer gets DeepSpeed's instead",
        ),
        "add an optimizer of type AdamW, or zero_force_ds_cpu_optimizer: false at the top",
        certain=run.deepspeed_reader == "plain" or bool(run.of("trainer")),
    )


RULE = Rule(
    name="offloaded-optimizer-of-the-client",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_optimizer`: "
            "ZeRORuntimeException, ZeRO-Offload with a client provided optimizer"
        ),
        "accelerate 0.30.1 to 1.15.0 accelerator.py `_prepare_deepspeed`: exchanges it first",
        "OpenMOSS/MOSS#272, bitsandbytes-foundation/bitsandbytes#596",
    ),
    check=_check,
)
