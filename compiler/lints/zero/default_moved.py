"""A key is left out whose default is not the same in all releases."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import ds_config_defaults
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.known import DEEPSPEED_RELEASES
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("gradient_clipping", "bf16.check_grad_overflow")


def _check(run: Run) -> Iterator[Finding]:
    documents = run.of("deepspeed") if run.deepspeed_reader == "plain" else ()
    if not documents or run.release("deepspeed").is_named:
        return
    for document in documents:
        for key in _KEYS:
            if not document.is_view and document.get(key) is None and _matters(document, key):
                values = _values(key)
                if len(set(values.values())) > 1:
                    yield _finding(document, key, values)


def _matters(document: Document, key: str) -> bool:
    holder = key.rpartition(".")[0]
    return not holder or document.get(holder) is not None


def _values(key: str) -> Mapping[str, Any]:
    every = ((minor, ds_config_defaults(minor)) for minor in DEEPSPEED_RELEASES)
    return {minor: defaults[key] for minor, defaults in every if key in defaults}


def _finding(document: Document, key: str, values: Mapping[str, Any]) -> Finding:
    place = next(iter(document.found.values()))
    said = ", ".join(f"{value} in {minor}" for minor, value in values.items())
    return Finding(
        f"`{key}` is left out, and its default is not the same in all releases",
        (place.key_label("in this file"),),
        (f"absent, it is {said}",),
        f"write {key}, or name the release with --software deepspeed=VERSION",
    )


RULE = Rule(
    name="default-moved",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=("deepspeed 0.14.5 to 0.19.8 runtime/config.py: defaults by release",),
    check=_check,
)
