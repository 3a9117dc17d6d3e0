"""Compares what ranks read from the running engine with the plan, slot by slot."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.ir.plan import Plan
from tunec.schemas.terms import FloatDtype

Status = Literal["same", "differs", "not rehearsed"]
Told = Mapping[str, Any]
"""The report of one rank, as `read` in `live/engine_report.py` returns it."""

_WORDS: Final[Mapping[str, str]] = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "int8": "uint8",
}
_TOLERANCE: Final = 1e-9

_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "adamw": ("AdamW", "FusedAdam", "DeepSpeedCPUAdam"),
    "adafactor": ("Adafactor",),
    "sgd": ("SGD",),
    "lion": ("Lion", "FusedLion", "DeepSpeedCPULion"),
}
"""Optimizer classes by algorithm: torch.optim; transformers 5.23 optimization.py `Adafactor`;
deepspeed 0.19.8 runtime/engine.py `_configure_basic_optimizer`; bitsandbytes.optim `Lion`."""

_ZERO: Final[Sequence[tuple[str, str, tuple[int, ...]]]] = (
    ("zero.overlap_comm", "overlap_comm", (1, 2, 3)),
    ("zero.contiguous_gradients", "contiguous_gradients", (1, 2, 3)),
    ("zero.reduce_scatter", "reduce_scatter", (1, 2)),
    ("zero.reduce_bucket", "reduce_bucket_size", (1, 2, 3)),
    ("zero.allgather_bucket", "allgather_bucket_size", (1, 2)),
    ("zero.prefetch_bucket", "prefetch_bucket_size", (3,)),
    ("zero.persistence_threshold", "param_persistence_threshold", (3,)),
    ("zero.max_live_parameters", "max_live_parameters", (3,)),
    ("zero.max_reuse_distance", "max_reuse_distance", (3,)),
    ("zero.sub_group_size", "sub_group_size", (3,)),
    ("zero.gather_on_save", "gather_16bit_weights_on_model_save", (3,)),
    ("zero.hpz_partition", "zero_hpz_partition_size", (3,)),
)
"""Slots in the engine's ZeRO configuration, and the stages in which they have an effect."""

_LORA: Final = (
    ("adapter.rank", "r"),
    ("adapter.alpha", "lora_alpha"),
    ("adapter.dropout", "lora_dropout"),
    ("adapter.bias", "bias"),
    ("adapter.rslora", "use_rslora"),
    ("adapter.dora", "use_dora"),
)

_ABSENT: Final[Mapping[str, str]] = {
    "model": "the model is shrunk, with random weights",
    "devices": "this machine's devices run it",
    "data": "the data are generated tokens",
    "launch": "the rehearsal's own script is started",
    "schedule": "it happens later in a run than a rehearsal reaches",
    "batch": "a rehearsal does not evaluate",
    "adapter": "the plan trains no adapter",
    "quantization": "the plan quantises nothing",
    "zero": "it has no effect in this plan",
    "fsdp": "it has no effect in this plan",
}
_ABSENT_SLOTS: Final[Mapping[str, str]] = {
    "launch.environment": "it is set for the ranks, and nothing reads it back",
    "launch.launcher": "it starts the ranks, which do not report it",
    "batch.global": "it follows from micro batch, accumulation and world size",
    "adapter.merge": "a script of yours merges, when training is done",
    "adapter.targets": "it is visible only in the number of trained parameters",
    "adapter.also_train": "it is visible only in the number of trained parameters",
    "adapter.frozen": "it is visible only in the number of trained parameters",
}
_SILENT: Final = "the running engine does not report it"


class Check(Struct, frozen=True):
    """The result for one slot; if the slot is empty, for the run itself."""

    slot: str
    key: str
    status: Status
    expected: Any = None
    found: Any = None
    """The value; if ranks disagree, a list with each rank's value."""
    reason: str = ""


class Expected(Struct, frozen=True):
    """A value that all ranks must report; `read` takes it from a rank's report."""

    slot: str
    key: str
    value: Any
    read: Callable[[Told], Any]


def compare(
    plan: Plan, told: Sequence[Told], ranks: int, trainable: int, hidden: Mapping[str, str]
) -> tuple[Check, ...]:
    """A check for each slot of the plan, and for the checkpoint and the loss.

    `told` holds one report for each rank that ran, of the `ranks` expected. `trainable` is the
    number of parameters that the plan trains in the shrunk model, and `hidden` are the slots that
    the rehearsal cannot show, with reasons.
    """
    wanted = list(_expected(plan, ranks, told[0], trainable))
    checks = [_check(each, told, hidden) for each in wanted]
    said = {each.slot for each in checks}
    silent = [slot for slot in plan.values() if slot not in said]
    return (*checks, *(_unsaid(slot, hidden) for slot in silent))


def _unsaid(slot: str, hidden: Mapping[str, str]) -> Check:
    known = _ABSENT_SLOTS.get(slot) or _ABSENT.get(slot.partition(".")[0], _SILENT)
    return Check(slot, "", "not rehearsed", reason=hidden.get(slot, known))


def _check(wanted: Expected, told: Sequence[Told], hidden: Mapping[str, str]) -> Check:
    if wanted.slot in hidden:
        return Check(wanted.slot, wanted.key, "not rehearsed", reason=hidden[wanted.slot])
    found = [wanted.read(each) for each in told]
    same = all(_equal(wanted.value, each) for each in found)
    united = all(each == found[0] for each in found)
    return Check(
        wanted.slot,
        wanted.key,
        "same" if same else "differs",
        wanted.value,
        found[0] if united else found,
    )


def _equal(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, tuple):
        return found in wanted
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(_equal, wanted, found))
    if isinstance(wanted, float) and isinstance(found, int | float):
        return abs(wanted - found) <= _TOLERANCE * max(1.0, abs(wanted))
    return bool(wanted == found)


# ── what is expected ─────────────────────────────────────────────────────────────────────────────


def _key(name: str) -> Callable[[Told], Any]:
    return lambda told: told[name]


def _within(group: str, name: str) -> Callable[[Told], Any]:
    return lambda told: (told[group] or {}).get(name)


def _expected(plan: Plan, ranks: int, told: Told, trainable: int) -> Iterator[Expected]:
    yield Expected("", "checkpoint loads again", "yes", _key("reloaded"))
    yield Expected("", "loss is finite", True, _key("losses_finite"))
    engine = plan.parallel.engine if ranks > 1 or plan.parallel.engine == "deepspeed" else "none"
    yield Expected("parallel.engine", "engine", engine, _key("engine"))
    yield Expected("parallel.world", "world size", ranks, _key("world_size"))
    yield Expected("parallel.data", "world size", ranks, _key("world_size"))
    yield from _batch(plan, ranks)
    yield from _schedule(plan, told)
    yield from _optimizer(plan, told)
    yield from _arithmetic(plan, told)
    yield from _model(plan, trainable)
    yield from _quantization(plan)
    yield from _objective(plan)
    if plan.parallel.engine == "deepspeed":
        yield from _zero(plan)


def _batch(plan: Plan, ranks: int) -> Iterator[Expected]:
    batch = plan.batch
    yield Expected("batch.micro", "samples of a micro batch", [batch.micro], _key("micro"))
    yield Expected(
        "batch.accumulation", "micro batches of a step", [batch.accumulation], _key("accumulation")
    )
    if plan.parallel.engine == "deepspeed":
        yield Expected(
            "batch.global",
            "train_batch_size",
            batch.micro * batch.accumulation * ranks,
            _within("zero", "global"),
        )


def _schedule(plan: Plan, told: Told) -> Iterator[Expected]:
    total = told["total_steps"]
    rates = [rate(plan, step, total) for step in range(len(told["rates"]))]
    yield Expected("optimizer.learning_rate", "rate of each step", rates, _key("rates"))
    warmup = "steps" if plan.schedule.warmup_share is None else "share"
    yield Expected(f"schedule.warmup_{warmup}", "rate of each step", rates, _key("rates"))
    later = [[step, rate(plan, int(step), total)] for step, _ in told["later_rates"]]
    if later:
        yield Expected("schedule.kind", "rate of later steps", later, _key("later_rates"))
    if plan.schedule.epochs is None:
        yield Expected(
            "schedule.steps", "steps of the run", plan.schedule.steps, _key("total_steps")
        )


def _optimizer(plan: Plan, told: Told) -> Iterator[Expected]:
    chosen, group = plan.optimizer, "hyperparameters"
    classes = _CLASSES.get(chosen.name)
    if classes is not None:
        yield Expected("optimizer.name", "class", classes, _key("optimizer"))
    if chosen.kernel in ("fused", "foreach"):
        yield Expected(
            "optimizer.kernel", "fused", chosen.kernel == "fused", _within(group, "fused")
        )
    read: Mapping[str, float] = told[group]
    for name in ("beta1", "beta2", "epsilon", "weight_decay"):
        if isinstance(read[name], float | int):
            value = float(getattr(chosen, name))
            yield Expected(f"optimizer.{name}", name, value, _within(group, name))
    yield Expected(
        "optimizer.max_grad_norm", "clipping", float(chosen.max_grad_norm), _key("clipping")
    )
    yield Expected("runtime.seed", "seed", plan.runtime.seed, _key("seed"))


def _arithmetic(plan: Plan, told: Told) -> Iterator[Expected]:
    states = plan.states
    pairs: list[tuple[str, str, str, str]] = [
        ("precision.compute", "dtype of matrix products", plan.precision.compute, "products"),
        ("states.trainable", "dtype of trained parameters", states.trainable, "trained_dtypes"),
    ]
    if told["gradient_dtypes"]:  # ZeRO 2 has moved them to the host where the optimizer is
        pairs.append(
            ("states.gradients", "dtype of gradients", states.gradients, "gradient_dtypes")
        )
    if told["frozen_dtypes"]:
        pairs.append(
            ("states.weights", "dtype of frozen parameters", states.weights, "frozen_dtypes")
        )
    else:
        pairs.append(("states.weights", "dtype of parameters", states.weights, "trained_dtypes"))
    if told["optimizer_dtypes"]:
        pairs.append(("states.optimizer", "dtype of moments", states.optimizer, "optimizer_dtypes"))
    beside = _companions(plan)
    for slot, key, dtype, name in pairs:
        both = {dtype, beside if slot in _OF_COMPANIONS and beside else dtype}
        yield Expected(slot, key, sorted(_WORDS[each] for each in both), _key(name))
    yield Expected(
        "states.master_weights",
        "master copies are updated",
        states.master_weights,
        _key("master_weights"),
    )
    yield Expected("states.autocast", "autocast is on", [states.autocast], _key("autocast"))


_OF_COMPANIONS: Final = frozenset({"states.trainable", "states.gradients", "states.optimizer"})


def _companions(plan: Plan) -> FloatDtype | None:
    """The dtype of modules that are trained beside adapters, which PEFT leaves as they are loaded.

    peft 0.21 tuners/tuners_utils.py `cast_adapter_dtype`; engines that shard make all alike.
    """
    is_beside = plan.adapter.kind == "lora" and bool(plan.adapter.also_train)
    is_alone = plan.parallel.engine in ("none", "ddp")
    return plan.states.weights if is_beside and is_alone else None


def _model(plan: Plan, trainable: int) -> Iterator[Expected]:
    recomputes = plan.activation_checkpointing.mode == "layer"
    kind = plan.adapter.kind
    yield Expected(
        "attention.implementation",
        "attn_implementation",
        plan.attention.implementation,
        _key("attention"),
    )
    yield Expected(
        "activation_checkpointing.mode",
        "layers are recomputed",
        recomputes,
        lambda told: told["recomputed"] > 0,
    )
    if recomputes:
        reentrant = plan.activation_checkpointing.reentrant
        yield Expected(
            "activation_checkpointing.reentrant", "use_reentrant", [reentrant], _key("reentrant")
        )
    yield Expected(
        "adapter.trainable_parameters", "parameters with gradients", trainable, _key("trained")
    )
    yield Expected("adapter.kind", "PEFT", kind, lambda told: "lora" if told["lora"] else "none")
    if kind == "lora":
        for slot, key in _LORA:
            yield Expected(slot, key, plan[slot], _within("lora", key))


def _quantization(plan: Plan) -> Iterator[Expected]:
    """How the base is stored; for eight bits only the format is checked."""
    form, group = plan.quantization, "quantised"
    if form.format == "none":
        return
    yield Expected(
        "quantization.format", "layers of the base", form.format, _within(group, "format")
    )
    if form.format in ("nf4", "fp4"):
        stored = "uint8" if form.storage is None else _WORDS[form.storage]
        yield Expected("quantization.double", "nested state", form.double, _within(group, "double"))
        yield Expected(
            "quantization.compute", "compute_dtype", _WORDS[form.compute], _within(group, "compute")
        )
        yield Expected("quantization.storage", "quant_storage", stored, _within(group, "storage"))


def _objective(plan: Plan) -> Iterator[Expected]:
    """The objective of the running trainer."""
    objective = plan.objective
    names = ["kind", "reference"]
    names += ["loss", "beta"] if objective.kind == "dpo" else []
    for name in names:
        yield Expected(
            f"objective.{name}", name, getattr(objective, name), _within("objective", name)
        )


def _zero(plan: Plan) -> Iterator[Expected]:
    stage = plan.zero.stage
    yield Expected("zero.stage", "stage", stage, _within("zero", "stage"))
    for name in ("offload_optimizer", "offload_param"):
        yield Expected(f"zero.{name}", name, getattr(plan.zero, name), _within("zero", name))
    for slot, key, stages in _ZERO:
        if stage in stages:
            yield Expected(slot, key, plan[slot], _within("zero", key))


def rate(plan: Plan, step: int, total: int) -> float:
    """The learning rate of optimizer step `step`, counted from 0, of a run of `total` steps.

    transformers 4.40.2 to 5.23.0 optimization.py: `get_constant_schedule`, `get_constant_
    schedule_with_warmup`, `get_linear_schedule_with_warmup`, `get_cosine_schedule_with_warmup`.
    """
    return plan.optimizer.learning_rate * _share(plan, step, total)


def _warmup(plan: Plan, total: int) -> int:
    """Warm-up steps, counted like `TrainingArguments.get_warmup_steps`."""
    share = plan.schedule.warmup_share
    return (plan.schedule.warmup_steps or 0) if share is None else math.ceil(total * share)


def _share(plan: Plan, step: int, total: int) -> float:
    kind, warmup = plan.schedule.kind, _warmup(plan, total)
    if kind == "constant":
        return 1.0
    if step < warmup:
        return step / max(1, warmup)
    past = (step - warmup) / max(1, total - warmup)
    if kind == "linear":
        return max(0.0, 1 - past)
    if kind == "cosine":
        return max(0.0, 0.5 * (1 + math.cos(math.pi * past)))
    return 1.0
