"""multidatabackend.json: the list of data sets, the first of them training images.

Keys are positions: `[0]` is the first folder of training images, `[1]` the cache of text
embeddings, then follow evaluation images and further training folders.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed
from tunec.targets.rows import unlimited

FACTORY: Final = "simpletuner 3.1.6 and 4.10.1, helpers/data_backend/factory.py init_backend_config"
REPEATS: Final = (
    "simpletuner 3.1.6 and 4.10.1, helpers/metadata/backends/discovery.py `__len__`: a picture is "
    "seen `repeats + 1` times an epoch"
)

_TRAIN, _TEXT = "[0]", "[1]"
_FURTHER: Final = tuple(f"[{position}]" for position in range(2, 18))
"""The positions of further data sets; no row writes more folders."""
_OTHERS: Final = (_TEXT, *_FURTHER)
"""The positions that are read: in a user's file the second may be a training set."""
_FOLDER, _REPEATS = f"{_TRAIN}.instance_data_dir", f"{_TRAIN}.repeats"
_CONDITIONS: Final = f"{_TRAIN}.conditioning_data"
_REFERENCES: Final = ("reference_strict", "reference_loose")
"""Kinds of reference images of an edit model; others are masks of the loss."""
_FIRST: Final = "train-1"
"""No part of `training_state.json`, as `train` is: the data set's state would be written over the
run's in each checkpoint, and a resumed run would start at step 0 (helpers/multiaspect/state.py
`mangle_state_path`, 3.1.6 and 4.10.1; seen in runs of two ranks)."""
_ALONE: Final[Mapping[str, Json]] = {"vae_batch_size": 1}
"""One clip is encoded at a time; 4.10.1 does so by itself, and 3.1.6 takes four at once
(helpers/data_backend/factory.py)."""


def _pictures(name: str, folder: str, kind: str, side: int, times: int = 1) -> dict[str, Json]:
    """A folder of pictures of one size, or of clips, which are cut to that size."""
    repeats = {"repeats": times - 1} if times > 1 else {}
    return {
        "id": name,
        "type": "local",
        "dataset_type": kind,
        "instance_data_dir": folder,
        "resolution": side,
        "resolution_type": "pixel_area",
        **repeats,
    }


_CLIPS: Final = tuple(f"{_TRAIN}.{key}" for key in ("dataset_type", *_ALONE, "video"))
_PICTURES: Final = tuple(
    key for name in _pictures("", "", "", 0) if (key := f"{_TRAIN}.{name}") not in _CLIPS
)


def _trained(plan: Plan, name: str, folder: str, times: int = 1) -> dict[str, Json]:
    """A folder that is trained on; longer clips are cut, and shorter ones are left out."""
    frames, side = plan.data.frames, plan.data.image_width
    if not frames:
        return _pictures(name, folder, "image", side, times)
    clip: dict[str, Json] = {"num_frames": frames, "min_frames": frames, "is_i2v": False}
    return {**_pictures(name, folder, "video", side, times), **_ALONE, "video": clip}


def _writes(keys: tuple[str, ...]) -> Callable[[Plan], Mapping[str, Json]]:
    """A function that writes these of the first folder's keys."""

    def write(plan: Plan) -> Mapping[str, Json]:
        train = _trained(plan, _FIRST, plan.data.train)
        placed = {f"{_TRAIN}.{key}": value for key, value in train.items()}
        return {key: placed[key] for key in keys if key in placed}

    return write


def _read_train(found: Mapping[str, Json]) -> Mapping[str, Any]:
    slots: dict[str, Any] = {}
    if found.get(f"{_TRAIN}.instance_data_dir"):
        slots["data.train"] = found[f"{_TRAIN}.instance_data_dir"]
    side, kind = found.get(f"{_TRAIN}.resolution"), found.get(f"{_TRAIN}.resolution_type")
    if side is not None and kind != "area":
        slots |= {"data.image_width": side, "data.image_height": side}
    return slots


def _read_frames(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The frames of the first folder's clips; 0: it holds pictures."""
    if found.get(f"{_TRAIN}.dataset_type") != "video":
        return {"data.frames": 0}
    clip = found.get(f"{_TRAIN}.video")
    frames = clip.get("num_frames") if isinstance(clip, Mapping) else None
    return {"data.frames": frames} if isinstance(frames, int) else {}


def _folders(plan: Plan) -> list[tuple[str, int]]:
    """Each training folder in order, with how often an epoch repeats it there."""
    return [(folder, len(list(same))) for folder, same in groupby(training_data(plan))]


_CACHE: Final = "cache_dir_vae"
_CACHED: Final = "cache/vae"
_SINCE: Final = "3.2"
"""Before this release an image folder must name its cache of latents: simpletuner 3.1.6
helpers/data_backend/factory.py `_configure_vae_cache` raises ValueError; 3.2.3 has a default."""


def _write_further_of_old(plan: Plan) -> Mapping[str, Json]:
    """As `_write_further`, with the cache of each image folder."""

    def told(value: Json) -> Json:
        is_set = isinstance(value, dict) and "id" in value
        return {**value, _CACHE: f"{_CACHED}/{value['id']}"} if is_set else value

    return {key: told(value) for key, value in _write_further(plan).items()}


def _write_further(plan: Plan) -> Mapping[str, Json]:
    (first, times), *others = _folders(plan)
    side, evaluation = plan.data.image_width, plan.data.evaluation
    sets = [_pictures("evaluation", evaluation, "eval", side)] if evaluation else []
    sets += [
        _trained(plan, f"train-{number}", folder, often)
        for number, (folder, often) in enumerate(others, 2)
    ]
    sets += _references(plan)
    keys = {_FOLDER: first, **dict(zip(_FURTHER, sets, strict=False))}
    if plan.data.references:
        keys[_CONDITIONS] = [each["id"] for each in _references(plan)]
    return {**keys, _REPEATS: times - 1} if times > 1 else keys


def _references(plan: Plan) -> list[dict[str, Json]]:
    """The folders of reference images, each cropped like its training image."""
    kind = {"conditioning_type": _REFERENCES[0]}
    return [
        _pictures(f"reference-{number}", folder, "conditioning", plan.data.image_width) | kind
        for number, folder in enumerate(plan.data.references, 1)
    ]


def _read_references(found: Mapping[str, Json]) -> tuple[Json, ...]:
    """The folders of the first data set's reference images, in order."""
    named = found.get(_CONDITIONS) or ()
    sets = {each.get("id"): each for at in _OTHERS if isinstance(each := found.get(at), Mapping)}
    given = [sets.get(each, {}) for each in ([named] if isinstance(named, str) else named)]
    return tuple(
        each["instance_data_dir"]
        for each in given
        if each.get("conditioning_type") in _REFERENCES and each.get("instance_data_dir")
    )


def _read_further(found: Mapping[str, Json]) -> Mapping[str, Any]:
    first = {"instance_data_dir": found.get(_FOLDER), "repeats": found.get(_REPEATS)}
    others = [each for at in _OTHERS if isinstance(each := found.get(at), Mapping)]
    held = (each for each in others if each.get("dataset_type") == "eval")
    slots: dict[str, Any] = {"data.evaluation": next(held, {}).get("instance_data_dir")}
    slots["data.references"] = _read_references(found)
    trained = [first, *(each for each in others if _is_trained_on(each))]
    if all(each.get("instance_data_dir") for each in trained):
        _, *more = _seen(trained)
        slots["data.more"] = tuple(more)
    return slots


def _is_trained_on(item: Mapping[str, Json]) -> bool:
    """Whether a data set has training images, which is the default type, or clips."""
    is_off = item.get("disabled") or item.get("disable")
    return item.get("dataset_type", "image") in ("image", "video") and not is_off


def _seen(trained: Sequence[Mapping[str, Json]]) -> Iterator[str]:
    for each in trained:
        repeats = each.get("repeats")
        yield from (each["instance_data_dir"],) * (1 + (repeats if isinstance(repeats, int) else 0))


DATA: Final = (
    unlimited(f"{FACTORY}: `max_num_samples` shuffles before it takes them"),
    Entry(
        _PICTURES,
        ("data.train", "data.image_width", "data.image_height"),
        _writes(_PICTURES),
        _read_train,
        FACTORY,
    ),
    Entry(
        _CLIPS,
        ("data.frames",),
        _writes(_CLIPS),
        _read_frames,
        f"{FACTORY}; helpers/caching/vae.py `prepare_video_latents` cuts to `num_frames`, and "
        "helpers/metadata/backends/base.py leaves out clips below `min_frames`",
        absent=((ALWAYS, {"data.frames": 0}),),
    ),
    *(
        constant(f"{_TEXT}.{key}", value, "helpers/data_backend/config_rules.py: one is required")
        for key, value in {
            "id": "text-embeds",
            "type": "local",
            "dataset_type": "text_embeds",
            "default": True,
            "cache_dir": "cache/text",
        }.items()
    ),
    constant(
        f"{_TRAIN}.{_CACHE}",
        f"{_CACHED}/{_FIRST}",
        "simpletuner 3.1.6 helpers/data_backend/factory.py `_configure_vae_cache`: it is required",
        until=_SINCE,
    ),
    *(
        Entry(
            (_FOLDER, _REPEATS, _CONDITIONS, *_OTHERS),
            ("data.more", "data.references", "data.evaluation"),
            write,
            _read_further,
            f"{FACTORY}; {REPEATS}",
            since=since,
            until=until,
            absent=((ALWAYS, {"data.more": (), "data.references": (), "data.evaluation": None}),),
        )
        for write, since, until in (
            (_write_further_of_old, None, _SINCE),
            (_write_further, _SINCE, None),
        )
    ),
    fixed("data.sequence", 0, "helpers/caching/text_embeds.py: captions are cut by the tokenizer"),
    fixed("data.packing", value=False, source=FACTORY),
    fixed("data.vision_tokens", 0, FACTORY),
)


def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """The data sets as a list, in the order of their positions; JSON cannot hold the header."""
    del header
    return json.dumps([values[at] for at in sorted(values, key=_position)], indent=2) + "\n"


def _position(at: str) -> int:
    return int(at.strip("[]"))


def parse(text: str) -> Json:
    """The document with positions as keys. Raises ValueError if it is no list of objects."""
    found = json.loads(text)
    if not isinstance(found, list):
        raise ValueError("a list of data sets is wanted")
    return {f"[{position}]": each for position, each in enumerate(found)}


_MARKS: Final = frozenset(
    {
        *("instance_data_dir", "caption_strategy", "cache_dir", "cache_dir_vae", "resolution"),
        *(
            "repeats",
            "crop",
            "resolution_type",
            "disabled",
            "default",
            "text_embeds",
            "dataset_name",
        ),
        *("minimum_image_size", "metadata_backend", "probability", "csv_file", "aws_bucket_name"),
    }
)
"""Keys besides `id` and `type`, which items of many lists have."""


def recognise(document: Json) -> bool:
    """Whether a document, as returned by `parse`, is a list of data sets."""
    first = document.get("[0]") if isinstance(document, dict) else None
    if not isinstance(first, dict) or not first.keys() & {"id", "type"}:
        return False
    marks = len(first.keys() & _MARKS)
    return "dataset_type" in first or marks > 1 or (marks == 1 and {"id", "type"} <= first.keys())
