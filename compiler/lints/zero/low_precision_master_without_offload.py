"""Master weights in 16 bit, which needs an optimizer on the CPU."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_KEYS: Final = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads")


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    if device.value in ("cpu", "nvme") or run.said("deepspeed", "zero_optimization.cpu_offload"):
        return
    states = run.said("deepspeed", "bf16.bf16_optimizer_states")
    for key in _KEYS:
        for place in run.each("deepspeed", key):
            if place.value is not True or stage.value not in (1, 2, 3):
                continue
            if key.startswith("bf16") and states is not None and states.value is True:
                continue
            yield Finding(
                f"{key.rpartition('.')[2]} needs the optimizer offloaded to the CPU",
                (place.label("refused"), *also(stage.place), *also(device.place)),
                ("only DeepSpeedCPUAdam steps master weights of 16 bit",),
                'add "offload_optimizer": {"device": "cpu"}, or remove the key',
            )


RULE = Rule(
    name="low-precision-master-without-offload",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py, stage3.py `__init__`: "
            "fp16_master_weights_and_gradients requires offload with DeepSpeedCPUAdam; 0.18.9 and "
            "0.19.8: Master weights feature requires ..."
        ),
        (
            "deepspeed 0.19.8 runtime/base_optimizer.py `_configure_master_weights`: "
            "bf16_optimizer_states lifts it"
        ),
    ),
    check=_check,
)
