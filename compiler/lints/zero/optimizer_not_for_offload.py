"""An offloaded optimizer whose kernels work on the GPU only."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ON_GPU: Final = ("lamb", "fusedlamb", "onebitadam", "zerooneadam", "onebitlamb")


def _check(run: Run) -> Iterator[Finding]:
    kind = run.said("deepspeed", "optimizer.type")
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    if kind is None or device.value not in ("cpu", "nvme") or device.place is None:
        return
    stage = run.effective("deepspeed", "zero_optimization.stage")
    torch_adam = run.said("deepspeed", "optimizer.params.torch_adam")
    if torch_adam is not None and torch_adam.value is True and stage.value in (1, 2, 3):
        yield Finding(
            f"torch_adam steps what is offloaded to {device.value} by torch's own Adam",
            (torch_adam.label("no DeepSpeedCPUAdam"), device.place.label("", primary=False)),
            ("DeepSpeed's Adam for the CPU uses vector instructions and all cores",),
            "remove torch_adam",
            Fix((torch_adam.removed(),), "unsafe"),
            severity="warning",
            consequence="slow",
        )
    if str(kind.value).lower() not in _ON_GPU or stage.value == 0:
        return
    yield Finding(
        f"{kind.value} cannot step where offload_optimizer puts it: {device.value}",
        (kind.label("kernels of the GPU only"), device.place.label("", primary=False)),
        ("DeepSpeed has CPU versions of Adam, AdamW, Adagrad and Lion",),
        "write AdamW, or do not offload",
    )


RULE = Rule(
    name="optimizer-not-for-offload",
    severity="error",
    consequence="step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: FusedLamb "
            "whatever the device; ops/lamb/fused_lamb.py: fused_lamb_cuda.lamb"
        ),
        (
            "deepspeed 0.19.8 runtime/engine.py `get_optimizer_configuration`: torch.optim.AdamW "
            "for torch_adam, before zero_use_cpu_optimizer is asked; arXiv 2101.06840 (ZeRO-Offload"
            "), section 5.1: CPU-Adam against torch's"
        ),
    ),
    check=_check,
)
