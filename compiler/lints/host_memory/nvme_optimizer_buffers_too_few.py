"""Fewer buffers for the optimizer's states on NVMe than Adam has states."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_BLOCK: Final = "zero_optimization.offload_optimizer"
_STATES: Final = 4
"""Parameter, gradient, momentum and variance. Adagrad and Lion have one state less."""
_ONE_LESS: Final = ("adagrad", "lion")
_WHY: Final = (
    "a shard is read with its gradient and its states at once, each into a buffer of its own: "
    "`assert pinned_buffers is not None`"
)


def _check(run: Run) -> Iterator[Finding]:
    device = run.effective("deepspeed", f"{_BLOCK}.device")
    if device.value != "nvme" or stage_of(run).value != 3:
        return
    kind = run.said("deepspeed", "optimizer.type")
    is_less = kind is not None and str(kind.value).lower() in _ONE_LESS
    needed = _STATES - is_less
    for count in run.each("deepspeed", f"{_BLOCK}.buffer_count"):
        if type(count.value) is int and 0 <= count.value < needed:
            yield Finding(
                f"{count.value} buffers for the {needed} tensors of each parameter on NVMe",
                (count.label("runs out"), *also(kind or device.place)),
                (_WHY,),
                f"write buffer_count: {needed}",
                Fix((count.replaced(needed),), "safe"),
            )


RULE = Rule(
    name="nvme-optimizer-buffers-too-few",
    severity="error",
    consequence="step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/swap_tensor/partitioned_optimizer_swapper.py "
            "`swap_in_optimizer_state`: required_buffer_count; runtime/swap_tensor/utils.py "
            "`SwapBufferManager.allocate`: None where fewer are free"
        ),
        (
            "deepspeed 0.19.8 runtime/zero/offload_config.py `buffer_count`: at least the number "
            "of states, of which Adam has 4"
        ),
    ),
    check=_check,
)
