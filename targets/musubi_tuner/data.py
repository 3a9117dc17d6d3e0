"""The data config of musubi-tuner, in which each set has a position: `datasets.[0].batch_size`."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Moved, all_gone, always, one_of, only_here
from tunec.compiler.target import Json
from tunec.targets.musubi_tuner.packages import SOURCE
from tunec.targets.read_only import observed
from tunec.targets.rows import TRAINING_DATA, training_parts
from tunec.targets.scripts.flag_rows import Found, Values

SETS: Final = tuple(f"datasets.[{number}]" for number in range(16))
"""The positions of sets that are read; no row reads further ones."""
_CONFIG: Final = f"{SOURCE} dataset/config_utils.py"
_PARAMS: Final = f"{_CONFIG} `BaseDatasetParams`"
_USUAL: Final = {"batch_size": 1, "resolution": [960, 544], "num_repeats": 1}
OLDER: Final[Mapping[str, str]] = {
    "flux_kontext_no_resize_control": "no_resize_control",
    "qwen_image_edit_no_resize_control": "no_resize_control",
    "qwen_image_edit_control_resolution": "control_resolution",
}
"""Former names that are still read (`load_user_config`)."""


def _everywhere(name: str) -> tuple[str, ...]:
    return (f"general.{name}", *(f"{at}.{name}" for at in SETS))


_IMAGES: Final = tuple(f"{at}.{key}" for at in SETS for key in ("image_directory",))


def _there(found: Found) -> list[str]:
    return [at for at in SETS if f"{at}.image_directory" in found]


def _of(found: Found, at: str, name: str) -> Json:
    """The value for a set: its own, the general one, or the default."""
    return found.get(f"{at}.{name}", found.get(f"general.{name}", _USUAL[name]))


def _same(found: Found, name: str) -> Json:
    """The value that all sets share; None if they differ."""
    values = [_of(found, at, name) for at in _there(found)]
    return values[0] if values and all(each == values[0] for each in values) else None


def _micro(found: Found) -> Values:
    micro = _same(found, "batch_size")
    return {} if micro is None else {"batch.micro": micro}


def _size(found: Found) -> Values:
    size = _same(found, "resolution")
    sides: Any = size if isinstance(size, list) else [size]
    if not all(isinstance(each, int) for each in sides):
        return {}
    return {"data.image_width": sides[0], "data.image_height": sides[-1]}


def _train(found: Found) -> Values:
    """Every training folder, as often as an epoch repeats it."""
    seen = tuple(
        chain.from_iterable(
            [found[f"{at}.image_directory"]] * max(int(_of(found, at, "num_repeats")), 1)
            for at in _there(found)
        )
    )
    if not seen:
        return {}
    return {**training_parts([(each, 0) for each in seen]), "data.evaluation": None}


ROWS: Final = (
    observed((*_everywhere("batch_size"), *_IMAGES), ("batch.micro",), _micro, _PARAMS),
    observed(
        (*_everywhere("resolution"), *_IMAGES),
        ("data.image_width", "data.image_height"),
        _size,
        _PARAMS,
    ),
    observed(
        (*_everywhere("num_repeats"), *_IMAGES),
        (*TRAINING_DATA, "data.evaluation"),
        _train,
        f"{SOURCE} dataset/image_video_dataset.py `ImageDataset`: num_repeats of each picture",
    ),
)
_OFF: Final = one_of(False, None, "")
_VIDEO: Final = "a sample is a video, and a spec has no frames"
_LISTED: Final = "pictures are listed in a file of its own form"
_SHOWN: Final = "a picture goes beside each caption, which the new run would not see"


def _leaves() -> Iterator[Moved]:
    for name, why in (
        *((key, _VIDEO) for key in ("video_directory", "video_jsonl_file", "target_frames")),
        *((key, _VIDEO) for key in ("frame_extraction", "frame_stride", "frame_sample")),
        *((key, _VIDEO) for key in ("max_frames", "source_fps")),
        ("image_jsonl_file", _LISTED),
        *((key, _SHOWN) for key in ("control_directory", "multiple_target", *OLDER)),
        *((key, _SHOWN) for key in ("no_resize_control", "control_resolution")),
        *((key, "it is FramePack's") for key in ("fp_latent_window_size", "fp_1f_no_post")),
        *((key, "it is FramePack's") for key in ("fp_1f_clean_indices", "fp_1f_target_index")),
    ):
        yield from (only_here(place, _CONFIG, why) for place in _everywhere(name))
    for name, instead, harmless in (
        ("cache_directory", "latents are cached in the new run's own way", always),
        ("caption_extension", "captions are read as the new program does by itself", _OFF),
        ("enable_bucket", "pictures are put in buckets as the new program does by itself", _OFF),
        ("bucket_no_upscale", "small pictures are made larger as the new program does", _OFF),
    ):
        yield from all_gone(_everywhere(name), _CONFIG, instead, harmless)


LEAVES: Final = tuple(_leaves())
"""What is done without each key of the data config, or why no program can replace it."""
_MARKS: Final = frozenset(
    {
        *("image_directory", "image_jsonl_file", "video_directory", "video_jsonl_file"),
        "cache_directory",
    }
)


def recognise(document: Json) -> bool:
    """Whether a document is a list of sets, one of which has a folder or lists its samples."""
    sets = document.get("datasets") if isinstance(document, Mapping) else None
    return isinstance(sets, list) and any(
        isinstance(each, Mapping) and bool(_MARKS & each.keys()) for each in sets
    )
