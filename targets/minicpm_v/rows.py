"""The flags of finetune.py: those of its own four dataclasses, and of transformers."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, derived, fixed, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.huggingface.arithmetic import recomputes
from tunec.targets.huggingface.target import TRAINING_ARGS
from tunec.targets.minicpm_v.versions import RELEASES
from tunec.targets.rows import has_adapter, unlimited
from tunec.targets.scripts.file import started, within, without

SCRIPT: Final = "finetune.py"
FILE: Final = "OpenBMB/MiniCPM-V cd64150, 2c0e7ff and 0dbb566, finetune/finetune.py"
_TRAIN: Final = f"{FILE} `train`"


# ── model and data ───────────────────────────────────────────────────────────────────────────────

LANGUAGE_MODELS: Final = (
    (re.compile(r"(?i)minicpm-(v|o)-?2[_.]6"), "qwen"),
    (re.compile(r"(?i)minicpm-llama3-v"), "llama3"),
    (re.compile(r"(?i)minicpm-v-?4"), "llama"),
    (re.compile(r"(?i)minicpm-v-?2(\.0)?$"), "minicpm"),
)
"""`--llm_type` by the name of the model (finetune/readme.md, finetune/finetune_lora.sh)."""


def language_model(plan: Plan) -> str | None:
    """The chat format of the model, None if its name does not show it."""
    name = plan.model.path.rstrip("/").rpartition("/")[2]
    found = (word for pattern, word in LANGUAGE_MODELS if pattern.search(name))
    return next(found, None)


_DATA: Final = (
    same(
        "model_name_or_path",
        "model.path",
        f"{FILE} `ModelArguments`",
        default="openbmb/MiniCPM-V-2",
    ),
    derived("llm_type", language_model, f"{FILE} `TrainingArguments`: default minicpm"),
    same("data_path", "data.train", f"{FILE} `DataArguments`"),
    unlimited(f"{FILE} `make_supervised_data_module`: all of a file is read"),
    same("eval_data_path", "data.evaluation", f"{FILE} `DataArguments`", default=None),
    same(
        "model_max_length",
        "data.sequence",
        f"{FILE} `TrainingArguments`; the places of images count (dataset.py conversation_to_ids)",
        default=2048,
    ),
    constant(
        "max_slice_nums", 9, f"{FILE} `TrainingArguments`: slices of an image larger than 448 x 448"
    ),
    fixed(
        "data.packing", value=False, source="finetune/dataset.py `data_collator`: a sample a row"
    ),
    fixed("model.kind", "vision-language", f"{_TRAIN}: model.vpm, model.llm"),
    fixed("model.trust_remote_code", value=True, source=_TRAIN),
    fixed("quantization.format", "none", f"{_TRAIN}: from_pretrained has no quantization_config"),
    fixed(
        "attention.implementation",
        "sdpa",
        f"{_TRAIN} names none: transformers modeling_utils.py then takes sdpa where it can",
    ),
)


# ── precision ────────────────────────────────────────────────────────────────────────────────────


def _write_precision(plan: Plan) -> Mapping[str, Json]:
    compute = plan.precision.compute
    engine = {"deepspeed": "ds_config.json"} if plan.parallel.engine == "deepspeed" else {}
    return {"bf16": compute == "bf16", "fp16": compute == "fp16", **engine}


def _read_precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    half, bfloat = found.get("fp16", False), found.get("bf16", False)
    if half and bfloat:
        return {}
    compute = "fp16" if half else "bf16" if bfloat else "fp32"
    return {
        "precision.compute": compute,
        "precision.loss_scaling": "dynamic" if half else "none",
        "states.weights": compute,
        "states.autocast": compute != "fp32" and not found.get("deepspeed"),
    }


_PRECISION: Final = Entry(
    ("bf16", "fp16", "deepspeed"),
    ("precision.compute", "precision.loss_scaling", "states.weights", "states.autocast"),
    _write_precision,
    _read_precision,
    f"{_TRAIN} compute_dtype: the weights are loaded in the dtype of the flags, else in fp32",
    absent=((ALWAYS, _read_precision({})),),
)


# ── what is trained ──────────────────────────────────────────────────────────────────────────────

ALSO: Final = ("llm.model.embed_tokens", "resampler")
VISION: Final = "vpm"


_TUNED: Final = ("use_lora", "tune_vision", "tune_llm")


def _write_tuned(plan: Plan) -> Mapping[str, Json]:
    if has_adapter(plan):
        tuned = (True, VISION in plan.adapter.also_train, False)
    else:
        tuned = (False, "vision" not in plan.adapter.frozen, "text" not in plan.adapter.frozen)
    return dict(zip(_TUNED, tuned, strict=True))


def _read_tuned(found: Mapping[str, Json]) -> Mapping[str, Any]:
    vision, text = found.get("tune_vision", True), found.get("tune_llm", True)
    if found.get("use_lora", False):
        also = (*ALSO, VISION) if vision else ALSO
        return {"adapter.kind": "lora", "adapter.also_train": also, "adapter.frozen": ()}
    parts = (("vision", vision), ("text", text))
    frozen = tuple(part for part, is_tuned in parts if not is_tuned)
    return {"adapter.kind": "none", "adapter.also_train": (), "adapter.frozen": frozen}


_PARTS: Final = (
    Entry(
        _TUNED,
        ("adapter.kind", "adapter.also_train", "adapter.frozen"),
        _write_tuned,
        _read_tuned,
        f"{_TRAIN}: with LoRA modules_to_save are embed_tokens and resampler always and vpm with "
        "--tune_vision, and --tune_llm is refused; without it, what is not tuned has no gradients",
        absent=((ALWAYS, _read_tuned({})),),
    ),
)


# ── adapters ─────────────────────────────────────────────────────────────────────────────────────

_LORA: Final = f"{FILE} `LoraArguments`"
_SUFFIXES: Final = re.compile(r"\(\.\*\\\.\)\?\(\?:((?:\w|\\\W|\|)+)\)")
r"""`(.*\.)?(?:q_proj|v_proj)`: the pattern for the suffixes q_proj and v_proj."""


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    if isinstance(targets, str):
        return {"lora_target_modules": targets}
    return {"lora_target_modules": rf"(.*\.)?(?:{'|'.join(map(re.escape, targets))})"}


def _read_targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    text = found["lora_target_modules"]
    names = _SUFFIXES.fullmatch(text)
    if names is None:
        return {"adapter.targets": text}
    return {
        "adapter.targets": tuple(re.sub(r"\\(\W)", r"\1", each) for each in names[1].split("|"))
    }


def _lora(key: str, slot: str, default: Any) -> Entry:
    return same(key, f"adapter.{slot}", _LORA, default=default, when=has_adapter)


_ADAPTER: Final = (
    _lora("lora_r", "rank", 64),
    Entry(
        ("lora_alpha",),
        ("adapter.alpha",),
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        _LORA,
        absent=((ALWAYS, {"adapter.alpha": 64.0}),),
        when=has_adapter,
    ),
    _lora("lora_dropout", "dropout", 0.05),
    Entry(
        ("lora_target_modules",),
        ("adapter.targets",),
        _write_targets,
        _read_targets,
        f"{_LORA}: a string, so a regular expression",
        absent=(
            (ALWAYS, {"adapter.targets": r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj)"}),
        ),
        when=has_adapter,
    ),
    _lora("lora_bias", "bias", "none"),
    fixed("adapter.parameters", (), f"{_TRAIN} LoraConfig", when=has_adapter),
    fixed("adapter.rslora", value=False, source=f"{_TRAIN} LoraConfig", when=has_adapter),
    fixed("adapter.dora", value=False, source=f"{_TRAIN} LoraConfig", when=has_adapter),
)


# ── arguments of the Trainer ─────────────────────────────────────────────────────────────────────

_REPLACED: Final = (
    *("precision.compute", "precision.loss_scaling", "activation_checkpointing.reentrant"),
    *("remove_unused_columns", "label_names", "average_tokens_across_devices"),
    *("evaluation.predictions", "evaluation.beams", "evaluation.kept_batches"),
    "generation_max_length",
)
_TRAINER: Final = (
    *within(without(TRAINING_ARGS.entries, *_REPLACED), RELEASES.releases),
    fixed(
        "activation_checkpointing.reentrant",
        value=False,
        source=f"{_TRAIN}: gradient_checkpointing_kwargs is set after parsing",
        when=recomputes,
    ),
    constant(
        "remove_unused_columns",
        value=False,
        source="finetune/finetune_lora.sh: the collator needs columns that forward() does not name",
    ),
    constant("label_names", ["labels"], "finetune/finetune_lora.sh"),
    constant("prediction_loss_only", value=False, source="finetune/finetune_lora.sh"),
)

FLAGS: Final = (*_DATA, _PRECISION, *_PARTS, *_ADAPTER, *_TRAINER)
OWN: Final = frozenset(key for entry in (*_DATA, *_PARTS, *_ADAPTER) for key in entry.keys)
"""Flags of the script itself; the others are those of transformers."""
TEXT: Final = frozenset(
    {
        *("model_name_or_path", "data_path", "eval_data_path", "output_dir", "deepspeed"),
        *("lora_target_modules", "report_to", "llm_type", "optim"),
    }
)


def _write_script(plan: Plan) -> Mapping[str, Json]:
    return {"script": [started(plan, SCRIPT)]}


START: Final = Entry(
    ("script",), (), _write_script, lambda _: {}, f"{FILE}, started in its own folder"
)
