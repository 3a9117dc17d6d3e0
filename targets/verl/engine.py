"""Rows of an engine's section: precision, and FSDP's sharding."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, fixed, named, same
from tunec.targets.accelerate.fsdp import on_first, on_second
from tunec.targets.rows import on_fsdp, row
from tunec.targets.verl.packages import SOURCE

_ENGINE: Final = f"{SOURCE} workers/config/engine.py `FSDPEngineConfig`"
_WRAPS: Final = f"{SOURCE} workers/engine/fsdp/transformer_impl.py `_build_fsdp_module`"
_UNITS: Final = f"{SOURCE} utils/fsdp_utils.py `get_fsdp_wrap_policy`, `apply_fsdp2`"
_SAVES: Final = f"{SOURCE} utils/checkpoint/fsdp_checkpoint_manager.py"
_LOADS: Final = f"{SOURCE} utils/fsdp_utils.py `get_init_weight_context_manager`"
_STRATEGY: Final[Mapping[Any, str]] = {1: "fsdp", 2: "fsdp2"}

ALWAYS_SO: Final[Mapping[str, Any]] = {
    "fsdp.state_dict": "sharded",
    "fsdp.efficient_loading": True,
    "fsdp.checkpointing": False,
}
"""Settings that no key changes: one file per rank, weights read by the first rank, layers
recomputed by the model."""


# ── precision ────────────────────────────────────────────────────────────────────────────────────

_DTYPES: Final[Mapping[Any, str]] = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_LONG: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_PARAM, _REDUCE, _BUFFER = ("param_dtype", "reduce_dtype", "buffer_dtype")


def _dtype(word: Json) -> str | None:
    """A dtype by one of verl's names for it: utils/torch_dtypes.py `PrecisionType.to_dtype`."""
    name = _LONG.get(str(word), str(word))
    return name if name in _DTYPES else None


def _write_precision(at: str, plan: Plan) -> Mapping[str, Json]:
    dtypes = {_PARAM: plan.precision.compute, _REDUCE: "fp32", _BUFFER: "fp32"}
    return {f"{at}.mixed_precision.{key}": dtype for key, dtype in dtypes.items()}


def _read_precision(word: Json) -> Mapping[str, Any]:
    dtype = _dtype(word)
    return {} if dtype is None else _precision(dtype)


def _precision(dtype: str) -> Mapping[str, Any]:
    return {
        "precision.compute": dtype,
        "precision.loss_scaling": "dynamic" if dtype == "fp16" else "none",
        "states.autocast": dtype != "fp32",
    }


def _precisions(at: str) -> tuple[Entry, ...]:
    key, weights = f"{at}.mixed_precision.{_PARAM}", f"{at}.model_dtype"
    return (
        row(
            tuple(f"{at}.mixed_precision.{name}" for name in (_PARAM, _REDUCE, _BUFFER)),
            tuple(_precision("bf16")),
            lambda plan: _write_precision(at, plan),
            lambda found: _read_precision(found[key]) if key in found else {},
            f"{_WRAPS}: MixedPrecision, beside autocast in the same dtype (`forward_step`)",
            absent=_precision("bf16"),
        ),
        row(
            (weights,),
            ("states.weights",),
            lambda plan: {weights: plan.states.weights},
            lambda found: (
                {"states.weights": _dtype(found[weights])} if _dtype(found[weights]) else {}
            ),
            f"{_ENGINE}: the dtype in which the model is loaded, and trained where it is trained",
            absent={"states.weights": "fp32"},
        ),
        fixed("precision.tf32", value=False, source=f"{_WRAPS}: torch's own setting stays"),
    )


# ── sharding and units ───────────────────────────────────────────────────────────────────────────


def _sharding(at: str, plan: Plan) -> Mapping[str, Json]:
    kept, size = f"{at}.reshard_after_forward", f"{at}.fsdp_size"
    kinds: Mapping[str, Mapping[str, Json]] = {
        "full": {kept: True},
        "grad_op": {kept: False},
        "hybrid": {kept: True, size: plan.devices.per_node},
    }
    return kinds.get(plan.fsdp.sharding, {})


def _read_sharding(whole: Json, size: Json) -> Mapping[str, Any]:
    if isinstance(size, int) and size > 0:
        return {"fsdp.sharding": "hybrid"} if whole else {}
    return {"fsdp.sharding": "full" if whole else "grad_op"}


def _shards(at: str, strategy: str) -> tuple[Entry, ...]:
    kept, size = f"{at}.reshard_after_forward", f"{at}.fsdp_size"
    return (
        named(
            strategy,
            "fsdp.version",
            _STRATEGY,
            f"{_ENGINE} `__post_init__`",
            default=1,
            when=on_fsdp,
        ),
        constant(
            strategy,
            _STRATEGY[1],
            "torch 2.9 to 2.13 distributed/fsdp/_init_utils.py `_init_core_state`: of one process "
            "nothing is sharded",
            when=lambda plan: not on_fsdp(plan),
        ),
        row(
            (strategy,),
            ("parallel.engine",),
            lambda plan: {strategy: _STRATEGY.get(plan.fsdp.version, "")},
            lambda found: {"parallel.engine": "fsdp"} if found[strategy] in _FSDP else {},
            _WRAPS,
            when=on_fsdp,
        ),
        row(
            (kept, size),
            ("fsdp.sharding",),
            lambda plan: _sharding(at, plan),
            lambda found: _read_sharding(found.get(kept, True), found.get(size, -1)),
            f"{SOURCE} workers/engine/fsdp/utils.py `create_device_mesh`, `get_sharding_strategy`",
            absent={"fsdp.sharding": "full"},
            when=on_fsdp,
        ),
    )


_FSDP: Final = tuple(_STRATEGY.values())


def _write_units(at: str, plan: Plan) -> Mapping[str, Json]:
    if plan.fsdp.wrap == "size" and plan.fsdp.version == 1:
        return {f"{at}.min_num_params": plan.fsdp.min_parameters}
    names = plan.fsdp.wrap_classes
    is_plain = plan.fsdp.wrap == "transformer" and names
    return {f"{at}.{_CLASSES}": [*names]} if is_plain else {}


_CLASSES: Final = "transformer_layer_cls_to_wrap"


def _read_units(at: str, found: Mapping[str, Json]) -> Mapping[str, Any]:
    least, names = found.get(f"{at}.min_num_params", 0), found.get(f"{at}.{_CLASSES}", ())
    is_sized = isinstance(least, int) and least > 0
    return {
        "fsdp.wrap": "size" if is_sized else "transformer",
        "fsdp.wrap_classes": (names,) if isinstance(names, str) else tuple(names or ()),
        "fsdp.min_parameters": least if is_sized else 0,
    }


def _units(at: str) -> tuple[Entry, ...]:
    policy = f"{at}.wrap_policy"
    slots = ("fsdp.wrap", "fsdp.wrap_classes", "fsdp.min_parameters")
    return (
        row(
            (f"{policy}.min_num_params", f"{policy}.{_CLASSES}"),
            slots,
            lambda plan: _write_units(policy, plan),
            lambda found: _read_units(policy, found),
            _UNITS,
            absent=_read_units(policy, {}),
            when=on_fsdp,
        ),
    )


def _does(slot: str, value: Any, source: str, when: Callable[[Plan], bool] = on_fsdp) -> Entry:
    return fixed(slot, value, source, when=when)


def _runs(at: str) -> tuple[Entry, ...]:
    return (
        same(f"{at}.offload_policy", "fsdp.offload_params", _WRAPS, default=False, when=on_second),
        _does("fsdp.offload_params", False, f"{_WRAPS}: no CPUOffload in training", on_first),
        same(
            f"{at}.forward_prefetch", "fsdp.forward_prefetch", _WRAPS, default=False, when=on_first
        ),
        _does("fsdp.forward_prefetch", False, _WRAPS, on_second),
        same(f"{at}.use_orig_params", "fsdp.use_orig_params", _WRAPS, default=False, when=on_first),
        _does("fsdp.use_orig_params", True, _WRAPS, on_second),
        _does("fsdp.backward_prefetch", "pre", f"{_WRAPS}: torch's own"),
        _does("fsdp.state_dict", ALWAYS_SO["fsdp.state_dict"], _SAVES),
        _does("fsdp.efficient_loading", ALWAYS_SO["fsdp.efficient_loading"], _LOADS),
        _does("fsdp.checkpointing", ALWAYS_SO["fsdp.checkpointing"], _WRAPS),
    )


def engine(at: str, strategy: str) -> tuple[Entry, ...]:
    """The rows of the section `at`; `strategy` is the key that names the engine."""
    return (*_precisions(at), *_shards(at, strategy), *_units(at), *_runs(at))
