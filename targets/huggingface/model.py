"""Rows of TRL's ModelConfig for the model, its dtype, its quantization and its adapter."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, derived, fixed, named, same
from tunec.schemas.frozen import replace
from tunec.schemas.terms import FloatDtype, QuantFormat
from tunec.targets.huggingface.adapter import task_of, whole
from tunec.targets.huggingface.packages import TRL
from tunec.targets.rows import has_adapter, in_four_bits, names_under

_SOURCE = "trl 0.8.6 to 1.16.0 trainer/model_config.py `ModelConfig`"
_BNB = "trl 0.8.6 to 1.16.0 trainer/utils.py `get_quantization_config`"

DTYPES: Final[Mapping[FloatDtype, str]] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
BY_DTYPE: Final[Mapping[str, FloatDtype]] = {word: dtype for dtype, word in DTYPES.items()}


def dtype_of(word: object) -> FloatDtype | None:
    """A slot's dtype by torch's name, with or without its prefix; None for other words."""
    return BY_DTYPE.get(str(word).removeprefix("torch."))


def _is_not_packed(plan: Plan) -> bool:
    return not in_four_bits(plan)


def _is_widened(plan: Plan) -> bool:
    """Whether the base is in 4 bits and its other weights are in fp32, under another dtype."""
    return in_four_bits(plan) and plan.states.weights == "fp32" != plan.quantization.compute


def _is_packed_alike(plan: Plan) -> bool:
    return in_four_bits(plan) and not _is_widened(plan)


# ── which model, in which dtype ──────────────────────────────────────────────────────────────────


def _dtype(key: str) -> tuple[Entry, ...]:
    """The dtype in which weights are loaded; TRL also expands 4-bit weights into it."""

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        dtype = dtype_of(found[key])
        return {} if dtype is None else {"states.weights": dtype}

    def read_packed(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {slot: dtype for dtype in read(found).values() for slot in packed.slots}

    def read_widened(found: Mapping[str, Any]) -> Mapping[str, Any]:
        return {slot: dtype for dtype in read(found).values() for slot in widened.slots}

    whole_weights = Entry(
        (key,),
        ("states.weights",),
        lambda plan: {key: DTYPES[plan.states.weights]},
        read,
        f"{_SOURCE}: `dtype` from 0.23, before it `torch_dtype`; absent it is the model's own, "
        "float32 from 0.27",
        when=_is_not_packed,
        package=TRL,
    )
    packed = replace(
        whole_weights,
        slots=("states.weights", "quantization.compute"),
        source=f"{_BNB}: bnb_4bit_compute_dtype is the dtype of the weights",
        when=_is_packed_alike,
    )
    widened = replace(
        whole_weights,
        slots=("quantization.compute",),
        write=lambda plan: {key: DTYPES[plan.quantization.compute]},
        read=read_widened,
        source=_BNB,
        when=_is_widened,
    )
    return whole_weights, replace(packed, read=read_packed), widened


def widening(until: str) -> tuple[Entry, Entry]:
    """Rows for the dtype of the weights beside 4-bit ones, before and from a release on.

    Norms, embeddings and the head are loaded in the dtype of the file. PEFT's
    `prepare_model_for_kbit_training` converts them to fp32; later releases do not.
    """
    source = (
        "trl 0.8.6 to 0.25.1 trainer/sft_trainer.py, models/utils.py `prepare_peft_model`; "
        "0.9.6 to 0.28.0 trainer/dpo_trainer.py; peft utils/other.py"
    )
    slot = "states.weights"
    made = fixed(slot, "fp32", source, until=until, when=_is_widened, package=TRL)
    left = replace(made, since=until, until=None, absent=())
    return made, left


WIDENING = widening("0.26")
MODEL = (
    same("model_name_or_path", "model.path", _SOURCE, package=TRL),
    *(replace(each, until="0.23") for each in _dtype("torch_dtype")),
    *(replace(each, since="0.23") for each in _dtype("dtype")),
    same("attn_implementation", "attention.implementation", _SOURCE, package=TRL),
)


def trust(until: str | None) -> Entry:
    """Whether code from the model's repository runs: ModelConfig until 1.7, then SFTConfig."""
    return same(
        "trust_remote_code",
        "model.trust_remote_code",
        f"{_SOURCE}; trainer/sft_config.py from 1.7",
        until=until,
        default=False,
        package=TRL,
    )


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────


def _write_format(plan: Plan) -> Mapping[str, Any]:
    form = plan.quantization.format
    kind = {"bnb_4bit_quant_type": form} if in_four_bits(plan) else {}
    return {"load_in_4bit": in_four_bits(plan), "load_in_8bit": form == "int8", **kind}


def _read_format(found: Mapping[str, Any]) -> Mapping[str, Any]:
    four, eight = found.get("load_in_4bit", False), found.get("load_in_8bit", False)
    if four is True and eight is not True:
        return {"quantization.format": found.get("bnb_4bit_quant_type", "nf4")}
    form: QuantFormat = "int8" if eight is True else "none"
    return {} if four is True else {"quantization.format": form}


def _packed_like_weights(key: str, since: str, until: str) -> Entry:
    """The row for releases without a key: packed weights are stored in the dtype of all weights."""

    def write(plan: Plan) -> Mapping[str, Any]:
        return {key: DTYPES[plan.quantization.compute], "load_in_4bit": True}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        dtype = dtype_of(found.get(key))
        packed = found.get("load_in_4bit") is True and dtype is not None
        return {"quantization.storage": dtype} if packed else {}

    return Entry(
        (key, "load_in_4bit"),
        ("quantization.storage",),
        write,
        read,
        f"{_BNB}: bnb_4bit_quant_storage is the dtype of the weights from 0.10 to 0.25",
        since=since,
        until=until,
        when=lambda plan: in_four_bits(plan) and plan.quantization.storage is not None,
        package=TRL,
    )


QUANTIZATION = (
    Entry(
        ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type"),
        ("quantization.format",),
        _write_format,
        _read_format,
        _SOURCE,
        absent=((ALWAYS, {"quantization.format": "none"}),),
        package=TRL,
    ),
    same(
        "use_bnb_nested_quant",
        "quantization.double",
        _SOURCE,
        default=False,
        when=in_four_bits,
        package=TRL,
    ),
    fixed(
        "quantization.storage",
        None,
        f"{_BNB}: until 0.9 it gives no storage, which is uint8 then",
        until="0.10",
        when=in_four_bits,
        package=TRL,
    ),
    _packed_like_weights("torch_dtype", "0.10", "0.23"),
    _packed_like_weights("dtype", "0.23", "0.26"),
    named(
        "bnb_4bit_quant_storage",
        "quantization.storage",
        DTYPES,
        f"{_SOURCE}, from 0.26; absent, uint8",
        since="0.26",
        default=None,
        when=in_four_bits,
        package=TRL,
    ),
)


# ── adapter ──────────────────────────────────────────────────────────────────────────────────────

_SUFFIX = re.compile(r"\(\.\*\\\.\)\?((?:\w|\\\W)+)")
r"""Matches `(.*\.)?q_proj`, the regular expression equivalent to the single name `q_proj`."""


def _write_targets(plan: Plan) -> Mapping[str, Any]:
    """Write a single name as a regular expression, because TRL reads a list of one name as one."""
    targets = plan.adapter.targets
    if isinstance(targets, str):
        return {"lora_target_modules": targets}
    if len(targets) == 1:
        return {"lora_target_modules": rf"(.*\.)?{re.escape(targets[0])}"}
    return {"lora_target_modules": list(targets)}


def _read_targets(found: Mapping[str, Any]) -> Mapping[str, Any]:
    targets = found["lora_target_modules"]
    if isinstance(targets, list) and len(targets) == 1:
        targets = targets[0]
    if isinstance(targets, list):
        return {"adapter.targets": tuple(targets)}
    one = _SUFFIX.fullmatch(targets)
    return {"adapter.targets": (re.sub(r"\\(\W)", r"\1", one[1]),) if one else targets}


def _lora(
    keys: str,
    slot: str,
    write: Callable[[Plan], Mapping[str, Any]],
    read: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    *absent: Any,
) -> Entry:
    defaults = tuple((ALWAYS, {slot: value}) for value in absent)
    return Entry(
        (keys,), (slot,), write, read, _SOURCE, absent=defaults, when=has_adapter, package=TRL
    )


def _key(key: str, slot: str, default: Any, since: str | None = None) -> Entry:
    return same(
        key, f"adapter.{slot}", _SOURCE, since=since, default=default, when=has_adapter, package=TRL
    )


def _never(slot: str, until: str, value: Any = False) -> Entry:
    source = f"{_SOURCE}, from {until}"
    return fixed(f"adapter.{slot}", value, source, until=until, when=has_adapter, package=TRL)


ADAPTER = (
    named(
        "use_peft",
        "adapter.kind",
        {"lora": True, "none": False},
        _SOURCE,
        default="none",
        package=TRL,
    ),
    _key("lora_r", "rank", 16),
    _lora(
        "lora_alpha",
        "adapter.alpha",
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        32.0,
    ),
    _key("lora_dropout", "dropout", 0.05),
    _lora("lora_target_modules", "adapter.targets", _write_targets, _read_targets),
    _lora(
        "lora_modules_to_save",
        "adapter.also_train",
        names_under("lora_modules_to_save", "adapter.also_train"),
        lambda found: {"adapter.also_train": tuple(found["lora_modules_to_save"] or ())},
        (),
    ),
    Entry(
        ("lora_target_parameters",),
        ("adapter.parameters",),
        names_under("lora_target_parameters", "adapter.parameters"),
        lambda found: {"adapter.parameters": tuple(found["lora_target_parameters"] or ())},
        "trl 0.26.0 to 1.16.0 trainer/utils.py `get_peft_config`; 0.25.1 does not hand it on",
        since="0.26",
        absent=((ALWAYS, {"adapter.parameters": ()}),),
        when=has_adapter,
        package=TRL,
    ),
    derived("lora_task_type", task_of, _SOURCE, when=has_adapter, package=TRL),
    _key("use_rslora", "rslora", False, since="0.10"),
    _key("use_dora", "dora", False, since="0.16"),
)
PLAIN_LORA = (
    _never("rslora", "0.10"),
    _never("dora", "0.16"),
    _never("parameters", "0.26", ()),
    fixed(
        "adapter.bias",
        "none",
        "trl 0.8.6 to 1.16.0 trainer/utils.py `get_peft_config`",
        when=has_adapter,
        package=TRL,
    ),
)
"""Settings that TRL uses if ModelConfig has no key for them; adapter_config.json can set more."""
