"""Rules about what must fit into the host's memory."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.sharding import OFFLOADS_OPTIMIZER, STAGE, stage_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.deepspeed.host import GIB, Node, node_of, parameters, processes_of, trains_all

_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp16": 2, "fp32": 4}
_HEEDED: Final = "accelerate<1.0"
"""Releases that only inform transformers of stage 3 if `zero3_init_flag` is true."""


@rule(
    "warning",
    "out-of-memory",
    consumers=("transformers", "deepspeed"),
    reads=("accelerate:deepspeed_config.zero3_init_flag", *STAGE),
    hardware=True,
)
def every_process_loads_the_model(run: LintContext) -> Iterator[Finding]:
    """Each process of a node loads the whole model into its RAM."""
    processes, place = processes_of(run), _why(run)
    if processes is None or place is None or processes < 2:
        return
    count = parameters(run)
    width = _BYTES.get(str(run.model.stored_dtype), 2) if run.model is not None else 2
    taken = width * count * processes
    is_ample = run.environment.has_memory(taken) and not run.of("slurm")
    node = None if is_ample else node_of(run)
    if not count or node is None or taken <= node.memory:
        return
    yield Finding(
        f"{node.processes} processes load {taken / GIB:.0f} GiB into a node's "
        f"{node.memory / GIB:.0f} GiB of RAM",
        (place.label("each builds the whole model"),),
        ("weights are built on the CPU, and moved to the device when all are there",),
        "use stage 3, with zero3_init_flag: true, or FSDP with cpu_ram_efficient_loading",
        sum=(
            Term("parameters", count, "parameters"),
            Term("bytes of a parameter", width, "bytes"),
            Term("processes of a node", node.processes, "processes"),
        ),
    )


def _why(run: LintContext) -> Place | None:
    """The key that makes every process load the whole model; None if there is none or no answer."""
    if run.value("quantization.format", "none") != "none":
        return None
    flag = run.said("accelerate", "deepspeed_config.zero3_init_flag")
    stage = stage_of(run)
    if stage.value == 3:
        is_off = flag is not None and flag.value is False and run.runs(_HEEDED) is True
        return flag if is_off else None
    if stage.value in (0, 1, 2):
        return stage.place
    return None


_BLOCK: Final = "zero_optimization.offload_optimizer"
_BUFFERS: Final = 1.5
_OPTIMIZER: Final = 16
_BOTH: Final = 18
"""Bytes per parameter: fp32 master, gradient and Adam's two moments; and the 16-bit parameter."""
_TOLD_FROM: Final = 64 * GIB
_SHARE: Final = 0.25
"""An offload below these bounds is not reported: a number of bytes if the RAM is unknown, and a
share of the usual RAM of a machine with such devices if only the devices are named."""


@rule("error", "out-of-memory", consumers=("deepspeed",), reads=OFFLOADS_OPTIMIZER, hardware=True)
def offload_beyond_host_memory(run: LintContext) -> Iterator[Finding]:
    """The offloaded data does not fit the RAM of a node."""
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
        yield _beyond_ram(run, optimizer, width, likely, node, nodes, is_sure=is_sure)
    elif (node is None or is_assumed) and likely >= max(_TOLD_FROM, _least_share(node)):
        yield _beyond_ram(run, optimizer, width, likely, None, nodes)


def _least_share(node: Node | None) -> float:
    """The number of bytes from which an offload is large for a node's assumed RAM."""
    return _SHARE * node.memory if node is not None else 0


def _beyond_ram(
    run: LintContext,
    device: Effective,
    width: int,
    taken: float,
    node: Node | None,
    nodes: int,
    *,
    is_sure: bool = False,
) -> Finding:
    """The finding for a node with known or usual RAM; without a node, the RAM may be enough."""
    name = run.model.path if run.model is not None else ""
    granted = node.granted if node is not None else None
    have = f", and a node has {node.memory / GIB:.0f}" if node is not None else ""
    needs = f"offload of {name} takes {taken / GIB:.0f} GiB of RAM{have}"
    pinned = run.effective("deepspeed", f"{_BLOCK}.pin_memory").value is True
    return Finding(
        needs if node is not None else f"whether a node has {taken / GIB:.0f} GiB for {name}",
        (
            *([device.place.label("kept in RAM")] if device.place is not None else []),
            *also(granted, "asked of Slurm"),
            *also(run.place(run.observed("adapter.kind")), "the whole model is trained"),
        ),
        (
            f"{width} bytes per parameter: fp32 copy, gradient and two moments"
            + (", and the parameter itself" if width == _BOTH else ""),
            f"DeepSpeed's own estimate adds {_BUFFERS - 1:.0%} for buffers",
            *(("running out of pinned memory is reported as CUDA out of memory",) * pinned),
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


def _around(run: LintContext, granted: Place | None) -> tuple[str, ...]:
    """A note on the assumed RAM, if the hardware names only devices."""
    cluster = run.environment.cluster
    if cluster is None or granted is not None or not run.environment.is_host_assumed:
        return ()
    memory = min(each.host.memory for each in cluster.nodes) / GIB
    return (f"{cluster.name} names only devices, which usually come with {memory:.0f} GiB",)
