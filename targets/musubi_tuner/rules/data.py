"""The data config of musubi-tuner, whose keys and types are all checked before training."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.musubi_tuner.data import OLDER
from tunec.targets.scripts.data_schema import DataSchema, unread_format

_OF_ALL: Final[Mapping[str, str]] = {
    "caption_extension": "str",
    **dict.fromkeys(("batch_size", "num_repeats"), "int"),
    "resolution": "sides",
    **dict.fromkeys(("enable_bucket", "bucket_no_upscale"), "bool"),
}
"""kohya-ss/musubi-tuner 0.3.4 dataset/config_utils.py `DATASET_ASCENDABLE_SCHEMA`."""
_OF_IMAGES: Final[Mapping[str, str]] = {
    **_OF_ALL,
    **dict.fromkeys(("image_directory", "image_jsonl_file", "cache_directory"), "str"),
    "control_directory": "str",
    **dict.fromkeys(("multiple_target", "fp_1f_no_post", "no_resize_control"), "bool"),
    **dict.fromkeys(("fp_latent_window_size", "fp_1f_target_index"), "int"),
    "fp_1f_clean_indices": "ints",
    "control_resolution": "sides",
    **dict.fromkeys(OLDER, "any"),
}
"""`IMAGE_DATASET_DISTINCT_SCHEMA`, and former names that `load_user_config` replaces."""
_OF_VIDEOS: Final[Mapping[str, str]] = {
    **_OF_ALL,
    **dict.fromkeys(("video_directory", "video_jsonl_file", "cache_directory"), "str"),
    **dict.fromkeys(("control_directory", "frame_extraction"), "str"),
    "target_frames": "ints",
    **dict.fromkeys(("frame_stride", "frame_sample", "max_frames"), "int"),
    "fp_latent_window_size": "int",
    "source_fps": "float",
}
"""`VIDEO_DATASET_DISTINCT_SCHEMA`."""
_SCHEMA: Final = DataSchema(
    {"general": _OF_ALL, "images": _OF_IMAGES, "videos": _OF_VIDEOS},
    {
        "general": "[general]",
        "images": "[[datasets]] of images",
        "videos": "[[datasets]] of videos",
    },
)
_FOLDERS: Final = ("cache_directory", "image_directory", "video_directory")


@rule(
    "error",
    "init",
    consumers=("musubi-tuner",),
    reads=("musubi-tuner-data:*", "musubi-tuner:dataset_config"),
)
def data_refused_by_musubi_tuner(run: LintContext) -> Iterator[Finding]:
    """A key or type that the reader of the data config refuses, or a shared cache."""
    for document in run.of("musubi-tuner-data"):
        for path, place in document.found.items():
            holder, _, key = path.rpartition(".")
            if not key.startswith("[") and path not in ("general", "datasets"):
                yield from map(_mended, _SCHEMA.check(_level(document, holder), key, place))
        yield from _caches(document)
    for place in run.each("musubi-tuner", "dataset_config"):
        yield from unread_format(place)


def _mended(found: Finding) -> Finding:
    """A set has its folder itself; sd-scripts has folders in `subsets`."""
    is_of_another = found.labels[0].path.endswith(".subsets")
    return replace(found, help="write each folder as a set of its own") if is_of_another else found


def _level(document: Document, holder: str) -> str:
    """The level: `general`, or the kind of a set; `top` for keys outside of these."""
    if not holder.startswith("datasets."):
        return holder or "top"
    has_videos = any(document.get(f"{holder}.video_{each}") for each in ("directory", "jsonl_file"))
    return "videos" if has_videos else "images"


def _caches(document: Document) -> Iterator[Finding]:
    """Two sets have the same cache folder, by default that of the images."""
    held = document.value("datasets")
    seen: dict[str, Place] = {}
    for at in (f"datasets.{key}" for key in held or () if key.startswith("[")):
        places = (document.get(f"{at}.{name}") for name in _FOLDERS)
        place = next((each for each in places if each is not None), None)
        if place is None:
            continue
        first = seen.setdefault(str(place.value), place)
        if first is not place:
            yield Finding(
                f"two sets are cached in {place.value}",
                (place.label("refused"), *also(first, "the other set's")),
                ("ValueError: cache directory should be unique for each dataset",),
                "write a cache_directory of its own for each set",
            )
