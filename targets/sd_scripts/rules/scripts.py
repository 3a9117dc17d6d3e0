"""Settings that single scripts of sd-scripts refuse, by the started script or its flags."""

from typing import Any, Final

from tunec.compiler.lints.rows import Row

_KIND: Final = "sd-scripts"
_VALUE: Final = "ValueError before training"
_ASSERTION: Final = "AssertionError before training"
_ALONE: Final = f"no {_KIND}:config_file"


def _started(*scripts: str) -> str:
    return f"(launch:script~{'|'.join(scripts)})"


def _row(when: str, message: str, why: str, help: str, *beside: str, **more: Any) -> Row:
    return Row(f"{_KIND}:{when}", message, "refused", why, help, beside=beside, **more)


def _pair(when: str, other: str, why: str, *beside: str) -> Row:
    message = "{0.key} cannot be combined with {1.key} {1.value}"
    return _row(when, message, why, "remove one of the two", f"{_KIND}:{other}", *beside)


_MEMORY: Final = (
    _pair(
        "unsloth_offload_checkpointing=true",
        "cpu_offload_checkpointing=true",
        f"{_ASSERTION}: both move recomputed activations",
    ),
    _pair(
        "blocks_to_swap>0",
        "unsloth_offload_checkpointing=true",
        f"{_ASSERTION}: blocks_to_swap is not supported with unsloth_offload_checkpointing",
    ),
    _pair(
        "blockwise_fused_optimizers=true",
        "optimizer_type~schedulefree",
        f"{_VALUE}: each block has an optimizer of its own",
    ),
)
_ENCODERS: Final = (
    _row(
        "cache_text_encoder_outputs=true",
        "adapters of the text encoders are trained, whose outputs are cached",
        f"{_ASSERTION}: network for Text Encoder cannot be trained with caching its outputs",
        "write network_train_unet_only",
        f"no {_KIND}:network_train_unet_only=true",
        _ALONE,
        _started("sdxl_train_network.py", "anima_train_network.py"),
    ),
    _pair(
        "network_args~train_t5xxl=true",
        "cache_text_encoder_outputs=true",
        f"{_VALUE}: cached outputs would not follow training",
    ),
    _row(
        "train_t5xxl=true",
        "T5-XXL is trained, and the other text encoders are not",
        f"{_ASSERTION}: when training T5XXL, text encoder must be trained",
        "write train_text_encoder",
        f"no {_KIND}:train_text_encoder=true",
        _ALONE,
    ),
    _pair(
        "train_t5xxl=true",
        "cache_text_encoder_outputs=true",
        f"{_ASSERTION}: cached outputs would not follow training",
    ),
    _row(
        "model_type=chroma",
        "Chroma requires apply_t5_attn_mask",
        f"{_ASSERTION}: apply_t5_attn_mask must be True for Chroma",
        "write apply_t5_attn_mask",
        f"no {_KIND}:apply_t5_attn_mask=true",
        _ALONE,
    ),
)
_HUBER: Final = "loss_type=huber|smooth_l1"
_FLOWS: Final = _started("flux_train", "sd3_train", "lumina_train", "anima_train", "hunyuan_image")
_ABSENT: Final = "NotImplementedError at the first step"
_LOSSES: Final = (
    _row(
        _HUBER,
        "loss_type {0.value} needs another schedule than snr, the default, in flow matching",
        f"{_ABSENT}: Huber schedule 'snr' is not supported",
        "write huber_schedule constant",
        f"no {_KIND}:huber_schedule",
        _ALONE,
        _FLOWS,
        consequence="step",
    ),
    _row(
        "huber_schedule=snr",
        "huber_schedule snr is refused for a flow matching model",
        f"{_ABSENT}: Huber schedule 'snr' is not supported",
        "write huber_schedule constant",
        f"({_KIND}:{_HUBER})",
        _FLOWS,
        consequence="step",
    ),
    _row(
        "huber_schedule!=constant|exponential|snr",
        "huber_schedule {0.value} is no schedule of the loss",
        f"{_ABSENT}: Unknown Huber loss schedule",
        "write snr, exponential or constant",
        f"({_KIND}:{_HUBER})",
        consequence="step",
    ),
    _row(
        "loss_type!=l1|l2|huber|smooth_l1",
        "loss_type {0.value} is no loss",
        f"{_ABSENT}: Unsupported Loss Type",
        "write l2, l1, huber or smooth_l1",
        consequence="step",
    ),
)
_ADAPTING: Final = (
    *("dadaptation", "dadaptadampreprint", "dadaptadagrad", "dadaptadam", "dadaptadan"),
    *("dadaptadanip", "dadaptlion", "dadaptsgd"),
)
_OTHERS: Final = (
    _row(
        "v2=true",
        "v2 is refused for SDXL",
        f"{_ASSERTION}: v2 cannot be enabled in SDXL training",
        "remove v2",
        _started("sdxl_"),
    ),
    _row(
        "model_type!=flux",
        "model_type {0.value} is refused for a ControlNet of FLUX",
        f"{_VALUE}: FLUX.1 ControlNet training requires model_type flux",
        "write model_type flux",
        _started("flux_train_control_net"),
    ),
    _row(
        "random_crop=true",
        "random_crop is refused for a ControlNet: its condition would be cropped elsewhere",
        f"{_ASSERTION}: random_crop is not supported in ControlNetDataset",
        "remove random_crop",
        _started("control_net"),
    ),
    _row(
        "dataset_class",
        "dataset_class is refused by this script",
        f"{_ASSERTION}: dataset_class is not supported in this script currently",
        "remove dataset_class",
        _started("textual_inversion_xti"),
    ),
    _row(
        "optimizer_type~dadapt",
        "optimizer_type {0.value} is none of D-Adaptation's",
        "ValueError: Unknown optimizer type",
        "write DAdaptAdam, or another that it has",
        f"no {_KIND}:optimizer_type~={'|'.join(_ADAPTING)}",
    ),
    _row(
        "train_data_dir",
        "no resolution is given for the images",
        f"{_ASSERTION}: resolution is required",
        "write resolution",
        f"no {_KIND}:resolution",
        f"no {_KIND}:dataset_config",
        f"no {_KIND}:in_json",
        _ALONE,
    ),
)
OF_SCRIPTS: Final = (*_MEMORY, *_ENCODERS, *_LOSSES, *_OTHERS)
"""kohya-ss/sd-scripts 0.10.1, each script's `assert_extra_args` or `train`; library/train_util.py
`get_huber_threshold_if_needed`, `conditional_loss`, `get_optimizer`, `ControlNetDataset`."""
