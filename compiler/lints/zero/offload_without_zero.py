"""The optimizer is offloaded at a stage that leaves its parameters on the device."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    if stage.value != 0 or not stage.is_written or device.place is None:
        return
    if device.value in ("cpu", "nvme"):
        yield Finding(
            f"offload_optimizer to {device.value} at stage 0: CPU Adam is given device parameters",
            (device.place.label("not offloaded"), *also(stage.place)),
            ("DeepSpeed builds its CPU optimizer for the key, and only ZeRO moves the states",),
            "use stage 1 or higher, or remove offload_optimizer",
        )


RULE = Rule(
    name="offload-without-zero",
    severity="error",
    consequence="step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `zero_use_cpu_optimizer`: by the key, at "
            "any stage; ops/adam/cpu_adam.py `step`: CPUAdam param is on ... and must be 'cpu'"
        ),
    ),
    check=_check,
)
