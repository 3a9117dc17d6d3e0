"""Contiguous activation checkpoints that are not partitioned, or not counted."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCK = "activation_checkpointing"


def _check(run: Run) -> Iterator[Finding]:
    if run.deepspeed_reader == "trainer":
        return
    for document in run.of("deepspeed"):
        place = document.get(f"{_BLOCK}.contiguous_memory_optimization")
        if place is None or place.value is not True:
            continue
        partitioned = document.get(f"{_BLOCK}.partition_activations")
        counted = document.get(f"{_BLOCK}.number_checkpoints")
        if partitioned is None or partitioned.value is not True:
            missing, other = "partition_activations", partitioned
        elif counted is None or counted.value is None:
            missing, other = "number_checkpoints", counted
        else:
            continue
        yield Finding(
            f"contiguous_memory_optimization without {missing}",
            (
                place.label(f"needs {missing}"),
                *([other.label("", primary=False)] if other else []),
            ),
            ("deepspeed.checkpointing.configure asserts it",),
            f"set {missing}, or leave contiguous_memory_optimization out",
            # Megatron-DeepSpeed counts the layers itself, and passes them to `configure`
            severity="warning" if missing == "number_checkpoints" else None,
        )


RULE = Rule(
    name="contiguous-without-partition",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/activation_checkpointing/checkpointing.py "
            "`configure`: Contiguous Checkpointing is only available with partitioned activations; "
            "Must specify the number of layers"
        ),
    ),
    check=_check,
)
