"""llama-cookbook's own FSDP: `enable_fsdp`, and the flags of `fsdp_config`.

The values of `sharding_strategy` stay texts, which FSDP does not accept for its enumeration, so
that only the default can run (utils/config_utils.py `check_fsdp_config` only converts
`checkpoint_type`). A unit never mixes dtypes: trained leaves are wrapped one by one
(utils/fsdp_utils.py `fsdp_auto_wrap_policy`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json
from tunec.targets.rows import on_fsdp

_MAIN: Final = "llama-cookbook 0.0.5.post1 finetuning.py `main`"
_CONFIG: Final = "llama-cookbook 0.0.5.post1 configs/fsdp.py `fsdp_config`"
_ON: Final = "enable_fsdp"
_OFFLOAD: Final = "fsdp_config.fsdp_cpu_offload"
_STATE_DICT: Final = "fsdp_config.checkpoint_type"
_RECOMPUTES: Final = "fsdp_config.fsdp_activation_checkpointing"
_WORDS: Final[Mapping[str, str]] = {
    kind: f"StateDictType.{kind.upper()}_STATE_DICT" for kind in ("full", "sharded")
}

FSDP: Final[Mapping[str, Any]] = {
    "fsdp.version": 1,
    "fsdp.sharding": "full",
    "fsdp.wrap": "transformer",
    "fsdp.wrap_classes": (),
    "fsdp.min_parameters": 0,
    "fsdp.backward_prefetch": "pre",
    "fsdp.forward_prefetch": False,
    "fsdp.use_orig_params": False,
    "fsdp.efficient_loading": False,
    "fsdp.checkpointing": False,
}
"""The settings of its FSDP, whatever the flags: with `low_cpu_fsdp` too, every rank reads the
weights.

Layers are recomputed by the model, by default in torch's reentrant way, and by FSDP's wrapper
inside of that."""


def recomputes(plan: Plan) -> bool:
    """Whether FSDP runs and layers are recomputed."""
    return on_fsdp(plan) and plan.activation_checkpointing.mode == "layer"


def _row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    source: str = _CONFIG,
    when: Callable[[Plan], bool] = on_fsdp,
) -> Entry:
    """A row that has no effect unless FSDP is on."""

    def put(plan: Plan) -> Mapping[str, Json]:
        return {_ON: True, **write(plan)}

    def take(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return read(found) if found.get(_ON) is True else {}

    return Entry((_ON, *keys), slots, put, take, source, when=when)


def _read_state_dict(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found.get(_STATE_DICT, _WORDS["sharded"])
    kinds = [kind for kind, known in _WORDS.items() if known == word]
    return {"fsdp.state_dict": kinds[0]} if kinds else {}


def _read_mode(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get(_RECOMPUTES, True) is False:
        return {"activation_checkpointing.mode": "none"}
    return {"activation_checkpointing.mode": "layer", "activation_checkpointing.reentrant": True}


def _does(slot: str, value: Any) -> Entry:
    return _row((), (slot,), lambda _: {}, lambda _: {slot: value}, f"{_MAIN}: FSDP(...)")


ROWS: Final = (
    *(_does(slot, value) for slot, value in FSDP.items()),
    _row(
        (_OFFLOAD,),
        ("fsdp.offload_params",),
        lambda plan: {_OFFLOAD: plan.fsdp.offload_params},
        lambda found: {"fsdp.offload_params": found.get(_OFFLOAD, False)},
    ),
    _row(
        (_STATE_DICT,),
        ("fsdp.state_dict",),
        lambda plan: {_STATE_DICT: _WORDS[plan.fsdp.state_dict]},
        _read_state_dict,
    ),
    _row(
        (_RECOMPUTES,),
        ("activation_checkpointing.mode",),
        lambda plan: {_RECOMPUTES: plan.activation_checkpointing.mode == "layer"},
        _read_mode,
    ),
    _row(
        (_RECOMPUTES,),
        ("activation_checkpointing.reentrant",),
        lambda _: {_RECOMPUTES: True},
        _read_mode,
        f"{_MAIN}: gradient_checkpointing_enable() without arguments",
        when=recomputes,
    ),
)
