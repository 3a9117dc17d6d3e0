"""A key in an entry of multidatabackend.json that SimpleTuner does not look for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.diffusion.flag_not_known import flags
from tunec.compiler.lints.diffusion.sets import lists
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KNOWN: Final = frozenset(
    {
        *("aspect", "aspect_ratio_bucket_max", "aspect_ratio_bucket_min"),
        *("aspect_ratio_bucketing", "attention_masks", "audio", "audio_column", "audio_weight"),
        *("auto_generated", "aws", "aws_access_key_id", "aws_bucket_name", "aws_data_prefix"),
        *("aws_endpoint_url", "aws_max_pool_connections", "aws_region_name"),
        *("aws_secret_access_key", "aws_session_token", "bucket_strategy", "cache_dir"),
        *("cache_dir_conditioning_image_embeds", "cache_dir_vae", "cache_file_suffix"),
        *("caption_column", "caption_dropout_probability", "caption_file_extensions"),
        *("caption_filter_list", "caption_shuffle", "caption_strategy", "composite_image_column"),
        *("compress_cache", "conditioning", "conditioning_config", "conditioning_data"),
        *("conditioning_image_embed_batch_size", "conditioning_image_embeds"),
        *("conditioning_type", "config", "crop", "crop_aspect", "crop_aspect_buckets"),
        *("crop_style", "csv", "csv_cache_dir", "csv_caption_column", "csv_file"),
        *("csv_hash_filenames", "csv_shorten_filenames", "csv_url_column", "data_files"),
        *("data_generator", "data_transform_source_only", "data_transforms", "dataset_config"),
        *("dataset_name", "dataset_type", "default", "delete_nsfw_images"),
        *("delete_problematic_images", "delete_unwanted_images", "disable"),
        *("disable_multiline_split", "disable_vae_cache", "disable_validation", "disabled"),
        *("distillation_type", "end_epoch", "end_step", "filter_func", "grounding"),
        *("grounding_data", "hash_filenames", "hf_token", "huggingface", "id", "ignore_epochs"),
        *("image_column", "image_embeds", "image_processing_batch_size", "instance_data_dir"),
        *("instance_data_root", "instance_prompt", "is_regularisation_data"),
        *("is_regularization_data", "loss_weight", "max_num_samples", "maximum_aspect_ratio"),
        *("maximum_image_size", "memory_filesystem_path", "memory_filesystem_size"),
        *("memory_filesystem_sudo", "metadata", "metadata_backend", "metadata_clone_source_id"),
        *("metadata_update_interval", "minimum_aspect_ratio", "minimum_image_size", "num_frames"),
        *("only_instance_prompt", "parquet", "path_exclude", "path_include", "path_match"),
        *("prepend_instance_prompt", "preserve_data_backend_cache", "probability", "profile"),
        *("prompt", "quality_column", "quality_filter", "read_batch_size", "repeats"),
        *("resolution", "resolution_type", "revision", "s2v_datasets", "sampler"),
        *("scan_for_errors", "shorten_filenames", "shuffle", "skip_file_discovery"),
        *("slider_strength", "source", "source_dataset_id", "split", "split_composite_images"),
        *("start_epoch", "start_step", "streaming", "subfolder", "target_downsample_size"),
        *("text_cache_disable", "text_cache_ondemand", "text_embed_cache", "text_embeds"),
        *("text_encoder_batch_size", "timestep_sampling_offset", "train_batch_size", "type"),
        *("vae_batch_size", "vae_cache_clear_each_epoch", "vae_cache_disable"),
        *("vae_cache_ondemand", "vae_cache_preprocess", "vae_cache_scan_behaviour", "video"),
        *("video_column", "video_weight", "webshart", "webshart_optimise_captions"),
        *("webshart_optimize_captions", "write_batch_size"),
    }
)
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/**/*.py: every name that is asked of an entry."""
_ELSEWHERE: Final = frozenset(
    {
        *("seed", "control", "controlnet", "model_family", "model_flavour", "model_type"),
        *("prediction_type", "loss_type", "num_inference_steps", "train_text_encoder"),
    }
)
"""Flags whose names are asked of other mappings in the same files."""
_LIKE: Final = 0.88


def _check(run: Run) -> Iterator[Finding]:
    for _, sets in lists(run):
        for each in sets:
            start = f"{each.position}."
            for path, at in each.document.found.items():
                name = path.removeprefix(start)
                if path.startswith(start) and "." not in name and name not in _KNOWN:
                    yield from _of(name, at)


def _of(name: str, at: Place) -> Iterator[Finding]:
    near = nearly(name, _KNOWN, _LIKE)
    if near is None and (name not in flags() or name in _ELSEWHERE):
        return  # a word of one's own, as `_comment`
    yield Finding(
        f"an entry has no key `{name}`",
        (at.key_label("not read"),),
        (
            "no key is asked for by that name, and none is refused"
            if near
            else f"{name} is a flag of the whole run",
        ),
        f"did you mean `{near}`?" if near else "write it in config.json",
        Fix((at.renamed(near),), "unsafe") if near else None,
    )


RULE = Rule(
    name="key-of-no-data-set",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/factory.py: backend.get(...) of "
            "each known key; no other key is looked at"
        ),
    ),
    check=_check,
)
