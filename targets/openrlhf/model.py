"""Rows of OpenRLHF's flags: model, dtypes, adapter, data."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, Phrase, constant, fixed, named, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.openrlhf.data import data
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.read_only import means_every_layer, named_word
from tunec.targets.rows import has_adapter, in_four_bits, is_supervised, recomputes_layers, row
from tunec.targets.scripts.command import FLAGS

_ACTOR: Final = f"{SOURCE} models/actor.py `Actor.__init__`"
_FLAGS: Final = f"{SOURCE} cli/train_sft.py, cli/train_dpo.py"
_CONFIG: Final = f"{SOURCE} utils/deepspeed/deepspeed_utils.py `get_train_ds_config`"


# ── model and arithmetic ─────────────────────────────────────────────────────────────────────────

_COMPUTE: Final = "ds.param_dtype"
_GRADIENTS: Final = "ds.grad_accum_dtype"
_HALF: Final = ("bf16", "fp16")


def _write_compute(plan: Plan) -> Mapping[str, Json]:
    compute = plan.precision.compute
    return {_COMPUTE: compute} if compute in _HALF else {}


def _compute(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = found.get(_COMPUTE, "bf16")
    if dtype not in _HALF:
        return {}
    return {
        "precision.compute": dtype,
        "precision.loss_scaling": "dynamic" if dtype == "fp16" else "none",
        "states.weights": dtype,
    }


def _gradients(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = found.get(_GRADIENTS) or found.get(_COMPUTE, "bf16")
    return {"states.gradients": dtype}


def _in_fp16(plan: Plan) -> bool:
    return plan.precision.compute == "fp16"


def _scaling(slot: str, value: int) -> Entry:
    source = f"{_CONFIG}: DeepSpeed's own"
    return fixed(f"precision.{slot}", value, source, when=_in_fp16)


_ATTENTION: Final = {name: name for name in ("eager", "sdpa", "flash_attention_2")}
MODEL: Final = (
    same("model.model_name_or_path", "model.path", _FLAGS),
    row(
        ("ds.attn_implementation",),
        ("attention.implementation",),
        lambda plan: {"ds.attn_implementation": plan.attention.implementation},
        named_word(_ATTENTION, "ds.attn_implementation", "attention.implementation"),
        _ACTOR,
        absent={"attention.implementation": "flash_attention_2"},
    ),
    row(
        (_COMPUTE,),
        ("precision.compute", "precision.loss_scaling", "states.weights"),
        _write_compute,
        _compute,
        f"{_CONFIG}; {_ACTOR}: torch_dtype",
        absent=_compute({}),
    ),
    row(
        (_GRADIENTS, _COMPUTE),
        ("states.gradients",),
        lambda plan: {_GRADIENTS: plan.states.gradients},
        _gradients,
        f"{_CONFIG}; absent, DeepSpeed takes the model's dtype",
        absent=_gradients({}),
    ),
    fixed("states.master_weights", value=True, source=f"{_CONFIG}: fp32 copies, DeepSpeed's own"),
    fixed("states.optimizer", "fp32", f"{_CONFIG}: of these copies"),
    fixed("states.autocast", value=False, source=f"{_CONFIG}: the engine casts the module"),
    fixed("precision.tf32", value=False, source=f"{_FLAGS}: torch's own setting stays"),
    _scaling("initial_scale_power", 16),
    _scaling("loss_scale_window", 1000),
    _scaling("hysteresis", 2),
    _scaling("min_loss_scale", 1),
    fixed("loss.path", "full", f"{SOURCE} models/actor.py `Actor.forward`"),
)


# ── adapter and quantisation ─────────────────────────────────────────────────────────────────────

_RANK: Final = "ds.lora.rank"
_TARGETS: Final = "ds.lora.target_modules"


def _write_kind(plan: Plan) -> Mapping[str, Json]:
    return {_RANK: plan.adapter.rank} if has_adapter(plan) else {}


def _kind(found: Mapping[str, Json]) -> Mapping[str, Any]:
    rank = found.get(_RANK, 0)
    return {"adapter.kind": "lora", "adapter.rank": rank} if rank > 0 else {"adapter.kind": "none"}


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    """The target names; a pattern would be a name for PEFT, which gets a list."""
    targets = plan.adapter.targets
    if targets == "all-linear":
        return {_TARGETS: [targets]}
    return {} if isinstance(targets, str) else {_TARGETS: list(targets)}


def _listed(value: Json) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    names = _listed(found[_TARGETS])
    return {} if means_every_layer(names) else {"adapter.targets": tuple(names)}


def _never(slot: str, value: Any) -> Entry:
    return fixed(f"adapter.{slot}", value, f"{_ACTOR}: LoraConfig", when=has_adapter)


ADAPTER: Final = (
    row((_RANK,), ("adapter.kind",), _write_kind, _kind, _ACTOR, absent={"adapter.kind": "none"}),
    row((_RANK,), ("adapter.rank",), _write_kind, _kind, _ACTOR, when=has_adapter),
    row(
        ("ds.lora.alpha",),
        ("adapter.alpha",),
        lambda plan: {"ds.lora.alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["ds.lora.alpha"]},
        _ACTOR,
        absent={"adapter.alpha": 16.0},
        when=has_adapter,
    ),
    same("ds.lora.dropout", "adapter.dropout", _ACTOR, default=0.0, when=has_adapter),
    row(
        (_TARGETS,),
        ("adapter.targets",),
        _write_targets,
        _targets,
        f"{_ACTOR}; absent they are all linear layers",
        when=has_adapter,
    ),
    _never("bias", "none"),
    _never("rslora", value=False),
    _never("dora", value=False),
    _never("parameters", ()),
    _never("also_train", ()),
    fixed("adapter.frozen", (), f"{_FLAGS}: no flag of them freezes a part"),
)


_FLAGGED: Final = tuple(f"{FLAGS}.{key}" for key in (_TARGETS, _RANK))


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    targets, rank = (found.get(key) for key in _FLAGGED)
    is_all = bool(rank) if targets is None else means_every_layer(_listed(targets))
    return {"adapter.targets": "all-linear"} if is_all else {}


EVERY_LAYER: Final = Phrase(
    _FLAGGED[:1],
    _every_layer,
    f"{_ACTOR}; peft tuners/tuners_utils.py `_maybe_include_all_linear_layers`",
    beside=_FLAGGED[1:],
    by_default=True,
)


def _of_bits(slot: str, value: Any) -> Entry:
    return fixed(f"quantization.{slot}", value, f"{_ACTOR}: nf4_config", when=in_four_bits)


QUANTIZATION: Final = (
    named(
        "ds.load_in_4bit",
        "quantization.format",
        {"nf4": True, "none": False},
        _ACTOR,
        default="none",
    ),
    _of_bits("double", value=True),
    _of_bits("compute", "bf16"),
    _of_bits("storage", None),
)


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_RECOMPUTED: Final = "model.gradient_checkpointing_enable"
_REENTRANT: Final = "model.gradient_checkpointing_reentrant"
_MODE: Final = "activation_checkpointing.mode"


CHECKPOINTING: Final = (
    named(_RECOMPUTED, _MODE, {"layer": True, "none": False}, _FLAGS, default="none"),
    same(
        _REENTRANT,
        "activation_checkpointing.reentrant",
        _FLAGS,
        default=False,
        when=recomputes_layers,
    ),
    fixed("activation_checkpointing.segment", 1, f"{_FLAGS}: a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_FLAGS}: every layer"),
    fixed("activation_checkpointing.offload", value=False, source=f"{_FLAGS}: nothing moves them"),
)


# ── data ─────────────────────────────────────────────────────────────────────────────────────────

_MESSAGES: Final = f"{SOURCE} datasets/sft_dataset.py `SFTDataset`"
_PAIRS: Final = f"{SOURCE} datasets/reward_dataset.py `RewardDataset`"
_CHATS: Final[Mapping[str, Json]] = {
    "data.input_key": "messages",
    "data.multiturn": True,
    "data.apply_chat_template": True,
}
"""Lists of messages, of which every answer is trained on."""
_PARTS: Final[Mapping[str, Json]] = {
    "data.input_key": "prompt",
    "data.output_key": "completion",
    "data.input_template": "{}",
}
"""Prompt and completion, joined: the default template is `User: {}` with an answer."""
_RECORDS: Final = tuple(dict.fromkeys((*_CHATS, *_PARTS)))


def _write_records(plan: Plan) -> Mapping[str, Json]:
    if plan.data.format == "prompt-completion":
        return _PARTS
    return _CHATS if plan.data.format is None else {}


def _read_records(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The format, by the names of columns and the use of a template."""
    key, is_chat = found.get("data.input_key"), found.get("data.apply_chat_template") is True
    if key == "messages" and is_chat:
        return {"data.format": None}
    is_plain = not is_chat and all(found.get(name) == value for name, value in _PARTS.items())
    return {"data.format": "prompt-completion"} if is_plain else {}


OF_TEXTS: Final = (
    fixed("objective.kind", "sft", f"{SOURCE} cli/train_sft.py", when=is_supervised),
    *data(2048),
    row(_RECORDS, ("data.format",), _write_records, _read_records, _MESSAGES),
)


# ── pairs ────────────────────────────────────────────────────────────────────────────────────────

_DPO: Final = f"{SOURCE} trainer/dpo_trainer.py `DPOTrainer`, models/loss.py `DPOLoss`"
_IPO: Final = "model.ipo_enable"
_SMOOTH: Final = ("model.label_smoothing", "model.nll_loss_coef")
_REFERENCE: Final = "ref.model_name_or_path"


def _loss(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The loss; with smoothed labels or an added likelihood it has no slot value."""
    if any(found.get(key) for key in _SMOOTH):
        return {}
    return {"objective.loss": "ipo" if found.get(_IPO) is True else "sigmoid"}


def _write_loss(plan: Plan) -> Mapping[str, Json]:
    losses = {"sigmoid": False, "ipo": True}
    return {_IPO: losses[plan.objective.loss]} if plan.objective.loss in losses else {}


def _reference(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The reference: a second model; with another name or on the host it has no slot value."""
    other = found.get(_REFERENCE)
    is_own = not other or other == found.get("model.model_name_or_path")
    is_plain = is_own and not found.get("ref.offload")
    return {"objective.reference": "resident"} if is_plain else {}


OF_PAIRS: Final = (
    fixed("objective.kind", "dpo", f"{SOURCE} cli/train_dpo.py"),
    row(
        (_IPO, *_SMOOTH),
        ("objective.loss",),
        _write_loss,
        _loss,
        _DPO,
        absent={"objective.loss": "sigmoid"},
    ),
    same("model.beta", "objective.beta", _DPO, default=0.1),
    row(
        (_REFERENCE, "ref.offload", "model.model_name_or_path"),
        ("objective.reference",),
        lambda _: {},
        _reference,
        f"{SOURCE} cli/train_dpo.py: a second model, with adapters too",
        absent={"objective.reference": "resident"},
    ),
    *data(512),
    constant("data.apply_chat_template", True, f"{_PAIRS}: lists of messages"),
    constant("data.prompt_key", "prompt", _PAIRS),
)
