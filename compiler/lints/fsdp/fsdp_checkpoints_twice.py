"""Activations are to be recomputed by the trainer and by FSDP."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked, is_true
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BY_TRAINER: Final = ("gradient_checkpointing", "activation_checkpointing")


def _check(run: Run) -> Iterator[Finding]:
    own = run.said("trainer", *_BY_TRAINER)
    if own is None or own.value is not True or own.document.is_view:
        return
    for each in asked(run):
        place = each.get("activation_checkpointing")
        if each.who != "axolotl" and place is not None and is_true(place):
            yield Finding(
                "activation checkpointing is on in fsdp_config and in the trainer",
                (own.label("refused"), place.label("", primary=False)),
                ("FSDP's own saves a gather of each layer's parameters in the backward pass",),
                "keep the one in fsdp_config",
                Fix((own.removed(),), "safe"),
            )


RULE = Rule(
    name="fsdp-checkpoints-twice",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `create_accelerator_and_postprocess`: "
            "ValueError, The activation_checkpointing in FSDP config and the gradient_checkpointing"
            " in training arg can't be set to True simultaneously"
        ),
        "huggingface/transformers#30404",
    ),
    check=_check,
)
