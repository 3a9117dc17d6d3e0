"""Rows of a model's section: loading, attention, adapters."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, Phrase, derived, fixed, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.read_only import means_every_layer, split_names
from tunec.targets.rows import has_adapter, recomputes_each_layer_by_itself, recomputes_layers, row
from tunec.targets.verl.packages import SOURCE

_MODEL: Final = f"{SOURCE} workers/config/model.py `HFModelConfig`"
_BUILDS: Final = f"{SOURCE} workers/engine/fsdp/transformer_impl.py"
_LORA: Final = f"{_BUILDS} `_build_lora_module`"
_FLASH: Final = "flash_attention_2"


def _without_padding(plan: Plan) -> Json:
    """Whether padding is removed, as only flash attention keeps the joined samples apart."""
    return plan.attention.implementation == _FLASH


def _loading(at: str) -> tuple[Entry, ...]:
    attends = f"{at}.override_config.attn_implementation"
    return (
        same(f"{at}.path", "model.path", _MODEL),
        same(f"{at}.trust_remote_code", "model.trust_remote_code", _MODEL, default=False),
        same(attends, "attention.implementation", f"{_MODEL} `__post_init__`", default=_FLASH),
        derived(
            f"{at}.use_remove_padding",
            _without_padding,
            f"{_BUILDS} `prepare_model_inputs`: all samples of a micro batch in one row",
        ),
    )


# ── adapter ──────────────────────────────────────────────────────────────────────────────────────


def _write_targets(at: str, plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    return {at: targets if isinstance(targets, str) else [*targets]}


def _read_targets(value: Json) -> Mapping[str, Any]:
    """The target names; one word is a pattern, except `all-linear`, which depends on the model."""
    if isinstance(value, str):
        return {} if value == "all-linear" else {"adapter.targets": value}
    return {"adapter.targets": split_names(value)} if value else {}


def _never(slot: str, value: Any) -> Entry:
    return fixed(f"adapter.{slot}", value, f"{_LORA} hands on no other", when=has_adapter)


def _adapting(at: str) -> tuple[Entry, ...]:
    rank, alpha, targets = (f"{at}.{key}" for key in ("lora_rank", "lora_alpha", "target_modules"))
    return (
        row(
            (rank,),
            ("adapter.kind",),
            lambda plan: {rank: plan.adapter.rank if has_adapter(plan) else 0},
            lambda found: {"adapter.kind": "lora" if found[rank] else "none"},
            f"{_MODEL}: above 0 adapters are trained",
            absent={"adapter.kind": "none"},
        ),
        same(rank, "adapter.rank", _MODEL, when=has_adapter),
        row(
            (alpha,),
            ("adapter.alpha",),
            lambda plan: {alpha: whole(plan.adapter.alpha)},
            lambda found: {"adapter.alpha": found[alpha]},
            _MODEL,
            absent={"adapter.alpha": 16.0},
            when=has_adapter,
        ),
        row(
            (targets,),
            ("adapter.targets",),
            lambda plan: _write_targets(targets, plan),
            lambda found: _read_targets(found[targets]),
            _LORA,
            when=has_adapter,
        ),
        _never("dropout", 0.0),
        _never("bias", "none"),
        _never("rslora", value=False),
        _never("dora", value=False),
        _never("parameters", ()),
        _never("also_train", ()),
    )


def every_layer(at: str) -> Phrase:
    """All linear layers, the default of the section `at`."""
    rank, targets = f"{at}.lora_rank", f"{at}.target_modules"

    def say(found: Mapping[str, Json]) -> Mapping[str, Any]:
        is_said = targets in found
        is_all = means_every_layer(found[targets]) if is_said else bool(found.get(rank))
        return {"adapter.targets": "all-linear"} if is_all else {}

    return Phrase((targets,), say, f"{_MODEL}; {_LORA}", beside=(rank,), by_default=True)


def model(at: str) -> tuple[Entry, ...]:
    """The rows of the section `at`."""
    return (*_loading(at), *_adapting(at), *_recomputing(at))


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_MODE: Final = "activation_checkpointing.mode"
_RECOMPUTES: Final = f"{_BUILDS} `_build_module`: gradient_checkpointing_enable"


def _recomputing(at: str) -> tuple[Entry, ...]:
    key = f"{at}.enable_gradient_checkpointing"
    return (
        row(
            (key,),
            (_MODE,),
            lambda plan: {key: recomputes_layers(plan)},
            lambda found: {_MODE: "layer" if found[key] else "none"},
            _RECOMPUTES,
            absent={_MODE: "layer"},
        ),
        *recomputes_each_layer_by_itself(_RECOMPUTES),
        same(
            f"{at}.enable_activation_offload",
            "activation_checkpointing.offload",
            f"{SOURCE} utils/activation_offload.py `enable_activation_offloading`",
            default=False,
        ),
    )
