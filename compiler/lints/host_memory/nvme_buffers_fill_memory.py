"""Buffers on the way to NVMe take a large share of the RAM."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.host_memory.node import GIB, node_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_SHARE: Final = 0.5
_BLOCK: Final = "zero_optimization.offload_param"
_COUNT: Final = 5
_SIZE: Final = 100_000_000
_WIDTH: Final = 2
"""deepspeed 0.14.5 to 0.19.8 runtime/zero/offload_config.py: defaults; elements are of 16 bits."""


def _check(run: Run) -> Iterator[Finding]:
    device = run.effective("deepspeed", f"{_BLOCK}.device")
    if device.value != "nvme" or stage_of(run).value != 3:
        return
    node = node_of(run)
    if node is None:
        return
    size, count = (
        run.said("deepspeed", f"{_BLOCK}.buffer_size"),
        run.said("deepspeed", f"{_BLOCK}.buffer_count"),
    )
    place = size or count
    elements, buffers = (size.value if size else _SIZE), (count.value if count else _COUNT)
    if place is None or not is_number(elements) or not is_number(buffers):
        return
    taken = _WIDTH * elements * buffers * node.processes
    if taken <= _SHARE * node.memory:
        return
    yield Finding(
        f"NVMe buffers take {taken / GIB:.0f} GiB of {node.memory / GIB:.0f} of a node's RAM",
        (place.label("allocated, and pinned, by each process"), *also(device.place)),
        ("pinned memory cannot be swapped out",),
        "write a buffer_size that holds the largest shard, and no more",
        sum=(
            Term("elements of a buffer", elements, "elements"),
            Term("buffers", buffers, ""),
            Term("processes of a node", node.processes, "processes"),
            Term("bytes of an element", _WIDTH, "bytes"),
        ),
        severity=None if taken > node.memory else "warning",
    )


RULE = Rule(
    name="nvme-buffers-fill-memory",
    severity="error",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/swap_tensor/partitioned_param_swapper.py "
            "`_configure_aio`: torch.empty(buffer_size * buffer_count), pinned"
        ),
        (
            "zoedolan/Vybn#2294: 4 buffers of 1e9 elements killed the process; "
            "deepspeedai/DeepSpeed#3000"
        ),
    ),
    check=_check,
)
