"""A rate, a decay of moments or an epsilon that no optimizer takes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_TORCH: Final = ("SGD", "Adafactor", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop")
_BETAS: Final = ("adam_beta1", "adam_beta2")
_FLOORS: Final = ("learning_rate", "adam_epsilon")
_BELOW: Final = "optimizer.params."
_UNPACKED: Final = "which are taken apart"
"""deepspeed 0.19.8 ops/adam/fused_adam.py `FusedAdam.step`: beta1, beta2 = group["betas"];
cpu_adam.py `DeepSpeedCPUAdam.__init__`: betas[1]."""


def _check(run: Run) -> Iterator[Finding]:
    for key in _BETAS:
        for place in run.each("trainer", key):
            if is_number(place.value) and not 0 <= place.value < 1:
                yield _finding(place, "a decay lies in [0, 1)")
    yield from _below(run)
    yield from _of_sgd(run)
    for place in run.each("deepspeed", f"{_BELOW}betas"):
        why = None if place.value == "auto" else _of_betas(place.value)
        if why is not None:
            is_late = why.endswith(_UNPACKED) and not _is_offloaded(run)
            found = _finding(place, why)
            yield replace(found, consequence="step") if is_late else found


def _is_offloaded(run: Run) -> bool:
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    return device.value in ("cpu", "nvme")


def _below(run: Run) -> Iterator[Finding]:
    for kind, keys in (("trainer", _FLOORS), ("deepspeed", (f"{_BELOW}lr", f"{_BELOW}eps"))):
        for key in keys:
            for place in run.each(kind, key):
                if is_number(place.value) and place.value < 0:
                    yield _finding(place, "it cannot be negative")
                elif key == f"{_BELOW}eps" and _is_of_adafactor(place):
                    yield _finding(place, "torch's Adafactor has a pair of them")
                elif kind == "deepspeed" and _is_text_to_torch(place):
                    yield _finding(place, "a text is not compared with 0")


def _of_sgd(run: Run) -> Iterator[Finding]:
    """Nesterov's momentum is one of a momentum above zero, which nothing dampens."""
    for place in run.each("deepspeed", f"{_BELOW}nesterov"):
        numbers = [place.document.value(f"{_BELOW}{key}", 0) for key in ("momentum", "dampening")]
        is_of_sgd = place.document.value("optimizer.type") == "SGD"
        if not is_of_sgd or place.value is not True or not all(map(is_number, numbers)):
            continue
        if numbers[0] <= 0 or numbers[1] != 0:
            why = "Nesterov momentum requires a momentum and zero dampening"
            yield _finding(place, why, "write momentum, such as 0.9, and no dampening")


def _is_of_adafactor(place: Place) -> bool:
    is_pair = isinstance(place.value, list)
    return place.document.value("optimizer.type") == "Adafactor" and not is_pair


def _is_text_to_torch(place: Place) -> bool:
    """A text beside an optimizer of torch's own name: number-as-text tells it of DeepSpeed's."""
    kind = place.document.value("optimizer.type")
    is_text = isinstance(place.value, str) and place.value != "auto"
    return is_text and isinstance(kind, str) and kind in _OF_TORCH


def _of_betas(value: Any) -> str | None:
    if not isinstance(value, list):
        return "it is a list of two numbers"
    if len(value) != 2:
        return f"it is a list of two numbers, {_UNPACKED}"
    if not all(is_number(each) for each in value):
        return "its items are numbers, and no text: a text is not compared with 0"
    if not all(0 <= each < 1 for each in value):
        return "a decay lies in [0, 1)"
    return None


def _finding(place: Place, why: str, mend: str = "write another number") -> Finding:
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused"),),
        (f"{why}; the optimizer is built when training starts",),
        "write betas as [0.9, 0.999]" if place.path.endswith("betas") else mend,
    )


RULE = Rule(
    name="optimizer-number-refused",
    severity="error",
    consequence="init",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "torch 2.13.0 optim/adam.py `Adam.__init__`: ValueError, invalid learning rate, "
            "invalid epsilon value, invalid beta parameter at index 0"
        ),
        "torch 2.13.0 optim/sgd.py `SGD.__init__`: requires a momentum and zero dampening",
    ),
    check=_check,
)
