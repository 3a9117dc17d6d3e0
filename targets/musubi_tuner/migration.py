"""Keys of musubi-tuner without a slot: what other programs do instead."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone, one_of, only_here
from tunec.targets.musubi_tuner.models import ELSEWHERE
from tunec.targets.musubi_tuner.packages import SOURCE

_FLAGS: Final = f"{SOURCE} training/parser_common.py `setup_parser_common`"
_SCRIPTS: Final = f"{SOURCE} *_train_network.py `*_setup_parser`"
_HARMLESS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("the new run's files are called otherwise", ("output_name", "save_precision", "mem_eff_save")),
    (
        "nothing is written into the weights' own header",
        (
            *("no_metadata", "training_comment", "metadata_title", "metadata_author"),
            *("metadata_description", "metadata_license", "metadata_tags", "metadata_reso"),
            "metadata_arch",
        ),
    ),
    (
        "nothing is sent to the hub",
        (
            *("huggingface_repo_id", "huggingface_repo_type", "huggingface_path_in_repo"),
            *("huggingface_token", "huggingface_repo_visibility", "save_state_to_huggingface"),
            "async_upload",
        ),
    ),
    (
        "no pictures are made meanwhile",
        (
            *("sample_prompts", "sample_every_n_steps", "sample_every_n_epochs"),
            *("sample_at_first", "vae_chunk_size", "vae_spatial_tile_sample_min_size"),
            *("vae_tiling", "vae_cache_cpu", "vae_sample_size", "vae_enable_patch_conv"),
            *("bulk_decode", "offload_dit_during_sampling", "no_vae_load", "sampler_preset"),
            *("initial_sigma", "unconditional_dit", "use_unconditional_dit_for_lora_sampling"),
            *("turbo_dit", "turbo_dit_cache"),
        ),
    ),
    (
        "trackers are configured by their own variables",
        (
            *("log_prefix", "log_tracker_name", "log_tracker_config", "wandb_run_name"),
            *("wandb_api_key", "log_config", "log_loss_stats"),
        ),
    ),
    (
        "an attention that computes the same",
        ("xformers", "split_attn", "flash_attn", "flash3", "use_32bit_attention"),
    ),
    (
        "the new run reads its parts from the model's own repository",
        (
            *("vae", "vae_dtype", "text_encoder", "text_encoder1", "text_encoder2", "t5", "clip"),
            *("text_encoder_dtype", "byt5", "image_encoder", "text_encoder_qwen"),
            *("text_encoder_clip", "fp8_llm", "fp8_t5", "fp8_vl", "fp8_text_encoder"),
        ),
    ),
    ("loading is the new program's", ("disable_numpy_memmap",)),
    ("workers are started anew", ("persistent_data_loader_workers",)),
    ("whole states are saved", ("save_state", "save_state_on_train_end")),
    (
        "processes wait for each other as the new program has them",
        ("ddp_timeout", "ddp_gradient_as_bucket_view", "ddp_static_graph"),
    ),
    (
        "it makes steps quicker, and trains the same",
        (
            *("compile", "compile_backend", "compile_mode", "compile_dynamic", "compile_fullgraph"),
            *("compile_cache_size_limit", "dynamo_backend", "dynamo_mode", "dynamo_fullgraph"),
            *("dynamo_dynamic", "cuda_cudnn_benchmark", "cuda_allow_tf32"),
            *("use_pinned_memory_for_block_swap", "block_swap_h2d_only", "block_swap_ring_size"),
        ),
    ),
)
"""Keys that do not affect training, by the reason."""
_OTHER: Final = (
    (
        "timesteps and targets are those of the new program",
        _FLAGS,
        (
            *("timestep_sampling", "discrete_flow_shift", "sigmoid_scale", "weighting_scheme"),
            *("logit_mean", "logit_std", "mode_scale", "min_timestep", "max_timestep"),
            *("preserve_distribution_shape", "num_timestep_buckets", "guidance_scale"),
            *("ideogram4_timestep_mu", "ideogram4_timestep_std", "noise_clip_std"),
            *("noise_scale_start", "noise_scale_end", "scheduler_scale"),
        ),
    ),
    (
        "the frozen model is held in 16 bits, so more memory is needed",
        f"{SOURCE} training/trainer_base.py `_prepare_accelerator_and_dtypes`",
        ("fp8_base", "fp8_scaled"),
    ),
    ("the model is held in the dtype of products", _SCRIPTS, ("dit_dtype",)),
    (
        "blocks stay on the device, so more memory is needed",
        f"{SOURCE} training/trainer_base.py `_load_dit_and_swap`",
        ("blocks_to_swap", "img_in_txt_in_offloading"),
    ),
    (
        "activations stay on the device, so more memory is needed",
        _FLAGS,
        ("gradient_checkpointing_cpu_offload",),
    ),
    (
        "the adapter's inner values are not dropped",
        f"{SOURCE} networks/lora.py `LoRAModule.forward`",
        ("network_dropout",),
    ),
    ("the adapter's norms are not bounded", _FLAGS, ("scale_weight_norms",)),
    (
        "checkpoints are kept by their number",
        _FLAGS,
        (
            *("save_last_n_epochs", "save_last_n_steps", "save_last_n_epochs_state"),
            "save_last_n_steps_state",
        ),
    ),
    (
        "checkpoints are written after other steps",
        _FLAGS,
        ("save_every_n_epochs", "save_every_n_steps"),
    ),
    (
        "the model has the shape that its repository says",
        _SCRIPTS,
        ("num_layers", "force_v2_1_time_embedding", "dit_in_channels"),
    ),
)
"""Keys whose absence changes the run: what happens instead, its source, and the keys."""
_HERE_ALONE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "two models are trained in turn, each for its share of the noise",
        ("dit_high_noise", "timestep_boundary", "offload_inactive_dit"),
    ),
    (
        "the model sees a picture beside the caption",
        ("edit", "edit_plus", "one_frame", "f1", "i2v_mode", "remove_first_image_from_target"),
    ),
    ("weights of another run are put in first", ("base_weights", "base_weights_multiplier")),
    ("the adapter goes on from weights of another run", ("network_weights", "dim_from_weights")),
    (
        "a loss beside that of the noise",
        (
            *("self_flow", "dino_loss_weight", "network_weights_ema", "network_weights_proj"),
            *("ema_decay", "mask_ratio"),
        ),
    ),
    ("only a part of the model is trained", ("trainable_modules",)),
    ("steps are taken in the backward pass", ("fused_backward_pass",)),
    ("gradients are held in 16 bits", ("full_bf16", "full_fp16")),
    ("nothing is trained, but shown", ("show_timesteps",)),
    ("a schedule of another library", ("lr_scheduler_type", "lr_scheduler_args")),
)
"""Keys that have no equivalent in other programs, by the reason."""
_OFF: Final = one_of(False, 0, 0.0, None, [], "")


def _leaves() -> Iterator[Moved]:
    for why, names in _HARMLESS:
        yield from all_gone(names, _FLAGS, why)
    for why, source, names in _OTHER:
        yield from all_gone(names, source, why, _OFF)
    for why, names in _HERE_ALONE:
        yield from (only_here(each, _SCRIPTS, why) for each in names)
    for module, why in ELSEWHERE.items():
        yield only_here("network_module", f"{SOURCE} networks", why, module)


LEAVES: Final = tuple(_leaves())
"""What is done without each flag, or why no program can replace it."""
