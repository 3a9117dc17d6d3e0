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
_USUAL: Final = {
    "batch_size": 1,
    "resolution": [960, 544],
    "num_repeats": 1,
    "target_frames": [1],
    "frame_extraction": "head",
}
_STRIDE: Final = 4
"""Frames that become one of the latent, to whose multiple, and one, `target_frames` are cut
(`VideoDataset.__init__`, `vae_frame_stride`)."""
OLDER: Final[Mapping[str, str]] = {
    "flux_kontext_no_resize_control": "no_resize_control",
    "qwen_image_edit_no_resize_control": "no_resize_control",
    "qwen_image_edit_control_resolution": "control_resolution",
}
"""Former names that are still read (`load_user_config`)."""


def _everywhere(name: str) -> tuple[str, ...]:
    return (f"general.{name}", *(f"{at}.{name}" for at in SETS))


_FOLDERS: Final = ("image_directory", "video_directory")
_DATA: Final = tuple(f"{at}.{key}" for at in SETS for key in _FOLDERS)


def _there(found: Found) -> list[str]:
    return [at for at in SETS if any(f"{at}.{key}" in found for key in _FOLDERS)]


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


def _frames(found: Found) -> Values:
    """The frames of a clip, if there are clips of one length in all sets, or in none."""
    there = _there(found)
    clips = [at for at in there if f"{at}.video_directory" in found]
    if not clips:
        return {"data.frames": 0} if there else {}
    asked, way = _same(found, "target_frames"), _same(found, "frame_extraction")
    one = asked[0] if isinstance(asked, list) and len(asked) == 1 else None
    if len(clips) < len(there) or way in (None, "full") or not isinstance(one, int):
        return {}
    return {"data.frames": (one - 1) // _STRIDE * _STRIDE + 1}


def _train(found: Found) -> Values:
    """Every training folder, as often as an epoch repeats it."""
    seen = tuple(
        chain.from_iterable(
            [found[f"{at}.{key}"]] * max(int(_of(found, at, "num_repeats")), 1)
            for at in SETS
            for key in _FOLDERS
            if f"{at}.{key}" in found
        )
    )
    if not seen:
        return {}
    return {**training_parts([(each, 0) for each in seen]), "data.evaluation": None}


ROWS: Final = (
    observed((*_everywhere("batch_size"), *_DATA), ("batch.micro",), _micro, _PARAMS),
    observed(
        (*_everywhere("resolution"), *_DATA),
        ("data.image_width", "data.image_height"),
        _size,
        _PARAMS,
    ),
    observed(
        (*_everywhere("target_frames"), *_everywhere("frame_extraction"), *_DATA),
        ("data.frames",),
        _frames,
        f"{SOURCE} dataset/image_video_dataset.py `VideoDataset`",
    ),
    observed(
        (*_everywhere("num_repeats"), *_DATA),
        (*TRAINING_DATA, "data.evaluation"),
        _train,
        f"{SOURCE} dataset/image_video_dataset.py `ImageDataset`: num_repeats of each picture",
    ),
)
_OFF: Final = one_of(False, None, "")
_LISTED_CLIPS: Final = "clips are listed in a file of its own form"
_OTHER_FRAMES: Final = "it takes other frames of a clip than the first"
_OF_OTHER_WAYS: Final = ("frame_stride", "frame_sample", "max_frames")
"""What only other ways than `head` read (`VideoDataset.retrieve_latent_cache_batches`)."""
_LENGTHS: Final = "a clip becomes several samples, each of another length"
_LISTED: Final = "pictures are listed in a file of its own form"
_SHOWN: Final = "a picture goes beside each caption, which the new run would not see"


def _leaves() -> Iterator[Moved]:
    for name, why in (
        ("video_jsonl_file", _LISTED_CLIPS),
        ("source_fps", _OTHER_FRAMES),
        ("image_jsonl_file", _LISTED),
        *((key, _SHOWN) for key in ("control_directory", "multiple_target", *OLDER)),
        *((key, _SHOWN) for key in ("no_resize_control", "control_resolution")),
        *((key, "it is FramePack's") for key in ("fp_latent_window_size", "fp_1f_no_post")),
        *((key, "it is FramePack's") for key in ("fp_1f_clean_indices", "fp_1f_target_index")),
    ):
        yield from (only_here(place, _CONFIG, why) for place in _everywhere(name))
    for place in _everywhere("target_frames"):
        yield Moved(place, _CONFIG, apart=lambda value: _LENGTHS if len(value) > 1 else None)
    for place in _everywhere("frame_extraction"):
        yield only_here(place, _CONFIG, _OTHER_FRAMES, "chunk", "slide", "uniform", "full")
    for name, instead, harmless in (
        *((key, "a clip is cut to its first frames", always) for key in _OF_OTHER_WAYS),
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
