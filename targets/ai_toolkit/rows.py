"""Rows for ai-toolkit's training process, which are read and never written."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json, fixed, named
from tunec.targets.ai_toolkit.packages import SOURCE
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.rows import TRAINING_DATA, training_parts

_CONFIG: Final = f"{SOURCE} toolkit/config_modules.py"
_TRAIN: Final = f"{_CONFIG} `TrainConfig`"
Found = Mapping[str, Json]
Values = Mapping[str, Any]

_FLUX: Final = (
    *("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"),
    *("ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2", "proj_mlp"),
    *("norm1.linear", "norm1_context.linear", "norm.linear"),
    *(f"single_transformer_blocks.{number}.proj_out" for number in range(38)),
)
"""Every linear layer of FLUX's blocks (toolkit/lora_special.py `LoRASpecialNetwork`)."""
ADAPTER: Final[Values] = {
    "adapter.kind": "none",
    "adapter.rank": 0,
    "adapter.alpha": 0.0,
    "adapter.dropout": 0.0,
    "adapter.dora": False,
}
_NETWORK: Final = tuple(
    f"network.{name}" for name in ("type", "linear", "rank", "linear_alpha", "alpha")
)


def _adapter(found: Found) -> Values:
    """LoRA; `rank` has precedence over `linear`, and alpha is 1 if both its keys are missing."""
    if found.get("network.type", "lora") != "lora":
        return {}
    rank = found.get("network.rank", found.get("network.linear", 4))
    alpha = found.get("network.linear_alpha", found.get("network.alpha", 1.0))
    return {**ADAPTER, "adapter.kind": "lora", "adapter.rank": rank, "adapter.alpha": float(alpha)}


def is_flux(found: Found) -> bool:
    """Whether FLUX is trained, by either of the keys that select it."""
    return found.get("model.is_flux") is True or found.get("model.arch") == "flux"


def _targets(found: Found) -> Values:
    return {"adapter.targets": _FLUX} if is_flux(found) and "network" in found else {}


_PRECISION: Final = {
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "float"), "fp32"),
}
"""The dtype of each word: toolkit/train_tools.py `get_torch_dtype`."""


def _compute(found: Found) -> Values:
    word = _PRECISION.get(str(found["train.dtype"]))
    return {} if word is None else {"precision.compute": word}


_STEPS: Final = ("train.gradient_accumulation", "train.gradient_accumulation_steps")


def _accumulation(found: Found) -> Values:
    """The accumulation steps; -1 in the older key means a whole epoch, which no slot holds."""
    steps = max(found.get(key, 1) for key in _STEPS)
    return {"batch.accumulation": steps} if min(found.values()) > 0 else {}


_OPTIMIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "adamw": ("adamw", ""),
    "adamw8bit": ("adamw_8bit", "bitsandbytes"),
    "lion": ("lion", "own"),
    "lion8bit": ("lion_8bit", "bitsandbytes"),
}
_OPTIMIZER: Final = ("train.optimizer", "train.optimizer_params")
_SLOTS: Final = (
    *("optimizer.name", "optimizer.kernel", "optimizer.beta1", "optimizer.beta2"),
    *("optimizer.weight_decay", "optimizer.epsilon"),
)


def _optimizer(found: Found) -> Values:
    known = _OPTIMIZERS.get(str(found.get("train.optimizer", "adamw")).lower())
    told = found.get("train.optimizer_params") or {}
    if known is None or told.keys() - {"weight_decay", "betas"}:
        return {}
    is_lion = "lion" in known[0]
    betas = told.get("betas", (0.9, 0.99) if is_lion else (0.9, 0.999))
    decay = told.get("weight_decay", 0.0 if is_lion else 0.01)
    values = dict(zip(_SLOTS, (*known, *betas, float(decay)), strict=False))
    values |= {} if is_lion else {"optimizer.epsilon": 1e-6}
    return {slot: value for slot, value in values.items() if value != ""}


def _rate(found: Found) -> Values:
    rate = found.get("train.unet_lr", found.get("train.lr", 1e-6))
    return {"optimizer.learning_rate": float(rate)}


def _shape(found: Found) -> Values:
    """A constant schedule; the others take torch's own arguments."""
    if found.get("train.lr_scheduler", "constant") != "constant":
        return {}
    return {"schedule.kind": "constant", "schedule.arguments": (), "schedule.warmup_steps": 0}


def _output(found: Found) -> Values:
    name = str(found.get("name") or "")
    folder = str(found["training_folder"]).rstrip("/")
    return {"runtime.output": f"{folder}/{name}" if name else folder}


_SETS: Final = tuple(f"datasets.[{number}]" for number in range(16))


def _data(found: Found) -> Values:
    """Each folder, as many times as an epoch reads it."""
    there = [at for at in _SETS if f"{at}.folder_path" in found]
    if any(found.get(f"{at}.is_reg") for at in _SETS):
        return {}
    seen = [
        found[f"{at}.folder_path"]
        for at in there
        for _ in range(max(int(found.get(f"{at}.num_repeats", 1)), 1))
    ]
    return {**training_parts([(each, 0) for each in seen]), "data.evaluation": None}


def _side(found: Found) -> Values:
    """The size that all sets share; a set with several sizes counts as several sets."""
    sizes = {str(each): each for each in found.values()}
    sides = [
        each for size in sizes.values() for each in (size if isinstance(size, list) else [size])
    ]
    if len(set(sides)) != 1 or not isinstance(sides[0], int):
        return {}
    return {"data.image_width": sides[0], "data.image_height": sides[0]}


def _frames(found: Found) -> Values:
    """The frames that all sets' clips have; a number of one means pictures."""
    asked = {found.get(f"{at}.num_frames", 1) for at in _SETS if f"{at}.folder_path" in found}
    most = asked.pop() if len(asked) == 1 else None
    return {"data.frames": most if most > 1 else 0} if isinstance(most, int) else {}


ROWS: Final = (
    as_it_is("model.name_or_path", "model.path", f"{_CONFIG} `ModelConfig`"),
    observed(_NETWORK, tuple(ADAPTER), _adapter, f"{_CONFIG} `NetworkConfig`", absent=ADAPTER),
    observed(
        ("network", "model.arch", "model.is_flux"),
        ("adapter.targets",),
        _targets,
        f"{SOURCE} toolkit/lora_special.py `LoRASpecialNetwork`",
    ),
    observed(
        ("train.dtype",),
        ("precision.compute",),
        _compute,
        f"{_TRAIN}: fp32 by default",
        absent={"precision.compute": "fp32"},
    ),
    named(
        "train.gradient_checkpointing",
        "activation_checkpointing.mode",
        {"layer": True, "none": False},
        _TRAIN,
        absent=(("0", "layer"),),
    ),
    as_it_is("train.batch_size", "batch.micro", _TRAIN, 1),
    observed(
        _STEPS, ("batch.accumulation",), _accumulation, _TRAIN, absent={"batch.accumulation": 1}
    ),
    observed(
        _OPTIMIZER,
        _SLOTS,
        _optimizer,
        f"{SOURCE} toolkit/optimizer.py `get_optimizer`",
        absent=_optimizer({}),
    ),
    observed(
        ("train.lr", "train.unet_lr"),
        ("optimizer.learning_rate",),
        _rate,
        _TRAIN,
        absent={"optimizer.learning_rate": 1e-6},
    ),
    observed(
        ("train.max_grad_norm",),
        ("optimizer.max_grad_norm",),
        lambda found: {"optimizer.max_grad_norm": float(found["train.max_grad_norm"])},
        _TRAIN,
        absent={"optimizer.max_grad_norm": 1.0},
    ),
    observed(
        ("train.lr_scheduler",),
        ("schedule.kind", "schedule.arguments", "schedule.warmup_steps"),
        _shape,
        f"{SOURCE} toolkit/scheduler.py `get_lr_scheduler`",
        absent=_shape({}),
    ),
    observed(
        ("train.steps",),
        ("schedule.steps", "schedule.epochs"),
        lambda found: {"schedule.steps": found["train.steps"], "schedule.epochs": None},
        _TRAIN,
        absent={"schedule.steps": 1000, "schedule.epochs": None},
    ),
    as_it_is("save.save_every", "schedule.save_steps", f"{_CONFIG} `SaveConfig`", 1000),
    as_it_is(
        "save.max_step_saves_to_keep", "schedule.keep_checkpoints", f"{_CONFIG} `SaveConfig`", 5
    ),
    observed(
        ("logging.use_wandb",),
        ("runtime.report_to",),
        lambda found: {"runtime.report_to": ("wandb",) if found["logging.use_wandb"] else ()},
        f"{_CONFIG} `LoggingConfig`",
        absent={"runtime.report_to": ()},
    ),
    observed(
        ("training_folder", "name"),
        ("runtime.output",),
        _output,
        f"{SOURCE} jobs/process/BaseTrainProcess.py `__init__`",
    ),
    observed(
        tuple(f"{at}.{key}" for at in _SETS for key in ("folder_path", "num_repeats", "is_reg")),
        (*TRAINING_DATA, "data.evaluation"),
        _data,
        f"{_CONFIG} `DatasetConfig`",
    ),
    observed(
        tuple(f"{at}.resolution" for at in _SETS),
        ("data.image_width", "data.image_height"),
        _side,
        f"{_CONFIG} `preprocess_dataset_raw_config`",
    ),
    observed(
        tuple(f"{at}.{key}" for at in _SETS for key in ("num_frames", "folder_path")),
        ("data.frames",),
        _frames,
        f"{_CONFIG} `DatasetConfig`",
    ),
    fixed("parallel.engine", "none", f"{SOURCE}: one process a job"),
    fixed("quantization.format", "none", f"{SOURCE}: what it quantises by has no slot"),
    fixed("model.kind", "diffusion", f"{SOURCE}: it trains denoisers"),
    fixed("data.images", 1, f"{_CONFIG} `DatasetConfig`: a sample is a picture"),
    fixed("data.sequence", 0, f"{_CONFIG}: captions are cut by the tokenizers"),
)
