"""An interval of checkpointed blocks that is zero or not supported, or whose stride is shorter."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import amount, configs, family, is_on, said
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FAMILIES: Final = frozenset({"flux", "sana", "sdxl", "sd3", "chroma"})
_NOT_LATER: Final = frozenset({"sdxl", "sd1x", "kolors", "omnigen", "deepfloyd"})
"""Families that 4.10.1's list leaves out."""
_STRIDE: Final = "gradient_checkpointing_segment_stride"
_STRIDES: Final = "simpletuner>=4.8"


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        if run.runs(_STRIDES) is not False:
            yield from _strides(document)
        at = said(document, "gradient_checkpointing_interval")
        every = amount(at)
        if at is None or every is None:
            continue
        if family(document) not in _FAMILIES and run.runs("simpletuner<3.2") is not False:
            yield _ignored(at, f"{family(document) or 'this family'} has no such interval")
        elif family(document) in _NOT_LATER and run.runs("simpletuner>=4.0") and every > 1:
            yield _ignored(at, f"{family(document)} has no such interval any more")
        elif every == 0:
            yield Finding(
                "gradient_checkpointing_interval is 0",
                (at.label("refused"),),
                (),
                "write 1 or more, or remove it",
            )
        elif not is_on(said(document, "gradient_checkpointing")) and _says(document):
            yield _ignored(at, "gradient_checkpointing is off")


def _strides(document: Document) -> Iterator[Finding]:
    """From one checkpointed segment to the next are at least the blocks of a segment."""
    at, interval = said(document, _STRIDE), said(document, "gradient_checkpointing_interval")
    stride, every = amount(at), amount(interval)
    if at is None or stride is None or family(document) in _NOT_LATER:
        return
    if every is None or every <= 1:
        yield Finding(
            f"{_STRIDE} does nothing without gradient_checkpointing_interval above 1",
            (at.label("not used"), *([interval.label("", primary=False)] if interval else [])),
            (),
            "write gradient_checkpointing_interval: 2, or remove it",
            severity="warning",
            consequence="silent",
        )
    elif stride < every:
        yield Finding(
            f"{_STRIDE} {at.value} is below gradient_checkpointing_interval {every:g}",
            (at.label("refused"), *([interval.label("", primary=False)] if interval else [])),
            ("segments of that length would lie on each other",),
            f"write {every:g} or more",
        )


def _says(document: Document) -> bool:
    return said(document, "gradient_checkpointing") is not None


def _ignored(at: Place, why: str) -> Finding:
    return Finding(
        f"gradient_checkpointing_interval does nothing: {why}",
        (at.label("not used"),),
        (),
        "remove it",
        severity="warning",
        consequence="silent",
    )


RULE = Rule(
    name="checkpointing-interval-unusable",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 helpers/training/default_settings/safety_check.py: Gradient "
            "checkpointing interval must be greater than 0; supported models flux, sana, sdxl, "
            "sd3, chroma; 4.10.1: a list of transformers, without sdxl; segment stride must be at "
            "least the checkpointing interval, and requires an interval greater than 1"
        ),
    ),
    check=_check,
)
