"""Rows of Unsloth's file: what is trained, and how the frozen base is stored."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, fixed, named, same
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.adapter import whole
from tunec.targets.huggingface.text_layers import LAYERS
from tunec.targets.read_only import split_names
from tunec.targets.rows import has_adapter, has_text_alone, in_four_bits, row
from tunec.targets.unsloth.packages import CONFIG, STUDIO

_LORA: Final = f"{CONFIG} `LoraConfig`"
_TRAINING: Final = f"{CONFIG} `TrainingConfig`"
_PREPARES: Final = f"{STUDIO} `prepare_model_for_training`"
_KIND, _BITS, _TARGETS = "training.training_type", "training.load_in_4bit", "lora.target_modules"


def _default(key: str, slot: str, value: Any, *, since: str | None = None) -> Entry:
    return same(
        f"lora.{key}", f"adapter.{slot}", _LORA, since=since, default=value, when=has_adapter
    )


def _never(slot: str, value: Any, source: str, *, until: str | None = None) -> Entry:
    return replace(fixed(f"adapter.{slot}", value, source, until=until), when=has_adapter)


def _write_alpha(plan: Plan) -> Mapping[str, Json]:
    """Write the alpha, which must be a whole number."""
    alpha = whole(plan.adapter.alpha)
    return {"lora.lora_alpha": alpha} if isinstance(alpha, int) else {}


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    return {} if isinstance(targets, str) else {_TARGETS: ",".join(targets)}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The target names; `all-linear` has another meaning here than in PEFT."""
    names = split_names(found[_TARGETS])
    return {"adapter.targets": names} if "all-linear" not in names else {}


ADAPTER: Final = (
    named(_KIND, "adapter.kind", {"lora": "lora", "none": "full"}, _TRAINING, default="lora"),
    _default("lora_r", "rank", 64),
    row(
        ("lora.lora_alpha",),
        ("adapter.alpha",),
        _write_alpha,
        lambda found: {"adapter.alpha": found["lora.lora_alpha"]},
        _LORA,
        absent={"adapter.alpha": 16.0},
        when=has_adapter,
    ),
    _default("lora_dropout", "dropout", 0.0),
    row(
        (_TARGETS,),
        ("adapter.targets",),
        _write_targets,
        _targets,
        _LORA,
        absent={"adapter.targets": LAYERS},
        when=lambda plan: has_adapter(plan) and has_text_alone(plan),
    ),
    _default("use_rslora", "rslora", False),
    _default("use_dora", "dora", False, since="2026.7.6"),
    _never("dora", False, f"{_LORA}, in 2026.3.18 without use_dora", until="2026.7.6"),
    _never("bias", "none", _PREPARES),
    _never("parameters", (), f"{_LORA}: it finds experts by the names of their projections"),
    _never("also_train", (), f"{_PREPARES}: modules_to_save"),
    fixed("adapter.frozen", (), f"{_PREPARES}: in full, all parameters"),
)


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────


def _write_format(plan: Plan) -> Mapping[str, Json]:
    """Write nf4 or 16 bits; full training loads 16 bits in any case."""
    form = plan.quantization.format
    kind = {_KIND: "lora" if has_adapter(plan) else "full"}
    return {**kind, _BITS: form == "nf4"} if form in ("nf4", "none") else kind


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    packed = found.get(_BITS, True) and found.get(_KIND, "lora") == "lora"
    return {"quantization.format": "nf4" if packed else "none"}


_BNB: Final = (
    "unsloth 2026.9.8 to 2026.10.9 models/llama.py and vision.py `from_pretrained`: "
    "BitsAndBytesConfig"
)
QUANTIZATION: Final = (
    row(
        (_BITS, _KIND),
        ("quantization.format",),
        _write_format,
        _format,
        f"{_TRAINING}; unsloth_cli/commands/train.py `train`; {_BNB}",
        absent={"quantization.format": "nf4"},
    ),
    replace(fixed("quantization.double", True, _BNB), when=in_four_bits),
    replace(fixed("quantization.storage", None, _BNB), when=in_four_bits),
)
