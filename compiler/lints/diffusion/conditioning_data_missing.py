"""A model that is trained on pictures with their conditions, and data sets that have none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, family, is_on, said, word
from tunec.compiler.lints.diffusion.sets import DataSet, lists
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_METHODS: Final = ("controlnet", "control")
_FLAVOURS: Final[Mapping[str, tuple[str, ...]]] = {
    "flux": ("kontext",),
    "qwen_image": ("edit",),
    **dict.fromkeys(("kandinsky5_image", "kandinsky5-image"), ("i2i",)),
    **dict.fromkeys(("kandinsky5_video", "kandinsky5-video"), ("i2v",)),
}
"""How flavours begin that need it: simpletuner 3.1.6 and 4.10.1 helpers/models/*/model.py
`requires_conditioning_dataset`."""
_CONDITIONED: Final = ("conditioning_data", "conditioning")
_REFERENCES: Final = ("reference_strict", "reference_loose", "mask", "segmentation")
_TRAINED: Final = ("image", "video")


def _check(run: Run) -> Iterator[Finding]:
    files = tuple(configs(run))
    for _, sets in lists(run) if len(files) == 1 else ():
        trained = [each for each in sets if each.kind in _TRAINED]
        yield from _of_methods(files[0], trained)
        yield from _of_flavours(files[0], trained)
        if _is_edited(files[0]):
            yield from _references(sets)


def _has(each: DataSet) -> bool:
    return any(each.value(key) for key in _CONDITIONED)


def _of_methods(document: Document, trained: Sequence[DataSet]) -> Iterator[Finding]:
    """Every picture that a control network is trained on has its condition."""
    asked = (said(document, each) for each in _METHODS)
    at = next((each for each in asked if is_on(each)), None)
    bare = [each for each in trained if each.kind == "image" and not _has(each)]
    if at is not None and bare:
        yield _finding(at, bare[0], f"{at.path} needs a condition for each picture")


def _of_flavours(document: Document, trained: Sequence[DataSet]) -> Iterator[Finding]:
    at, beginnings = said(document, "model_flavour"), _FLAVOURS.get(family(document), ())
    if at is None or not trained or any(_has(each) for each in trained):
        return
    if beginnings and word(document, "model_flavour").startswith(beginnings):
        yield _finding(at, trained[0], f"{family(document)} {at.value} is trained on pairs")


def _finding(at: Place, bare: DataSet, what: str) -> Finding:
    place = bare.place("id") or bare.place("type")
    return Finding(
        f"{what}, and {bare.value('id', 'a data set')} has no conditioning_data",
        (
            at.label("needs pictures of conditions"),
            *([place.label("has none", primary=False)] if place is not None else []),
        ),
        (),
        "name a data set with dataset_type: conditioning in its conditioning_data",
    )


def _is_edited(document: Document) -> bool:
    flavour = word(document, "model_flavour")
    return family(document) == "qwen_image" and flavour.startswith("edit")


def _references(sets: Sequence[DataSet]) -> Iterator[Finding]:
    """Qwen's editing takes pictures of reference, and masks beside them."""
    for each in sets:
        at = each.place("conditioning_type")
        if at is None or each.kind != "conditioning" or at.value in (None, "", *_REFERENCES):
            continue
        yield Finding(
            f"conditioning_type {at.value} for an edition of Qwen-Image that edits",
            (at.label("refused"),),
            ("latents of another kind have other dimensions",),
            "write conditioning_type: reference_strict",
        )


RULE = Rule(
    name="conditioning-data-missing",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/data_backend/factory.py: When training "
            "ControlNet, a conditioning block or conditioning_data string should be configured; "
            "Model requires a conditioning dataset, but none was found; 3.1.6 and 4.10.1 "
            "`_validate_edit_model_conditioning_type`"
        ),
    ),
    check=_check,
)
