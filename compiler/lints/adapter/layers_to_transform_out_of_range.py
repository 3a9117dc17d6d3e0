"""LoRA is bound to layers that the model does not have."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.adapter.tree import layers
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    count = layers(run.model.architecture) if run.model is not None else 0
    for lora in adapters(run):
        at = lora.place("layers_to_transform")
        if at is None or not count:
            continue
        asked = _indices(at.value)
        lost = [index for index in asked if not 0 <= index < count]
        if not lost:
            continue
        is_all = len(lost) == len(asked)
        yield Finding(
            f"layers_to_transform names {_words(lost)} of a model with layers 0 to {count - 1}",
            (at.label("no such layer"),),
            ("no layer at all is left, which PEFT refuses",)
            if is_all
            else ("PEFT says nothing of the layers that are not there",),
            f"write indices from 0 to {count - 1}",
            severity=None if is_all else "warning",
            consequence=None if is_all else "silent",
        )


def _indices(value: Any) -> list[int]:
    every = value if isinstance(value, list) else [value]
    return [each for each in every if is_whole(each)]


def _words(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:6]))
    return f"layer {shown}" if len(indices) == 1 else f"layers {shown}"


RULE = Rule(
    name="layers-to-transform-out-of-range",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`: a module "
            "counts only if its index is in layers_to_transform"
        ),
    ),
    check=_check,
)
