"""The trainer's optimizer is exchanged for DeepSpeed's CPU Adam, as it is offloaded."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEVICE: Final = "zero_optimization.offload_optimizer.device"
_ADAMS: Final = frozenset(
    {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw_torch_xla"}
)
"""What becomes DeepSpeed's CPU Adam with weight decay kept apart."""
_KEPT: Final = frozenset({"lion_32bit", "adagrad"})
"""What becomes DeepSpeed's own of the same algorithm, in accelerate 1.10.1 to 1.15.0."""


def _check(run: Run) -> Iterator[Finding]:
    device = run.effective("deepspeed", _DEVICE)
    force = run.effective("deepspeed", "zero_force_ds_cpu_optimizer")
    optim = run.said("trainer", "optim")
    small = run.said("diffusers", "use_8bit_adam")
    if device.value not in ("cpu", "nvme") or device.place is None or force.value is False:
        return
    if run.said("deepspeed", "optimizer") is not None:
        return
    if small is not None and small.value is True:
        yield _finding(small, device.place, "use_8bit_adam", "remove it")
    if optim is None:
        return
    if not isinstance(optim.value, str) or optim.value in _ADAMS | _KEPT:
        return
    wanted = "write optim: adamw_torch"
    yield _finding(optim, device.place, f"optim {optim.value}", wanted)


def _finding(at: Place, device: Place, what: str, wanted: str) -> Finding:
    return Finding(
        f"{what} is exchanged for DeepSpeed's CPU Adam, as it is offloaded",
        (at.label("not used"), device.label("offloaded", primary=False)),
        (
            "of its settings learning rate and weight decay are kept",
            "states on the host are fp32: 12 bytes a trained parameter with the fp32 copy",
        ),
        f"{wanted}, or write zero_force_ds_cpu_optimizer: false in the DeepSpeed file",
    )


RULE = Rule(
    name="optimizer-exchanged-on-offload",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 and 1.1.1 accelerator.py `_prepare_deepspeed`: DeepSpeedCPUAdam "
            "with lr and weight_decay; 1.10.1 to 1.15.0 utils/deepspeed.py "
            "`map_pytorch_optim_to_deepspeed`: DeepSpeedCPUAdam is the default, Lion and Adagrad "
            "are kept"
        ),
        "deepspeed 0.19.8 ops/adam/cpu_adam.py `DeepSpeedCPUAdam`: fp32_optimizer_states",
    ),
    check=_check,
)
