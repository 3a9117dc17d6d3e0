"""Activations are to be offloaded by an FSDP that cannot."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import asked, is_true
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEY: Final = "activation_checkpointing_offload"


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        place = each.get(_KEY)
        if each.who != "accelerate" or not is_true(place) or place is None:
            continue
        why = None
        if not is_true(each.get("activation_checkpointing")):
            why = "fsdp_activation_checkpointing: true"
        elif each.version != 2:
            why = "fsdp_version: 2"
        if why is not None:
            yield Finding(
                f"fsdp_{_KEY} needs {why}",
                (place.label("refused"), each.on.label("", primary=False)),
                ("what is offloaded is the input of each checkpointed layer",),
                f"write {why}",
            )


RULE = Rule(
    name="fsdp-activation-offload-refused",
    severity="error",
    consequence="init",
    consumers=("accelerate>=1.15",),
    sources=(
        (
            "accelerate 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin.__post_init__`:"
            " ValueError, `activation_checkpointing_offload=True` requires ..."
        ),
    ),
    check=_check,
)
