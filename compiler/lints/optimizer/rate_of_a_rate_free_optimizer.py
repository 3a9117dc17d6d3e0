"""A small learning rate for an optimizer that finds the rate itself."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import number_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("prodigy", "dadapt", "d-adapt", "d_adapt")
_KEYS: Final = (
    ("simpletuner", "optimizer", "learning_rate"),
    ("axolotl", "optimizer", "learning_rate"),
    ("diffusers", "optimizer", "learning_rate"),
    ("trainer", "optim", "learning_rate"),
    ("deepspeed", "optimizer.type", "optimizer.params.lr"),
)
_DEEPSPEED: Final = ("deepspeed_config", "--deepspeed_config", "DEEPSPEED_CONFIG")
_SMALL: Final = 0.1


def _check(run: Run) -> Iterator[Finding]:
    for kind, optimizer, rate in _KEYS:
        for document in run.of(kind):
            found, at = document.get(optimizer), document.get(rate)
            if kind == "simpletuner" and any(document.get(key) for key in _DEEPSPEED):
                continue  # another optimizer takes its place
            if found is None or at is None or not isinstance(found.value, str):
                continue
            number = number_of(at.value)
            is_free = found.value.lower().startswith(_NAMES)
            if is_free and number is not None and 0 < number < _SMALL:
                yield _finding(found, at, number)


def _finding(optimizer: Place, rate: Place, number: float) -> Finding:
    return Finding(
        f"a rate of {rate.value} for {optimizer.value}, which multiplies the rate that it finds",
        (rate.label("a factor, not a rate"), optimizer.label("", primary=False)),
        (
            (
                f"its steps are {round(1 / number):,} times smaller than those that it estimates: "
                "the loss hardly moves, and nothing reports it"
            ),
        ),
        "write 1.0; its d_coef is there to scale the estimate",
        Fix((rate.replaced(1.0),), "unsafe"),
    )


RULE = Rule(
    name="rate-of-a-rate-free-optimizer",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner", "diffusers"),
    sources=(
        "arXiv 2306.06101 (Prodigy), algorithm 4: the step is lr times the estimate d",
        "konstmish/prodigy README: leave lr at 1; konstmish/prodigy#27",
        "arXiv 2301.07733 (D-Adaptation), section 2: the learning rate of the base method is d",
        (
            "diffusers 0.40.0 examples/dreambooth/train_dreambooth_lora_flux.py `main`: Learning "
            "rate is too low, where it is 0.1 or less with prodigy"
        ),
        (
            "simpletuner 4.10.1 helpers/training/optimizer_param.py `prodigy`: lr 1.0 by default, "
            "and the configured one is passed on"
        ),
    ),
    check=_check,
)
