"""Keys of sd-scripts' configs, which are its flags, as slots: only read."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from tunec.compiler.target import fixed, named
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.rows import TRAINING_DATA, training_parts
from tunec.targets.scripts.flag_rows import (
    ADAPTER,
    OPTIMIZER_SLOTS,
    Found,
    Values,
    arguments,
    optimizer_slots,
    run_rows,
    schedule_rows,
    sides,
)
from tunec.targets.sd_scripts.packages import SOURCE

_PUBLISHED: Final[Mapping[str, str]] = {
    "sd_xl_base_1.0": "stabilityai/stable-diffusion-xl-base-1.0",
    "sd_xl_base_1.0_0.9vae": "stabilityai/stable-diffusion-xl-base-1.0",
    "v1-5-pruned": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "v1-5-pruned-emaonly": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "flux1-dev": "black-forest-labs/FLUX.1-dev",
    "flux1-schnell": "black-forest-labs/FLUX.1-schnell",
    "sd3_medium": "stabilityai/stable-diffusion-3-medium-diffusers",
    "sd3.5_medium": "stabilityai/stable-diffusion-3.5-medium",
    "sd3.5_large": "stabilityai/stable-diffusion-3.5-large",
}
"""Names of files, without suffix, at the root of their makers' repositories."""
_ENDINGS: Final = (".safetensors", ".ckpt", ".sft")


def repository(path: str) -> str:
    """The repository of a published file; any other path unchanged."""
    name = PurePosixPath(path.replace("\\", "/"))
    known = _PUBLISHED.get(name.stem) if name.suffix in _ENDINGS else None
    return known or path


_UTIL: Final = f"{SOURCE} library/train_util.py"
_TRAIN: Final = f"{SOURCE} train_network.py `NetworkTrainer.train`"


# ── model and adapters ───────────────────────────────────────────────────────────────────────────

_LAYERS: Final = ("to_q", "to_k", "to_v", "to_out.0")
_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "networks.lora": (*_LAYERS, "ff.net.0.proj", "ff.net.2", "proj_in", "proj_out"),
    "networks.lora_flux": (
        *(*_LAYERS, "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out", "proj_mlp"),
        *("ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2"),
        *("norm1.linear", "norm1_context.linear", "norm.linear"),
        *(f"single_transformer_blocks.{number}.proj_out" for number in range(38)),
    ),
}
"""diffusers' names of the layers that a network module adapts by default: every linear layer, and
every convolution of one pixel, of the blocks (networks/lora.py
`LoRANetwork.UNET_TARGET_REPLACE_MODULE`, networks/lora_flux.py `FLUX_TARGET_REPLACE_MODULE_*`)."""
_NETWORK: Final = ("network_module", "network_dim", "network_alpha", "network_args")
_PLAIN_ARGUMENTS: Final = ("verbose", "train_t5xxl", "split_qkv", "train_blocks")


def _adapter(found: Found) -> Values:
    """LoRA on every layer of the blocks; further arguments of a network have no slot."""
    targets = _TARGETS.get(str(found.get("network_module")))
    told = arguments(found.get("network_args"))
    if targets is None or told is None or any(not _is_plain(*each) for each in told.items()):
        return {}
    rank = found.get("network_dim") or 4
    return {
        **ADAPTER,
        "adapter.kind": "lora",
        "adapter.rank": rank,
        "adapter.alpha": float(found.get("network_alpha", 1) or rank),
        "adapter.targets": targets,
    }


def _is_plain(name: str, value: Any) -> bool:
    """Whether an argument of a network has no effect."""
    usual = {"train_blocks": "all"}.get(name, False)
    return name == "verbose" or (name in _PLAIN_ARGUMENTS and str(value) == str(usual))


def _model(found: Found) -> Values:
    return {"model.path": repository(str(found["pretrained_model_name_or_path"]))}


MODEL: Final = (
    observed(
        ("pretrained_model_name_or_path",), ("model.path",), _model, f"{_UTIL} `_load_target_model`"
    ),
    observed(
        _NETWORK,
        tuple(ADAPTER),
        _adapter,
        f"{SOURCE} networks/lora.py `create_network`: 4 and 1 where no number is given",
        absent=ADAPTER,
    ),
    named(
        "deepspeed",
        "parallel.engine",
        {"none": False},
        f"{SOURCE} library/deepspeed_utils.py `prepare_deepspeed_plugin`",
        absent=(("0", "none"),),
    ),
    fixed("quantization.format", "none", f"{SOURCE}: its fp8 is a dtype of weights"),
    fixed("model.kind", "diffusion", f"{SOURCE}: its scripts train denoisers"),
    fixed("data.images", 1, f"{_UTIL} `BaseDataset.__getitem__`: a sample is a picture"),
    fixed("data.sequence", 0, f"{_UTIL}: captions are cut by the tokenizers"),
    fixed("data.frames", 0, f"{_UTIL} `BaseDataset`: a sample is a picture"),
)


# ── precision, attention, recomputation ──────────────────────────────────────────────────────────

_PRECISION: Final = {"fp32": "no", "fp16": "fp16", "bf16": "bf16"}
COMPUTE: Final = (
    named(
        "mixed_precision",
        "precision.compute",
        _PRECISION,
        f"{_UTIL} `prepare_dtype`",
        absent=(("0", "fp32"),),
    ),
    named("sdpa", "attention.implementation", {"sdpa": True}, f"{_UTIL} `replace_unet_modules`"),
    named(
        "gradient_checkpointing",
        "activation_checkpointing.mode",
        {"layer": True, "none": False},
        _TRAIN,
        absent=(("0", "none"),),
    ),
)


# ── batches and data ─────────────────────────────────────────────────────────────────────────────


def _micro(found: Found) -> Values:
    """The micro batch; if the flag is not set, the data config may set it."""
    micro = found.get("train_batch_size", None if "dataset_config" in found else 1)
    return {} if micro is None else {"batch.micro": micro}


def _resolution(found: Found) -> Values:
    return sides(found["resolution"])


def _folder(found: Found) -> Values:
    if found.get("dataset_config") or not found.get("train_data_dir"):
        return {}
    return {**training_parts([(found["train_data_dir"], 0)]), "data.evaluation": None}


_DATASET: Final = f"{SOURCE} library/config_util.py `BlueprintGenerator.generate`"
DATA: Final = (
    observed(
        ("train_batch_size", "dataset_config"),
        ("batch.micro",),
        _micro,
        _DATASET,
        absent={"batch.micro": 1},
    ),
    as_it_is(
        "gradient_accumulation_steps", "batch.accumulation", f"{_UTIL} `prepare_accelerator`", 1
    ),
    observed(
        ("resolution",),
        ("data.image_width", "data.image_height"),
        _resolution,
        f"{_UTIL} `prepare_dataset_args`",
    ),
    observed(
        ("train_data_dir", "dataset_config"),
        (*TRAINING_DATA, "data.evaluation"),
        _folder,
        f"{SOURCE} library/config_util.py `generate_dreambooth_subsets_config_by_subdirs`",
    ),
)


# ── optimizer ────────────────────────────────────────────────────────────────────────────────────

_OPTIMIZERS: Final[Mapping[str, tuple[str, str]]] = {
    "adamw": ("adamw", ""),
    "adamw8bit": ("adamw_8bit", "bitsandbytes"),
    "pagedadamw8bit": ("paged_adamw_8bit", "bitsandbytes"),
    "pagedadamw": ("paged_adamw_32bit", "bitsandbytes"),
    "pagedadamw32bit": ("paged_adamw_32bit", "bitsandbytes"),
    "lion": ("lion", "own"),
    "lion8bit": ("lion_8bit", "bitsandbytes"),
    "pagedlion8bit": ("paged_lion_8bit", "bitsandbytes"),
}
_OF_OPTIMIZER: Final = ("optimizer_type", "use_8bit_adam", "use_lion_optimizer", "optimizer_args")


def optimizer_of(found: Found) -> str:
    """The optimizer's name in lower case, as `get_optimizer` compares it."""
    if found.get("use_8bit_adam"):
        return "adamw8bit"
    return (
        "lion"
        if found.get("use_lion_optimizer")
        else str(found.get("optimizer_type") or "adamw").lower()
    )


def _optimizer(found: Found) -> Values:
    return optimizer_slots(_OPTIMIZERS, optimizer_of(found), found.get("optimizer_args"))


_USUAL: Final = _optimizer({})


def _rate(found: Found) -> Values:
    """The learning rate: the denoiser's own, if it has one."""
    rate = found.get("unet_lr")
    return {"optimizer.learning_rate": found.get("learning_rate", 2e-6) if rate is None else rate}


OPTIMIZER: Final = (
    observed(_OF_OPTIMIZER, OPTIMIZER_SLOTS, _optimizer, f"{_UTIL} `get_optimizer`", absent=_USUAL),
    observed(
        ("learning_rate", "unet_lr"),
        ("optimizer.learning_rate",),
        _rate,
        f"{SOURCE} networks/lora.py `prepare_optimizer_params`",
        absent={"optimizer.learning_rate": 2e-6},
    ),
    observed(
        ("max_grad_norm",),
        ("optimizer.max_grad_norm",),
        lambda found: {"optimizer.max_grad_norm": float(found["max_grad_norm"])},
        f"{_UTIL} `add_optimizer_arguments`",
        absent={"optimizer.max_grad_norm": 1.0},
    ),
)


SCHEDULE: Final = schedule_rows(optimizer_of, f"{_UTIL} `get_scheduler_fix`", _TRAIN)
RUN: Final = run_rows(f"{_UTIL} `prepare_accelerator`", _TRAIN)
ROWS: Final = (*MODEL, *COMPUTE, *DATA, *OPTIMIZER, *SCHEDULE, *RUN)
