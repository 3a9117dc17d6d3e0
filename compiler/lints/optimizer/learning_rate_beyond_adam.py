"""A learning rate with which Adam steps farther than weights are large."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MOST: Final = 0.05
"""Adam moves a weight by about the rate in each step, and weights of language models are of the
order of 0.02 (`initializer_range` of their configs)."""
_OTHERS: Final = ("prodigy", "dadapt", "sgd", "lomo", "adafactor", "schedule_free", "rmsprop")


def _check(run: Run) -> Iterator[Finding]:
    optimizer = run.said("trainer", "optim")
    if optimizer is None or _is_of_adam(optimizer.value):
        for place in run.each("trainer", "learning_rate"):
            yield from _judged(place)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is not None and _is_of_adam(str(kind.value).lower()):
        for place in run.each("deepspeed", "optimizer.params.lr"):
            yield from _judged(place)


def _is_of_adam(name: object) -> bool:
    return isinstance(name, str) and "adam" in name and not any(each in name for each in _OTHERS)


def _judged(place: Place) -> Iterator[Finding]:
    if is_number(place.value) and place.value >= _MOST:
        yield Finding(
            f"a learning rate of {place.value:g} moves every weight by about as much in each step",
            (place.label("no model survives it"),),
            ("weights of language models are of the order of 0.02",),
            f"did you mean {_meant(place.value):g}?",
        )


def _meant(value: float) -> float:
    """`2e5` for `2e-5`, `5` for `5e-5`."""
    return value if value <= 0 else float(f"{value:e}".split("e")[0]) * 1e-5


RULE = Rule(
    name="learning-rate-beyond-adam",
    severity="warning",
    consequence="step",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "Kingma and Ba, Adam, arXiv:1412.6980, 2.1: the effective magnitude of the steps in "
            "parameter space in each timestep is approximately bounded by the stepsize"
        ),
        "transformers 5.23.0 models/llama/configuration_llama.py: initializer_range 0.02",
    ),
    check=_check,
)
