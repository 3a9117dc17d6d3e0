"""Rules about offload of the optimizer and of parameters."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import also
from tunec.compiler.lints.facts.sharding import OFFLOADS_OPTIMIZER, stage_of, zero_keys
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

_PARAM_BLOCK: Final = "zero_optimization.offload_param"


@rule("warning", "silent", consumers=("deepspeed",), reads=zero_keys("offload_param.device"))
def offload_param_ignored(run: LintContext) -> Iterator[Finding]:
    """Parameters are to be offloaded, but the ZeRO stage does not shard them."""
    device, stage = run.effective("deepspeed", f"{_PARAM_BLOCK}.device"), stage_of(run)
    if device.value not in ("cpu", "nvme") or device.place is None or stage.value not in (0, 1, 2):
        return
    block = run.said("deepspeed", _PARAM_BLOCK)
    is_own = block is not None and not device.place.document.is_view and block.node.fields
    fix = Fix((block.removed(),), "safe") if is_own and block else None
    yield Finding(
        f"offload_param to {device.value} does nothing at ZeRO stage {stage.value}",
        (device.place.label("parameters stay on the device"), *also(stage.place)),
        ("only stage 3 shards parameters, and only shards are offloaded",),
        "use stage 3, or remove offload_param",
        fix,
    )


_PAGEABLE: Final = Row(
    "deepspeed:zero_optimization.offload_optimizer.pin_memory=false",
    "offload_optimizer copies to {1.value} from memory that is not pinned",
    label="pageable",
    why=(
        "a copy from pageable memory goes through a staging buffer, and blocks",
        "pinned memory cannot be swapped out: it needs the RAM, and ulimit -l",
    ),
    help="write pin_memory: true if the host has enough memory",
    mend=Mend("unsafe", write=True),
    effective=("deepspeed:zero_optimization.offload_optimizer.device=cpu|nvme",),
)

offload_without_pinned_memory = rows(
    "offload-without-pinned-memory",
    "note",
    "slow",
    consumers=("deepspeed",),
    rows=(
        _PAGEABLE,
        replace(
            _PAGEABLE,
            when="deepspeed:zero_optimization.offload_param.pin_memory=false",
            message="offload_param copies to {1.value} from memory that is not pinned",
            effective=("deepspeed:zero_optimization.offload_param.device=cpu|nvme",),
        ),
    ),
)


offload_without_zero = rows(
    "offload-without-zero",
    "error",
    "step",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization.offload_optimizer.device=cpu|nvme",
            "offload_optimizer to {0.value} at stage 0: CPU Adam gets parameters on the device",
            label="not offloaded",
            why="DeepSpeed builds its CPU optimizer for the key, and only ZeRO moves the states",
            help="use stage 1 or higher, or remove offload_optimizer",
            beside=("deepspeed:zero_optimization.stage=0",),
            by_effective=True,
        ),
    ),
)


_OPTIMIZER_BLOCK: Final = "zero_optimization.offload_optimizer"


@rule("error", "init", consumers=("deepspeed",), reads=OFFLOADS_OPTIMIZER)
def offloaded_optimizer_of_the_client(run: LintContext) -> Iterator[Finding]:
    """The optimizer is offloaded, but neither DeepSpeed's file nor accelerate builds a CPU one."""
    device = run.effective("deepspeed", f"{_OPTIMIZER_BLOCK}.device")
    force = run.effective("deepspeed", "zero_force_ds_cpu_optimizer")
    if device.value not in ("cpu", "nvme") or device.place is None or force.value is False:
        return
    is_older = device.place.path.endswith("cpu_offload")  # accelerate exchanges for the newer name
    if run.said("deepspeed", "optimizer") is not None:
        return
    if run.of("trainer", "simpletuner") and not is_older:
        return
    yield Finding(
        f"offload_optimizer to {device.value} with an optimizer that the file does not build",
        (device.place.label("needs DeepSpeed's CPU Adam"),),
        (
            "DeepSpeed refuses a client's optimizer unless zero_force_ds_cpu_optimizer is false",
            "a script that prepares it with accelerate 0.30 or newer gets DeepSpeed's instead",
        ),
        "add an optimizer of type AdamW, or zero_force_ds_cpu_optimizer: false at the top",
        certain=run.deepspeed_reader == "plain" or bool(run.of("trainer")),
    )


@rule("error", "init", consumers=("deepspeed",), reads=zero_keys("offload_optimizer.ratio"))
def partial_offload_below_stage_3(run: LintContext) -> Iterator[Finding]:
    """A share of the optimizer is to be offloaded, but the ZeRO stage offloads all or nothing."""
    ratio, stage = run.effective("deepspeed", f"{_OPTIMIZER_BLOCK}.ratio"), stage_of(run)
    if ratio.place is None or not isinstance(ratio.value, int | float) or ratio.value >= 1:
        return
    if stage.value in (0, 1, 2):
        yield Finding(
            f"offload_optimizer.ratio {ratio.value} needs stage 3, and the stage is {stage.value}",
            (ratio.place.label("refused"), *also(stage.place)),
            (),
            "use stage 3, or remove ratio",
            # 0.14 looks for the block among the names of a dict's own attributes
            consequence="silent" if run.runs("deepspeed<0.15") else None,
        )


_WHY: Final = (
    "every state is read from NVMe into RAM, and what should be updated on the device is updated "
    "by torch's AdamW on the host"
)


@rule("error", "silent", consumers=("deepspeed",), reads=zero_keys("offload_optimizer.ratio"))
def partial_offload_to_nvme(run: LintContext) -> Iterator[Finding]:
    """A share of the optimizer is to stay on the device, but its states are on NVMe."""
    ratio, device = (
        run.effective("deepspeed", f"{_OPTIMIZER_BLOCK}.{key}") for key in ("ratio", "device")
    )
    if ratio.place is None or not is_number(ratio.value) or not 0 <= ratio.value < 1:
        return
    if stage_of(run).value != 3 or device.value != "nvme":
        return
    is_refused = run.runs("deepspeed<0.13") is True
    yield Finding(
        f"offload_optimizer.ratio {ratio.value} is for device cpu, and does not divide nvme",
        (ratio.place.label("divides what is offloaded to cpu"), *also(device.place)),
        (_WHY,),
        "write device: cpu, or remove ratio",
        # FusedAdam, which stood there before, takes no tensor of the host
        consequence="init" if is_refused else None,
        severity=None if is_refused else "warning",
    )


nvme_offload_below_stage_3 = rows(
    "nvme-offload-below-stage-3",
    "warning",
    "silent",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:zero_optimization.offload_optimizer.device=nvme",
            "offload_optimizer to nvme at stage {1.value} keeps the states in CPU memory",
            label="not NVMe",
            why="stages 1 and 2 can offload to the CPU only",
            help="use stage 3, or write cpu and plan for the host memory",
            effective=("deepspeed:zero_optimization.stage=1|2",),
            by_effective=True,
        ),
    ),
)


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=zero_keys("offload_optimizer.device", "offload_param.device"),
)
def nvme_path_missing(run: LintContext) -> Iterator[Finding]:
    """Something is offloaded to NVMe, but no path is given."""
    for block in ("offload_optimizer", "offload_param"):
        device = run.effective("deepspeed", f"zero_optimization.{block}.device")
        path = run.effective("deepspeed", f"zero_optimization.{block}.nvme_path")
        if device.value == "nvme" and device.place is not None and path.value in (None, "", "none"):
            yield Finding(
                f"{block} is set to nvme, and nvme_path is not given",
                (device.place.label("no nvme_path beside it"),),
                (),
                "write nvme_path, a directory on the local NVMe of each node",
            )
