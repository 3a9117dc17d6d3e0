"""Rows of TrainingArguments for precision, checkpointing, and the engine under the Trainer.

With `bf16` or `fp16` on, the Trainer computes in that dtype, either by its own autocast or by
DeepSpeed's cast of the module. With both off the dtype of the weights decides, which another file
sets.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, derived, fixed, on_deepspeed, same
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.fsdp import true
from tunec.targets.huggingface.fsdp import FSDP, RECOMPUTES_KEY, recomputes_by_fsdp

_SOURCE = "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`"


def has_flag(plan: Plan) -> bool:
    """Whether `bf16` or `fp16` is on."""
    in_16_bits = plan.precision.compute != "fp32"
    return in_16_bits and (on_deepspeed(plan) or plan.states.autocast)


def _has_no_flag(plan: Plan) -> bool:
    return not has_flag(plan)


def _write_flags(plan: Plan) -> Mapping[str, Any]:
    flag = plan.precision.compute if has_flag(plan) else ""
    return {"bf16": flag == "bf16", "fp16": flag == "fp16"}


def _write_flags_with_engine(plan: Plan) -> Mapping[str, Any]:
    engine = {"deepspeed": "ds_config.json"} if on_deepspeed(plan) else {}
    return {**_write_flags(plan), **engine}


def _read_flags(found: Mapping[str, Any]) -> Mapping[str, Any]:
    half, bfloat = found.get("fp16", False), found.get("bf16", False)
    if not isinstance(half, bool) or not isinstance(bfloat, bool) or (half and bfloat):
        return {}
    engine = bool(found.get("deepspeed"))
    scaling = {"precision.loss_scaling": "dynamic" if half else "none"}
    autocast = {"states.autocast": (half or bfloat) and not engine}
    if not half and not bfloat:
        return {**scaling, **autocast}
    return {"precision.compute": "fp16" if half else "bf16", **scaling, **autocast}


_OFF = {"precision.loss_scaling": "none", "states.autocast": False}
_FLAGS = Entry(
    ("bf16", "fp16", "deepspeed"),
    ("precision.compute", "precision.loss_scaling", "states.autocast"),
    _write_flags_with_engine,
    _read_flags,
    _SOURCE,
    absent=((ALWAYS, _OFF),),
    when=has_flag,
)
_NO_FLAGS = replace(
    _FLAGS,
    slots=("precision.loss_scaling", "states.autocast"),
    write=_write_flags,
    when=_has_no_flag,
)
_ENGINE = Entry(
    ("deepspeed",),
    ("parallel.engine",),
    lambda _: {"deepspeed": "ds_config.json"},
    lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
    _SOURCE,
    when=on_deepspeed,
)

PRECISION = (
    _FLAGS,
    _NO_FLAGS,
    same("tf32", "precision.tf32", f"{_SOURCE}: absent, torch's own setting stays"),
    _ENGINE,
    *FSDP,
)


# ── activation checkpointing ─────────────────────────────────────────────────────────────────────


def _keys(new: bool) -> tuple[str, str]:
    name = "activation_checkpointing" if new else "gradient_checkpointing"
    return name, f"{name}_kwargs.use_reentrant"


def _first(found: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The value of the first key that has one: the new name takes precedence over the old one."""
    return next((found[key] for key in keys if found.get(key) is not None), None)


def _mode(keys: tuple[str, ...]) -> Entry:
    def write(plan: Plan) -> Mapping[str, Any]:
        return {keys[0]: plan.activation_checkpointing.mode == "layer"}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if true(found.get(RECOMPUTES_KEY, False)):
            return {"activation_checkpointing.mode": "layer"}
        word = _first(found, keys)
        return {"activation_checkpointing.mode": "layer" if word is True else "none"}

    absent = ((ALWAYS, {"activation_checkpointing.mode": "none"}),)
    return Entry(
        (*keys, RECOMPUTES_KEY),
        ("activation_checkpointing.mode",),
        write,
        read,
        _SOURCE,
        absent=absent,
        when=_by_the_model,
    )


def _by_the_model(plan: Plan) -> bool:
    return not recomputes_by_fsdp(plan)


def recomputes(plan: Plan) -> bool:
    """Whether the model itself, and not FSDP, recomputes activations."""
    return not recomputes_by_fsdp(plan) and plan.activation_checkpointing.mode == "layer"


def _variant(keys: tuple[str, ...]) -> Entry:
    slot = "activation_checkpointing.reentrant"
    return Entry(
        keys,
        (slot,),
        lambda plan: {keys[0]: plan.activation_checkpointing.reentrant},
        lambda found: {slot: _first(found, keys)},
        "transformers modeling_utils.py `gradient_checkpointing_enable`: reentrant until 4.57, "
        "not from 5.0",
        absent=((ALWAYS, {slot: True}), ("5.0", {slot: False})),
        when=recomputes,
    )


def _named_as(build: Callable[[tuple[str, ...]], Entry], place: int) -> tuple[Entry, Entry]:
    """The row under the old name until 5.23, and from then on under the new name, reading both."""
    old, new = _keys(new=False)[place], _keys(new=True)[place]
    return replace(build((old,)), until="5.23"), replace(build((new, old)), since="5.23")


def _off(key: str, since: str | None, until: str | None) -> Entry:
    """A row that turns the key off beside FSDP's checkpointing.

    transformers trainer.py refuses both at once, and TRL's configs turn the model's on.
    """
    return derived(
        key,
        lambda _: False,
        f"{_SOURCE}: beside FSDP's own",
        since=since,
        until=until,
        when=recomputes_by_fsdp,
    )


_LAYER: Final = "transformers 4.40.2 to 5.23.0 modeling_utils.py `gradient_checkpointing_enable`"

CHECKPOINTING = (
    fixed("activation_checkpointing.segment", 1, f"{_LAYER}: a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_LAYER}: every layer"),
    *_named_as(_mode, 0),
    *_named_as(_variant, 1),
    _off(_keys(new=False)[0], None, "5.23"),
    _off(_keys(new=True)[0], "5.23", None),
)
KEPT_ON_THE_DEVICE = fixed(
    "activation_checkpointing.offload",
    value=False,
    source="transformers 4.40.2 to 5.23.0 trainer.py `training_step`: nothing moves activations",
)
