"""FSDP 2, in config.json: SimpleTuner makes accelerate's plugin of its own flags.

Version 1 is read, and `checks` refuses it.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, fixed, named, same
from tunec.targets.accelerate.fsdp import STATE_DICT, WRAP, worded
from tunec.targets.rows import on_fsdp

ENABLED: Final = "fsdp_enable"
PLUGIN: Final = "simpletuner 3.1.6 and 4.10.1 helpers/training/trainer.py `_load_fsdp_plugin`"
_METADATA: Final = (
    "simpletuner 3.1.6 and 4.10.1 helpers/training/trainer.py `_configure_fsdp_model_metadata`, "
    "3.1.6 `_load_fsdp_plugin`: the model's own classes are wrapped besides"
)
_CLASSES: Final = "fsdp_transformer_layer_cls_to_wrap"
_SECOND: Final = "accelerate 1.15.0 utils/fsdp_utils.py `fsdp2_prepare_model`"


def shards(found: Mapping[str, Json]) -> bool:
    """Whether the flags turn FSDP on."""
    return found.get(ENABLED) is True


def flag(plan: Plan) -> Mapping[str, Json]:
    """The flag that turns FSDP on, in a plan with it."""
    return {ENABLED: True} if on_fsdp(plan) else {}


def _write_classes(plan: Plan) -> Mapping[str, Json]:
    return {_CLASSES: ",".join(plan.fsdp.wrap_classes)} if plan.fsdp.wrap_classes else {}


def _read_classes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    said = found[_CLASSES] or ""
    words = said if isinstance(said, list) else str(said).split(",")
    return {"fsdp.wrap_classes": tuple(word.strip() for word in words if str(word).strip())}


def _word(key: str, slot: str, words: Mapping[str, str], usual: str) -> Entry:
    """A key with one of accelerate's words, in any case (`parse_cmdline_args`)."""
    return Entry(
        (key,),
        (slot,),
        lambda plan: {key: words[plan[slot]]},
        lambda found: {slot: worded(words, found[key] or words[usual])},
        PLUGIN,
        absent=((ALWAYS, {slot: usual}),),
        when=on_fsdp,
    )


FSDP: Final = (
    same("fsdp_version", "fsdp.version", PLUGIN, default=2, when=on_fsdp),
    named(
        "fsdp_reshard_after_forward",
        "fsdp.sharding",
        {"full": True, "grad_op": False},
        PLUGIN,
        default="full",
        when=on_fsdp,
    ),
    same("fsdp_cpu_offload", "fsdp.offload_params", PLUGIN, default=False, when=on_fsdp),
    _word("fsdp_state_dict_type", "fsdp.state_dict", STATE_DICT, "sharded"),
    same(
        "fsdp_cpu_ram_efficient_loading",
        "fsdp.efficient_loading",
        PLUGIN,
        default=False,
        when=on_fsdp,
    ),
    _word("fsdp_auto_wrap_policy", "fsdp.wrap", WRAP, "transformer"),
    Entry(
        (_CLASSES,),
        ("fsdp.wrap_classes",),
        _write_classes,
        _read_classes,
        _METADATA,
        absent=((ALWAYS, {"fsdp.wrap_classes": ()}),),
        when=on_fsdp,
    ),
    same(
        "fsdp_activation_checkpointing",
        "fsdp.checkpointing",
        f"{PLUGIN}: `gradient_checkpointing` is turned off then",
        default=False,
        when=on_fsdp,
    ),
    fixed("fsdp.min_parameters", 0, f"{PLUGIN}: no flag says it", when=on_fsdp),
    fixed("fsdp.backward_prefetch", "pre", _SECOND, when=on_fsdp),
    fixed("fsdp.forward_prefetch", value=False, source=_SECOND, when=on_fsdp),
    fixed("fsdp.use_orig_params", value=True, source=_SECOND, when=on_fsdp),
)
