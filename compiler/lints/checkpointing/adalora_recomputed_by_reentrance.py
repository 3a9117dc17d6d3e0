"""AdaLoRA's own loss under reentrant checkpointing in several processes."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import engine_of
from tunec.compiler.lints.checkpointing.asked import checkpointing_place, reentrant, reentrant_place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    kind = run.said("peft", "peft_type")
    if kind is None or kind.value != "ADALORA" or engine_of(run):
        return
    place, world = reentrant_place(run) or checkpointing_place(run), run.value("parallel.world")
    if place is None or reentrant(run) is not True or world == 1:
        return
    yield Finding(
        "AdaLoRA with reentrant checkpointing in several processes",
        (place.label("reentrant"), kind.label("", primary=False)),
        (
            (
                "AdaLoRA adds a term of its adapters' orthogonality to the loss, outside of the "
                "layers that are recomputed: DDP sees each adapter ready twice"
            ),
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
        ),
        "set use_reentrant to false",
        certain=world is not None,
    )


RULE = Rule(
    name="adalora-recomputed-by-reentrance",
    severity="error",
    consequence="step",
    consumers=("peft",),
    sources=(
        "huggingface/peft#1745: torchrun, use_reentrant true; false trains",
        "peft 0.10.0 to 0.21.2 tuners/adalora/model.py `AdaLoraModel.forward`: orth_reg_weight",
        "torch 2.13.0 csrc/distributed/c10d/reducer.cpp: mark a variable ready only once",
    ),
    check=_check,
)
