"""Numbers of OFT and BOFT: their rotations act on blocks of a layer's inputs."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import is_whole
from tunec.compiler.lints.facts.lora import adapters
from tunec.compiler.lints.facts.module_tree import NoRegex, adapted
from tunec.compiler.lints.place import also
from tunec.compiler.lints.rule import Finding
from tunec.schemas.frozen import replace

_SIZES: Final = {
    "OFT": (("oft_block_size", 32), ("r", 0)),
    "BOFT": (("boft_block_size", 4), ("boft_block_num", 0)),
}
"""The size of a block and the number of blocks, with their defaults: each follows from the other.
peft 0.15.2 to 0.21.2 tuners/oft/config.py, 0.13.2 to 0.21.2 tuners/boft/config.py."""


def of_blocks(run: LintContext) -> Iterator[Finding]:
    """What is refused of OFT's and BOFT's blocks."""
    for document in run.of("peft"):
        kind = str(document.value("peft_type"))
        if document.is_view or kind not in _SIZES:
            continue
        found = list(_both(document, kind))
        yield from found or (_undivided(run, document) if kind == "BOFT" else ())


def _both(document: Document, kind: str) -> Iterator[Finding]:
    """Both are given, or neither: where one is left out, its default counts."""
    (size_key, size_default), (count_key, count_default) = _SIZES[kind]
    size = _number(document.value(size_key, size_default))
    count = _number(document.value(count_key, count_default))
    at = document.get(size_key) or document.get(count_key)
    if at is None or size is None or count is None or bool(size) is not bool(count):
        return
    other = document.get(count_key) if document.get(size_key) else None
    yield Finding(
        f"{kind} with {count_key} {count} and {size_key} {size}",
        (at.label("refused"), *also(other)),
        ("each follows from the other: one of the two is 0",),
        f"write {count_key}: 0, or {size_key}: 0",
    )


def _undivided(run: LintContext, document: Document) -> Iterator[Finding]:
    """A block that does not divide the inputs of a layer; OFT takes another one instead."""
    for key in ("boft_block_size", "boft_block_num"):
        at, size = document.get(key), _number(document.value(key))
        if at is None or not size:
            continue
        inputs = _inputs(run, document)
        lost = next((each for each in inputs if each % size), None)
        if size % 2 and where(document, "boft_n_butterfly_factor>1") is not None:
            why = f"{key} {size} is odd, and boft_n_butterfly_factor is above 1"
        elif lost is not None:
            why = f"{key} {size} does not divide the {lost} inputs of a layer"
        else:
            continue
        yield replace(
            Finding(why, (at.label("refused"),), (), "write a power of two"), consequence="init"
        )


def _inputs(run: LintContext, document: Document) -> tuple[int, ...]:
    """How many inputs the adapted layers have, where the model is known."""
    mine = next((each for each in adapters(run) if each.document is document), None)
    if run.model is None or mine is None or not mine.targets:
        return ()
    try:
        found = adapted(run.model.architecture, mine.targets, mine.excluded)
    except NoRegex:
        return ()
    return tuple(dict.fromkeys(each.shape[1] for each in found if each.kind == "linear"))


def _number(value: Any) -> int | None:
    return value if is_whole(value) else None
