"""The flags of llama_cookbook.finetuning: train_config, lora_config, quantization_config, data."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed, named, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.llama_cookbook.fsdp import ROWS as FSDP_ROWS
from tunec.targets.rows import has_adapter, in_epochs, in_four_bits, in_steps, on_fsdp, unlimited
from tunec.targets.scripts.file import started

SCRIPT: Final = "llama_cookbook.finetuning"
PACKAGE: Final = "llama-cookbook 0.0.5.post1"
_TRAIN: Final = f"{PACKAGE} configs/training.py `train_config`"
_MAIN: Final = f"{PACKAGE} finetuning.py `main`"
_LOOP: Final = f"{PACKAGE} utils/train_utils.py `train`"


def _default(key: str, slot: str, value: Any, source: str = _TRAIN) -> Entry:
    return same(key, slot, source, default=value)


# ── model and data ───────────────────────────────────────────────────────────────────────────────

_SETS: Final[Mapping[str, str]] = {
    name: f"{name}_dataset" for name in ("samsum", "alpaca", "grammar", "llamaguard_toxicchat")
}


def _write_data(plan: Plan) -> Mapping[str, Json]:
    name = plan.data.train
    if name in _SETS:
        return {"dataset": _SETS[name]}
    is_script = name.partition(":")[0].endswith(".py")
    return {"dataset": "custom_dataset", "custom_dataset.file": name} if is_script else {}


def _read_data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found.get("dataset", "samsum_dataset")
    if word == "custom_dataset":
        return {"data.train": found["custom_dataset.file"]}
    named = next((name for name, known in _SETS.items() if known == word), word)
    return {"data.train": named}


def _read_validation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found["run_validation"] is not False:
        return {}
    return {"data.evaluation": None, "schedule.evaluation_steps": None}


def packs(plan: Plan) -> bool:
    """Whether samples are joined and cut to one length."""
    return plan.data.packing


_DATA: Final = (
    same("model_name", "model.path", _TRAIN),
    Entry(
        ("dataset", "custom_dataset.file"),
        ("data.train",),
        _write_data,
        _read_data,
        f"{PACKAGE} datasets/__init__.py `DATASET_PREPROC`, configs/datasets.py",
        absent=((ALWAYS, {"data.train": "samsum"}),),
    ),
    unlimited(f"{PACKAGE} datasets/__init__.py `DATASET_PREPROC`: each has its own code"),
    Entry(
        ("run_validation",),
        ("data.evaluation", "schedule.evaluation_steps"),
        lambda _: {"run_validation": False},
        _read_validation,
        f"{_TRAIN}; with it the data set's own second split is run after each epoch",
    ),
    named(
        "batching_strategy",
        "data.packing",
        {True: "packing", False: "padding"},
        _TRAIN,
        default=True,
    ),
    same(
        "context_length",
        "data.sequence",
        f"{_MAIN}: ConcatDataset(chunk_size); padding does not cut",
        default=4096,
        when=packs,
    ),
    fixed("model.trust_remote_code", value=False, source=f"{_MAIN}: LlamaForCausalLM"),
    named(
        "use_fast_kernels",
        "attention.implementation",
        {"sdpa": True},
        f"{_MAIN}: attn_implementation; without it transformers chooses, which is sdpa too",
        default="sdpa",
    ),
)


# ── precision and quantisation ───────────────────────────────────────────────────────────────────


def _write_precision(plan: Plan) -> Mapping[str, Json]:
    return {"use_fp16": plan.precision.compute == "fp16"}


def _read_precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    half = found.get("use_fp16", False) is True
    dtype = "fp16" if half else "bf16"
    return {
        "precision.compute": dtype,
        "precision.loss_scaling": "dynamic" if half else "none",
        "states.weights": dtype,
        "states.autocast": half,
    }


_PRECISION: Final = (
    Entry(
        ("use_fp16",),
        ("precision.compute", "precision.loss_scaling", "states.weights", "states.autocast"),
        _write_precision,
        _read_precision,
        f"{_MAIN}: torch_dtype is float16 or bfloat16; {_LOOP}: autocast and GradScaler for fp16 "
        "alone",
        absent=((ALWAYS, _read_precision({})),),
    ),
    fixed("precision.tf32", value=False, source=f"{_MAIN}: torch's own setting stays"),
)
_QUANTIZED: Final = f"{PACKAGE} configs/quantization.py `quantization_config`"
_DTYPES: Final[Mapping[Any, str]] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _write_format(plan: Plan) -> Mapping[str, Json]:
    form = plan.quantization.format
    if in_four_bits(plan):
        return {"quantization": "4bit", "quantization_config.quant_type": form}
    return {"quantization": "8bit"} if form == "int8" else {}


def _read_format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found.get("quantization")
    if word == "4bit":
        kind = found.get("quantization_config.quant_type", "fp4")
        return {"quantization.format": kind}
    return {"quantization.format": "int8" if word in ("8bit", True) else "none"}


_QUANTIZATION: Final = (
    Entry(
        ("quantization", "quantization_config.quant_type"),
        ("quantization.format",),
        _write_format,
        _read_format,
        f"{_QUANTIZED}; True means 8bit ({_MAIN})",
        absent=((ALWAYS, {"quantization.format": "none"}),),
    ),
    same(
        "quantization_config.use_double_quant",
        "quantization.double",
        _QUANTIZED,
        default=False,
        when=in_four_bits,
    ),
    named(
        "quantization_config.compute_dtype",
        "quantization.compute",
        _DTYPES,
        f"{_QUANTIZED}; BitsAndBytesConfig takes the name of a dtype",
        default="bf16",
        when=in_four_bits,
    ),
    named(
        "quantization_config.quant_storage",
        "quantization.storage",
        {**_DTYPES, None: "uint8"},
        _QUANTIZED,
        default="bf16",
        when=in_four_bits,
    ),
)


# ── adapter ──────────────────────────────────────────────────────────────────────────────────────

_LORA: Final = f"{PACKAGE} configs/peft.py `lora_config`"


def _lora(key: str, slot: str, default: Any) -> Entry:
    return same(f"lora_config.{key}", f"adapter.{slot}", _LORA, default=default, when=has_adapter)


def _never(slot: str, value: Any) -> Entry:
    source = f"{_LORA} has no key for it, and generate_peft_config passes on no other"
    return fixed(f"adapter.{slot}", value, source)


_ADAPTER: Final = (
    named("use_peft", "adapter.kind", {"lora": True, "none": False}, _TRAIN, default="none"),
    constant("peft_method", "lora", _TRAIN, when=has_adapter),
    _lora("r", "rank", 8),
    Entry(
        ("lora_config.lora_alpha",),
        ("adapter.alpha",),
        lambda plan: {"lora_config.lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_config.lora_alpha"]},
        _LORA,
        absent=((ALWAYS, {"adapter.alpha": 32.0}),),
        when=has_adapter,
    ),
    _lora("lora_dropout", "dropout", 0.05),
    _lora("target_modules", "targets", ("q_proj", "v_proj")),
    _never("bias", "none"),
    _never("rslora", value=False),
    _never("dora", value=False),
    _never("parameters", ()),
    _never("also_train", ()),
    fixed("adapter.frozen", (), f"{_MAIN}: freeze_layers and freeze_LLM_only need FSDP"),
)


# ── optimizer and length ─────────────────────────────────────────────────────────────────────────


def _write_clipping(plan: Plan) -> Mapping[str, Json]:
    norm = plan.optimizer.max_grad_norm
    if not norm:
        return {"gradient_clipping": False}
    return {"gradient_clipping": True, "gradient_clipping_threshold": norm}


def _read_clipping(found: Mapping[str, Json]) -> Mapping[str, Any]:
    clips = found.get("gradient_clipping", False) is True
    return {
        "optimizer.max_grad_norm": found.get("gradient_clipping_threshold", 1.0) if clips else 0
    }


_ADAMW: Final = f"{_MAIN}: optim.AdamW(lr, weight_decay), all else torch's default"
_OPTIMIZER: Final = (
    _default("lr", "optimizer.learning_rate", 1e-4),
    _default("weight_decay", "optimizer.weight_decay", 0.0),
    Entry(
        ("gradient_clipping", "gradient_clipping_threshold"),
        ("optimizer.max_grad_norm",),
        _write_clipping,
        _read_clipping,
        _TRAIN,
        absent=((ALWAYS, {"optimizer.max_grad_norm": 0.0}),),
    ),
    fixed("optimizer.name", "adamw", _ADAMW),
    fixed("optimizer.kernel", "foreach", _ADAMW),
    fixed("optimizer.beta1", 0.9, _ADAMW),
    fixed("optimizer.beta2", 0.999, _ADAMW),
    fixed("optimizer.epsilon", 1e-8, _ADAMW),
)


_LENGTH: Final = ("num_epochs", "max_train_step", "gradient_accumulation_steps")


def _write_length(plan: Plan) -> Mapping[str, Json]:
    """Write the length; max_train_step counts micro batches, and is also a bound of epochs."""
    epochs, micro = plan.schedule.epochs, plan.batch.accumulation
    length: dict[str, Json] = {"gradient_accumulation_steps": micro}
    if epochs is None:
        most = (plan.schedule.steps or 0) * micro
        return {**length, "max_train_step": most, "num_epochs": most}
    return {**length, "num_epochs": int(epochs)} if epochs == int(epochs) else length


def _read_length(found: Mapping[str, Json]) -> Mapping[str, Any]:
    epochs, most = found.get("num_epochs", 3), found.get("max_train_step", 0)
    micro = found.get("gradient_accumulation_steps", 1)
    said: dict[str, Any] = {"batch.accumulation": micro}
    if not most:
        return {**said, "schedule.epochs": float(epochs)}
    if most % micro == 0:
        said["schedule.steps"] = most // micro
    return {**said, "schedule.epochs": None} if epochs >= most else said


_SCHEDULE: Final = (
    Entry(
        _LENGTH,
        ("schedule.epochs", "batch.accumulation"),
        _write_length,
        _read_length,
        f"{_LOOP}: an epoch ends with the data",
        absent=((ALWAYS, _read_length({})),),
        when=in_epochs,
    ),
    Entry(
        _LENGTH,
        ("schedule.epochs", "schedule.steps", "batch.accumulation"),
        _write_length,
        _read_length,
        f"{_LOOP}: total_train_steps counts micro batches",
        when=in_steps,
    ),
    named("gamma", "schedule.kind", {"constant": 1.0}, f"{_MAIN}: StepLR, once an epoch"),
    fixed("schedule.warmup_steps", 0, f"{_MAIN}: StepLR"),
    fixed("schedule.warmup_share", None, f"{_MAIN}: StepLR"),
    fixed("schedule.save_steps", None, f"{_LOOP}: after each epoch"),
    fixed("schedule.keep_checkpoints", 1, f"{_LOOP}: always to output_dir"),
    fixed("schedule.log_steps", 1, f"{_LOOP}: a progress bar of every step"),
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────


def _write_trackers(plan: Plan) -> Mapping[str, Json]:
    names = plan.runtime.report_to
    return {"use_wandb": bool(names)} if names in ((), ("wandb",)) else {}


def _runs_alone(plan: Plan) -> bool:
    return not on_fsdp(plan)


_RUN: Final = (
    named("enable_fsdp", "parallel.engine", {"none": False, "fsdp": True}, _TRAIN, default="none"),
    _default("batch_size_training", "batch.micro", 4),
    _default("val_batch_size", "batch.evaluation", 1),
    _default("num_workers_dataloader", "runtime.dataloader_workers", 1),
    _default("seed", "runtime.seed", 42),
    same("output_dir", "runtime.output", _TRAIN),
    Entry(
        ("use_wandb",),
        ("runtime.report_to",),
        _write_trackers,
        lambda found: {"runtime.report_to": ("wandb",) if found["use_wandb"] else ()},
        _TRAIN,
        absent=((ALWAYS, {"runtime.report_to": ()}),),
    ),
    fixed("runtime.dataloader_pin_memory", value=True, source=_MAIN),
    fixed(
        "activation_checkpointing.segment", 1, f"{_MAIN}: apply_fsdp_checkpointing, a layer each"
    ),
    fixed("activation_checkpointing.gap", 0, f"{_MAIN}: apply_fsdp_checkpointing, all layers"),
    fixed("activation_checkpointing.offload", value=False, source=f"{_MAIN}: nothing moves them"),
    fixed(
        "activation_checkpointing.mode",
        "none",
        f"{_MAIN}: apply_fsdp_checkpointing needs FSDP",
        when=_runs_alone,
    ),
    *FSDP_ROWS,
)

FLAGS: Final = (
    *(*_DATA, *_RUN, *_PRECISION, *_QUANTIZATION),
    *(*_ADAPTER, *_OPTIMIZER, *_SCHEDULE),
)
TEXT: Final = frozenset({"model_name", "output_dir", "custom_dataset.file", "quantization"})


def _write_script(plan: Plan) -> Mapping[str, Json]:
    return {"script": [started(plan, SCRIPT)]}


START: Final = Entry(("script",), (), _write_script, lambda _: {}, f"{PACKAGE}: python -m")
