"""Two settings of one data set that SimpleTuner does not take together."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number, is_whole
from tunec.compiler.lints.diffusion.asked import configs, family
from tunec.compiler.lints.diffusion.sets import DataSet, lists
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_HUB: Final = {
    "metadata_backend": ("huggingface",),
    "caption_strategy": ("huggingface", "instanceprompt"),
}
_STORES: Final = ("text_embeds", "image_embeds", "conditioning_image_embeds")
_SIGNS: Final = ("comma", "space", "period")
_SHUFFLED: Final = "simpletuner>=4.0"
_ROUNDED: Final = "simpletuner>=4.1"
_ENDS: Final = (("start_epoch", "end_epoch", 1), ("start_step", "end_step", 0))
_OF_EIGHT: Final = frozenset({"ltxvideo", "ltxvideo2", "wan", "longcat_video", "sanavideo"})
"""simpletuner 4.10.1 helpers/models/*/model.py `adjust_video_frames`: frames % 8 == 1."""


def _check(run: Run) -> Iterator[Finding]:
    for _, sets in lists(run):
        for each in sets:
            yield from _of_hub(each)
            yield from _of_tables(each)
            yield from _frames(each)
            yield from _rounded(run, each)
            yield from _ended(run, each)
            yield from _aspects(each)
            if run.runs(_SHUFFLED) is not False:
                yield from _shuffled(each)


def _of_hub(each: DataSet) -> Iterator[Finding]:
    kind = each.place("type")
    if kind is None or kind.value != "huggingface":
        return
    for key, taken in _OF_HUB.items():
        at = each.place(key)
        if at is not None and at.value is not None and at.value not in taken:
            yield Finding(
                f"{key} {at.value} for data of type huggingface",
                (at.label("refused"), kind.label("", primary=False)),
                ("what is known of its pictures stands in the data set's own columns",),
                f"write {key}: huggingface",
            )


def _of_tables(each: DataSet) -> Iterator[Finding]:
    """A table of addresses holds its captions, and no embeddings."""
    kind, how = each.place("type"), each.place("caption_strategy")
    if kind is None or kind.value != "csv":
        return
    if each.kind in _STORES:
        yield Finding(
            f"a data set of type csv for {each.kind}",
            (kind.label("refused"),),
            ("embeddings are written, and a table of addresses is only read",),
            "write type: local, and a cache_dir",
        )
    elif each.kind in ("image", "video") and (how is None or how.value != "csv"):
        yield Finding(
            "data of type csv without caption_strategy csv",
            ((how or kind).label("refused"), kind.label("", primary=False)),
            ("captions stand in csv_caption_column of the same table",),
            "write caption_strategy: csv",
        )


def _frames(each: DataSet) -> Iterator[Finding]:
    least, taken = each.place("video.min_frames"), each.place("video.num_frames")
    if least is None or taken is None or not (is_whole(least.value) and is_whole(taken.value)):
        return
    if least.value < taken.value:
        yield Finding(
            f"video.min_frames {least.value} is below video.num_frames {taken.value}",
            (least.label("refused"), taken.label("", primary=False)),
            ("a clip of the fewest frames would have fewer than are taken of it",),
            f"write min_frames: {taken.value}",
        )


def _rounded(run: Run, each: DataSet) -> Iterator[Finding]:
    """Clips of these families have one frame more than a multiple of eight."""
    at = each.place("video.num_frames")
    names = {family(document) for document in configs(run)}
    if at is None or not is_whole(at.value) or at.value < 1 or at.value % 8 == 1:
        return
    if names and names <= _OF_EIGHT and run.runs(_ROUNDED) is not False:
        taken = (at.value - 1) // 8 * 8 + 1
        yield Finding(
            f"video.num_frames {at.value} is no multiple of 8 with one more: {taken} are taken",
            (at.label("not as written"),),
            ("its VAE packs eight frames into one behind the first",),
            f"write {taken} or {taken + 8}",
            severity="warning",
            consequence="silent",
        )


def _ended(run: Run, each: DataSet) -> Iterator[Finding]:
    """An entry is used from one epoch or step to another."""
    for first, last, least in _ENDS if run.runs(_ROUNDED) is not False else ():
        begin, end = each.place(first), each.place(last)
        start = begin.value if begin is not None else least
        if end is None or not (is_whole(end.value) and is_whole(start)) or end.value >= start:
            continue
        if last == "end_step" and start == 0:
            continue
        yield Finding(
            f"{last} {end.value} is before {first} {start}",
            (end.label("refused"), *([begin.label("", primary=False)] if begin else [])),
            (),
            f"write {last}: {start} or more",
        )


def _aspects(each: DataSet) -> Iterator[Finding]:
    least, most = each.place("minimum_aspect_ratio"), each.place("maximum_aspect_ratio")
    if least is None or most is None or not (is_number(least.value) and is_number(most.value)):
        return
    if least.value > most.value > 0:
        yield Finding(
            f"minimum_aspect_ratio {least.value} is above maximum_aspect_ratio {most.value}",
            (least.label("no picture is left"), most.label("", primary=False)),
            ("the aspect is width over height, and pictures outside are left out",),
            f"write minimum_aspect_ratio: {most.value}, and the other as maximum_aspect_ratio",
        )


def _shuffled(each: DataSet) -> Iterator[Finding]:
    at = each.place("caption_shuffle.split_on")
    if at is not None and at.value not in _SIGNS and each.value("caption_shuffle.enable"):
        yield Finding(
            f"caption_shuffle.split_on cannot be {at.value!r}",
            (at.label("refused"),),
            (f"taken: {', '.join(_SIGNS)}",),
            "write comma",
        )


RULE = Rule(
    name="data-set-at-odds",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/config/validators.py "
            "`validate_huggingface_backend_settings`, `validate_video_settings`: video->min_frames "
            "must be greater than or equal to video->num_frames; 4.10.1 factory.py "
            "`init_backend_config`: caption_shuffle.split_on must be one of; Adjusted "
            "video->num_frames; end_epoch must be >= start_epoch; CSV "
            "backend requires a caption_strategy of 'csv'; Cannot use CSV backend for text embed "
            "storage; bghira/SimpleTuner#2480"
        ),
    ),
    check=_check,
)
