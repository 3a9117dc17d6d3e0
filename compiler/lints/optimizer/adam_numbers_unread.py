"""Numbers of Adam beside an optimizer that is none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BETAS: Final = ("adam_beta1", "adam_beta2")
_EVERY: Final = (*_BETAS, "adam_epsilon")
_NONE: Final = frozenset(
    {
        *("adafactor", "sgd", "adagrad", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit"),
        *("rmsprop_bnb_32bit", "galore_adafactor", "galore_adafactor_layerwise", "lomo", "adalomo"),
        "schedule_free_sgd",
    }
)
"""Optimizers that are given none of the three."""
_LION: Final = frozenset({"lion_8bit", "lion_32bit", "paged_lion_8bit", "paged_lion_32bit"})
"""Optimizers that are given the betas alone."""


def _check(run: Run) -> Iterator[Finding]:
    if run.said("deepspeed", "optimizer.type") is not None:
        return  # that one is used
    for document in run.of("trainer"):
        optim = document.get("optim")
        if optim is None or not isinstance(optim.value, str):
            continue
        lost = _EVERY if optim.word in _NONE else _EVERY[2:] if optim.word in _LION else ()
        for key in lost:
            at = document.get(key)
            if at is not None and at.value is not None:
                yield Finding(
                    f"{at.path} does nothing: {optim.value} is not given it",
                    (at.label("not read"), optim.label("", primary=False)),
                    (),
                    "remove it",
                    None if document.is_view else Fix((at.removed(),), "safe"),
                )


RULE = Rule(
    name="adam-numbers-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, 5.6.2 to "
            "5.23.0 trainer_optimizer.py `_get_adafactor`, `_get_sgd`, `_get_adagrad`, "
            "`_get_rmsprop`, `_get_lomo_optimizer`: adam_kwargs are passed on for the others; "
            "`_get_bitsandbytes_optimizer`: betas alone for lion"
        ),
        "axolotl 0.19.0 utils/schemas/validation.py `check_adamw_optimizer_params`",
    ),
    check=_check,
)
