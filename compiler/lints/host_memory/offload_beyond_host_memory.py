"""What is offloaded does not fit the RAM of a node."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.host_memory.node import GIB, Node, node_of, parameters, trains_all
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_BLOCK: Final = "zero_optimization.offload_optimizer"
_BUFFERS: Final = 1.5
_OPTIMIZER: Final = 16
_BOTH: Final = 18
"""Bytes a parameter: fp32 master, gradient and Adam's two moments; and the 16-bit parameter."""
_TOLD_FROM: Final = 64 * GIB
_SHARE: Final = 0.25
"""Where the RAM is unknown, an offload of less is not spoken of; nor of less than this share of
what a machine with such devices usually has, where only they are named."""


def _check(run: Run) -> Iterator[Finding]:
    optimizer = run.effective("deepspeed", f"{_BLOCK}.device")
    param = run.effective("deepspeed", "zero_optimization.offload_param.device")
    stage, count = stage_of(run).value, parameters(run)
    if optimizer.value != "cpu" or optimizer.place is None or not count or not trains_all(run):
        return
    if run.said("deepspeed", f"{_BLOCK}.ratio"):
        return
    width = _BOTH if param.value == "cpu" and stage == 3 else _OPTIMIZER
    node = node_of(run)
    nodes = node.nodes if node is not None else 1
    least, likely = width * count / nodes, _BUFFERS * width * count / nodes
    is_assumed = node is not None and node.granted is None and run.environment.is_host_assumed
    if node is not None and likely > node.memory:
        is_sure = least > node.memory and not is_assumed
        yield _finding(run, optimizer, width, likely, node, nodes, is_sure=is_sure)
    elif (node is None or is_assumed) and likely >= max(_TOLD_FROM, _least_share(node)):
        yield _finding(run, optimizer, width, likely, None, nodes)


def _least_share(node: Node | None) -> float:
    """Bytes from which on an offload is large beside what a machine usually has."""
    return _SHARE * node.memory if node is not None else 0


def _finding(
    run: Run,
    device: Effective,
    width: int,
    taken: float,
    node: Node | None,
    nodes: int,
    *,
    is_sure: bool = False,
) -> Finding:
    """Of a node whose RAM is told, or is usual; None: nobody tells it, and it may be enough."""
    name = run.model.path if run.model is not None else ""
    granted = node.granted if node is not None else None
    have = f" of {node.memory / GIB:.0f}" if node is not None else ""
    needs = f"offload of {name} takes {taken / GIB:.0f} GiB{have} of a node's RAM"
    pinned = run.effective("deepspeed", f"{_BLOCK}.pin_memory").value is True
    return Finding(
        needs if node is not None else f"whether a node has {taken / GIB:.0f} GiB for {name}",
        (
            *([device.place.label("kept in RAM")] if device.place is not None else []),
            *also(granted, "asked of Slurm"),
            *also(run.place(run.observed("adapter.kind")), "the whole model is trained"),
        ),
        (
            f"{width} bytes a parameter: fp32 copy, gradient and two moments"
            + (", and the parameter itself" if width == _BOTH else ""),
            f"DeepSpeed's own estimate adds {_BUFFERS - 1:.0%} for buffers",
            *(("pinned memory that is not there is told as CUDA out of memory",) * pinned),
            *_around(run, granted),
        ),
        "offload to NVMe, spread over more nodes, or train an adapter",
        sum=(
            Term("parameters", parameters(run), "parameters"),
            Term("bytes of a parameter", width, "bytes"),
            Term("factor for buffers", _BUFFERS, ""),
            Term("nodes", nodes, "nodes"),
        ),
        certain=node is not None,
        severity=None if is_sure else "warning",
    )


def _around(run: Run, granted: Place | None) -> tuple[str, ...]:
    """What the RAM is taken to be, where only devices are named."""
    cluster = run.environment.cluster
    if cluster is None or granted is not None or not run.environment.is_host_assumed:
        return ()
    memory = min(each.host.memory for each in cluster.nodes) / GIB
    return (f"{cluster.name} names devices alone, which usually stand beside {memory:.0f} GiB",)


RULE = Rule(
    name="offload-beyond-host-memory",
    severity="error",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py "
            "`estimate_zero3_model_states_mem_needs`, stage_1_and_2.py "
            "`estimate_zero2_model_states_mem_needs`: 18 or 16 bytes a parameter, "
            "additional_buffer_factor 1.5"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 accelerator/cuda_accelerator.py `pin_memory`: "
            "deepspeedai/DeepSpeedExamples#752; huggingface/transformers#24658"
        ),
        "hiyouga/LlamaFactory#4629, #2931; deepspeedai/DeepSpeed#4239, #4571",
    ),
    check=_check,
)
