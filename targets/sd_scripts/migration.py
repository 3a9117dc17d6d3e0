"""Keys of sd-scripts without a slot: what other programs do instead."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.consumers.moved_keys import all_gone, always, never, one_of
from tunec.targets.sd_scripts.data import FOLDERS, SETS
from tunec.targets.sd_scripts.packages import SOURCE

_UTIL: Final = f"{SOURCE} library/train_util.py"
_FLAGS: Final = f"{_UTIL} `add_training_arguments`, `add_dataset_arguments`"
_LOSS: Final = f"{SOURCE} library/custom_train_functions.py `add_custom_train_arguments`"
_CONFIG: Final = f"{SOURCE} library/config_util.py"
_DIT: Final = f"{_UTIL} `add_dit_training_arguments`"
_FLUX: Final = f"{SOURCE} library/flux_train_utils.py `add_flux_train_arguments`"

_HARMLESS: Final = (
    (
        "the new run's files are called otherwise",
        ("output_name", "save_model_as", "save_precision"),
    ),
    ("nothing is written into the weights' own header", ("no_metadata", "training_comment")),
    (
        "nothing is sent to the hub",
        (
            *(
                "huggingface_repo_id",
                "huggingface_repo_type",
                "huggingface_path_in_repo",
                "async_upload",
            ),
            *("huggingface_token", "huggingface_repo_visibility", "save_state_to_huggingface"),
        ),
    ),
    (
        "no pictures are made meanwhile",
        (
            *("sample_prompts", "sample_every_n_steps", "sample_every_n_epochs", "sample_sampler"),
            "sample_at_first",
        ),
    ),
    (
        "trackers are configured by their own variables",
        (
            *(
                "log_prefix",
                "log_tracker_name",
                "log_tracker_config",
                "wandb_run_name",
                "log_config",
            ),
            *("wandb_api_key", "console_log_level", "console_log_file", "console_log_simple"),
        ),
    ),
    ("an attention that computes the same", ("xformers", "mem_eff_attn", "split_attn")),
    (
        "latents and text embeddings are cached in the new run's own way",
        (
            *("cache_latents", "cache_latents_to_disk", "vae_batch_size", "skip_cache_check"),
            *("cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk", "cache_info"),
            *("no_half_vae", "text_encoder_batch_size"),
        ),
    ),
    ("loading is the new program's", ("lowram", "highvram", "disable_mmap_load_safetensors")),
    ("workers are started anew", ("persistent_data_loader_workers",)),
    (
        "the new run reads its parts from the model's own repository",
        ("vae", "ae", "clip_l", "clip_g", "t5xxl"),
    ),
    ("whole states are saved", ("save_state", "save_state_on_train_end")),
    ("tokenizers are cached as the hub's client does", ("tokenizer_cache_dir",)),
    ("the text encoders are not trained, as here", ("network_train_unet_only",)),
    ("processes wait for each other as the new program has them", ("ddp_timeout",)),
)
"""Keys that do not affect training, by the reason."""
_OTHER: Final = (
    (
        "the loss is not weighted so",
        _LOSS,
        (
            *("min_snr_gamma", "debiased_estimation_loss", "scale_v_pred_loss_like_noise_pred"),
            *("v_pred_like_loss", "weighted_captions", "loss_type", "huber_schedule", "huber_c"),
            *("huber_scale", "masked_loss", "prior_loss_weight", "weighting_scheme"),
        ),
    ),
    (
        "noise is drawn as the new program does by itself",
        _FLAGS,
        (
            *("noise_offset", "noise_offset_random_strength", "multires_noise_iterations"),
            *("multires_noise_discount", "adaptive_noise_scale", "ip_noise_gamma"),
            *(
                "ip_noise_gamma_random_strength",
                "zero_terminal_snr",
                "min_timestep",
                "max_timestep",
            ),
        ),
    ),
    (
        "timesteps and targets are those of the new program",
        _FLUX,
        (
            *("timestep_sampling", "sigmoid_scale", "model_prediction_type", "discrete_flow_shift"),
            *("guidance_scale", "logit_mean", "logit_std", "mode_scale", "training_shift"),
        ),
    ),
    (
        "captions are read and changed as the new program does by itself",
        _FLAGS,
        (
            *(
                "caption_extension",
                "caption_extention",
                "shuffle_caption",
                "keep_tokens",
                "enable_wildcard",
            ),
            *("keep_tokens_separator", "caption_separator", "caption_prefix", "caption_suffix"),
            *("caption_dropout_rate", "caption_dropout_every_n_epochs", "caption_tag_dropout_rate"),
            *("secondary_separator", "token_warmup_min", "token_warmup_step", "class_tokens"),
            *("max_token_length", "t5xxl_max_token_length", "apply_t5_attn_mask", "clip_skip"),
        ),
    ),
    (
        "pictures are put in buckets and cut as the new program does by itself",
        _FLAGS,
        (
            *("enable_bucket", "min_bucket_reso", "max_bucket_reso", "bucket_reso_steps"),
            *("bucket_no_upscale", "random_crop", "flip_aug", "color_aug", "face_crop_aug_range"),
            *("resize_interpolation", "alpha_mask"),
        ),
    ),
    (
        "text encoders are not trained",
        _FLAGS,
        ("text_encoder_lr", "learning_rate_te", "learning_rate_te1", "learning_rate_te2"),
    ),
    (
        "the frozen model is held in 16 bits, so more memory is needed",
        f"{SOURCE} train_network.py `NetworkTrainer.train`",
        ("fp8_base", "fp8_base_unet"),
    ),
    ("blocks stay on the device, so more memory is needed", _DIT, ("blocks_to_swap",)),
    ("the adapter's norms are not bounded", _FLAGS, ("scale_weight_norms",)),
    ("checkpoints are kept by their number", _FLAGS, ("save_last_n_epochs", "save_last_n_steps")),
)
"""Keys whose absence changes the run: what happens instead, its source, and the keys."""


def _everywhere(name: str) -> Iterator[str]:
    """The positions at which a key of the data config can be."""
    yield from (f"{at}.{name}" for at in ("general", *SETS, *FOLDERS))


_OFF: Final = one_of(False, 0, 0.0, None, [])
LEAVES: Final = (
    *(each for why, names in _HARMLESS for each in all_gone(names, _FLAGS, why)),
    *(each for why, source, names in _OTHER for each in all_gone(names, source, why, _OFF)),
    *all_gone(("train_data_dir",), _CONFIG, "the data's own file is read instead of it", always),
    *all_gone(("reg_data_dir",), _CONFIG, "no pictures of the class are trained on", one_of("")),
    *all_gone(("in_json",), _CONFIG, "captions are those beside the pictures", one_of("")),
    *all_gone(("dataset_repeats",), _CONFIG, "an epoch sees each picture once", one_of(1)),
    *all_gone(
        ("save_every_n_epochs", "save_every_n_steps", "save_n_epoch_ratio"),
        _FLAGS,
        "checkpoints are written after other steps",
        one_of(0),
    ),
)
"""What is done without each flag."""
_OF_DATA: Final = {
    name: (why, source)
    for why, source, names in _OTHER
    for name in names
    if source == _FLAGS and not name.startswith(("save", "scale", "text_encoder", "learning_rate"))
}
DATA_LEAVES: Final = tuple(
    each
    for name, (why, source) in _OF_DATA.items()
    for each in all_gone(_everywhere(name), source, why, never if name == "class_tokens" else _OFF)
)
"""What is done without each key of the data config."""
