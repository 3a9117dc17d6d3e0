"""Rows of ms-swift's arguments: precision, and recomputed activations."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json, constant, fixed, in_no_plan, on_deepspeed, same
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.arithmetic import has_flag, recomputes
from tunec.targets.huggingface.fsdp import recomputes_by_fsdp
from tunec.targets.huggingface.fsdp_row import CONFIG
from tunec.targets.huggingface.model import BY_DTYPE, DTYPES, dtype_of
from tunec.targets.ms_swift.fsdp import KEY as FSDP_KEY
from tunec.targets.ms_swift.fsdp import held
from tunec.targets.ms_swift.packages import TRAINER
from tunec.targets.read_only import observed
from tunec.targets.rows import recomputes_layers, row

_DTYPE: Final = (
    "ms-swift 4.0.4 to 4.6.0 arguments/base_args/model_args.py `_init_mixed_precision`: flags that "
    "are absent follow from torch_dtype, and fp16 goes with float32"
)
_FLAGS: Final = {"bf16": ("bfloat16",), "fp16": ("float16", "float32")}


# ── precision ────────────────────────────────────────────────────────────────────────────────────


def _write_precision(plan: Plan) -> Mapping[str, Json]:
    """Write the dtype of the weights, which is that of matrix products if both flags are off."""
    flag = plan.precision.compute if has_flag(plan) else ""
    engine = {"deepspeed": "ds_config.json"} if on_deepspeed(plan) else {}
    dtype = {"torch_dtype": DTYPES[plan.states.weights]}
    return {**dtype, "bf16": flag == "bf16", "fp16": flag == "fp16", **engine}


def _precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = str(found.get("torch_dtype")).removeprefix("torch.")
    said = {name: found.get(name) for name in _FLAGS}
    if dtype not in BY_DTYPE and None in said.values():
        return {}
    bf16, fp16 = (
        dtype in words if said[name] is None else said[name] is True
        for name, words in _FLAGS.items()
    )
    if bf16 and fp16:
        return {}
    compute = "bf16" if bf16 else "fp16" if fp16 else BY_DTYPE.get(dtype)
    return {
        "precision.loss_scaling": "dynamic" if fp16 else "none",
        "states.autocast": (bf16 or fp16) and not found.get("deepspeed"),
        **({"precision.compute": compute} if compute else {}),
    }


def _weights(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = dtype_of(found["torch_dtype"])
    return {} if dtype is None else {"states.weights": dtype}


def _hpz(found: Mapping[str, Json]) -> Mapping[str, Any]:
    ranks = found.get("zero_hpz_partition_size")
    if not isinstance(ranks, int) or not found.get("deepspeed"):
        return {}
    return {"zero.hpz_partition": max(ranks, 1)}


PRECISION: Final = (
    row(
        ("torch_dtype", "bf16", "fp16", "deepspeed"),
        ("precision.compute", "precision.loss_scaling", "states.autocast"),
        _write_precision,
        _precision,
        _DTYPE,
    ),
    row(
        ("torch_dtype",),
        ("states.weights",),
        lambda plan: {"torch_dtype": DTYPES[plan.states.weights]},
        _weights,
        "ms-swift 4.0.4 to 4.6.0 model/register.py `ModelLoader`",
    ),
    replace(
        row(
            ("deepspeed",),
            ("parallel.engine",),
            lambda _: {"deepspeed": "ds_config.json"},
            lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
            "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_init_deepspeed`: a path, or the name "
            "of a file of its own",
            when=on_deepspeed,
        ),
        package=TRAINER,
    ),
    observed(
        ("zero_hpz_partition_size", "deepspeed"),
        ("zero.hpz_partition",),
        _hpz,
        "ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_init_deepspeed`: it goes into the file, "
        "over what that says",
        when=in_no_plan,
    ),
    same(
        "tf32",
        "precision.tf32",
        "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`: absent, torch's own",
        package=TRAINER,
    ),
)


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_RECOMPUTES: Final = "ms-swift 4.0.4 to 4.6.0 trainers/mixin.py `_prepare_gradient_checkpointing`"
_MODE: Final = "activation_checkpointing.mode"
_VARIANT: Final = "activation_checkpointing.reentrant"
_KEY: Final = "gradient_checkpointing"


def _recomputed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether layers are recomputed, by the model or by FSDP."""
    by_fsdp = held(found).get(CONFIG, {}).get("activation_checkpointing") is True
    return {_MODE: "layer" if by_fsdp or found.get(_KEY, True) else "none"}


CHECKPOINTING: Final = (
    fixed("activation_checkpointing.segment", 1, f"{_RECOMPUTES}: a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_RECOMPUTES}: every layer"),
    fixed(
        "activation_checkpointing.offload",
        value=False,
        source=f"{_RECOMPUTES}: only FSDP's own moves activations",
    ),
    row(
        (_KEY, FSDP_KEY),
        (_MODE,),
        lambda plan: {_KEY: recomputes_layers(plan)},
        _recomputed,
        "ms-swift 4.0.4 to 4.6.0 trainers/arguments.py `TrainArgumentsMixin`",
        absent={_MODE: "layer"},
        when=lambda plan: not recomputes_by_fsdp(plan),
    ),
    constant(
        _KEY,
        value=False,
        source="ms-swift 4.0.4 to 4.6.0 arguments/sft_args.py `_check_fsdp2_compatibility`: beside "
        "FSDP's own it is turned off",
        when=recomputes_by_fsdp,
    ),
    row(
        (f"{_KEY}_kwargs.use_reentrant",),
        (_VARIANT,),
        lambda plan: {f"{_KEY}_kwargs.use_reentrant": plan.activation_checkpointing.reentrant},
        lambda found: {_VARIANT: found[f"{_KEY}_kwargs.use_reentrant"]},
        "ms-swift 4.0.4 to 4.6.0 trainers/mixin.py `_fix_gradient_checkpointing`: absent it is off "
        "for several processes without an engine that shards",
        when=recomputes,
    ),
)
