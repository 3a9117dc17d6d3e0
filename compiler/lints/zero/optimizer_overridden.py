"""The trainer's optimizer is overridden by an optimizer section in DeepSpeed's file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAME: Final = {
    "adamw_torch": ("adamw", "adam"),
    "adamw_torch_fused": ("adamw", "adam"),
    "adamw_hf": ("adamw", "adam"),
    "lion_32bit": ("lion",),
    "sgd": ("sgd",),
    "adagrad": ("adagrad",),
    "rmsprop": ("rmsprop",),
}


def _check(run: Run) -> Iterator[Finding]:
    section = run.said("deepspeed", "optimizer.type", "optimizer")
    asked = run.said("trainer", "optim")
    if section is None or asked is None or not isinstance(asked.value, str):
        return
    kind = section.value if isinstance(section.value, str) else None
    if kind is not None and kind.lower() in _SAME.get(asked.value, ()):
        return
    yield Finding(
        f"optim {asked.value} is overridden by DeepSpeed's {kind or 'optimizer'}",
        (asked.label("not used"), section.label("used", primary=False)),
        (
            (
                "a section optimizer in DeepSpeed's file always wins, and its states are those of "
                "its type"
            ),
        ),
        "remove the section and add zero_allow_untested_optimizer, or drop optim",
    )


RULE = Rule(
    name="optimizer-overridden",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=("transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`",),
    check=_check,
)
