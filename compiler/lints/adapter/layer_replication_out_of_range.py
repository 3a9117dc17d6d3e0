"""Layers are to be replicated that the model does not have."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.adapter.lora import loras
from tunec.compiler.lints.adapter.tree import layers
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    count = layers(run.model.architecture) if run.model is not None else 0
    for lora in loras(run):
        at = lora.place("layer_replication")
        if at is None or not isinstance(at.value, list):
            continue
        ranges = [each for each in at.value if _is_range(each)]
        empty = next((each for each in ranges if each[0] >= each[1]), None)
        beyond = next((each for each in ranges if count and each[1] > count), None)
        if empty is not None:
            yield Finding(
                f"layer_replication takes no layer from {empty[0]} to {empty[1]}",
                (at.label("an empty range"),),
                ("a range holds its first number, and not its last",),
                "write the smaller number first",
                severity="warning",
                consequence="silent",
            )
        elif beyond is not None:
            yield Finding(
                f"layer_replication reaches layer {beyond[1] - 1} of a model with {count}",
                (at.label("no such layer"),),
                (f"its layers are 0 to {count - 1}; a range does not hold its last number",),
                f"write {count} as the last number",
            )


def _is_range(value: Any) -> bool:
    is_pair = isinstance(value, list | tuple) and len(value) == 2
    return is_pair and all(is_whole(e) for e in value)


RULE = Rule(
    name="layer-replication-out-of-range",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `replicate_layers`: for i in "
            "range(start, end): layers[i]; run: IndexError"
        ),
    ),
    check=_check,
)
