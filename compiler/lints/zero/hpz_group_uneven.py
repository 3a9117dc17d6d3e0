"""The second partition of ZeRO++ does not fit the devices."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, said_in, stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage, cluster = stage_of(run), run.environment.cluster
    world = run.value("parallel.world")
    for place in said_in(run, ("zero_hpz_partition_size",)):
        size = place.value
        if stage.value != 3 or not isinstance(size, int) or isinstance(size, bool) or size < 2:
            continue
        group = min(size, world) if world else size
        if world and world % group:
            yield Finding(
                f"zero_hpz_partition_size {size} does not divide {world} processes",
                (place.label("refused"), *also(run.place(run.world))),
                ("groups of equal size are made of all processes",),
                "write the number of devices of one node",
            )
        elif world and size > world > 1:
            yield _of_all(place, world, also(run.place(run.world)))
        elif cluster is not None and len(cluster.nodes) == 1 and world and world > group:
            per_node = cluster.nodes[0].device_count
            if group != per_node and world > per_node:
                yield Finding(
                    f"zero_hpz_partition_size {size} on nodes of {per_node} devices",
                    (place.label("a group is not one node"),),
                    ("the second partition is to keep gathers in the backward pass in a node",),
                    f"write {per_node}",
                    Fix((place.replaced(per_node),), "unsafe"),
                    consequence="slow",
                    severity="warning",
                )


def _of_all(place: Place, world: int, others: tuple[Label, ...]) -> Finding:
    return Finding(
        f"zero_hpz_partition_size {place.value} is cut to the {world} processes there are",
        (place.label("a group of all processes"), *others),
        ("a second partition over the same processes takes memory and saves no gather",),
        "remove it, or write the number of devices of one node of several",
        consequence="silent",
        severity="warning",
    )


RULE = Rule(
    name="hpz-group-uneven",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 utils/groups.py `_create_zero_param_parallel_group`: "
            "_ensure_divisibility(world_size, min(size, world_size))"
        ),
        "arXiv 2306.10209 (ZeRO++), section 3.2: the secondary partition lies within a node",
    ),
    check=_check,
)
