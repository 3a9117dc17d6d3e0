"""Rows of the sections `model`, `peft` and `quantization`, and of dtypes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, constant, derived, fixed, named, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.nemo_automodel.packages import SOURCE
from tunec.targets.rows import has_adapter, in_four_bits, on_fsdp, row

_LOADS: Final = f"{SOURCE} _transformers/auto_model.py `from_pretrained`"
_POLICY: Final = f"{SOURCE} components/distributed/config.py `FSDP2Config`"
_LORA: Final = f"{SOURCE} components/_peft/lora.py `PeftConfig`"
_MATCHES: Final = f"{SOURCE} components/_peft/module_matcher.py `ModuleMatcher`"
_BITS: Final = f"{SOURCE} components/quantization/qlora.py `create_bnb_config`"
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_WORDS: Final = {word: name for name, word in _DTYPES.items()} | {name: name for name in _DTYPES}


def _dtype(word: Json) -> str | None:
    """A dtype by its name, with or without torch's prefix."""
    return _WORDS.get(str(word).removeprefix("torch."))


# ── model and arithmetic ─────────────────────────────────────────────────────────────────────────

CLASS: Final = "nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained"
_DTYPE: Final = "model.torch_dtype"
_LOSS: Final = "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy"
_CASTS: Final = "distributed.mp_policy"
_PARAM: Final = f"{_CASTS}.param_dtype"
_POLICIES: Final[Mapping[str, Json]] = {
    f"{_CASTS}._target_": "torch.distributed.fsdp.MixedPrecisionPolicy",
    f"{_CASTS}.reduce_dtype": "float32",
    f"{_CASTS}.cast_forward_inputs": False,
}
"""The mixed precision policy; before 0.7 the default returns fp32 from every unit."""


def _alone(plan: Plan) -> bool:
    return not on_fsdp(plan)


def _read_weights(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = _dtype(found[_DTYPE])
    return {} if dtype is None else {"states.weights": dtype}


def _read_compute(word: Json) -> Mapping[str, Any]:
    dtype = _dtype(word)
    return {} if dtype is None else {"precision.compute": dtype}


MODEL: Final = (
    constant("recipe", "TrainFinetuneRecipeForNextTokenPrediction", f"{SOURCE} cli/app.py"),
    constant("model._target_", CLASS, _LOADS),
    same("model.pretrained_model_name_or_path", "model.path", _LOADS),
    same("model.trust_remote_code", "model.trust_remote_code", _LOADS, default=False),
    constant("model.force_hf", True, f"{_LOADS}: transformers' own class, not one of its own"),
    constant("model.use_liger_kernel", False, f"{_LOADS}: else Liger's kernels where installed"),
    same(
        "model.attn_implementation", "attention.implementation", _LOADS, default="flash_attention_2"
    ),
    row(
        (_DTYPE,),
        ("states.weights",),
        lambda plan: {_DTYPE: _DTYPES[plan.states.weights]},
        _read_weights,
        f"{_LOADS}; what is trained, its gradients and moments have the same dtype",
    ),
    row(
        (_PARAM, *_POLICIES),
        ("precision.compute",),
        lambda plan: {**_POLICIES, _PARAM: _DTYPES[plan.precision.compute]},
        lambda found: _read_compute(found.get(_PARAM, "bfloat16")),
        f"{_POLICY}: MixedPrecisionPolicy in bf16, with sums of gradients in fp32",
        absent={"precision.compute": "bf16"},
        when=on_fsdp,
    ),
    row(
        (_DTYPE,),
        ("precision.compute",),
        lambda plan: {_DTYPE: _DTYPES[plan.states.weights]},
        lambda found: _read_compute(found[_DTYPE]),
        f"{SOURCE} components/distributed/fsdp2.py: one process is not wrapped, and nothing cast",
        when=_alone,
    ),
    fixed("precision.loss_scaling", "none", f"{SOURCE} recipes/llm/train_ft.py: no scaler"),
    fixed("precision.tf32", value=False, source=f"{SOURCE} recipes/llm/train_ft.py: torch's own"),
    constant("loss_fn._target_", _LOSS, f"{SOURCE} recipes/llm/train_ft.py: it has no default"),
    named(
        "loss_fn._target_",
        "loss.path",
        {"full": _LOSS},
        f"{SOURCE} components/loss/masked_ce.py `MaskedCrossEntropy`: all logits, in fp32",
    ),
)


# ── adapter ──────────────────────────────────────────────────────────────────────────────────────

_KIND: Final = "peft._target_"
_TARGETS: Final = "peft.target_modules"
_USUAL: Final = r".*_proj"


_ANYWHERE: Final = "*."
_TOPMOST: Final = "lm_head"
"""The layer that is matched by its full path, which is its name."""


def _pattern(names: Sequence[str]) -> Any:
    """Names of layers, or one expression over full paths if one is another pattern."""
    plain = [name.removeprefix(_ANYWHERE) for name in names]
    if not any("*" in name for name in plain):
        return tuple(plain)
    every = [name.replace(".", r"\.").replace("*", ".*") for name in names]
    return every[0] if len(every) == 1 else f"(?:{'|'.join(every)})"


def wildcard_of(targets: str) -> str | None:
    """The wildcard equivalent to an expression for a suffix; None for other expressions."""
    found = re.fullmatch(r"\.\*(\w+)", targets)
    return f"*{found[1]}" if found else None


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    if isinstance(targets, str):
        return {_TARGETS: [wildcard]} if (wildcard := wildcard_of(targets)) else {}
    return {_TARGETS: [name if name == _TOPMOST else f"{_ANYWHERE}{name}" for name in targets]}


def _read_targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Patterns; a plain name is a full path, which only the head's is."""
    said = found[_TARGETS]
    names = [said] if isinstance(said, str) else [str(each) for each in said or ()]
    if any("*" not in name and name != _TOPMOST for name in names):
        return {}
    return {"adapter.targets": _pattern(names) if names else _USUAL}


def _number(key: str, slot: str, usual: Any) -> Entry:
    return same(f"peft.{key}", f"adapter.{slot}", _LORA, default=usual, when=has_adapter)


def _never(slot: str, value: Any) -> Entry:
    return fixed(f"adapter.{slot}", value, f"{_LORA}: no key for it", when=has_adapter)


ADAPTER: Final = (
    row(
        (_KIND,),
        ("adapter.kind",),
        lambda plan: (
            {_KIND: "nemo_automodel.components._peft.lora.PeftConfig"} if has_adapter(plan) else {}
        ),
        lambda found: {"adapter.kind": "lora"} if "PeftConfig" in str(found[_KIND]) else {},
        f"{SOURCE} recipes/llm/train_ft.py `setup`: `peft`",
        absent={"adapter.kind": "none"},
    ),
    _number("dim", "rank", 8),
    row(
        ("peft.alpha",),
        ("adapter.alpha",),
        lambda plan: {"peft.alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": float(found["peft.alpha"])},
        _LORA,
        absent={"adapter.alpha": 32.0},
        when=has_adapter,
    ),
    _number("dropout", "dropout", 0.0),
    derived(
        "peft.dropout_position",
        lambda plan: "pre" if plan.adapter.dropout else None,
        f"{_LORA}: on the input, as PEFT has it; behind the adapter by default",
        when=has_adapter,
    ),
    _number("use_dora", "dora", False),
    row(
        (_TARGETS,),
        ("adapter.targets",),
        _write_targets,
        _read_targets,
        f"{_MATCHES}: patterns over whole paths",
        absent={"adapter.targets": _USUAL},
        when=has_adapter,
    ),
    _never("bias", "none"),
    _never("rslora", value=False),
    _never("parameters", ()),
    _never("also_train", ()),
    fixed("adapter.frozen", (), f"{SOURCE} recipes/llm/train_ft.py: no `freeze_config`"),
)


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────

_FOUR, _EIGHT, _TYPE = (
    f"quantization.{name}" for name in ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type")
)
_FORMATS: Final[Mapping[str, Mapping[str, Json]]] = {
    "nf4": {_FOUR: True, _TYPE: "nf4"},
    "fp4": {_FOUR: True, _TYPE: "fp4"},
    "int8": {_FOUR: False, _EIGHT: True},
}


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get(_FOUR) is True:
        return {"quantization.format": found.get(_TYPE, "nf4")}
    return {"quantization.format": "int8" if found.get(_EIGHT) is True else "none"}


def _of_bits(key: str, slot: str) -> Entry:
    at = f"quantization.{key}"
    return row(
        (at,),
        (f"quantization.{slot}",),
        lambda plan: {at: _DTYPES.get(plan[f"quantization.{slot}"], "uint8")},
        lambda found: {f"quantization.{slot}": _dtype(found[at])},
        _BITS,
        absent={f"quantization.{slot}": "bf16"},
        when=in_four_bits,
    )


QUANTIZATION: Final = (
    row(
        (_FOUR, _EIGHT, _TYPE),
        ("quantization.format",),
        lambda plan: _FORMATS.get(plan.quantization.format, {}),
        _format,
        f"{_BITS}; recipes/llm/train_ft.py `build_model`",
        absent={"quantization.format": "none"},
    ),
    derived(_EIGHT, lambda _: False, f"{_BITS}: it is asked for", when=in_four_bits),
    named(
        "quantization.bnb_4bit_use_double_quant",
        "quantization.double",
        {True: True, False: False},
        _BITS,
        default=True,
        when=in_four_bits,
    ),
    _of_bits("bnb_4bit_compute_dtype", "compute"),
    _of_bits("bnb_4bit_quant_storage", "storage"),
)
