"""Keys of musubi-tuner's configs, which are its flags, as slots: only read."""

from typing import Any, Final

from tunec.compiler.target import fixed, named
from tunec.targets.musubi_tuner.models import CHOICES, family_of, repository
from tunec.targets.musubi_tuner.packages import SOURCE
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.scripts.flag_rows import (
    ADAPTER,
    OPTIMIZER_SLOTS,
    Found,
    Values,
    arguments,
    optimizer_slots,
    run_rows,
    schedule_rows,
)

_TRAIN: Final = f"{SOURCE} training/trainer_base.py `NetworkTrainer`"
_LORA: Final = f"{SOURCE} networks/lora.py `create_network`"
_ADAPTER: Final = {key: each for key, each in ADAPTER.items() if key != "adapter.targets"}


def _model(found: Found) -> Values:
    path = repository(found)
    return {} if path is None else {"model.path": path}


def _adapter(found: Found) -> Values:
    """LoRA on every linear layer of the blocks; further arguments of a network have no slot."""
    told = arguments(found.get("network_args"))
    if family_of(found) is None or told is None or told.keys() - {"verbose"}:
        return {}
    rank = found.get("network_dim") or 4
    return {
        **_ADAPTER,
        "adapter.kind": "lora",
        "adapter.rank": rank,
        "adapter.alpha": float(found.get("network_alpha", 1) or rank),
    }


_OPTIMIZERS: Final = {"adamw": ("adamw", ""), "adamw8bit": ("adamw_8bit", "bitsandbytes")}
"""The optimizers by name; the classes of other names are looked up in torch.optim, or by their
path."""
_BY_PATH: Final = {
    "torch.optim.adamw": ("adamw", ""),
    "bitsandbytes.optim.adamw8bit": ("adamw_8bit", "bitsandbytes"),
    "bitsandbytes.optim.pagedadamw8bit": ("paged_adamw_8bit", "bitsandbytes"),
    "bitsandbytes.optim.lion8bit": ("lion_8bit", "bitsandbytes"),
    "bitsandbytes.optim.pagedlion8bit": ("paged_lion_8bit", "bitsandbytes"),
}


def _optimizer_of(found: Found) -> str:
    return str(found.get("optimizer_type", "")).lower()


def _optimizer(found: Found) -> Values:
    name, words = _optimizer_of(found), found.get("optimizer_args")
    return optimizer_slots({**_OPTIMIZERS, **_BY_PATH}, name, words)


def _attention(found: Found) -> Values:
    return {"attention.implementation": "sdpa"} if found["sdpa"] is True else {}


def _rate(found: Found) -> Values:
    return {"optimizer.learning_rate": float(found["learning_rate"])}


def _norm(found: Found) -> Values:
    return {"optimizer.max_grad_norm": float(found["max_grad_norm"])}


_CHECKPOINTING: Final[Any] = {"layer": True, "none": False}
ROWS: Final = (
    observed(
        ("network_module", "dit", *CHOICES),
        ("model.path",),
        _model,
        f"{SOURCE}: the class follows from script, task and model_version",
    ),
    observed(
        ("network_module", "network_dim", "network_alpha", "network_args"),
        tuple(_ADAPTER),
        _adapter,
        f"{_LORA}: 4 and 1 where no number is given",
        absent=_ADAPTER,
    ),
    named(
        "mixed_precision",
        "precision.compute",
        {"fp32": "no", "fp16": "fp16", "bf16": "bf16"},
        _TRAIN,
    ),
    observed(("sdpa",), ("attention.implementation",), _attention, _TRAIN),
    named(
        "gradient_checkpointing",
        "activation_checkpointing.mode",
        _CHECKPOINTING,
        _TRAIN,
        absent=(("0", "none"),),
    ),
    as_it_is("gradient_accumulation_steps", "batch.accumulation", f"{_TRAIN}: Accelerator", 1),
    observed(
        ("optimizer_type", "optimizer_args"),
        OPTIMIZER_SLOTS,
        _optimizer,
        f"{_TRAIN} `get_optimizer`",
    ),
    observed(
        ("learning_rate",),
        ("optimizer.learning_rate",),
        _rate,
        f"{_TRAIN} `get_optimizer`",
        absent={"optimizer.learning_rate": 2e-6},
    ),
    observed(
        ("max_grad_norm",),
        ("optimizer.max_grad_norm",),
        _norm,
        f"{SOURCE} training/parser_common.py `_add_optimizer_args`",
        absent={"optimizer.max_grad_norm": 1.0},
    ),
    *schedule_rows(_optimizer_of, f"{_TRAIN} `get_lr_scheduler`", _TRAIN),
    *run_rows(f"{SOURCE} training/accelerator_setup.py `prepare_accelerator`", _TRAIN),
    fixed("parallel.engine", "none", f"{SOURCE}: accelerate's plain copies"),
    fixed("quantization.format", "none", f"{SOURCE}: its fp8 is a dtype of weights"),
    fixed("model.kind", "diffusion", f"{SOURCE}: its scripts train denoisers"),
    fixed("data.images", 1, f"{SOURCE} dataset/image_video_dataset.py: a sample is a picture"),
    fixed("data.sequence", 0, f"{SOURCE}: captions are cut by the tokenizers"),
)
