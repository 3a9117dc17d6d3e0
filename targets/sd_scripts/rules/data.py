"""The data config of sd-scripts, whose keys and types are all checked before training."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.scripts.data_schema import DataSchema, unread_format
from tunec.targets.scripts.flag_rows import sides

_OF_FOLDER: Final[Mapping[str, str]] = {
    **dict.fromkeys(("color_aug", "flip_aug", "random_crop", "shuffle_caption"), "bool"),
    **dict.fromkeys(("enable_wildcard", "cache_info"), "bool"),
    **dict.fromkeys(("num_repeats", "keep_tokens", "token_warmup_min"), "int"),
    "caption_dropout_every_n_epochs": "int",
    **dict.fromkeys(("keep_tokens_separator", "secondary_separator", "caption_separator"), "str"),
    **dict.fromkeys(("caption_prefix", "caption_suffix"), "str"),
    **dict.fromkeys(("caption_extension", "class_tokens"), "str"),
    **dict.fromkeys(("token_warmup_step", "caption_dropout_rate"), "number"),
    "caption_tag_dropout_rate": "number",
    "resize_interpolation": "interpolation",
    "face_crop_aug_range": "two",
    "custom_attributes": "any",
}
"""kohya-ss/sd-scripts 0.10.1 library/config_util.py `ConfigSanitizer.SUBSET_ASCENDABLE_SCHEMA`,
`DO_SUBSET_ASCENDABLE_SCHEMA`, `DB_SUBSET_ASCENDABLE_SCHEMA`."""
_OF_ONE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image_dir", "metadata_file", "conditioning_data_dir"), "str"),
    **dict.fromkeys(("is_reg", "alpha_mask"), "bool"),
}
"""Keys of a folder only: `DB_SUBSET_DISTINCT_SCHEMA` and similar."""
_OF_SET: Final[Mapping[str, str]] = {
    **dict.fromkeys(("batch_size", "bucket_reso_steps", "max_bucket_reso"), "int"),
    **dict.fromkeys(("min_bucket_reso", "validation_seed"), "int"),
    **dict.fromkeys(("bucket_no_upscale", "enable_bucket"), "bool"),
    **dict.fromkeys(("validation_split", "network_multiplier"), "float"),
    "resolution": "sides",
    "resize_interpolation": "interpolation",
}
"""`DATASET_ASCENDABLE_SCHEMA`."""
_SCHEMA: Final = DataSchema(
    {
        "folder": {**_OF_FOLDER, **_OF_ONE},
        "set": {**_OF_FOLDER, **_OF_SET},
        "general": {**_OF_FOLDER, **_OF_SET},
    },
    {"set": "[[datasets]]", "folder": "[[datasets.subsets]]", "general": "[general]"},
)
_CACHED: Final = {
    "cache_text_encoder_outputs": (
        *("shuffle_caption", "caption_dropout_rate", "token_warmup_step"),
        "caption_tag_dropout_rate",
    ),
    "cache_latents": ("color_aug", "random_crop"),
}
_FEWEST: Final = 1


@rule(
    "error",
    "init",
    consumers=("sd-scripts",),
    reads=("sd-scripts-data:*", "sd-scripts:enable_bucket", "sd-scripts:dataset_config"),
)
def data_refused_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A key, type or number that the reader of the data config refuses."""
    for document in run.of("sd-scripts-data"):
        for path, place in document.found.items():
            holder, _, key = path.rpartition(".")
            if key.startswith("[") or path in ("general", "datasets") or key == "subsets":
                continue
            if ".custom_attributes" in holder:
                continue
            yield from _SCHEMA.check(_level(holder), key, place)
        for at in _folders(document):
            yield from _folder(document, at)
        for at in _sets(document):
            yield from _buckets(run, document, at)
            yield from _set(run, document, at)
        yield from _cached(run, document)
    for place in run.each("sd-scripts", "dataset_config"):
        yield from unread_format(place)
    for document in () if run.of("sd-scripts-data") else run.of("sd-scripts"):
        yield from outside_of_buckets(document.get)


def _level(holder: str) -> str:
    """The level: `general`, `set` or `folder`; `top` for keys outside of these."""
    if ".subsets." in holder:
        return "folder"
    return {"": "top", "general": "general"}.get(holder, "set")


# ── sets and folders ─────────────────────────────────────────────────────────────────────────────


def _sets(document: Document) -> list[str]:
    held = document.value("datasets")
    return [f"datasets.{key}" for key in held if key.startswith("[")] if _is_block(held) else []


def _is_block(held: Any) -> bool:
    return isinstance(held, dict)


def _folders(document: Document) -> Iterator[str]:
    for at in _sets(document):
        held = document.value(f"{at}.subsets")
        keys = held if _is_block(held) else ()
        yield from (f"{at}.subsets.{key}" for key in keys if key.startswith("["))


def _folder(document: Document, at: str) -> Iterator[Finding]:
    """A folder has images, or a file that lists them, and at least one repeat."""
    place = document.get(at)
    has = {name for name in ("image_dir", "metadata_file") if document.get(f"{at}.{name}")}
    if not has and place is not None:
        yield Finding(
            "a folder of the data names no image_dir",
            (place.label("image_dir is missing"),),
            ("voluptuous.MultipleInvalid: required key not provided",),
            "write image_dir",
        )
    repeats = document.get(f"{at}.num_repeats")
    if repeats is not None and isinstance(repeats.value, int) and repeats.value < _FEWEST:
        yield Finding(
            f"num_repeats {repeats.value} leaves the folder out",
            (repeats.label("ignored"),),
            ("the program warns, and trains without the folder",),
            "write 1, or remove the folder",
            consequence="silent",
            severity="warning",
        )


def _said(run: LintContext, document: Document, at: str, key: str) -> Place | None:
    """The value for a set: its own, the general one, or that of the training config."""
    found = (document.get(f"{each}.{key}") for each in (at, "general"))
    return next((each for each in found if each is not None), None) or run.said("sd-scripts", key)


def _buckets(run: LintContext, document: Document, at: str) -> Iterator[Finding]:
    """Bounds of buckets that exclude the resolution, and bucket steps that no model accepts."""
    said = partial(_said, run, document, at)
    yield from outside_of_buckets(said)
    step, is_on = said("bucket_reso_steps"), said("enable_bucket")
    least = _least_steps(run)
    if step is None or is_on is None or is_on.value is not True or not isinstance(step.value, int):
        return
    if step.value % least:
        yield Finding(
            f"bucket_reso_steps {step.value} is not divisible by {least}",
            (step.label("refused"),),
            ("AssertionError: bucket_reso_steps must be divisible by it",),
            f"write {-(-step.value // least) * least}",
        )


_LEAST_STEPS: Final = (
    ("sd3_train.py", 8),
    *((name, 16) for name in ("anima_", "flux_train.py", "flux_train_control", "lumina_train.py")),
    *((name, 32) for name in ("sdxl_", "flux_", "sd3_", "lumina_", "hunyuan_image_")),
    *((name, 64) for name in ("train_", "fine_tune.py")),
)
"""The divisor of bucket steps for each script (`verify_bucket_reso_steps`); the first match
counts."""


def _least_steps(run: LintContext) -> int:
    """The divisor of bucket steps for the started script; without a script, the smallest of all."""
    started = [PurePath(each.first_word).name for each in run.each("launch", "script")]
    asked = [next((n for name, n in _LEAST_STEPS if each.startswith(name)), 8) for each in started]
    return min(asked, default=8)


def _set(run: LintContext, document: Document, at: str) -> Iterator[Finding]:
    """A set has folders with captions beside the images, or files that list both, not a mixture."""
    place, held = document.get(at), document.value(f"{at}.subsets")
    if place is None or not _is_block(held):
        return
    listed = {bool(document.get(f"{at}.subsets.{each}.metadata_file")) for each in held}
    if len(listed) > 1:
        yield Finding(
            "a set has folders with captions and files of metadata",
            (place.label("refused"),),
            ("ValueError: DreamBooth subset and fine tuning subset cannot be mixed",),
            "write a set of its own for each kind",
        )
    is_known = run.of("sd-scripts") and not run.said("sd-scripts", "config_file")
    if is_known and listed == {False} and _said(run, document, at, "resolution") is None:
        yield Finding(
            "a set has no resolution",
            (place.label("resolution is missing"),),
            ("AssertionError: resolution is required",),
            "write resolution",
        )


def outside_of_buckets(said: Callable[[str], Place | None]) -> Iterator[Finding]:
    """A resolution outside of the bounds of buckets; `said` returns the place of a key."""
    wide, is_on, step = said("resolution"), said("enable_bucket"), said("bucket_reso_steps")
    held = {} if wide is None else sides(wide.value)
    if wide is None or not held or is_on is None or is_on.value is not True:
        return
    size = step.value if step is not None and isinstance(step.value, int) else 64
    for word, side in (("min", min(held.values())), ("max", max(held.values()))):
        bound = said(f"{word}_bucket_reso")
        value = bound.value if bound is not None else _BOUNDS[word]
        if isinstance(value, int) and size > 0 and _is_outside(word, side, value, size):
            yield Finding(
                f"a resolution of {side} is outside of {word}_bucket_reso {value}",
                (wide.label("refused"), *also(bound, "the bound")),
                (
                    "AssertionError: buckets lie between the two bounds, and so has the resolution",
                    *(() if bound is not None else (f"{value} is the default",)),
                ),
                f"write {word}_bucket_reso {side}",
            )


_BOUNDS: Final = {"min": 256, "max": 1024}


def _is_outside(word: str, side: int, bound: int, step: int) -> bool:
    """Whether a side is beyond a bound that is rounded outward to whole steps."""
    return side < bound - bound % step if word == "min" else side > bound + -bound % step


def _cached(run: LintContext, document: Document) -> Iterator[Finding]:
    """A cached result would change each time it is used."""
    is_anima = any(each.first_word.startswith("anima_") for each in run.each("launch", "script"))
    for flag, keys in _CACHED.items():
        asked = run.said("sd-scripts", flag)
        if asked is None or asked.value is not True:
            continue
        for path, place in document.found.items():
            key = path.rpartition(".")[2]
            if key in keys and place.value and not (is_anima and key == "caption_dropout_rate"):
                yield Finding(
                    f"{path.rpartition('.')[2]} cannot be combined with {flag}",
                    (place.label("changes each time"), *also(asked, "cached once")),
                    ("AssertionError before training",),
                    "remove one of the two",
                )
