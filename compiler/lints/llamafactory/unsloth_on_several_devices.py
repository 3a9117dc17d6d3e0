"""Unsloth is to train on several devices."""

from collections.abc import Iterator

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    world = run.world.value if run.world is not None else None
    if not isinstance(world, int) or world < 2:
        return
    for document in run.of("llamafactory"):
        at = where(document, "use_unsloth=true")
        if at is not None and not document.is_view:
            yield Finding(
                f"use_unsloth with {world} processes",
                (at.label("for one device"),),
                ("Unsloth currently does not support multi GPU setups, its free version says",),
                "write enable_liger_kernel: true in its place, or train on one device",
            )


RULE = Rule(
    name="unsloth-on-several-devices",
    severity="warning",
    consequence="step",
    consumers=("llamafactory",),
    sources=(
        "hiyouga/LlamaFactory#4667, #5635, #6940; unslothai/unsloth#724, #1142: RuntimeError",
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/unsloth.py: FastLanguageModel",
    ),
    check=_check,
)
