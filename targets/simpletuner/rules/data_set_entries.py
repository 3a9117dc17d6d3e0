"""Single entries of SimpleTuner's list of data sets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, nearly, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusion import DataSet, configs, lists, said
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.simpletuner.rules.data_set_parts import own_batch, parts
from tunec.targets.simpletuner.rules.flag_names import flags

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "crop_aspect": ("square", "preserve", "random", "closest"),
    "crop_style": ("random", "corner", "center", "centre", "face"),
    "resolution_type": ("pixel", "area", "pixel_area"),
}
_STORAGE: Final[Mapping[str, tuple[str, ...]]] = {
    "type": ("local", "aws", "csv", "huggingface", "webshart", "memory"),
    "metadata_backend": (
        *("discovery", "json", "filesystem", "parquet", "huggingface", "webshart"),
    ),
    "caption_strategy": (
        *("filename", "textfile", "parquet", "instanceprompt", "csv", "huggingface", "webshart"),
    ),
}
"""simpletuner 4.10.1 helpers/data_backend/factory.py `_configure_backend_by_type`: Unknown data
backend type; `_configure_metadata_backend`: Unknown metadata backend type; helpers/prompts.py
`PromptHandler.magic_prompt`: Unsupported caption strategy; 3.1.6 has fewer."""
_NUMBERS: Final[Mapping[str, str]] = {"probability": "float", "repeats": "int"}
_KINDS: Final = (
    *("image", "video", "audio", "conditioning", "eval", "text_embeds", "image_embeds"),
    *("conditioning_image_embeds", "distillation_cache", "caption", "grounding"),
)
_PICTURES: Final = ("image", "video", "conditioning", "eval")
_STORED: Final[Mapping[str, str]] = {
    "text_embeds": "text_embeds",
    "text_embed_cache": "text_embeds",
    "image_embeds": "image_embeds",
    "conditioning_image_embeds": "conditioning_image_embeds",
}


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_set_refused(run: LintContext) -> Iterator[Finding]:
    """An entry of multidatabackend.json that SimpleTuner refuses."""
    for _, sets in lists(run):
        known: set[object] = {str(each.value("id")) for each in sets}
        for each in sets:
            yield from _refused_of(each)
            yield from _captions(each)
            yield from parts(each)
            yield from own_batch(run, each)
            yield from _prompts(run, each)
            yield from _conditioning(each, known)
            yield from _stores(each, sets)
            start = each.place("type") or each.place("dataset_type")
            if start is not None and each.value("id") is None:
                yield Finding(
                    "a data set has no id",
                    (start.label("of this entry"),),
                    ("an entry is known by its id",),
                    "write an id",
                )


def _stores(each: DataSet, sets: Sequence[DataSet]) -> Iterator[Finding]:
    """A data set names the store of its embeddings by the id of another entry."""
    for key, kind in _STORED.items():
        at = each.place(key)
        ids = {str(one.value("id")) for one in sets if one.kind == kind}
        if at is not None and isinstance(at.value, str) and at.value and at.value not in ids:
            yield Finding(
                f"{key} {at.value} is no entry with dataset_type: {kind}",
                (at.label("not found"),),
                (f"there is {quoted(sorted(ids))}" if ids else "there is no such entry",),
                f"write the id of an entry with dataset_type: {kind}",
            )


def _conditioning(each: DataSet, known: set[object]) -> Iterator[Finding]:
    at = each.place("conditioning_data")
    names = (
        at.value if at is not None and isinstance(at.value, list) else [at.value if at else None]
    )
    for name in names:
        if at is not None and isinstance(name, str) and name and name not in known:
            yield Finding(
                f"conditioning_data {name} is no data set of this list",
                (at.label("not found"),),
                (),
                "write the id of an entry with dataset_type: conditioning",
            )


def _refused_of(each: DataSet) -> Iterator[Finding]:
    kind = each.place("dataset_type")
    if kind is not None and isinstance(kind.value, str) and kind.value not in _KINDS:
        near = nearest(kind.value, _KINDS)[:1]
        yield Finding(
            f"dataset_type cannot be {kind.value}",
            (kind.label("refused"),),
            (f"taken: {quoted(sorted(_KINDS))}",),
            f"did you mean {quoted(near)}?" if near else "write image",
        )
    size = each.place("resolution")
    if size is not None and isinstance(size.value, str) and not _is_number(size.value):
        yield Finding(
            f"resolution {size.value} is no number",
            (size.label("refused"),),
            (),
            "write a side in pixels",
        )
    yield from _numbers(each)
    yield from _words(each, _STORAGE)
    if each.kind not in _PICTURES:
        return
    yield from _words(each, _WORDS)
    aspect = each.place("crop_aspect")
    if (
        aspect is not None
        and aspect.value in ("random", "closest")
        and each.value("crop") is not False
    ):
        buckets = each.value("crop_aspect_buckets")
        if not isinstance(buckets, list) or not buckets:
            yield Finding(
                f"crop_aspect {aspect.value} needs crop_aspect_buckets",
                (aspect.label("refused alone"),),
                ("the aspects to choose from are that list",),
                "write crop_aspect_buckets: [1.0, 0.75, 1.5]",
            )
        else:
            yield from _buckets(each, buckets)
    gone = each.place("disable_vae_cache")
    if gone is not None:
        yield Finding(
            "disable_vae_cache is now vae_cache_disable",
            (gone.key_label("refused"),),
            (),
            "write vae_cache_disable",
            Fix((gone.renamed("vae_cache_disable"),), "safe"),
        )


def _numbers(each: DataSet) -> Iterator[Finding]:
    for key, kind in _NUMBERS.items():
        at = each.place(key)
        if at is not None and isinstance(at.value, str) and not _is_number(at.value):
            yield Finding(
                f"{key} {at.value} is no number",
                (at.label("refused"),),
                (f"{kind}() takes no other text",),
                "write the number without quotes",
            )


def _buckets(each: DataSet, buckets: list[object]) -> Iterator[Finding]:
    """An aspect is a number, or a mapping with one number and its weight."""
    at = each.place("crop_aspect_buckets")
    odd = [bucket for bucket in buckets if type(bucket) not in (int, float, dict)]
    if at is not None and odd:
        yield Finding(
            f"crop_aspect_buckets holds {odd[0]!r}, which is no number",
            (at.label("refused"),),
            ("must be a list of float values or a list of dictionaries",),
            "write the numbers without quotes",
        )


def _words(each: DataSet, known: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    for key, words in known.items():
        at = each.place(key)
        if at is None or not isinstance(at.value, str) or at.value in words:
            continue
        near = nearest(at.value, words)[:1]
        yield Finding(
            f"{key} cannot be {at.value}",
            (at.label("refused"),),
            (f"taken: {quoted(sorted(words))}",),
            f"did you mean {quoted(near)}?" if near else "write one of these",
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
        )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).strip().isdigit()


_FILES: Final = "discovery"
"""The default of `metadata_backend`."""


def _captions(each: DataSet) -> Iterator[Finding]:
    how, kind = each.place("caption_strategy"), each.value("type")
    filters = each.place("caption_filter_list")
    if filters is not None and filters.value and each.kind != "text_embeds":
        yield Finding(
            "caption_filter_list belongs to a store of text embeddings",
            (filters.label("refused"),),
            (),
            "move it to the entry with dataset_type: text_embeds",
        )
    if how is None:
        return
    if how.value in ("huggingface", "webshart") and kind not in (None, how.value):
        yield Finding(
            f"SimpleTuner refuses caption_strategy {how.value} for data of type {kind}",
            (how.label("refused"),),
            (),
            "write textfile or filename",
        )
    backend = each.value("metadata_backend")
    if how.value == "parquet" and (backend or _FILES) in ("json", _FILES):
        yield Finding(
            f"caption_strategy parquet needs metadata_backend parquet, not {backend or _FILES}",
            (how.label("refused"),),
            ("captions from a table need the sizes of that table",),
            "write metadata_backend: parquet, or caption_strategy: textfile",
        )


def _prompts(run: LintContext, each: DataSet) -> Iterator[Finding]:
    """The single caption of all images is set in the entry, or by the flag of that name."""
    if each.kind not in _PICTURES or each.place("instance_prompt") is not None:
        return
    files = tuple(configs(run))
    if any(_prompted(file) for file in files):
        return
    how, first = each.place("caption_strategy"), each.place("prepend_instance_prompt")
    is_one = how is not None and how.value == "instanceprompt"
    at = how if is_one else first if first is not None and first.value is True else None
    if at is not None:
        key = at.path.rpartition(".")[2]
        yield Finding(
            f"{key}{' instanceprompt' if is_one else ''} needs instance_prompt",
            (at.label("no caption"),),
            ("no instance_prompt was provided, by the entry or by the flag of that name",),
            "write instance_prompt",
            severity=None if files else "warning",
        )


def _prompted(file: Document) -> bool:
    is_open = {"instance_prompt", "--instance_prompt", "TRAINER_EXTRA_ARGS"} & file.unknown
    return bool(is_open) or said(file, "instance_prompt") is not None


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
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/**/*.py: every key that is read from an entry."""
_ELSEWHERE: Final = frozenset(
    {
        *("seed", "control", "controlnet", "model_family", "model_flavour", "model_type"),
        *("prediction_type", "loss_type", "num_inference_steps", "train_text_encoder"),
    }
)
"""Flags whose names are read from other mappings in the same files."""
_LIKE: Final = 0.88


@rule("warning", "silent", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def key_of_no_data_set(run: LintContext) -> Iterator[Finding]:
    """A key in an entry of multidatabackend.json that SimpleTuner does not read."""
    for _, sets in lists(run):
        for each in sets:
            start = f"{each.position}."
            for path, at in each.document.found.items():
                name = path.removeprefix(start)
                if path.startswith(start) and "." not in name and name not in _KNOWN:
                    yield from _unread_of(name, at)


def _unread_of(name: str, at: Place) -> Iterator[Finding]:
    near = nearly(name, _KNOWN, _LIKE)
    if near is None and (name not in flags() or name in _ELSEWHERE):
        return  # a word of one's own, as `_comment`
    yield Finding(
        f"an entry has no key `{name}`",
        (at.key_label("not read"),),
        (
            "no key of that name is read, and none is refused"
            if near
            else f"{name} is a flag of the whole run",
        ),
        f"did you mean `{near}`?" if near else "write it in config.json",
        Fix((at.renamed(near),), "unsafe") if near else None,
    )
