"""One process reads a stream for all, and joins batches of several lengths."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BEFORE: Final = ("dispatch_batches", "split_batches")
"""Keys of releases before, which say who reads."""


def _check(run: Run) -> Iterator[Finding]:
    world = run.world.value if run.world is not None else None
    if not isinstance(world, int) or world < 2:
        return
    for document in run.of("llamafactory"):
        stream = where(document, "streaming")
        if document.is_view or stream is None or _is_even(document) or _is_told(document):
            continue
        yield Finding(
            f"one of {world} processes reads for all, and joins batches of several lengths",
            (stream.label("batches are joined"),),
            (
                "each is padded to its own longest sample: batches of different size are refused",
                "accelerate does so for every stream, unless it is told otherwise",
            ),
            "write accelerator_config: {dispatch_batches: false}",
        )


def _is_even(document: Document) -> bool:
    """Packed samples are of one length; pre-training packs unless it is told not to."""
    packed = document.value("packing")
    is_packed = packed if packed is not None else document.value("stage") == "pt"
    return bool(is_packed or document.value("neat_packing"))


def _is_told(document: Document) -> bool:
    said = document.get("accelerator_config")
    if said is not None and said.node.fields is None:
        return True  # a file that is not read here
    if any(document.get(key) is not None for key in _BEFORE):
        return True
    is_apart = document.value("accelerator_config.dispatch_batches") is False
    return is_apart or document.value("accelerator_config.split_batches") is True


RULE = Rule(
    name="streamed-batches-handed-out",
    severity="error",
    consequence="step",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams: nobody sets accelerator_config; "
            "data/collator.py: each batch is padded to its longest"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 data_loader.py `prepare_data_loader`: dispatch_batches of "
            "an IterableDataset; `DataLoaderDispatcher._fetch_batches`: You can't use batches of "
            "different size with `dispatch_batches=True`"
        ),
        "hiyouga/LlamaFactory#2763",
    ),
    check=_check,
)
