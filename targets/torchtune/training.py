"""Rows of torchtune's recipes: the loss, the optimizer, the schedule, and checkpoints."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json, fixed, named
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.torchtune.packages import SOURCE

Found = Mapping[str, Json]
Values = Mapping[str, Any]
_RECIPES: Final = f"{SOURCE} recipes/*.py"


def _last(value: Json) -> str:
    return str(value or "").rpartition(".")[2]


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────

_LOSSES: Final = {
    "LinearCrossEntropyLoss": "chunked",
    "CEWithChunkedOutputLoss": "chunked",
    "CrossEntropyLoss": "full",
}


def _loss(found: Found) -> Values:
    """The loss of supervised training, or of preferences."""
    kind = _last(found.get("loss._component_"))
    if kind in _LOSSES:
        return {"objective.kind": "sft", "objective.loss": "nll", "loss.path": _LOSSES[kind]}
    if kind != "DPOLoss" or found.get("loss.label_smoothing"):
        return {}
    return {
        "objective.kind": "dpo",
        "objective.loss": "sigmoid",
        "objective.beta": float(found.get("loss.beta", 0.1)),
        "loss.path": "full",
    }


def _reference(found: Found) -> Values:
    """The reference of preferences: the frozen base, or a second copy of the weights."""
    if _last(found.get("loss._component_")) != "DPOLoss":
        return {}
    is_lora = _last(found.get("model._component_")).startswith(("lora_", "qlora_"))
    return {"objective.reference": "base" if is_lora else "resident"}


LOSS: Final = (
    observed(
        ("loss._component_", "loss.beta", "loss.label_smoothing"),
        ("objective.kind", "objective.loss", "objective.beta", "loss.path"),
        _loss,
        f"{SOURCE} torchtune/modules/loss, torchtune/rlhf/loss/dpo.py `DPOLoss`",
    ),
    observed(
        ("loss._component_", "model._component_"),
        ("objective.reference",),
        _reference,
        f"{SOURCE} recipes/full_dpo_distributed.py, lora_dpo_distributed.py `disable_adapter`",
        when=lambda plan: plan.objective.kind == "dpo",
    ),
)

# ── the optimizer ────────────────────────────────────────────────────────────────────────────────

_OPTIMIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "torch.optim.AdamW": ("adamw", "foreach"),
    "bitsandbytes.optim.AdamW8bit": ("adamw_8bit", "bitsandbytes"),
    "bitsandbytes.optim.PagedAdamW": ("paged_adamw_32bit", "bitsandbytes"),
    "bitsandbytes.optim.PagedAdamW32bit": ("paged_adamw_32bit", "bitsandbytes"),
    "bitsandbytes.optim.PagedAdamW8bit": ("paged_adamw_8bit", "bitsandbytes"),
}
_MOMENTS: Final = ("optimizer.lr", "optimizer.weight_decay", "optimizer.betas", "optimizer.eps")


def _optimizer(found: Found) -> Values:
    """The optimizer, with its defaults: optim/adamw.py of torch 2.13 and of bitsandbytes 0.49."""
    known = _OPTIMIZERS.get(str(found.get("optimizer._component_")))
    if known is None:
        return {}
    is_torch = known[1] == "foreach"
    betas = found.get("optimizer.betas", (0.9, 0.999))
    fused = is_torch and found.get("optimizer.fused") is True
    return {
        "optimizer.name": known[0],
        "optimizer.kernel": "fused" if fused else known[1],
        "optimizer.learning_rate": float(found.get("optimizer.lr", 1e-3)),
        "optimizer.weight_decay": float(found.get("optimizer.weight_decay", 1e-2)),
        "optimizer.beta1": float(betas[0]),
        "optimizer.beta2": float(betas[1]),
        "optimizer.epsilon": float(found.get("optimizer.eps", 1e-8)),
    }


OPTIMIZER: Final = (
    observed(
        ("optimizer._component_", *_MOMENTS, "optimizer.fused"),
        (
            *("optimizer.name", "optimizer.kernel", "optimizer.learning_rate"),
            *("optimizer.weight_decay", "optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"),
        ),
        _optimizer,
        f"{_RECIPES} `_setup_optimizer`: the component is called with its arguments",
    ),
    observed(
        ("clip_grad_norm",),
        ("optimizer.max_grad_norm",),
        lambda found: {"optimizer.max_grad_norm": float(found["clip_grad_norm"] or 0)},
        f"{_RECIPES} `train`: null is not clipped",
        absent={"optimizer.max_grad_norm": 0.0},
    ),
)

# ── the schedule ─────────────────────────────────────────────────────────────────────────────────

_SCHEDULER: Final = ("_component_", "num_warmup_steps", "num_cycles")
_CONSTANT: Final[Values] = {
    "schedule.kind": "constant",
    "schedule.arguments": (),
    "schedule.warmup_steps": 0,
    "schedule.warmup_share": None,
}
_COSINE: Final = "get_cosine_schedule_with_warmup"
_HALF: Final = 0.5


def _shape(found: Found) -> Values:
    """Half a cosine after the warmup; without a scheduler the rate is constant."""
    if not any(key.startswith("lr_scheduler.") for key in found):
        return _CONSTANT
    is_known = _last(found.get("lr_scheduler._component_")) == _COSINE
    if not is_known or found.get("lr_scheduler.num_cycles", _HALF) != _HALF:
        return {}
    warmup = found.get("lr_scheduler.num_warmup_steps", 0)
    return {**_CONSTANT, "schedule.kind": "cosine", "schedule.warmup_steps": warmup}


def _length(found: Found) -> Values:
    """Whole epochs, or the steps that end a single one; several such restart the data."""
    epochs, steps = found.get("epochs"), found.get("max_steps_per_epoch")
    if steps is not None:
        return {"schedule.steps": steps, "schedule.epochs": None} if epochs == 1 else {}
    return {} if epochs is None else {"schedule.epochs": float(epochs), "schedule.steps": None}


SCHEDULE: Final = (
    observed(
        tuple(f"lr_scheduler.{key}" for key in _SCHEDULER),
        tuple(_CONSTANT),
        _shape,
        f"{SOURCE} torchtune/training/lr_schedulers.py `{_COSINE}`; recipes `_setup_lr_scheduler`",
        absent=_CONSTANT,
    ),
    observed(
        ("epochs", "max_steps_per_epoch"),
        ("schedule.epochs", "schedule.steps"),
        _length,
        f"{_RECIPES} `setup`",
    ),
    as_it_is("batch_size", "batch.micro", _RECIPES),
    as_it_is("batch_size_val", "batch.evaluation", _RECIPES),
    as_it_is("gradient_accumulation_steps", "batch.accumulation", _RECIPES, 1),
    as_it_is("log_every_n_steps", "schedule.log_steps", _RECIPES, 1),
    as_it_is("save_every_n_steps", "schedule.save_steps", _RECIPES, None),
    fixed("schedule.keep_checkpoints", None, f"{_RECIPES}: all of them stay"),
)

# ── the engine ───────────────────────────────────────────────────────────────────────────────────

_DISTRIBUTED: Final = (
    *("fsdp_cpu_offload", "fsdp_reshard_after_forward", "custom_sharded_layers"),
    *("tensor_parallel_dim", "data_parallel_shard_dim", "data_parallel_replicate_dim"),
)
_FSDP: Final = (
    *("parallel.engine", "parallel.tensor", "fsdp.version", "fsdp.sharding", "fsdp.wrap"),
    *("fsdp.offload_params", "fsdp.checkpointing"),
)


def _engine(found: Found) -> Values:
    """The engine; recipes with keys of `fully_shard` run on several devices."""
    if found.get("tensor_parallel_dim", 1) != 1 or found.get("data_parallel_replicate_dim", 1) != 1:
        return {}
    whole = found.get("fsdp_reshard_after_forward", True)
    return {
        "parallel.engine": "fsdp",
        "parallel.tensor": 1,
        "fsdp.version": 2,
        "fsdp.sharding": "full" if whole else "grad_op",
        "fsdp.wrap": "layer",
        "fsdp.offload_params": found.get("fsdp_cpu_offload", False) is True,
        "fsdp.checkpointing": False,
    }


def _recomputed(found: Found) -> Values:
    """Whether each layer is recomputed, without torch's reentrant variant."""
    is_on = found["enable_activation_checkpointing"] is True
    return {
        "activation_checkpointing.mode": "layer" if is_on else "none",
        "activation_checkpointing.reentrant": False,
    }


ENGINE: Final = (
    observed(_DISTRIBUTED, _FSDP, _engine, f"{SOURCE} torchtune/training/_distributed.py"),
    observed(
        ("enable_activation_checkpointing",),
        ("activation_checkpointing.mode", "activation_checkpointing.reentrant"),
        _recomputed,
        f"{SOURCE} torchtune/training/memory.py `set_activation_checkpointing`",
        absent=_recomputed({"enable_activation_checkpointing": False}),
    ),
    named(
        "enable_activation_offloading",
        "activation_checkpointing.offload",
        {True: True, False: False},
        f"{SOURCE} torchtune/training/_activation_offloading.py",
        absent=(("0", False),),
    ),
)

# ── the run ──────────────────────────────────────────────────────────────────────────────────────

_TRACKERS: Final = {"WandBLogger": ("wandb",), "TensorBoardLogger": ("tensorboard",)}
_TO_FILES: Final = ("DiskLogger", "StdoutLogger")


def _trackers(found: Found) -> Values:
    kind = _last(found["metric_logger._component_"])
    known = {**_TRACKERS, **dict.fromkeys(_TO_FILES, ())}
    return {"runtime.report_to": known[kind]} if kind in known else {}


RUNTIME: Final = (
    as_it_is("output_dir", "runtime.output", _RECIPES),
    as_it_is("seed", "runtime.seed", f"{SOURCE} torchtune/training/seed.py `set_seed`"),
    observed(
        ("metric_logger._component_",),
        ("runtime.report_to",),
        _trackers,
        f"{SOURCE} torchtune/training/metric_logging.py",
    ),
    fixed("runtime.dataloader_workers", 0, f"{_RECIPES} `_setup_data`"),
)
