"""Parameters are to be offloaded at a ZeRO stage that keeps them whole."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEVICE: Final = "zero_optimization.offload_param.device"
_BLOCK: Final = "zero_optimization.offload_param"
_STAGE: Final = "zero_optimization.stage"


def _check(run: Run) -> Iterator[Finding]:
    device, stage = run.effective("deepspeed", _DEVICE), run.effective("deepspeed", _STAGE)
    if device.value not in ("cpu", "nvme") or device.place is None or stage.value not in (0, 1, 2):
        return
    block = run.said("deepspeed", _BLOCK)
    is_own = block is not None and not device.place.document.is_view and block.node.fields
    fix = Fix((block.removed(),), "safe") if is_own and block else None
    yield Finding(
        f"offload_param to {device.value} does nothing at ZeRO stage {stage.value}",
        (
            device.place.label("parameters stay on the device"),
            *([stage.place.label("", primary=False)] if stage.place else []),
        ),
        ("only stage 3 shards parameters, and only shards are offloaded",),
        "use stage 3, or remove offload_param",
        fix,
    )


RULE = Rule(
    name="offload-param-ignored",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_zero_optimizer`: only what "
            "stage 3 builds is given offload_param_config"
        ),
        "huggingface/accelerate#2298",
    ),
    check=_check,
)
