"""Settings of the data loader."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import batch_of, count, launches, per_node
from tunec.compiler.lints.facts.training_loop import is_whole, trainer_batch
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=("llamafactory:max_samples", "hf:max_train_samples"),
)
def fewer_samples_than_a_batch(run: LintContext) -> Iterator[Finding]:
    """The data has fewer samples than one step takes."""
    limit, batch, world = _most(run), trainer_batch(run), run.data_parallel
    if limit is None or batch is None or world is None:
        return
    place, samples = limit
    micro, steps = (each.value for each in batch)
    drop = run.effective("trainer", "dataloader_drop_last")
    if drop.value is True and samples < micro * world:
        yield _fewer_finding(place, samples, (micro, 1, world), drop.place)
    elif samples < micro * steps * world:
        yield _fewer_finding(place, samples, (micro, steps, world), None)


def _most(run: LintContext) -> tuple[Place, int] | None:
    """The largest possible number of samples: a limit per data set, or for all of them."""
    place = run.said("llamafactory", "max_samples") or run.said("hf", "max_train_samples")
    if place is None or not is_whole(place.value) or place.value < 1:
        return None
    names = run.said("llamafactory", "dataset")
    if place.path == "max_samples":
        sets = _count(None if names is None else names.value)
        return (place, place.value * sets) if sets else None
    return place, place.value


def _count(names: object) -> int:
    if isinstance(names, str):
        return len(names.split(","))
    return len(names) if isinstance(names, list) else 0


def _fewer_finding(
    place: Place, samples: int, factors: tuple[int, int, int], drop: Place | None
) -> Finding:
    micro, steps, world = factors
    product = micro * steps * world
    return Finding(
        f"the data has {samples} samples, and one {'batch' if drop else 'step'} takes {product}",
        (place.label("at most"), *also(drop, "drops a batch that is not full")),
        (
            "the loader drops the only batch, which is not full, and no step is left"
            if drop
            else "an epoch is one step, on fewer samples than the batch says",
        ),
        "use more samples, or a smaller batch",
        sum=(
            Term("micro batch", micro, "samples"),
            Term("accumulation", steps, "micro batches"),
            Term("data parallel", world, "processes"),
        ),
        severity=None if drop else "warning",
        consequence=None if drop else "silent",
    )


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", "group_by_length", "train_sampling_strategy"),
)
def grouping_ignored(run: LintContext) -> Iterator[Finding]:
    """Samples are to be grouped by length, but the setting has no effect."""
    group = _asked(run)
    if group is None:
        return
    streams = _true(run, "streaming", "dataset_streaming")
    packs = _true(run, "packing", "neat_packing", "sample_packing")
    other = streams or packs
    if other is None:
        return
    why = (
        "a stream has no length to sort by: its samples come as they stand"
        if streams
        else "packed sequences are all as long as the limit"
    )
    is_refused = _is_refused(run, group, streams)
    yield Finding(
        f"grouping by length does nothing beside {other.path}",
        (group.label("does nothing"), other.label("", primary=False)),
        (why,),
        f"remove {group.path}",
        severity=None if is_refused and run.runs(_OLD) else "warning" if streams else "note",
        consequence="init" if is_refused else None,
    )


_OLD: Final = "transformers<5"


def _is_refused(run: LintContext, group: Place, streams: Place | None) -> bool:
    """Whether transformers 4 fails on its own key beside a stream; later ones have another key."""
    is_old = streams is not None and group.path == "group_by_length"
    return is_old and run.runs(_OLD) is not False


def _asked(run: LintContext) -> Place | None:
    group = run.said("trainer", "group_by_length")
    if group is not None and group.value is True:
        return group
    sampling = run.said("trainer", "train_sampling_strategy")
    return sampling if sampling is not None and sampling.value == "group_by_length" else None


def _true(run: LintContext, *keys: str) -> Place | None:
    found = (run.said(kind, key) for key in keys for kind in ("trainer", "axolotl"))
    return next((each for each in found if each is not None and each.value is True), None)


@rule(
    "warning",
    "slow",
    consumers=("transformers",),
    reads=keys("trainer|axolotl", "dataloader_num_workers"),
    hardware=True,
)
def more_workers_than_cores(run: LintContext) -> Iterator[Finding]:
    """More processes load and train than the node, or the job's request, has cores for."""
    cluster = run.environment.cluster
    workers = run.said("trainer", "dataloader_num_workers") or run.said(
        "axolotl", "dataloader_num_workers"
    )
    if workers is None or not is_whole(workers.value):
        return
    yield from _of_job(run, workers)
    if cluster is None:
        return
    world = run.value("parallel.world") or cluster.device_count
    nodes = sum(node.count for node in cluster.nodes)
    each = min(-(-world // nodes), max(node.device_count for node in cluster.nodes))
    total = each * (workers.value + 1)
    # two threads a core is what processors offer
    if workers.value < 1 or run.environment.has_cores(-(-total // 2)):
        return
    cores = min(host.cores for host in run.environment.hosts)
    yield Finding(
        f"{total} processes load and train on a node of {cores} cores",
        (workers.label("in each training process"),),
        ("they take turns, and each holds a copy of the data set's index",),
        f"write at most {max(2 * cores // each - 1, 0)}",
        sum=(
            Term("training processes of a node", each, "processes"),
            Term("loaders of each", workers.value, "processes"),
            Term("cores of a node", cores, "cores"),
        ),
    )


_CORES: Final = ("cpus_per_task", "cpus_per_gpu", "exclusive", "mincpus", "cores_per_socket")
"""Ways to request cores from Slurm."""


def _unasked(
    workers: Place, started: tuple[int, Place] | None, batch: Document
) -> Iterator[Finding]:
    """Report a job with one task and no request for cores, so with one core.

    The cluster may give more.
    """
    task = batch.get("ntasks_per_node") or batch.get("ntasks")
    if task is None or count(task) != 1 or started is None or workers.value < 2:
        return
    total = started[0] * (workers.value + 1)
    yield Finding(
        f"{total} processes load and train on one core: the job requests no more",
        (workers.label("in each training process"), task.label("1 core a task", primary=False)),
        (
            "--cpus-per-task is 1 where it is left out",
            "a cluster may give cores with each device of its own accord (DefCpuPerGPU)",
        ),
        f"ask for them: --cpus-per-task={total}",
        severity="note",
    )


def _of_job(run: LintContext, workers: Place) -> Iterator[Finding]:
    """The cores that a job requests from Slurm, with one task per node."""
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        batch, started = batch_of(run, document), per_node(document)
        asked = batch.get("cpus_per_task") if batch is not None else None
        tasks = count(batch.get("ntasks_per_node")) if batch is not None else None
        if batch is not None and asked is None and not any(map(batch.get, _CORES)):
            yield from _unasked(workers, started, batch)
        cores = count(asked)
        if asked is None or cores is None or started is None or (tasks or 1) > 1:
            continue
        total = started[0] * (workers.value + 1)
        if workers.value > 0 and total > cores:  # most of the loaders wait for files
            yield Finding(
                f"{total} processes load and train on the {cores} cores of the job",
                (
                    workers.label("in each training process"),
                    asked.label(f"{cores} cores", primary=False),
                ),
                ("Slurm keeps them to the cores that were requested",),
                f"request {total} cores, or write fewer loaders",
                sum=(
                    Term("training processes of a node", started[0], "processes"),
                    Term("loaders of each", workers.value, "processes"),
                    Term("cores of the job on a node", cores, "cores"),
                ),
                severity="note" if total <= 2 * cores else None,
            )


workers_missing = rows(
    "workers-missing",
    "error",
    "init",
    consumers=("transformers",),
    rows=(
        Row(
            "trainer:dataloader_persistent_workers=true",
            "`{0.path}` is {0.value}, and dataloader_num_workers is 0",
            label="refused",
            why="persistent_workers option needs num_workers > 0",
            help="write dataloader_num_workers, or remove it",
            mend=Mend("safe", remove=True),
            effective=("trainer:dataloader_num_workers=0",),
        ),
        Row(
            "trainer:dataloader_prefetch_factor!=null",
            "`{0.path}` is {0.value}, and dataloader_num_workers is 0",
            label="refused",
            why="it can only be set when data is loaded in another process",
            help="write dataloader_num_workers, or remove it",
            mend=Mend("safe", remove=True),
            effective=("trainer:dataloader_num_workers=0",),
            consequence="parse",
        ),
    ),
)
