"""Rows of ds_config.json for the dtypes of computation, accumulation and master copies."""

from collections.abc import Mapping
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, constant, fixed, named, same
from tunec.targets.deepspeed.reader import PACKAGE, in_bf16, in_fp16, shards

_FP16 = "deepspeed 0.17.1 to 0.19.8 runtime/precision_config.py `DeepSpeedFP16Config`, before it "
_FP16 += "runtime/config.py `get_dynamic_loss_scale_args`"
_BF16 = "deepspeed runtime/precision_config.py `DeepSpeedBF16Config`"


def _write_compute(plan: Plan) -> Mapping[str, Any]:
    """Both blocks, always: a trainer compares each with its own flag only if it is present."""
    compute = plan.precision.compute
    scaling = {"fp16.loss_scale": 0} if compute == "fp16" else {}
    return {"bf16.enabled": compute == "bf16", "fp16.enabled": compute == "fp16", **scaling}


def _read_compute(found: Mapping[str, Any]) -> Mapping[str, Any]:
    half = found.get("fp16.enabled", False)
    bfloat = found.get("bf16.enabled", found.get("bfloat16.enabled", False))
    if not isinstance(half, bool) or not isinstance(bfloat, bool) or (half and bfloat):
        return {}
    if not half:
        scaling = {"precision.loss_scaling": "none"}
        return {"precision.compute": "bf16" if bfloat else "fp32", **scaling}
    is_dynamic = found.get("fp16.loss_scale", 0) == 0
    scaling = {"precision.loss_scaling": "dynamic"} if is_dynamic else {}
    return {"precision.compute": "fp16", **scaling}


_COMPUTE = Entry(
    ("bf16.enabled", "bfloat16.enabled", "fp16.enabled", "fp16.loss_scale"),
    ("precision.compute", "precision.loss_scaling"),
    _write_compute,
    _read_compute,
    "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig`: fp32 without either block; "
    "loss_scale 0 is dynamic",
    absent=((ALWAYS, {"precision.compute": "fp32", "precision.loss_scaling": "none"}),),
    package=PACKAGE,
)


def _scaling(key: str, slot: str, default: int) -> Entry:
    return same(
        f"fp16.{key}", f"precision.{slot}", _FP16, default=default, when=in_fp16, package=PACKAGE
    )


_SCALING = (
    constant("fp16.auto_cast", False, _FP16, when=in_fp16, package=PACKAGE),
    _scaling("initial_scale_power", "initial_scale_power", 16),
    _scaling("loss_scale_window", "loss_scale_window", 1000),
    _scaling("hysteresis", "hysteresis", 2),
    constant("fp16.consecutive_hysteresis", False, _FP16, when=in_fp16, package=PACKAGE),
    _scaling("min_loss_scale", "min_loss_scale", 1),
)


def _shards_in_bf16(plan: Plan) -> bool:
    return in_bf16(plan) and shards(plan)


def _shards_in_fp16(plan: Plan) -> bool:
    return in_fp16(plan) and shards(plan)


def _replicates_in_16_bits(plan: Plan) -> bool:
    return plan.precision.compute != "fp32" and not shards(plan)


def _without_copies(key: str, when: Any, source: str, since: str | None = None) -> Entry:
    """A row for a flag that is the negation of `states.master_weights`."""
    return named(
        key,
        "states.master_weights",
        {True: False, False: True},
        source,
        since=since,
        default=True,
        when=when,
        package=PACKAGE,
    )


_COPIES = (
    _without_copies(
        "bf16.bf16_master_weights_and_grads", _shards_in_bf16, f"{_BF16}, from 0.18.3", "0.18.3"
    ),
    fixed(
        "states.master_weights",
        True,
        "deepspeed 0.14.5 to 0.18.2 zero/stage_1_and_2.py `single_partition_of_fp32_groups`",
        until="0.18.3",
        when=_shards_in_bf16,
        package=PACKAGE,
    ),
    _without_copies("fp16.fp16_master_weights_and_grads", _shards_in_fp16, _FP16),
    fixed(
        "states.master_weights",
        True,
        "deepspeed 0.14.5 to 0.19.8 fp16/unfused_optimizer.py and bf16_optimizer.py",
        when=_replicates_in_16_bits,
        package=PACKAGE,
    ),
)


def _keeps_float_moments(plan: Plan) -> bool:
    """Whether the plan shards in bf16 and its optimizer's moments are floats, by dtype and name."""
    is_float = plan.states.optimizer in ("fp32", "bf16")
    return _shards_in_bf16(plan) and is_float and not plan.optimizer.name.endswith("_8bit")


_MOMENTS = (
    named(
        "bf16.bf16_optimizer_states",
        "states.optimizer",
        {"fp32": False, "bf16": True},
        f"{_BF16}, from 0.18.3",
        since="0.18.3",
        default="fp32",
        when=_keeps_float_moments,
        package=PACKAGE,
    ),
    fixed(
        "states.optimizer",
        "fp32",
        "deepspeed 0.14.5 to 0.18.2: moments follow the fp32 copies of the parameters",
        until="0.18.3",
        when=_keeps_float_moments,
        package=PACKAGE,
    ),
)

_BF16_STEP = (
    constant(
        "bf16.immediate_grad_update",
        False,
        "deepspeed runtime/constants.py: default False, True in 0.16.5 to 0.17.0, then False",
        when=in_bf16,
        package=PACKAGE,
    ),
    constant(
        "bf16.check_grad_overflow",
        True,
        f"{_BF16}, from 0.17.1; default False to 0.19.2, then True: skip a step that has NaN",
        since="0.17.1",
        when=in_bf16,
        package=PACKAGE,
    ),
)

_ACCUMULATION = named(
    "data_types.grad_accum_dtype",
    "states.gradients",
    {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"},
    "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `get_data_types`: absent, it is the model's "
    "dtype, but fp32 for bf16 without ZeRO up to 0.17.5",
    package=PACKAGE,
)

PRECISION = (_COMPUTE, *_BF16_STEP, *_COPIES, *_MOMENTS, *_SCALING, _ACCUMULATION)
