"""Sections of one entry of SimpleTuner's list, and keys that its storage requires."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.diffusion import DataSet
from tunec.compiler.lints.rule import Finding

_WEBSHART: Final = "webshart"
_OF_WEBSHART: Final = {
    "metadata_backend": (_WEBSHART,),
    "caption_strategy": (_WEBSHART, "instanceprompt"),
}
"""simpletuner 4.10.1 helpers/data_backend/factory.py `init_backend_config`."""


class Part(Struct, frozen=True):
    """The values that a key of a section accepts."""

    section: str
    key: str
    takes: Callable[[Any], bool]
    what: str
    """The accepted value, in words, for the fix."""


def parts(each: DataSet) -> Iterator[Finding]:
    """Errors in an entry's sections and storage."""
    yield from _storage(each)
    yield from _frames(each)
    yield from _generator(each)
    for part in _PARTS:
        at = each.place(f"{part.section}.{part.key}" if part.section else part.key)
        if at is not None and at.value is not None and not part.takes(at.value):
            yield Finding(
                f"{part.section}{'.' * bool(part.section)}{part.key} is not {part.what}",
                (at.label("refused"),),
                (),
                f"write {part.what}",
            )


def _storage(each: DataSet) -> Iterator[Finding]:
    kind = str(each.value("type"))
    for key, words in _OF_WEBSHART.items() if kind == _WEBSHART else ():
        at = each.place(key)
        if at is not None and at.value and at.value not in words:
            yield Finding(
                f"SimpleTuner refuses {key} {at.value} for data of type {kind}",
                (at.label("refused"),),
                (f"taken: {', '.join(words)}",),
                f"write {kind}, or remove it",
            )
    at = each.place("type")
    if at is not None and each.kind == "caption" and kind.lower() == "csv":
        yield Finding(
            "captions alone cannot come from a list of addresses",
            (at.label("refused"),),
            ("a csv backend downloads the images that its table names",),
            "keep the captions in text files, a table or a data set of Hugging Face",
        )


def _frames(each: DataSet) -> Iterator[Finding]:
    """Videos are cut to `num_frames`, and shorter ones than `min_frames` are left out."""
    video = each.value("video")
    if not isinstance(video, Mapping) or each.kind not in ("video", "conditioning"):
        return
    number, least = video.get("num_frames"), video.get("min_frames", video.get("num_frames"))
    at = each.place("video.min_frames") or each.place("video.num_frames")
    if at is None or number is None:
        return  # the rate of the model's family decides
    kinds = {type(least), type(number)}
    if kinds - {int, float} or kinds == {float}:
        yield _of_frames(at, "frames of a video are no whole numbers", "whole numbers")
    elif least < 1 or number < 1:
        yield _of_frames(at, "a video has no frames", "numbers above 0")


def _of_frames(at: Place, what: str, better: str) -> Finding:
    why = "a selected video must have all frames that are used"
    return Finding(what, (at.label("refused"),), (why,), f"write {better}")


_GENERATOR: Final = "data_generator"
_KEYS: Final = frozenset(
    {"batch_size", "resolutions", "num_inference_steps", "guidance_scale", "seed", "output_dir"}
)


def _generator(each: DataSet) -> Iterator[Finding]:
    """Only a data set of captions may have a section that generates images from them."""
    at = each.place(_GENERATOR)
    if at is None or at.value is None:
        return
    if each.kind != "caption":
        yield Finding(
            f"{_GENERATOR} is only for data sets of captions",
            (at.key_label("refused"),),
            (),
            "move it to an entry with dataset_type: caption",
        )
        return
    if not isinstance(at.value, Mapping):
        yield Finding(f"{_GENERATOR} is no section", (at.label("refused"),), (), "write its keys")
        return
    for name in at.value.keys() - _KEYS:
        odd = each.place(f"{_GENERATOR}.{name}") or at
        yield Finding(
            f"{_GENERATOR} has no key `{name}`",
            (odd.key_label("refused"),),
            (f"taken: {', '.join(sorted(_KEYS))}",),
            "remove it",
        )
    if "resolutions" not in at.value:
        yield Finding(
            f"{_GENERATOR} needs resolutions",
            (at.key_label("refused"),),
            (),
            'write resolutions: ["1024x1024"]',
        )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_seed(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_scale(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _are_sizes(value: Any) -> bool:
    return not _is_list(value) or all(map(_side_lengths, value))


def _are_divisible(value: Any) -> bool:
    if not (_is_list(value) and _are_sizes(value)):
        return True
    sides = [side for each in value for side in _side_lengths(each)]
    return all(side >= 32 and side % 32 == 0 for side in sides)


def _are_distinct(value: Any) -> bool:
    if not (_is_list(value) and _are_sizes(value)):
        return True
    every = [_side_lengths(each) for each in value]
    return len(set(every)) == len(every)


def _side_lengths(value: Any) -> tuple[int, ...]:
    sides = value.split("x") if isinstance(value, str) else []
    is_size = len(sides) == 2 and all(each.isascii() and each.isdecimal() for each in sides)
    return tuple(map(int, sides)) if is_size else ()


def _are_extensions(value: Any) -> bool:
    return _is_list(value) and all(
        isinstance(each, str) and each.lstrip(".").strip() for each in value
    )


def _are_names(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _is_list(names) and all(isinstance(each, str) and each.strip() for each in names)


_PARTS: Final = (
    *(
        Part(_GENERATOR, key, _is_count, "a whole number above 0")
        for key in ("batch_size", "num_inference_steps")
    ),
    Part(_GENERATOR, "seed", _is_seed, "a whole number from 0 to 2**63 - 1"),
    Part(_GENERATOR, "guidance_scale", _is_scale, "a number of at least 0"),
    Part(_GENERATOR, "output_dir", _is_path, "a path"),
    Part(_GENERATOR, "resolutions", _is_list, 'a list such as ["1024x1024"]'),
    Part(_GENERATOR, "resolutions", _are_sizes, "a list of sizes as 1024x1024"),
    Part(_GENERATOR, "resolutions", _are_divisible, "a list of multiples of 32"),
    Part(_GENERATOR, "resolutions", _are_distinct, "a list of different sizes"),
    Part("", "caption_file_extensions", _are_extensions, "a list of suffixes"),
    Part("webshart", "caption_key", _are_names, "a name, or a list of names"),
    Part(
        "caption_shuffle",
        "count",
        lambda value: isinstance(value, int) and value >= 1,
        "a whole number above 0",
    ),
    Part(
        "caption_shuffle",
        "position_start",
        lambda value: isinstance(value, int) and value >= 0,
        "a whole number of at least 0",
    ),
)
"""simpletuner 4.10.1 helpers/data_backend/config/validators.py `validate_caption_data_generator`,
`validate_webshart_caption_key`; image.py `validate`; factory.py `init_backend_config`."""


_OWN_BATCH: Final = "simpletuner>=4.7.1"
"""simpletuner 4.7.1 to 4.10.1 helpers/data_backend/dataset_types.py
`parse_positive_train_batch_size`."""


def own_batch(run: LintContext, each: DataSet) -> Iterator[Finding]:
    """The batch size of one data set: a whole number, as a number or as its digits."""
    at = each.place("train_batch_size")
    if at is None or at.value in (None, "") or not is_checked(run, _OWN_BATCH):
        return
    text = str(at.value)
    is_plain = type(at.value) in (int, str) and text.isascii() and text.isdecimal()
    if not is_plain or text != str(int(text)) or int(text) < 1:
        yield Finding(
            f"train_batch_size of a data set cannot be {shown(at.value)}",
            (at.label("refused"),),
            notes(run, "it has to be a whole number from 1 on", _OWN_BATCH),
            "write a whole number",
            severity=severity(run, _OWN_BATCH),
        )
