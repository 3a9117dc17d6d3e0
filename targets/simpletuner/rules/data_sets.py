"""Settings of SimpleTuner's data sets that require or exclude each other."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.diffusion import DataSet, configs, family, lists
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rule import Finding, rule

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


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_set_at_odds(run: LintContext) -> Iterator[Finding]:
    """Two settings of one data set that SimpleTuner refuses together."""
    for _, sets in lists(run):
        for each in sets:
            yield from _of_hub(each)
            yield from _odds_of_tables(each)
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
                f"SimpleTuner refuses {key} {at.value} for data of type huggingface",
                (at.label("refused"), kind.label("", primary=False)),
                ("the metadata of its images is in the data set's own columns",),
                f"write {key}: huggingface",
            )


def _odds_of_tables(each: DataSet) -> Iterator[Finding]:
    """A CSV file of URLs provides its own captions, and cannot store embeddings."""
    kind, how = each.place("type"), each.place("caption_strategy")
    if kind is None or kind.value != "csv":
        return
    if each.kind in _STORES:
        yield Finding(
            f"a data set of type csv cannot hold {each.kind}",
            (kind.label("refused"),),
            ("embeddings are written, and a CSV of URLs is only read",),
            "write type: local, and a cache_dir",
        )
    elif each.kind in ("image", "video") and (how is None or how.value != "csv"):
        yield Finding(
            "data of type csv needs caption_strategy csv",
            ((how or kind).label("refused"), kind.label("", primary=False)),
            ("captions are in csv_caption_column of the same table",),
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
            ("the shortest clip would have fewer frames than are used",),
            f"write min_frames: {taken.value}",
        )


def _rounded(run: LintContext, each: DataSet) -> Iterator[Finding]:
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


def _ended(run: LintContext, each: DataSet) -> Iterator[Finding]:
    """An entry is used from one epoch or step until another, which must not be earlier."""
    for first, last, least in _ENDS if run.runs(_ROUNDED) is not False else ():
        begin, end = each.place(first), each.place(last)
        start = begin.value if begin is not None else least
        if end is None or not (is_whole(end.value) and is_whole(start)) or end.value >= start:
            continue
        if last == "end_step" and start == 0:
            continue
        yield Finding(
            f"{last} {end.value} is before {first} {start}",
            (end.label("refused"), *also(begin)),
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
            (least.label("no image is left"), most.label("", primary=False)),
            ("the aspect is width over height, and images outside are left out",),
            f"write minimum_aspect_ratio: {most.value}, and the other as maximum_aspect_ratio",
        )


def _shuffled(each: DataSet) -> Iterator[Finding]:
    at = each.place("caption_shuffle.split_on")
    if at is not None and at.value not in _SIGNS:
        yield Finding(
            f"caption_shuffle.split_on cannot be {at.value!r}",
            (at.label("refused"),),
            (f"taken: {', '.join(_SIGNS)}",),
            "write comma",
        )


_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "huggingface": ("dataset_name",),
    "csv": ("csv_file", "csv_cache_dir", "csv_caption_column", "csv_url_column"),
    "aws": (
        *("aws_bucket_name", "aws_region_name", "aws_endpoint_url", "aws_access_key_id"),
        "aws_secret_access_key",
    ),
}
"""simpletuner 3.1.6 and 4.10.1 factory.py `check_huggingface_config`, `check_csv_config`,
`check_aws_config`: Missing required key."""
_INCOMPLETE_FOLDERS: Final = ("instance_data_dir", "instance_data_root")
_IN_FOLDERS: Final = ("image", "video", "conditioning", "eval")
_ALIGNED: Final = ("reference_strict", "mask")


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_set_incomplete(run: LintContext) -> Iterator[Finding]:
    """An entry of multidatabackend.json lacks a key that its storage requires."""
    for _, sets in lists(run):
        paired = {name for each in sets for name in _names(each.value("conditioning_data"))}
        for each in sets:
            yield from _of_storage(each)
            yield from _incomplete_of_tables(each)
            yield from _of_pairs(each, paired)


def _names(value: object) -> list[str]:
    found = value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, str)]


def _of_storage(each: DataSet) -> Iterator[Finding]:
    at = each.place("type")
    if at is None or not isinstance(at.value, str):
        return
    if each.kind in (*_IN_FOLDERS, "audio", "caption"):
        for key in _NEEDS.get(at.value, ()):
            if each.place(key) is None:
                yield _lacking(at, key)
    folder = any(each.value(key) for key in _INCOMPLETE_FOLDERS)
    if at.value == "local" and each.kind in _IN_FOLDERS and not folder and not _is_made(each):
        yield _lacking(at, "instance_data_dir")


def _is_made(each: DataSet) -> bool:
    """Whether SimpleTuner itself writes its images."""
    return any(each.place(key) for key in ("conditioning_config", "source_dataset_id", "disabled"))


def _lacking(at: Place, key: str) -> Finding:
    return Finding(
        f"a data set of type {at.value} has no {key}",
        (at.label("of this storage"),),
        (),
        f"write {key}",
    )


def _incomplete_of_tables(each: DataSet) -> Iterator[Finding]:
    at = each.place("metadata_backend")
    if at is not None and at.value == "parquet" and not each.value("parquet"):
        yield Finding(
            "metadata_backend parquet needs a parquet block",
            (at.label("refused alone"),),
            ("the block names the file, and its columns of names, captions and sizes",),
            "write parquet: {path, filename_column, caption_column, width_column, height_column}",
        )


def _of_pairs(each: DataSet, paired: set[str]) -> Iterator[Finding]:
    at, source = each.place("conditioning_type"), each.value("source_dataset_id")
    if at is None or at.value not in _ALIGNED:
        return
    if each.kind != "conditioning":
        yield Finding(
            f"conditioning_type {at.value} needs dataset_type conditioning, not {each.kind}",
            (at.label("not of this kind"),),
            ("images are trained on unless dataset_type is conditioning",),
            "write dataset_type: conditioning",
        )
    elif source is None and str(each.value("id")) not in paired:
        yield Finding(
            f"conditioning_type {at.value} needs the data set that it belongs to",
            (at.label("aligned with nothing"),),
            ("its images are matched one by one with those of the other data set",),
            "name it in conditioning_data of that data set, or write source_dataset_id",
        )


_SHARE_FOLDERS: Final = ("cache_dir_vae", "cache_dir")


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_sets_share_a_cache(run: LintContext) -> Iterator[Finding]:
    """Two data sets have the same id or cache folder."""
    for _, sets in lists(run):
        names: dict[str, Place] = {}
        folders: dict[str, Place] = {}
        for each in sets:
            at = each.place("id")
            if at is not None and isinstance(at.value, str):
                if at.value in names:
                    yield _named(at, names[at.value])
                names.setdefault(at.value, at)
            for key in _SHARE_FOLDERS:
                folder = each.place(key)
                if folder is None or not isinstance(folder.value, str) or "{" in folder.value:
                    continue
                path = folder.value.rstrip("/")
                if path in folders and path:
                    yield _shared(folder, folders[path], key)
                folders.setdefault(path, folder)


def _named(at: Place, first: Place) -> Finding:
    return Finding(
        f"two data sets are called {at.value}",
        (at.label("refused"), first.label("the first", primary=False)),
        ("the state of each data set is stored by its name",),
        "give each a name of its own",
        severity="error",
        consequence="init",
    )


def _shared(at: Place, first: Place, key: str) -> Finding:
    """A shared cache of latents is refused; in a shared one of text, embeddings are mixed up."""
    is_text = key == "cache_dir" and first.path.endswith(".cache_dir")
    return Finding(
        f"two data sets keep their cache in {at.value}",
        (at.label("shared"), first.label("the first", primary=False)),
        (
            (
                "embeddings are found by file name: pictures of the same name, or another "
                "resolution, take each other's"
            ),
        ),
        "give each a folder of its own",
        severity="warning" if is_text else None,
        consequence="silent" if is_text else None,
    )


_STATES: Final = ("training_state.json", "training_state-rank1.json")
_UNSAMPLED: Final = (*_STORES, "distillation_cache")
"""Kinds without a sampler, whose state would be saved."""


@rule("warning", "resume", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_set_named_as_the_state(run: LintContext) -> Iterator[Finding]:
    """A data set's id is a part of the name of the file in which a run's own state is saved."""
    for _, sets in lists(run):
        for each in sets:
            at = each.place("id")
            if at is None or not isinstance(at.value, str) or each.kind in _UNSAMPLED:
                continue
            file = next((name for name in _STATES if at.value and at.value in name), None)
            if file is not None:
                yield Finding(
                    f"the state of data set {at.value} replaces {file} in each checkpoint",
                    (at.label("part of that name"),),
                    (
                        (
                            "the state of a data set is saved beside it under the same name and "
                            "the id, which is not added where the name has it already"
                        ),
                        "the number of the step is lost: a resumed run counts from 0",
                    ),
                    f"write another id, such as {at.value}-1",
                )
