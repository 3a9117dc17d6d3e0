"""Rules about rare blocks: hierarchical partitioning, autotuning, activation checkpointing."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.sharding import said_in, stage_of, zero_keys
from tunec.compiler.lints.facts.training_loop import recomputes
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=zero_keys("zero_hpz_partition_size"),
    hardware=True,
)
def hpz_group_uneven(run: LintContext) -> Iterator[Finding]:
    """The secondary partition of ZeRO++ does not fit the number of processes or the nodes."""
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
                    f"zero_hpz_partition_size {size} does not match nodes of {per_node} devices",
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


@rule("warning", "step", consumers=("deepspeed",), reads=("deepspeed:autotuning.enabled",))
def autotuning_left_on(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's autotuning is on in the file of a training run."""
    if any(each.get("flags.autotuning") is not None for each in launches(run)):
        return
    for place in run.each("deepspeed", "autotuning.enabled"):
        last = run.said("deepspeed", "autotuning.end_profile_step")
        step = last.value if last is not None and type(last.value) is int else 5
        if place.value is True:
            yield Finding(
                f"autotuning ends the run after step {step + 1}",
                (place.label("ends the run"), *also(last)),
                ("the engine measures steps, writes autotuning_metric.json, and calls exit()",),
                "write false, or remove the block, in a run that trains",
                Fix((place.replaced(False),), "unsafe"),
            )


flops_profiler_left_on = rows(
    "flops-profiler-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    rows=(
        Row(
            "deepspeed:flops_profiler.enabled=true",
            "the FLOPS profiler is on: step {1.value} runs under its hooks",
            label="profiles one step",
            why="its hooks replace torch's functions in that step, and its report goes to the log",
            help="turn it off in a run that trains",
            mend=Mend("unsafe", write=False),
            effective=("(deepspeed:flops_profiler.profile_step?)",),
        ),
    ),
)


timers_left_on = rows(
    "timers-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    rows=(
        *(
            Row(
                f"deepspeed:{key}=true",
                f"{key} is on",
                label="measures every step",
                why=what,
                help="turn it off once the numbers are taken",
                mend=Mend("unsafe", write=False),
            )
            for key, what in (
                (
                    "wall_clock_breakdown",
                    "each phase of each micro batch waits for the device and is timed",
                ),
                ("comms_logger.enabled", "each collective waits for the device and is timed"),
                ("memory_breakdown", "allocator statistics are read in every step"),
                ("dump_state", "the state of the engine is printed"),
            )
        ),
    ),
)


_BLOCK = "activation_checkpointing"


@rule(
    "error",
    "init",
    consumers=("deepspeed",),
    reads=(f"deepspeed:{_BLOCK}.contiguous_memory_optimization",),
)
def contiguous_without_partition(run: LintContext) -> Iterator[Finding]:
    """Contiguous activation checkpoints are on, but not partitioned, or not counted."""
    if run.deepspeed_reader == "trainer" or run.own.lacks("checkpointing.configure"):
        return  # nothing reads the block unless a script asks
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
            f"contiguous_memory_optimization needs {missing}",
            (place.label(f"needs {missing}"), *also(other)),
            ("deepspeed.checkpointing.configure asserts it",),
            f"set {missing}, or leave contiguous_memory_optimization out",
            # Megatron-DeepSpeed counts the layers itself, and passes them to `configure`
            severity="warning" if missing == "number_checkpoints" else None,
        )


_KEYS = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=keys("deepspeed", *(f"{_BLOCK}.{key}" for key in _KEYS)),
)
def deepspeed_checkpointing_ignored(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's activation checkpointing is configured, but the HF Trainer never calls it."""
    if run.deepspeed_reader != "trainer" or not run.of("trainer", "axolotl"):
        return
    for document in run.of("deepspeed"):
        paths = [f"activation_checkpointing.{key}" for key in _KEYS]
        said = [each for path in paths if (each := document.get(path)) and each.value is True]
        if not said:
            continue
        names = ", ".join(each.path.rpartition(".")[2] for each in said)
        yield Finding(
            f"{names} does nothing under the Trainer",
            tuple(each.label("not called", primary=at == 0) for at, each in enumerate(said)),
            (
                (
                    "the block configures deepspeed.checkpointing, which a model has to call "
                    "itself; models of transformers call torch's checkpoint"
                ),
                *(() if recomputes(run) else ("nothing in this run is recomputed",)),
            ),
            "remove the block" + ("" if recomputes(run) else ", and set gradient_checkpointing"),
        )
