"""The data config of sd-scripts, in which each set and each of its folders has a position.

`datasets.[0].subsets.[1].image_dir` is a key of the second folder of the first set.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from tunec.compiler.target import Json
from tunec.targets.read_only import observed
from tunec.targets.rows import TRAINING_DATA, training_parts
from tunec.targets.scripts.flag_rows import sides
from tunec.targets.sd_scripts.packages import SOURCE

SETS: Final = tuple(f"datasets.[{number}]" for number in range(8))
FOLDERS: Final = tuple(f"{at}.subsets.[{number}]" for at in SETS for number in range(16))
"""The positions of sets and folders that are read; no row reads further ones."""
_CONFIG: Final = f"{SOURCE} library/config_util.py"
_GENERATE: Final = f"{_CONFIG} `BlueprintGenerator.generate`"
Found = Mapping[str, Json]


def _keys(name: str) -> tuple[str, ...]:
    return (f"general.{name}", *(f"{at}.{name}" for at in SETS))


def _one(found: Found, name: str) -> Json:
    """The value that all sets share; None if they differ, or it is not set."""
    general = found.get(f"general.{name}")
    sets = [found[f"{at}.{name}"] for at in SETS if f"{at}.{name}" in found] or [general]
    return sets[0] if all(each == sets[0] for each in sets) else None


def _micro(found: Found) -> Mapping[str, Any]:
    micro = _one(found, "batch_size")
    return {} if micro is None else {"batch.micro": micro}


def _resolution(found: Found) -> Mapping[str, Any]:
    resolution = _one(found, "resolution")
    return {} if resolution is None else sides(resolution)


def _train(found: Found) -> Mapping[str, Any]:
    """Every training folder, as often as an epoch repeats it."""
    repeats = _repeats(found)
    if any(found.get(f"{at}.is_reg") for at in FOLDERS):
        return {}
    there = [at for at in FOLDERS if f"{at}.image_dir" in found]
    times = (max(int(repeats(at)), 1) for at in there)
    seen = [
        *chain.from_iterable(
            [found[f"{at}.image_dir"]] * n for at, n in zip(there, times, strict=True)
        )
    ]
    return {**training_parts([(each, 0) for each in seen]), "data.evaluation": None}


def _repeats(found: Found) -> Any:
    """The repeats of a folder: set by itself, its set, or for all."""

    def times(at: str) -> Json:
        around = (at, at.partition(".subsets")[0], "general")
        return next(
            (found[f"{each}.num_repeats"] for each in around if f"{each}.num_repeats" in found), 1
        )

    return times


_OF_TRAINING: Final = (
    *(f"{at}.{name}" for at in FOLDERS for name in ("image_dir", "num_repeats", "is_reg")),
    *_keys("num_repeats"),
)
ROWS: Final = (
    observed(_keys("batch_size"), ("batch.micro",), _micro, _GENERATE),
    observed(
        _keys("resolution"),
        ("data.image_width", "data.image_height"),
        _resolution,
        f"{_CONFIG} `ConfigSanitizer.DATASET_ASCENDABLE_SCHEMA`",
    ),
    observed(
        _OF_TRAINING,
        (*TRAINING_DATA, "data.evaluation"),
        _train,
        f"{SOURCE} library/train_util.py `DreamBoothDataset`: num_repeats of each picture",
    ),
)


def recognise(document: Json) -> bool:
    """Whether a document is a list of sets with folders in them.

    A set with `cache_directory` is meant for musubi-tuner, which has no folders below a set.
    """
    sets = document.get("datasets") if isinstance(document, Mapping) else None
    return isinstance(sets, list) and any(
        isinstance(each, Mapping)
        and isinstance(each.get("subsets"), list)
        and "cache_directory" not in each
        for each in sets
    )
