"""The widths beside shared sequences do not make up the processes that are started."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.parallel.shared import SECTION, shared_sequences
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    world = run.world
    if world is None or not isinstance(world.value, int):
        return
    for place in shared_sequences(run):
        names = ("dp_replicate_size", "dp_shard_size")
        widths = {name: place.document.value(SECTION + name, 1) for name in names}
        if not all(isinstance(width, int) and width > 0 for width in widths.values()):
            continue
        data = widths["dp_replicate_size"] * widths["dp_shard_size"]
        groups, rest = divmod(world.value, place.value)
        if rest or data == groups:
            continue
        said = run.place(world)
        yield Finding(
            f"{world.value} processes are {groups} groups that share a sequence, and the data "
            f"parallel widths say {data}",
            (
                place.label("ranks of one group"),
                *([said.label("", primary=False)] if said is not None else []),
            ),
            ("accelerate counts the batch by these widths, and DeepSpeed by its groups",),
            f"write parallelism_config_dp_shard_size: {groups}",
            sum=(
                Term("data parallel width by the file", data, "groups"),
                Term("groups of processes", groups, "groups"),
            ),
            severity="warning" if world.rank == Rank.CATALOGUE else None,
        )


RULE = Rule(
    name="sequence-groups-uncounted",
    severity="error",
    consequence="init",
    consumers=("accelerate>=1.12",),
    sources=(
        (
            "accelerate 1.12.0 to 1.15.0 accelerator.py `_prepare_deepspeed`: train_batch_size is "
            "micro batch x accumulation x `ParallelismConfig.data_parallel_size`; "
            "`_validate_accelerator` does not compare where sp_size is above 1"
        ),
        "deepspeed 0.18.9, 0.19.8 runtime/config.py `_batch_assertion`",
    ),
    check=_check,
)
