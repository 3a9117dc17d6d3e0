"""A list of data sets of which none is trained on when training begins, or two are the default."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.lints.diffusion.sets import DataSet, lists
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_STORES: Final = ("text_embeds", "image_embeds", "conditioning_image_embeds")
_TRAINED: Final = ("image", "video", "audio", "caption")
_SCHEDULED: Final = "simpletuner>=4.0"


def _check(run: Run) -> Iterator[Finding]:
    for document, sets in lists(run):
        yield from _stores(sets)
        trained = [each for each in sets if each.kind in _TRAINED]
        first = _start(sets)
        if not trained and first is not None and all(each.kind in _STORES for each in sets):
            yield Finding(
                f"{document.name} has no data set to train on",
                (first.key_label("a store, and nothing to fill it with"),),
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
    """All wait for an epoch or a step that never comes, as nothing is trained before it."""
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
    """Where an entry says that it is not trained on at the start."""
    if _is_never_drawn(each):
        return each.place("probability")
    return each.place("start_epoch") or each.place("start_step")


def _start(sets: Sequence[DataSet]) -> Place | None:
    found = (each.place(key) for each in sets for key in ("dataset_type", "id", "type"))
    return next((at for at in found if at is not None), None)


RULE = Rule(
    name="data-sets-never-trained",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/data_backend/factory.py: Must provide at least "
            "one data backend; Only one text embed backend can be marked as default; 4.10.1 "
            "helpers/training/trainer.py: No datasets are active at the start of training"
        ),
    ),
    check=_check,
)
