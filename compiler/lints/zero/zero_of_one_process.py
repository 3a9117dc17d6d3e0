"""ZeRO over one process: there is nobody to shard with, and nothing is offloaded."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage, world = stage_of(run), run.world
    if stage.place is None or stage.value not in (2, 3) or world is None or world.value != 1:
        return
    if run.of("simpletuner"):
        return  # its number of processes may come from its environment
    devices = (
        run.effective("deepspeed", f"zero_optimization.{each}.device").value
        for each in ("offload_optimizer", "offload_param")
    )
    cluster = run.environment.cluster
    is_said = world.rank in (Rank.OBSERVED, Rank.PIN) or (
        cluster is not None and cluster.device_count == 1
    )
    if any(each not in (None, "none") for each in devices) or not is_said:
        return
    yield Finding(
        f"ZeRO stage {stage.value} with one process shards nothing",
        (stage.place.label("no memory is saved"), *also(run.place(world))),
        (
            "states, gradients and parameters are divided by the number of processes, which is 1",
            "buckets and gathers cost time and memory all the same",
        ),
        "offload the optimizer, start a process for each device, or leave DeepSpeed out",
    )


RULE = Rule(
    name="zero-of-one-process",
    severity="warning",
    consequence="slow",
    consumers=("deepspeed",),
    sources=(
        "arXiv 1910.02054 (ZeRO), section 5: memory by the degree of data parallelism N_d",
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py: "
            "partition_size = len(flat) / dist.get_world_size(group)"
        ),
    ),
    check=_check,
)
