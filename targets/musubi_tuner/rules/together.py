"""Flags that musubi-tuner refuses together, or for one of its models."""

from typing import Any, Final

from tunec.compiler.lints.rows import Row, rows
from tunec.targets.scripts.flag_rows import SCHEDULES
from tunec.targets.scripts.schedule_rows import schedule_rows

_KIND: Final = "musubi-tuner"
_VALUE: Final = "ValueError before training"
_ASSERTION: Final = "AssertionError before training"
_ATTENTION: Final = ("sdpa", "flash_attn", "flash3", "xformers", "sage_attn")
_ALONE: Final = f"no {_KIND}:config_file"
_NETWORK: Final = "network_module=networks.lora_"


def _of(network: str) -> str:
    """The condition that adapters of a family are trained, by their module."""
    return f"({_KIND}:{_NETWORK}{network}|musubi_tuner.networks.lora_{network})"


def _row(when: str, message: str, why: str, help: str, *beside: str, **more: Any) -> Row:
    return Row(f"{_KIND}:{when}", message, "refused", why, help, beside=beside, **more)


def _needs(when: str, needed: str, why: str, *beside: str) -> Row:
    key = needed.partition("=")[0].partition("~")[0]
    return _row(
        when,
        f"{{0.key}} requires {key}",
        why,
        f"write {key}",
        *beside,
        f"no {_KIND}:{needed}",
        _ALONE,
    )


def _pair(when: str, other: str, why: str, *beside: str) -> Row:
    return _row(
        when,
        "{0.key} cannot be combined with {1.key} {1.value}",
        why,
        "remove one of the two",
        f"{_KIND}:{other}",
        *beside,
    )


_TRAINING: Final = (
    _needs("dit", "dataset_config?", f"{_VALUE}: dataset_config is required"),
    _needs("dataset_config", "dit?", f"{_VALUE}: path to DiT model is required"),
    _row(
        "dit",
        "no attention is chosen",
        f"{_VALUE}: one of its flags is required, and none is the default",
        "write sdpa",
        *(f"no {_KIND}:{each}=true" for each in _ATTENTION),
        f"no {_KIND}:use_32bit_attention",
        _ALONE,
    ),
    _row(
        "sage_attn=true",
        "sage_attn is refused in training",
        f"{_VALUE}: SageAttention has no backward pass",
        "write sdpa instead",
    ),
    _needs(
        "fp8_scaled=true",
        "fp8_base=true",
        f"{_ASSERTION}: fp8_scaled requires fp8_base",
        "no launch:script~qwen_image_train.py|zimage_train.py|hidream_o1",
    ),
    _row(
        "dit",
        "no optimizer is chosen",
        "AttributeError: an empty optimizer_type is looked up in torch.optim",
        "write optimizer_type adamw8bit",
        f"no {_KIND}:optimizer_type",
        _ALONE,
    ),
    *(
        _needs(f"log_with={word}", "logging_dir", f"{_VALUE}: logging_dir is required")
        for word in ("tensorboard", "all")
    ),
)
"""training/trainer_base.py, training/accelerator_setup.py; scripts that train whole models have the
same checks."""
_RATES: Final = (
    _pair(
        "lr_warmup_steps>0",
        "lr_scheduler=constant",
        "ValueError: constant does not require `num_warmup_steps`",
        f"no {_KIND}:optimizer_type~schedulefree",
    ),
    _row(
        "lr_warmup_steps>0",
        "lr_warmup_steps is refused by lr_scheduler constant, which has no warm-up",
        "ValueError: constant, the default, does not require `num_warmup_steps`",
        "write lr_scheduler constant_with_warmup",
        f"no {_KIND}:lr_scheduler",
        f"no {_KIND}:lr_scheduler_type",
        f"no {_KIND}:optimizer_type~schedulefree",
        _ALONE,
    ),
    _needs(
        "lr_scheduler=adafactor",
        "optimizer_type~=adafactor",
        f"{_ASSERTION}: adafactor scheduler must be used with Adafactor optimizer",
    ),
    _row(
        f"lr_scheduler!={SCHEDULES}rex",
        "lr_scheduler {0.value} is no schedule of transformers",
        "ValueError: it is looked up among transformers' SchedulerType",
        "write cosine, or another that it has",
        f"no {_KIND}:lr_scheduler_type",
        f"no {_KIND}:optimizer_type~=adafactor",
    ),
)
_OF_MODELS: Final = (
    *(
        _row(
            "weighting_scheme!=none",
            f"weighting_scheme {{0.value}} is refused for {name}",
            f"{_VALUE}: its loss is not weighted",
            "write weighting_scheme none",
            _of(network),
        )
        for network, name in (("ideogram4", "Ideogram 4"), ("hidream_o1", "HiDream-O1"))
    ),
    *(
        _needs(
            "fp8_base=true",
            "fp8_scaled=true",
            f"{_VALUE}: {name} only has scaled fp8",
            _of(network),
        )
        for network, name in (("krea2", "Krea 2"), ("hidream_o1", "HiDream-O1"))
    ),
    _row(
        "blocks_to_swap>33",
        "blocks_to_swap {0.value} is above Ideogram 4's maximum of 33",
        _VALUE,
        "write blocks_to_swap 33, or fewer",
        _of("ideogram4"),
    ),
    *(
        _needs(
            "sample_prompts", needed, f"{_VALUE}: sample images are generated from it", _of(network)
        )
        for network, needed in (
            ("ideogram4", "text_encoder"),
            ("ideogram4", "vae"),
            ("krea2", "text_encoder"),
        )
    ),
    _needs("turbo_dit_cache=true", "turbo_dit", f"{_VALUE}: that flag loads turbo_dit"),
    _pair("turbo_dit", "blocks_to_swap>0", f"{_VALUE}: swapped blocks would belong to two models"),
    _row(
        "remove_first_image_from_target=true",
        "remove_first_image_from_target is refused for a model without layers",
        f"{_ASSERTION}: only with model_version layered",
        "write model_version layered",
        f"no {_KIND}:model_version=layered",
        _ALONE,
    ),
    _row(
        "model_version!=original|layered|edit|edit-2509|edit-2511",
        "model_version {0.value} is none of Qwen-Image's",
        "ValueError: Invalid model_version",
        "write original, or another that it has",
        _of("qwen_image"),
    ),
    _row(
        "task",
        "task {0.value} is none of Kandinsky 5's",
        "ValueError: Unknown task",
        "write k5-lite-t2v-5s-sd, or another that it has",
        f"no {_KIND}:task~k5-",
        _of("kandinsky"),
    ),
    _row(
        "vae_dtype!=float16",
        "vae_dtype {0.value} is refused for FramePack",
        f"{_ASSERTION}: VAE dtype must be float16",
        "remove vae_dtype",
        _of("framepack"),
    ),
    _pair(
        "blocks_to_swap>0",
        "offload_inactive_dit=true",
        f"{_ASSERTION}: the idle model is moved as a whole",
        f"({_KIND}:dit_high_noise)",
    ),
    _row(
        "dit_high_noise",
        "two models are trained without a timestep_boundary between them",
        f"{_VALUE}: a task of Wan 2.1 has no default",
        "write timestep_boundary, or a task of Wan 2.2",
        f"no {_KIND}:timestep_boundary",
        f"no {_KIND}:task~a14b",
        _ALONE,
    ),
    _row(
        "dino_loss_every_n_steps<1",
        "dino_loss_every_n_steps {0.value} is below 1",
        f"{_VALUE}, at the first step",
        "write 1",
        f"{_KIND}:dino_loss_weight>0",
        consequence="step",
    ),
    _row(
        "mask_ratio>0.5",
        "mask_ratio {0.value} is more than one half",
        _VALUE,
        "write mask_ratio 0.5, or less",
        f"({_KIND}:self_flow=true)",
    ),
    _row(
        "self_flow=true",
        "self_flow is not implemented in this release",
        "NotImplementedError: Self-Flow forward-hook registration",
        "remove self_flow",
    ),
)
"""`handle_model_specific_args` of each script."""
_WHOLE: Final = "(launch:script~hidream_o1_train.py)"
_OF_HIDREAM: Final = (
    *(
        _row(
            f"{flag}=true",
            "{0.key} is refused where the whole HiDream-O1 is trained",
            _VALUE,
            "remove {0.key}",
            _WHOLE,
        )
        for flag in ("fp8_base", "fp8_scaled", "xformers", "flash3")
    ),
    *(
        _row(
            flag,
            "{0.key} is refused where the whole HiDream-O1 is trained: it is for adapters",
            _VALUE,
            "remove {0.key}, or start hidream_o1_train_network.py",
            _WHOLE,
        )
        for flag in (
            *("network_weights", "network_module", "network_dim", "network_alpha!=1"),
            *("network_dropout", "network_args", "dim_from_weights", "scale_weight_norms"),
            *("base_weights", "base_weights_multiplier"),
        )
    ),
)
"""hidream_o1_train.py `_validate_full_finetune_args`."""
_HALVES: Final = tuple(
    _pair(
        f"full_{half}=true",
        f"mixed_precision!={half}",
        f"{_ASSERTION}: full_{half} requires mixed precision {half}",
    )
    for half in ("fp16", "bf16")
)
"""Checks of scripts that train whole models."""

MUSUBI_TUNER_FLAGS_REFUSED: Final = rows(
    "musubi-tuner-flags-refused",
    "error",
    "init",
    consumers=(_KIND,),
    rows=(*_TRAINING, *_RATES, *_HALVES, *_OF_MODELS, *_OF_HIDREAM, *schedule_rows(_KIND)),
)

WAN_WEIGHTS_OF_ANOTHER_PRECISION: Final = rows(
    "wan-weights-of-another-precision",
    "warning",
    "init",
    consumers=(_KIND,),
    rows=tuple(
        _row(
            f"mixed_precision={other}",
            f"mixed_precision {other} is refused for weights of Wan in {half}",
            f"{_ASSERTION}: the weights are in {half} by their name",
            f"write mixed_precision {half}, or name weights in {other}",
            f"{_KIND}:dit~{half}",
            f"no {_KIND}:dit~{other}",
            f"no {_KIND}:dit~fp8",
            _of("wan"),
        )
        for half, other in (("fp16", "bf16"), ("bf16", "fp16"))
    ),
)
"""wan_train_network.py `handle_model_specific_args`: the dtype is that of the file's tensors."""
