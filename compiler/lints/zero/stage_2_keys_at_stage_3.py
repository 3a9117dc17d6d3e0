"""Keys that only stages 1 and 2 read, at stage 3."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of

_KEYS: Final = (
    "allgather_partitions",
    "allgather_bucket_size",
    "round_robin_gradients",
    "use_multi_rank_bucket_allreduce",
    "ignore_unused_parameters",
    "parameter_alignment",
)


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    said = list(said_in(run, _KEYS))
    if stage.value != 3 or not said:
        return
    names = ", ".join(each.path.rpartition(".")[2] for each in said)
    yield Finding(
        f"{names} does nothing at ZeRO stage 3",
        (
            *(each.key_label("not read", primary=each is said[0]) for each in said),
            *also(stage.place),
        ),
        ("stage 3 gathers parameters one by one: stage3_prefetch_bucket_size says how far ahead",),
        "remove them",
        Fix((said[0].removed(),), "safe") if len(said) == 1 else None,
    )


RULE = Rule(
    name="stage-2-keys-at-stage-3",
    severity="note",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_zero_optimizer`: the branch "
            "of stage 3 passes none of them on"
        ),
    ),
    check=_check,
)
