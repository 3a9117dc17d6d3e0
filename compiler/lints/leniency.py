"""Faults of a file's syntax as the program that reads it takes them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.json_nodes import COMMA, COMMENT
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.target import Target

_LENIENT: Final = frozenset({COMMENT, COMMA})
_STRICT: Final = ("huggingface", "simpletuner", "accelerate")
_KEY: Final = re.compile(r"""(?m)(?:^|[{,])[ \t]*(?:- )?["']?([A-Za-z][\w-]*)["']?[ \t]*:""")
_SHARE: Final = 0.25
_STRANGE: Final = "none of the programs that are known has a file with such keys"
_NOTE: Final = "deepspeed.initialize reads it by hjson; transformers and accelerate refuse it"


def of_somebody(
    faults: Iterable[Diagnostic],
    documents: Iterable[Document],
    sources: Mapping[str, str],
    targets: Mapping[str, Target],
) -> Iterator[Diagnostic]:
    """Warn only of what is wrong with the text of a file that is no config of a known program.

    Workflows, editors' settings and templates of charts have syntax of their own (comments in JSON,
    tags, `{{ }}`), which is for their own readers to judge.
    """
    known = {each.name for each in documents}
    strange: dict[str, bool] = {}
    for fault in faults:
        name = fault.file
        if name not in known and name in sources and name not in strange:
            strange[name] = _is_strange(sources[name], targets)
        if strange.get(name):
            yield replace(fault, severity="warning", notes=(*fault.notes, _STRANGE))
        else:
            yield fault


def is_of_nobody(fault: Diagnostic) -> bool:
    """Whether a fault is of a file of which `of_somebody` only warns."""
    return _STRANGE in fault.notes


def _is_strange(text: str, targets: Mapping[str, Target]) -> bool:
    """Whether few of the words before a colon are keys of a program that is known."""
    keys = set(_KEY.findall(text))
    every = (known_keys(target, file) for target in targets.values() for file in target.files)
    mine = {key for key in keys & frozenset().union(*every) if "_" in key}
    return len(mine) < _SHARE * len(keys) or len(mine) < min(2, len(keys) - 1)


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
        at = files.get(fault.file)
        if (
            at is None
            or fault.message not in _LENIENT
            or is_strict
            or (at.target is not None and at.target.name in _STRICT)
        ):
            yield fault
        elif "deepspeed" not in readers:
            yield replace(fault, severity="warning", notes=(*fault.notes, _NOTE))
