"""Rules about the optimizers that can be offloaded."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import stage_of, zero_keys
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.rules.optimizer import is_of_nobody

_BLOCK: Final = "zero_optimization.offload_optimizer"
_KEYS: Final = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads")


@rule("error", "init", consumers=("deepspeed",), reads=keys("deepspeed", *_KEYS))
def low_precision_master_without_offload(run: LintContext) -> Iterator[Finding]:
    """16-bit master weights need an optimizer on the CPU, but it is not offloaded."""
    stage = stage_of(run)
    device = run.effective("deepspeed", f"{_BLOCK}.device")
    if device.value in ("cpu", "nvme") or run.said("deepspeed", "zero_optimization.cpu_offload"):
        return
    states = run.said("deepspeed", "bf16.bf16_optimizer_states")
    for key in _KEYS:
        for place in run.each("deepspeed", key):
            if place.value is not True or stage.value not in (1, 2, 3):
                continue
            if key.startswith("bf16") and states is not None and states.value is True:
                continue
            yield Finding(
                f"{key.rpartition('.')[2]} needs the optimizer offloaded to the CPU",
                (place.label("refused"), *also(stage.place), *also(device.place)),
                ("only DeepSpeedCPUAdam updates 16-bit master weights",),
                'add "offload_optimizer": {"device": "cpu"}, or remove the key',
            )


_OTHERS: Final = (
    *("adafactor", "adalomo", "adamw_8bit", "adamw_anyprecision", "adamw_bnb_8bit"),
    *("adamw_torch_4bit", "adamw_torch_8bit", "adamw_torch_npu_fused", "ademamix"),
    *("ademamix_8bit", "apollo_adamw", "apollo_adamw_layerwise", "galore_adafactor"),
    *("galore_adafactor_layerwise", "galore_adamw", "galore_adamw_8bit"),
    *("galore_adamw_8bit_layerwise", "galore_adamw_layerwise", "grokadamw", "lion_8bit", "lomo"),
    *("paged_adamw_32bit", "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit"),
    *("paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_32bit"),
    *("rmsprop_bnb_8bit", "schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd"),
    *("sgd", "stable_adamw"),
)
"""transformers 4.40.2 to 5.23.0 training_args.py `OptimizerNames`, without those that become
DeepSpeed's CPU Adam with decoupled weight decay (`adamw_torch` and similar), and without those
whose algorithm DeepSpeed has too (accelerate 1.10.1 to 1.15.0: `lion_32bit`, `adagrad`). Any other
word is a script's own optimizer, or refused."""
_KEEP: Final = "write zero_force_ds_cpu_optimizer: false in the DeepSpeed file"
_EXCHANGED: Final = Row(
    f"trainer:optim={'|'.join(_OTHERS)}",
    "optim {0.value} is replaced by DeepSpeed's CPU Adam, because it is offloaded",
    label="not used",
    why=(
        "only its learning rate and weight decay are kept",
        "states on the host are fp32: 12 bytes per trained parameter with the fp32 copy",
    ),
    help=f"write optim: adamw_torch, or {_KEEP}",
    beside=("no deepspeed:optimizer",),
    effective=(
        f"deepspeed:{_BLOCK}.device=cpu|nvme",
        "(deepspeed:zero_force_ds_cpu_optimizer!=false)",
    ),
    beside_label="offloaded",
)
optimizer_exchanged_on_offload = rows(
    "optimizer-exchanged-on-offload",
    "warning",
    "silent",
    consumers=("accelerate",),
    rows=(
        _EXCHANGED,
        replace(
            _EXCHANGED,
            when="diffusers:use_8bit_adam=true",
            message="{0.key} is replaced by DeepSpeed's CPU Adam, because it is offloaded",
            help=f"remove it, or {_KEEP}",
        ),
    ),
)


_ON_GPU: Final = ("lamb", "fusedlamb", "onebitadam", "zerooneadam", "onebitlamb")


@rule("error", "step", consumers=("deepspeed",), reads=("deepspeed:optimizer.type",))
def optimizer_not_for_offload(run: LintContext) -> Iterator[Finding]:
    """The optimizer is offloaded, but its kernels only run on the GPU."""
    kind = run.said("deepspeed", "optimizer.type")
    device = run.effective("deepspeed", f"{_BLOCK}.device")
    if kind is None or device.value not in ("cpu", "nvme") or device.place is None:
        return
    if is_of_nobody(run, kind):
        return
    stage = stage_of(run)
    torch_adam = run.said("deepspeed", "optimizer.params.torch_adam")
    if torch_adam is not None and torch_adam.value is True and stage.value in (1, 2, 3):
        yield Finding(
            f"torch_adam updates what is offloaded to {device.value} with torch's own Adam",
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
        f"{kind.value} cannot run where offload_optimizer puts it: {device.value}",
        (kind.label("has GPU kernels only"), device.place.label("", primary=False)),
        ("DeepSpeed has CPU versions of Adam, AdamW, Adagrad and Lion",),
        "write AdamW, or do not offload",
    )


_WHY: Final[dict[str, tuple[Consequence, str]]] = {
    "none": ("init", "its optimizer needs the device of each group, which only the offload sets"),
    "nvme": ("step", "it writes gradients beside the parameters, which are on NVMe, not in RAM"),
}


@rule(
    "error",
    "step",
    consumers=("deepspeed>=0.18",),
    reads=zero_keys("offload_optimizer.super_offload"),
)
def super_offload_not_on_cpu(run: LintContext) -> Iterator[Finding]:
    """SuperOffload is on, but the optimizer is not in RAM."""
    if stage_of(run).value != 3:
        return
    device = run.said("deepspeed", f"{_BLOCK}.device")
    found = _WHY.get("none" if device is None or device.value is None else str(device.value))
    for each in run.each("deepspeed", f"{_BLOCK}.super_offload"):
        if each.value is True and found is not None:
            consequence, why = found
            yield Finding(
                f"super_offload works with device cpu, not {device.value if device else 'none'}",
                (each.label("needs its states in RAM"), *also(device)),
                (why,),
                "write device: cpu, or remove super_offload",
                consequence=consequence,
            )


_ZERO: Final = "zero_optimization"
_ZENFLOW_BLOCK: Final = f"{_ZERO}.zenflow"
_SHARDED: Final = (1, 2, 3)


@rule("error", "init", consumers=("deepspeed>=0.17.6",), reads=zero_keys("zenflow"))
def zenflow_refused(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed refuses settings of ZenFlow when it builds its engine."""
    for block in run.each("deepspeed", _ZENFLOW_BLOCK):
        if isinstance(block.value, dict) and stage_of(run).value in _SHARDED:
            yield from _without_offload(run, block)
            yield from _intervals(block)
            yield from _states_without_overlap(run, block)


def _without_offload(run: LintContext, block: Place) -> Iterator[Finding]:
    device = run.said("deepspeed", f"{_ZERO}.offload_optimizer.device")
    if run.said("deepspeed", f"{_ZERO}.cpu_offload") is not None:
        return
    if device is not None and device.value not in ("none", None):
        return
    yield Finding(
        "ZenFlow needs an optimizer on the host",
        (block.key_label("refused"), *also(device)),
        ("Zenflow must be used with cpu offload",),
        "write offload_optimizer: {device: cpu}, or remove zenflow",
    )


def _intervals(block: Place) -> Iterator[Finding]:
    """`select_interval` does not agree with the strategy or with `update_interval`."""
    choice, every, update = (
        block.document.get(f"{block.path}.{name}")
        for name in ("select_strategy", "select_interval", "update_interval")
    )
    strategy = "auto" if choice is None else choice.value
    is_counted = every is not None and type(every.value) is int
    if strategy == "auto" and every is not None and is_counted:
        yield _odd(every, choice, "select_interval is a number, and the strategy is auto", "step")
    elif choice is not None and strategy in ("step", "epoch") and not is_counted:
        where = every or choice
        yield _odd(where, choice, f"strategy {strategy} without a number for select_interval", "")
    elif strategy == "step" and every is not None and update is not None:
        yield from _shorter(every, update)


def _odd(at: Place, beside: Place | None, message: str, wanted: str) -> Finding:
    return Finding(
        message,
        (at.label("refused"), *(also(beside) if beside != at else ())),
        (),
        f"write select_strategy: {wanted}, or select_interval: auto"
        if wanted
        else "write select_interval as a number of steps or epochs",
    )


def _shorter(every: Place, update: Place) -> Iterator[Finding]:
    if not is_number(every.value) or not is_number(update.value):
        return
    if 0 < every.value < update.value:
        yield Finding(
            f"ZenFlow selects every {every.value} steps and updates every {update.value}",
            (every.label("refused"), *also(update)),
            ("Select interval must be greater or equal to update interval",),
            f"write select_interval: {update.value}, or more",
        )


def _states_without_overlap(run: LintContext, block: Place) -> Iterator[Finding]:
    at = block.document.get(f"{block.path}.offload")
    overlap = run.effective("deepspeed", f"{_ZERO}.overlap_comm")
    default = stage_of(run).value == 3
    is_on = default if overlap.value is None else overlap.value
    if at is None or at.value is not True or is_on is not False:
        return
    yield Finding(
        "zenflow.offload needs overlap_comm",
        (at.label("refused"), *also(overlap.place)),
        ("offload selective optimizer should be used with overlap_comm",),
        "write overlap_comm: true, or offload: false",
    )
