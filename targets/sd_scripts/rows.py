"""Keys of sd-scripts' configs, which are its flags, as slots: read, and never written."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.target import Json, fixed, named
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.sd_scripts.models import repository
from tunec.targets.sd_scripts.packages import SOURCE

_UTIL: Final = f"{SOURCE} library/train_util.py"
_TRAIN: Final = f"{SOURCE} train_network.py `NetworkTrainer.train`"
Values = Mapping[str, Any]
Found = Mapping[str, Json]


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
"""Names that diffusers has for the layers which a network module adapts unless its arguments say
otherwise: every linear layer, and convolution of one pixel, of the blocks (networks/lora.py
`LoRANetwork.UNET_TARGET_REPLACE_MODULE`, networks/lora_flux.py `FLUX_TARGET_REPLACE_MODULE_*`)."""
ADAPTER: Final[Values] = {
    "adapter.kind": "none",
    "adapter.rank": 0,
    "adapter.alpha": 0.0,
    "adapter.dropout": 0.0,
    "adapter.dora": False,
    "adapter.targets": (),
}
"""The slots of an adapter without one."""
_NETWORK: Final = ("network_module", "network_dim", "network_alpha", "network_args")
_PLAIN_ARGUMENTS: Final = ("verbose", "train_t5xxl", "split_qkv", "train_blocks")


def _adapter(found: Found) -> Values:
    """LoRA of every layer of the blocks; further arguments of a network stand for no slot."""
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
    """Whether an argument of a network is as if it were left out."""
    usual = {"train_blocks": "all"}.get(name, False)
    return name == "verbose" or (name in _PLAIN_ARGUMENTS and str(value) == str(usual))


def arguments(words: Json) -> Values | None:
    """What `name=value` words say; None where a word has another form."""
    found: dict[str, Any] = {}
    for word in [words] if isinstance(words, str) else words or ():
        name, equals, text = str(word).partition("=")
        if not equals:
            return None
        found[name] = literal(text)
    return found


def literal(text: str) -> Any:
    """A Python literal's value; the text where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


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
    """Where it is not set, the data's own file may set it."""
    micro = found.get("train_batch_size", None if "dataset_config" in found else 1)
    return {} if micro is None else {"batch.micro": micro}


def sides(resolution: Json) -> Values:
    """`512`, `"512"` or `"512,768"`; nothing for another form."""
    words = resolution if isinstance(resolution, list) else str(resolution).split(",")
    if len(words) not in (1, 2) or not all(str(each).strip().isdigit() for each in words):
        return {}
    return {"data.image_width": int(words[0]), "data.image_height": int(words[-1])}


def _resolution(found: Found) -> Values:
    return sides(found["resolution"])


def _folder(found: Found) -> Values:
    if found.get("dataset_config") or not found.get("train_data_dir"):
        return {}
    return {"data.train": found["train_data_dir"], "data.more": (), "data.evaluation": None}


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
        ("data.train", "data.more", "data.evaluation"),
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
_SLOTS: Final = (
    *("optimizer.name", "optimizer.kernel", "optimizer.beta1", "optimizer.beta2"),
    *("optimizer.epsilon", "optimizer.weight_decay"),
)


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
    known, told = _OPTIMIZERS.get(optimizer_of(found)), arguments(found.get("optimizer_args"))
    if known is None or told is None or told.keys() - {"weight_decay", "betas", "eps"}:
        return {}
    name, kernel = known
    is_lion = "lion" in name
    betas = told.get("betas", (0.9, 0.99) if is_lion else (0.9, 0.999))
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        return {}
    values = dict(zip(_SLOTS, (name, kernel, *betas, told.get("eps", 1e-8)), strict=False))
    decay = told.get("weight_decay", 0.0 if is_lion else 0.01)
    left_out = ("optimizer.epsilon",) if is_lion else ()
    said = {**values, "optimizer.weight_decay": float(decay)}
    return {slot: value for slot, value in said.items() if value != "" and slot not in left_out}


_USUAL: Final = _optimizer({})


def _rate(found: Found) -> Values:
    """That of the denoiser where it has one of its own."""
    rate = found.get("unet_lr")
    return {"optimizer.learning_rate": found.get("learning_rate", 2e-6) if rate is None else rate}


OPTIMIZER: Final = (
    observed(_OF_OPTIMIZER, _SLOTS, _optimizer, f"{_UTIL} `get_optimizer`", absent=_USUAL),
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


# ── length and rate ──────────────────────────────────────────────────────────────────────────────

_SCHEDULE: Final = f"{_UTIL} `get_scheduler_fix`"
_CYCLES: Final = "lr_scheduler_num_cycles"
_RATES: Final = (
    "lr_scheduler",
    "lr_warmup_steps",
    _CYCLES,
    "lr_scheduler_power",
    "lr_scheduler_min_lr_ratio",
)
_SHAPE: Final = (
    "schedule.kind",
    "schedule.arguments",
    "schedule.warmup_steps",
    "schedule.warmup_share",
)
_KINDS: Final = (
    *("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts"),
    *("cosine_with_min_lr", "polynomial"),
)


def _shape(found: Found) -> Values:
    kind = found.get("lr_scheduler", "constant")
    if kind not in _KINDS or optimizer_of(found).endswith("schedulefree"):
        return {}
    warmup = found.get("lr_warmup_steps") or 0
    if isinstance(warmup, str):
        return {}
    length = (
        {"schedule.warmup_share": warmup, "schedule.warmup_steps": None}
        if isinstance(warmup, float) and warmup < 1
        else {"schedule.warmup_steps": int(warmup), "schedule.warmup_share": None}
    )
    return {"schedule.kind": kind, "schedule.arguments": tuple(_arguments(kind, found)), **length}


def _arguments(kind: str, found: Found) -> Iterator[tuple[str, Any]]:
    """What transformers' schedules get beside length and warm-up."""
    cycles, power = found.get(_CYCLES, 1), found.get("lr_scheduler_power", 1)
    if kind == "cosine_with_restarts" and cycles != 1:
        yield "num_cycles", cycles
    if kind == "cosine_with_min_lr":
        yield "min_lr_rate", found.get("lr_scheduler_min_lr_ratio")
    if kind == "polynomial" and power != 1:
        yield "power", power


def _length(found: Found) -> Values:
    """Epochs go before steps."""
    epochs = found.get("max_train_epochs")
    if epochs is not None:
        return {"schedule.epochs": float(epochs), "schedule.steps": None}
    return {"schedule.epochs": None, "schedule.steps": found.get("max_train_steps", 1600)}


def _saving(found: Found) -> Values:
    steps, epochs = found.get("save_every_n_steps"), found.get("save_every_n_epochs")
    if steps and epochs is None:
        return {"schedule.save_steps": steps}
    return {"schedule.save_steps": None} if epochs == 1 and not steps else {}


SCHEDULE: Final = (
    observed(
        (*_RATES, "optimizer_type"),
        _SHAPE,
        _shape,
        _SCHEDULE,
        absent={"schedule.kind": "constant", "schedule.arguments": (), "schedule.warmup_steps": 0},
    ),
    observed(
        ("max_train_epochs", "max_train_steps"),
        ("schedule.epochs", "schedule.steps"),
        _length,
        f"{_TRAIN}: override steps",
        absent={"schedule.steps": 1600, "schedule.epochs": None},
    ),
    observed(
        ("save_every_n_steps", "save_every_n_epochs"),
        ("schedule.save_steps",),
        _saving,
        f"{_TRAIN}: the weights alone, unless save_state is given",
    ),
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────


def _trackers(found: Found) -> Values:
    with_, folder = found.get("log_with"), found.get("logging_dir")
    if with_ == "all":
        return {}
    trackers = (with_,) if with_ else ("tensorboard",) if folder else ()
    return {"runtime.report_to": trackers}


RUN: Final = (
    as_it_is("seed", "runtime.seed", f"{_TRAIN}: set_seed"),
    as_it_is("output_dir", "runtime.output", _TRAIN),
    observed(
        ("log_with", "logging_dir"),
        ("runtime.report_to",),
        _trackers,
        f"{_UTIL} `prepare_accelerator`",
        absent={"runtime.report_to": ()},
    ),
    as_it_is("max_data_loader_n_workers", "runtime.dataloader_workers", _TRAIN, 8),
)
ROWS: Final = (*MODEL, *COMPUTE, *DATA, *OPTIMIZER, *SCHEDULE, *RUN)
