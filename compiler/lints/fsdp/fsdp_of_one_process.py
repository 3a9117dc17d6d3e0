"""FSDP is asked for, and one process is started."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or world.value != 1:
        return
    place = run.place(world)
    for each in asked(run):
        if each.who == "accelerate" and place is not None and place.document is each.document:
            yield Finding(
                "distributed_type FSDP with one process",
                (each.on.label("not used"), place.label("", primary=False)),
                ("accelerate takes one process for no distributed run: nothing is sharded",),
                "start one process a device, or leave FSDP out",
                severity="warning",
                consequence="silent",
            )
        if each.who == "trainer":
            yield Finding(
                "fsdp with one process",
                (
                    each.on.label("refused"),
                    *([place.label("", primary=False)] if place is not None else []),
                ),
                ("there is nobody to shard with",),
                "start one process a device by torchrun or accelerate launch, or remove fsdp",
            )


RULE = Rule(
    name="fsdp-of-one-process",
    severity="error",
    consequence="init",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `__init__`: ValueError, Using fsdp only works"
            " in distributed training"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 state.py `AcceleratorState.__init__`: DistributedType.FSDP"
            " only where the process state is MULTI_GPU or its like"
        ),
    ),
    check=_check,
)
