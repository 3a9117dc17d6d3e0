"""What is offloaded does not fit the NVMe of a node."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.host_memory.node import GIB, node_of, parameters, trains_all
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_OPTIMIZER: Final = 16
"""Bytes a parameter: fp32 copy, its gradient and Adam's two moments."""
_PARAM: Final = 2


def _check(run: Run) -> Iterator[Finding]:
    blocks = {
        name: run.effective("deepspeed", f"zero_optimization.{name}.device")
        for name in ("offload_optimizer", "offload_param")
    }
    away = [each for each in blocks.values() if each.value == "nvme" and each.place is not None]
    if not away or stage_of(run).value != 3:
        return
    node, count = node_of(run), parameters(run)
    if node is None or node.nvme is None or not count:
        return
    width = _PARAM if blocks["offload_param"].value == "nvme" else 0
    if blocks["offload_optimizer"].value == "nvme" and trains_all(run):
        width += _OPTIMIZER
    taken = width * count / node.nodes
    if taken <= node.nvme or away[0].place is None:
        return
    yield Finding(
        f"offload takes {taken / GIB:.0f} GiB of {node.nvme / GIB:.0f} of a node's NVMe",
        (away[0].place.label("kept on NVMe"),),
        (),
        "spread over more nodes",
        sum=(
            Term("parameters", count, "parameters"),
            Term("bytes of a parameter", width, "bytes"),
            Term("nodes", node.nodes, "nodes"),
        ),
    )


RULE = Rule(
    name="offload-beyond-nvme",
    severity="error",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/swap_tensor/partitioned_optimizer_swapper.py: one "
            "file for each state of each sub group; optimizer_utils.py `_swap_out_gradients`: and "
            "for its gradient"
        ),
    ),
    check=_check,
)
