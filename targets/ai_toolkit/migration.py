"""Keys of ai-toolkit without a slot, and what other programs do instead."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone, always, never, one_of
from tunec.targets.ai_toolkit.packages import SOURCE

_CONFIG: Final = f"{SOURCE} toolkit/config_modules.py"
_OFF: Final = one_of(False, 0, 0.0, None, "", [])
_HARMLESS: Final = (
    (
        "the new run is started by its own program",
        ("job", "type", "device", "performance_log_every"),
    ),
    ("no pictures are made meanwhile", ("sample", "first_sample", "train.disable_sampling")),
    ("no pictures are made meanwhile", ("train.skip_first_sample", "train.force_first_sample")),
    ("the new run's files are called otherwise", ("save.dtype", "save.save_format", "meta")),
    ("nothing is sent to the hub", ("save.push_to_hub", "save.hf_repo_id", "save.hf_private")),
    ("trackers are configured by their own variables", ("logging",)),
    ("loading is the new program's", ("model.low_vram", "model.quantize_te", "model.qtype_te")),
    (
        "the family follows from the model",
        ("model.is_flux", "model.arch", "model.is_xl", "model.is_v3"),
    ),
    ("the denoiser is trained, as here", ("train.train_unet",)),
    (
        "captions' embeddings are cached anyway",
        ("train.cache_text_embeddings", "train.unload_text_encoder"),
    ),
    ("latents are cached anyway", ("datasets.*.cache_latents_to_disk", "datasets.*.cache_latents")),
)
_OTHER: Final = (
    (
        "the frozen model is held in 16 bits, so more memory is needed",
        ("model.quantize", "model.qtype", "model.layer_offloading", "model.auto_memory"),
    ),
    ("weights are not averaged", ("train.ema_config",)),
    (
        "timesteps, noise and loss are those of the new program",
        (
            *("train.noise_scheduler", "train.timestep_type", "train.linear_timesteps"),
            *(
                "train.content_or_style",
                "train.noise_offset",
                "train.min_snr_gamma",
                "train.loss_type",
            ),
            *("train.snr_gamma", "train.bypass_guidance_embedding", "train.linear_timesteps2"),
            *("train.diff_output_preservation", "train.diff_output_preservation_class"),
            "train.diff_output_preservation_multiplier",
        ),
    ),
    (
        "captions are read and changed as the new program does by itself",
        (
            *("trigger_word", "datasets.*.caption_ext", "datasets.*.caption_dropout_rate"),
            *("datasets.*.shuffle_tokens", "datasets.*.default_caption", "datasets.*.trigger_word"),
            *("datasets.*.keep_tokens", "datasets.*.token_dropout_rate"),
        ),
    ),
    (
        "a picture has no frames to choose from",
        ("datasets.*.shrink_video_to_frames", "datasets.*.fps"),
    ),
    (
        "pictures are seen in the size that is chosen for the new run",
        (
            "datasets.*.resolution",
            "datasets.*.buckets",
            "datasets.*.random_crop",
            "datasets.*.flip_x",
        ),
    ),
    ("only the denoiser is trained", ("train.train_text_encoder", "train.text_encoder_lr")),
    ("every layer is adapted", ("network.network_kwargs", "network.conv", "network.conv_alpha")),
)


def _leaves(names: Iterable[str], instead: str, harmless: Any) -> Iterator[Moved]:
    return all_gone(
        (place for name in names for place in _places(name)), _CONFIG, instead, harmless
    )


def _places(name: str) -> Iterator[str]:
    """A key's path in each data set, if the name has a star for it."""
    yield from (name.replace("*", f"[{number}]") for number in range(16 if "*" in name else 1))


_ALWAYS_OTHER: Final = ("timesteps",)
_SPREAD: Final = "its frames are spread over the whole clip, or begin at a random one"
LEAVES: Final = (
    *(
        Moved(place, _CONFIG, apart=lambda frames: None if frames == 1 else _SPREAD)
        for place in _places("datasets.*.num_frames")
    ),
    *(each for why, names in _HARMLESS for each in _leaves(names, why, always)),
    *(
        each
        for why, names in _OTHER
        for each in _leaves(names, why, never if why.startswith(_ALWAYS_OTHER) else _OFF)
    ),
)
"""What other programs do without each key."""
