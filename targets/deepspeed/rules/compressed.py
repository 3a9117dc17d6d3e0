"""ZeRO++: compressed and hierarchical communication."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import said_in, stage_of, zero_keys
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "hpz-group-uneven",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 utils/groups.py `_create_zero_param_parallel_group`: "
            "_ensure_divisibility(world_size, min(size, world_size))"
        ),
        "arXiv 2306.10209 (ZeRO++), section 3.2: the secondary partition lies within a node",
    ),
    reads=zero_keys("zero_hpz_partition_size"),
    hardware=True,
)
def hpz_group_uneven(run: LintContext) -> Iterator[Finding]:
    """The second partition of ZeRO++ does not fit the devices."""
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
                    ("the second partition exists to keep backward gathers within a node",),
                    f"write {per_node}",
                    Fix((place.replaced(per_node),), "unsafe"),
                    consequence="slow",
                    severity="warning",
                )


def _of_all(place: Place, world: int, others: tuple[Label, ...]) -> Finding:
    return Finding(
        f"zero_hpz_partition_size {place.value} is reduced to {world}, the number of processes",
        (place.label("a group of all processes"), *others),
        ("a second partition over the same processes takes memory but saves no gather",),
        "remove it, or write the number of devices of one node of several",
        consequence="silent",
        severity="warning",
    )


quantised_weights_in_bf16 = rows(
    "quantised-weights-in-bf16",
    "error",
    "step",
    consumers=("deepspeed<0.19",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/zero/partition_parameters.py "
            "`CUDAQuantizer.dequantize`, ops/csrc/quantization/pt_binding.cpp "
            "`dequantize<__half>`: always fp16; in 0.19.8 cast to the parameter's dtype"
        ),
        "deepspeedai/DeepSpeed#4885: float != c10::BFloat16; #3992, #4852, #7775",
    ),
    rows=(
        Row(
            "deepspeed:zero_optimization.zero_quantized_weights"
            "|zero_optimization.zero_quantized_nontrainable_weights=true",
            "{0.key} in a bf16 run",
            label="weights come back in fp16",
            why="expected mat1 and mat2 to have the same dtype",
            help="train in fp16, or remove it",
            effective=("(deepspeed:zero_optimization.stage=3)", "slot:precision.compute=bf16"),
        ),
    ),
)


quantized_gradients_need_scatter = rows(
    "quantized-gradients-need-scatter",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage3.py `__init__`: when enable "
        "all_to_all_reduce, reduce_scatter should also be enabled"
    ),
    rows=(
        Row(
            "deepspeed:zero_optimization.zero_quantized_gradients=true",
            "zero_quantized_gradients needs reduce_scatter, and that is false",
            label="refused",
            help="write reduce_scatter: true",
            mend=Mend("unsafe", write=True, at=1),
            effective=(
                "deepspeed:zero_optimization.reduce_scatter=false",
                "deepspeed:zero_optimization.stage=3",
            ),
        ),
    ),
)
