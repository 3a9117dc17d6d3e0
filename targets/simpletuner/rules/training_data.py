"""Data that SimpleTuner cannot train on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    DataSet,
    amount,
    configs,
    family,
    flags_read,
    is_on,
    lists,
    said,
    word,
)
from tunec.compiler.lints.rule import Consequence, Finding, rule

_LEAST: Final = "minimum_image_size"
_SIZES: Final = ("resolution", "maximum_image_size", "target_downsample_size", _LEAST)
MOST_MEGAPIXELS: Final = 20.0
_FEWEST_PIXELS: Final = 64.0
_TAKEN: Final = 10.0
"""No size in megapixels reaches the first, and no side of an image is below the second; limits up
to the third stay megapixels under pixel_area."""


@rule(
    "error", "init", consumers=("simpletuner",), reads=(*flags_read(*_SIZES), "simpletuner-data:*")
)
def megapixels_taken_for_pixels(run: LintContext) -> Iterator[Finding]:
    """A size in pixels where megapixels are expected, or the reverse."""
    for document in configs(run):
        kind = word(document, "resolution_type", "pixel_area")
        yield from _of_entry(kind, [said(document, each) for each in _SIZES])
    for document in run.of("simpletuner-data"):
        for name in document.found:
            if "." not in name:
                kind = str(document.value(f"{name}.resolution_type", ""))
                yield from _of_entry(kind, [document.get(f"{name}.{each}") for each in _SIZES])


def _of_entry(kind: str, places: list[Place | None]) -> Iterator[Finding]:
    for at in places:
        size = amount(at)
        if at is None or size is None or size <= 0:
            continue
        if kind == "area" and size > MOST_MEGAPIXELS:
            yield _finding(at, f"{size:g} is megapixels", "pixels", f"{size * size / 1e6:.2g}")
        elif kind == "pixel_area" and size <= _TAKEN and "resolution" not in at.path.lower():
            continue  # read as megapixels all the same
        elif _LEAST in at.path or "MINIMUM_RESOLUTION" in at.path:
            continue  # so few pixels leave every picture in
        elif kind in ("pixel", "pixel_area") and size < _FEWEST_PIXELS:
            yield _finding(at, f"{size:g} is pixels", "megapixels", f"{round(size**0.5 * 1024)}")


def _finding(at: Place, read: str, meant: str, better: str) -> Finding:
    name = at.path.rpartition(".")[2].removeprefix("--").lower()
    return Finding(
        f"{name} {read} by its resolution_type, and looks like {meant}",
        (at.label("the other unit"),),
        ("area counts megapixels; pixel is the shorter side; pixel_area a side of a square",),
        f"write {better}, or another resolution_type",
    )


_STORES: Final = ("text_embeds", "image_embeds", "conditioning_image_embeds")
_TRAINED_AT_START: Final = ("image", "video", "audio", "caption")
_SCHEDULED: Final = "simpletuner>=4.0"


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_sets_never_trained(run: LintContext) -> Iterator[Finding]:
    """No data set is used when training begins, or two are the default."""
    for document, sets in lists(run):
        yield from _stores(sets)
        trained = [each for each in sets if each.kind in _TRAINED_AT_START]
        first = _trained_start(sets)
        if not trained and first is not None and all(each.kind in _STORES for each in sets):
            yield Finding(
                f"{document.name} has no data set to train on",
                (first.key_label("a store without training data"),),
                (),
                "add an entry with dataset_type: image and an instance_data_dir",
            )
        elif run.runs(_SCHEDULED) is not False:
            yield from _later(trained)


def _stores(sets: Sequence[DataSet]) -> Iterator[Finding]:
    stores = [each for each in sets if each.kind == "text_embeds"]
    marked = [at for each in stores if (at := each.place("default")) and at.value is True]
    for at in marked[1:]:
        yield Finding(
            "two stores of text embeddings are the default",
            (at.label("refused"), marked[0].label("the first", primary=False)),
            (),
            "write default: true in one of them",
        )


def _later(trained: Sequence[DataSet]) -> Iterator[Finding]:
    """All data sets wait for an epoch or step that never comes, since nothing trains before it."""
    if not trained or not all(_waits(each) or _is_never_drawn(each) for each in trained):
        return
    waits = [_why(each) for each in trained]
    first, *rest = [at for at in waits if at is not None]
    yield Finding(
        "every data set starts later than training does, or is never drawn from",
        (first.label("not at the start"), *(at.label("", primary=False) for at in rest)),
        ("there is nothing to train on in the first epoch",),
        "leave start_epoch, start_step and probability out of one of them",
    )


def _waits(each: DataSet) -> bool:
    epoch, step = each.value("start_epoch"), each.value("start_step")
    return (isinstance(epoch, int) and epoch > 1) or (isinstance(step, int) and step > 1)


def _is_never_drawn(each: DataSet) -> bool:
    share = each.value("probability")
    return type(share) in (int, float) and share <= 0


def _why(each: DataSet) -> Place | None:
    """The key by which an entry is not used at the start."""
    if _is_never_drawn(each):
        return each.place("probability")
    return each.place("start_epoch") or each.place("start_step")


def _trained_start(sets: Sequence[DataSet]) -> Place | None:
    found = (each.place(key) for each in sets for key in ("dataset_type", "id", "type"))
    return next((at for at in found if at is not None), None)


_METHODS: Final = ("controlnet", "control")
_FLAVOURS: Final[Mapping[str, tuple[str, ...]]] = {
    "flux": ("kontext",),
    "qwen_image": ("edit",),
    **dict.fromkeys(("kandinsky5_image", "kandinsky5-image"), ("i2i",)),
    **dict.fromkeys(("kandinsky5_video", "kandinsky5-video"), ("i2v",)),
}
"""Prefixes of flavours that need it: simpletuner 3.1.6 and 4.10.1 helpers/models/*/model.py
`requires_conditioning_dataset`."""
_CONDITIONED: Final = ("conditioning_data", "conditioning")
_REFERENCES: Final = ("reference_strict", "reference_loose", "mask", "segmentation")
_CONDITIONING_TRAINED: Final = ("image", "video")


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def conditioning_data_missing(run: LintContext) -> Iterator[Finding]:
    """A model needs conditioning images, and the data sets have none."""
    files = tuple(configs(run))
    for _, sets in lists(run) if len(files) == 1 else ():
        trained = [each for each in sets if each.kind in _CONDITIONING_TRAINED]
        yield from _of_methods(files[0], trained)
        yield from _of_flavours(files[0], trained)
        if _is_edited(files[0]):
            yield from _references(sets)


def _has(each: DataSet) -> bool:
    return any(each.value(key) for key in _CONDITIONED)


def _of_methods(document: Document, trained: Sequence[DataSet]) -> Iterator[Finding]:
    """Every image that a control network is trained on has a conditioning image."""
    asked = (said(document, each) for each in _METHODS)
    at = next((each for each in asked if is_on(each)), None)
    bare = [each for each in trained if each.kind == "image" and not _has(each)]
    if at is not None and bare:
        yield _conditioning_finding(
            at, bare[0], f"{at.path} needs a conditioning image for each image"
        )


def _of_flavours(document: Document, trained: Sequence[DataSet]) -> Iterator[Finding]:
    at, beginnings = said(document, "model_flavour"), _FLAVOURS.get(family(document), ())
    if at is None or not trained or any(_has(each) for each in trained):
        return
    if beginnings and word(document, "model_flavour").startswith(beginnings):
        yield _conditioning_finding(
            at, trained[0], f"{family(document)} {at.value} is trained on pairs"
        )


def _conditioning_finding(at: Place, bare: DataSet, what: str) -> Finding:
    place = bare.place("id") or bare.place("type")
    return Finding(
        f"{what}, and {bare.value('id', 'a data set')} has no conditioning_data",
        (at.label("needs conditioning images"), *also(place, "has none")),
        (),
        "name a data set with dataset_type: conditioning in its conditioning_data",
    )


def _is_edited(document: Document) -> bool:
    flavour = word(document, "model_flavour")
    return family(document) == "qwen_image" and flavour.startswith("edit")


def _references(sets: Sequence[DataSet]) -> Iterator[Finding]:
    """Qwen's edit models take reference images, no other conditioning."""
    for each in sets:
        at = each.place("conditioning_type")
        if at is None or each.kind != "conditioning" or at.value in (None, "", *_REFERENCES):
            continue
        yield Finding(
            f"conditioning_type {at.value} does not fit an edition of Qwen-Image that edits",
            (at.label("refused"),),
            ("latents of another kind have other dimensions",),
            "write conditioning_type: reference_strict",
        )


_FILES: Final = (".json", ".yaml", ".toml", ".env", ".zip", ".tar", ".parquet", ".csv")


@rule("error", "init", consumers=("simpletuner",), reads=("simpletuner-data:*",))
def data_folder_is_a_file(run: LintContext) -> Iterator[Finding]:
    """The folder of a data set is a file."""
    for _, sets in lists(run):
        for each in sets:
            at = each.place("instance_data_dir")
            is_local = each.value("type", "local") == "local"
            if at is None or not is_local or not isinstance(at.value, str):
                continue
            if at.value.lower().endswith(_FILES):
                yield Finding(
                    f"instance_data_dir names the file {at.value}",
                    (at.label("a folder of images is expected"),),
                    ("the folder is searched for images, and none is found",),
                    "name the folder",
                )


@rule("error", "init", consumers=("simpletuner<3.2",), reads=("simpletuner-data:*",))
def text_embeds_missing(run: LintContext) -> Iterator[Finding]:
    """A list of data sets has no store for text embeddings, or no default one."""
    for document, sets in lists(run):
        stores = [each for each in sets if each.kind == "text_embeds"]
        pictures = [each for each in sets if each.kind in ("image", "video")]
        first = _text_start(pictures)
        if first is None:
            continue
        defaults = [each for each in stores if each.value("default")]
        if not stores:
            yield Finding(
                f"{document.name} has no data set of type text_embeds",
                (first.key_label("its captions have no store"),),
                (),
                "add an entry with dataset_type: text_embeds, default: true and a cache_dir",
            )
        elif len(stores) > 1 and len(defaults) != 1:
            at = _text_start(stores)
            what = "none" if not defaults else "several"
            yield Finding(
                f"{len(stores)} data sets of type text_embeds, and {what} is the default",
                (at.key_label("") if at is not None else first.key_label(""),),
                (),
                "write default: true in one of them",
            )


def _text_start(sets: list[DataSet]) -> Place | None:
    found = (each.place(key) for each in sets for key in ("id", "type"))
    return next((at for at in found if at is not None), None)


_LIMITS: Final = ("maximum_image_size", "target_downsample_size")
_LEAST_PIXELS: Final = 512
_UNIT_PIXELS: Final = 64
"""Below it a size is in megapixels, which `megapixels-taken-for-pixels` checks."""
_MOST_OF_RUN: Final = 5
_SWITCH: Final = "SIMPLETUNER_MAXIMUM_IMAGE_SIZE_OVERRIDE"


@rule(
    "error", "init", consumers=("simpletuner",), reads=(*flags_read(*_LIMITS), "simpletuner-data:*")
)
def size_limit_refused(run: LintContext) -> Iterator[Finding]:
    """A size limit is outside the range that SimpleTuner accepts in its unit."""
    for document in configs(run):
        kind = word(document, "resolution_type", "pixel_area")
        if not word(document, "model_type").startswith("deepfloyd"):
            places = [said(document, each) for each in _LIMITS]
            yield from _of(kind, places, _MOST_OF_RUN, "parse")
    for document in run.of("simpletuner-data"):
        for name in document.found:
            if "." not in name:
                kind = str(document.value(f"{name}.resolution_type", ""))
                places = [document.get(f"{name}.{each}") for each in _LIMITS]
                yield from _of(kind, places, int(MOST_MEGAPIXELS), "init")


def _of(
    kind: str, places: list[Place | None], most: int, consequence: Consequence
) -> Iterator[Finding]:
    for at in places:
        size = amount(at)
        if at is None or size is None or size <= 0 or is_on(at.document.get(_SWITCH)):
            continue
        if kind == "pixel" and _UNIT_PIXELS <= size < _LEAST_PIXELS:
            yield _limit_finding(at, f"is below {_LEAST_PIXELS} pixels", _LEAST_PIXELS, consequence)
        elif kind == "area" and most < size <= MOST_MEGAPIXELS:
            yield _limit_finding(at, f"is above {most} megapixels", most, consequence)
        elif kind == "area" and size == most == MOST_MEGAPIXELS:
            yield _limit_finding(at, f"is not below {most} megapixels", most - 1, consequence)


def _limit_finding(at: Place, what: str, bound: int, consequence: Consequence) -> Finding:
    name = at.path.rpartition(".")[2].removeprefix("--").lower()
    return Finding(
        f"{name} {at.value} {what}",
        (at.label("refused"),),
        ("the check for a number in the other unit refuses it",),
        f"write {bound}, or leave it out",
        consequence=consequence,
    )


@rule(
    "error",
    "parse",
    consumers=("simpletuner",),
    reads=(*flags_read("maximum_image_size"), "simpletuner-data:*"),
)
def maximum_size_without_target(run: LintContext) -> Iterator[Finding]:
    """A maximum size is set, without the size to which larger images are scaled down."""
    for document in configs(run):
        at = said(document, "maximum_image_size")
        if at is not None and amount(said(document, "target_downsample_size")) is None:
            yield _maximum_finding(at)
    for document in run.of("simpletuner-data"):
        for name in document.found:
            at = document.get(f"{name}.maximum_image_size")
            if at is not None and at.value and not document.value(f"{name}.target_downsample_size"):
                yield _maximum_finding(at, "init")


def _maximum_finding(at: Place, when: Consequence = "parse") -> Finding:
    return Finding(
        "maximum_image_size is written without target_downsample_size",
        (at.label("refused alone"),),
        ("an image above the limit is scaled down to the target before it is cropped",),
        "write target_downsample_size too",
        consequence=when,
    )
