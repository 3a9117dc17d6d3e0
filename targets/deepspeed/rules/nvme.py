"""Rules about offload to NVMe: its buffers and its space."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import also
from tunec.compiler.lints.facts.sharding import stage_of, zero_keys
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.deepspeed.host import GIB, node_of, parameters, trains_all

_BUFFER_SIZE: Final = "zero_optimization.offload_param.buffer_size"
_DEVICE: Final = "zero_optimization.offload_param.device"


@rule("error", "step", consumers=("deepspeed",), reads=zero_keys("offload_param.device"))
def nvme_buffer_below_parameter(run: LintContext) -> Iterator[Finding]:
    """A parameter may not fit into the buffers for NVMe offload."""
    device, size, stage = (
        run.effective("deepspeed", key) for key in (_DEVICE, _BUFFER_SIZE, _STAGE)
    )
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
"""The default of `buffer_size` in elements: deepspeed 0.14.5 to 0.19.8
runtime/zero/offload_config.py."""


def _elements(module: Any) -> int:
    return int(module.parameters // max(module.copies, 1)) - int(module.bias)


_SHARE: Final = 0.5
_FILL_BLOCK: Final = "zero_optimization.offload_param"
_COUNT: Final = 5
_FILL_SIZE: Final = 100_000_000
_WIDTH: Final = 2
"""Bytes of an element, which has 16 bits. The numbers above are the defaults of deepspeed 0.14.5 to
0.19.8 runtime/zero/offload_config.py."""


@rule(
    "error",
    "out-of-memory",
    consumers=("deepspeed",),
    reads=zero_keys("offload_param.buffer_size", "offload_param.buffer_count"),
    hardware=True,
)
def nvme_buffers_fill_memory(run: LintContext) -> Iterator[Finding]:
    """Buffers for NVMe offload take a large share of the RAM."""
    device = run.effective("deepspeed", f"{_FILL_BLOCK}.device")
    if device.value != "nvme" or stage_of(run).value != 3:
        return
    node = node_of(run)
    if node is None:
        return
    size, count = (
        run.said("deepspeed", f"{_FILL_BLOCK}.buffer_size"),
        run.said("deepspeed", f"{_FILL_BLOCK}.buffer_count"),
    )
    place = size or count
    elements, buffers = (size.value if size else _FILL_SIZE), (count.value if count else _COUNT)
    if place is None or not is_number(elements) or not is_number(buffers):
        return
    taken = _WIDTH * elements * buffers * node.processes
    if taken <= _SHARE * node.memory:
        return
    yield Finding(
        f"NVMe buffers take {taken / GIB:.0f} GiB of a node's {node.memory / GIB:.0f} GiB of RAM",
        (place.label("allocated, and pinned, by each process"), *also(device.place)),
        ("pinned memory cannot be swapped out",),
        "make buffer_size just large enough for the largest shard",
        sum=(
            Term("elements of a buffer", elements, "elements"),
            Term("buffers", buffers, ""),
            Term("processes of a node", node.processes, "processes"),
            Term("bytes of an element", _WIDTH, "bytes"),
        ),
        severity=None if taken > node.memory else "warning",
    )


_OPTIMIZER_BLOCK: Final = "zero_optimization.offload_optimizer"
_STATES: Final = 4
"""Parameter, gradient, momentum and variance. Adagrad and Lion have one state less."""
_ONE_LESS: Final = ("adagrad", "lion")
_WHY: Final = (
    "a shard is read with its gradient and its states at once, each into a buffer of its own: "
    "`assert pinned_buffers is not None`"
)


@rule("error", "step", consumers=("deepspeed",), reads=zero_keys("offload_optimizer.buffer_count"))
def nvme_optimizer_buffers_too_few(run: LintContext) -> Iterator[Finding]:
    """NVMe offload has fewer buffers than the optimizer has states."""
    device = run.effective("deepspeed", f"{_OPTIMIZER_BLOCK}.device")
    if device.value != "nvme" or stage_of(run).value != 3:
        return
    kind = run.said("deepspeed", "optimizer.type")
    is_less = kind is not None and str(kind.value).lower() in _ONE_LESS
    needed = _STATES - is_less
    for count in run.each("deepspeed", f"{_OPTIMIZER_BLOCK}.buffer_count"):
        if type(count.value) is int and 0 <= count.value < needed:
            yield Finding(
                f"{count.value} buffers cannot hold the {needed} tensors of each parameter on NVMe",
                (count.label("runs out"), *also(kind or device.place)),
                (_WHY,),
                f"write buffer_count: {needed}",
                Fix((count.replaced(needed),), "safe"),
            )


_BLOCKS: Final = ("offload_optimizer", "offload_param")


@rule(
    "note",
    "silent",
    consumers=("deepspeed",),
    reads=("deepspeed:aio", *zero_keys(*(f"{name}.nvme_path" for name in _BLOCKS))),
)
def nvme_settings_unused(run: LintContext) -> Iterator[Finding]:
    """NVMe is configured, but nothing is offloaded to it."""
    devices = [run.effective("deepspeed", f"zero_optimization.{name}.device") for name in _BLOCKS]
    if not run.of("deepspeed") or any(each.value == "nvme" for each in devices):
        return
    for document in run.of("deepspeed"):
        said = [document.get(f"zero_optimization.{name}.nvme_path") for name in _BLOCKS]
        said = [each for each in said if each is not None and each.value not in (None, "none")]
        aio = document.get("aio")
        places = [*said, *([aio] if aio is not None and aio.node.fields else [])]
        for place in (each for each in places if each is not None):
            yield Finding(
                f"{place.path.rpartition('.')[2]} is not used: nothing is offloaded to NVMe",
                (place.key_label("not used"),),
                (),
                "write device: nvme, or remove it",
                Fix((place.removed(),), "safe") if not document.is_view else None,
            )


_OPTIMIZER: Final = 16
"""Bytes per parameter: fp32 copy, its gradient and Adam's two moments."""
_PARAM: Final = 2


@rule(
    "error",
    "out-of-memory",
    consumers=("deepspeed",),
    reads=zero_keys(*(f"{name}.device" for name in _BLOCKS)),
    hardware=True,
)
def offload_beyond_nvme(run: LintContext) -> Iterator[Finding]:
    """The offloaded data does not fit the NVMe of a node."""
    blocks = {
        name: run.effective("deepspeed", f"zero_optimization.{name}.device") for name in _BLOCKS
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
        f"offload takes {taken / GIB:.0f} GiB of a node's {node.nvme / GIB:.0f} GiB of NVMe",
        (away[0].place.label("kept on NVMe"),),
        (),
        "spread over more nodes",
        sum=(
            Term("parameters", count, "parameters"),
            Term("bytes of a parameter", width, "bytes"),
            Term("nodes", node.nodes, "nodes"),
        ),
    )
