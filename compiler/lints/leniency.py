"""Faults of a file's syntax as the program that reads it takes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.json_nodes import COMMA, COMMENT
from tunec.compiler.lints.document import Document

_LENIENT: Final = frozenset({COMMENT, COMMA})
_STRICT: Final = ("huggingface", "simpletuner", "accelerate")
_NOTE: Final = "deepspeed.initialize reads it by hjson; transformers and accelerate refuse it"


def as_read(
    faults: Iterable[Diagnostic], documents: Iterable[Document], readers: Sequence[str]
) -> Iterator[Diagnostic]:
    """Leave out what the reader of a DeepSpeed file takes; warn where nobody says who reads it.

    deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig.__init__` reads by hjson, which
    has comments and a comma too many; transformers and accelerate (utils/deepspeed.py
    `HfDeepSpeedConfig.__init__`) read the same file by `json.load`.
    """
    every = [each for each in documents if not each.is_view]
    files = {each.name: each for each in every if each.kind == "deepspeed"}
    is_strict = any(each.kind in ("accelerate", "simpletuner") for each in every)
    for fault in faults:
        span = fault.primary.span if fault.primary is not None else None
        at = files.get(span.file) if span is not None else None
        if (
            at is None
            or fault.message not in _LENIENT
            or is_strict
            or (at.target is not None and at.target.name in _STRICT)
        ):
            yield fault
        elif "deepspeed" not in readers:
            yield replace(fault, severity="warning", notes=(*fault.notes, _NOTE))
