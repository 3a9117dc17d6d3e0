"""A parameter may not fit the buffers through which it goes to NVMe."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also

_SIZE: Final = "zero_optimization.offload_param.buffer_size"
_DEVICE: Final = "zero_optimization.offload_param.device"
_KEPT: Final = "zero_optimization.stage3_param_persistence_threshold"


def _check(run: Run) -> Iterator[Finding]:
    device, size, stage = (run.effective("deepspeed", key) for key in (_DEVICE, _SIZE, _STAGE))
    if device.value != "nvme" or device.place is None or stage.value != 3:
        return
    buffer = size.value if size.known else _DEFAULT
    if not is_number(buffer):
        return
    if run.model is None:
        if size.place is not None:
            yield Finding(
                f"whether every parameter's shard fits a buffer of {buffer:,.0f} elements",
                (size.place.label("the largest has to fit"), *also(device.place)),
                ("a shard that is larger stops the run when it is first read",),
                "name the model with --model",
                certain=False,
            )
        return
    largest = max((_elements(each) for each in run.model.architecture.modules), default=0)
    world = run.value("parallel.world")
    shard = -(-largest // world) if isinstance(world, int) else None
    if largest <= buffer or (shard is not None and shard <= buffer):
        return
    place = size.place or device.place
    yield Finding(
        f"the largest parameter has {shard or largest:,} elements a process, "
        f"and a buffer {buffer:,.0f}",
        (place.label("too small"), *also(device.place if size.place else None)),
        ("each shard goes to NVMe through one buffer",),
        f"write buffer_size: {shard or largest}",
        sum=(
            Term("elements of the largest parameter", largest, "elements"),
            Term("processes", world or 0, "processes"),
        ),
        certain=shard is not None,
    )


_STAGE: Final = "zero_optimization.stage"
_DEFAULT: Final = 100_000_000
"""deepspeed 0.14.5 to 0.19.8 runtime/zero/offload_config.py `buffer_size`."""


def _elements(module: Any) -> int:
    return int(module.parameters // max(module.copies, 1)) - int(module.bias)


RULE = Rule(
    name="nvme-buffer-below-parameter",
    severity="error",
    consequence="step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/swap_tensor/partitioned_param_swapper.py "
            "`reserve_available_buffers`, `swap_in`: More elements than buffer size"
        ),
        "deepspeedai/DeepSpeed#3062",
    ),
    check=_check,
)
