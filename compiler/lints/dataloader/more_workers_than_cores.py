"""More loader processes than the node has cores for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import batch_of, count, launches, per_node
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
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
"""Ways to ask Slurm for cores."""


def _unasked(
    workers: Place, started: tuple[int, Place] | None, batch: Document
) -> Iterator[Finding]:
    """A job that asks for one task and no cores has one, unless the cluster gives more."""
    task = batch.get("ntasks_per_node") or batch.get("ntasks")
    if task is None or count(task) != 1 or started is None or workers.value < 2:
        return
    total = started[0] * (workers.value + 1)
    yield Finding(
        f"{total} processes load and train on one core: the job asks for no more",
        (workers.label("in each training process"), task.label("1 core a task", primary=False)),
        (
            "--cpus-per-task is 1 where it is left out",
            "a cluster may give cores with each device of its own accord (DefCpuPerGPU)",
        ),
        f"ask for them: --cpus-per-task={total}",
    )


def _of_job(run: Run, workers: Place) -> Iterator[Finding]:
    """The cores that a job asks Slurm for, with one task a node."""
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
        if workers.value > 0 and total > cores:
            yield Finding(
                f"{total} processes load and train on the {cores} cores of the job",
                (
                    workers.label("in each training process"),
                    asked.label(f"{cores} cores", primary=False),
                ),
                ("Slurm keeps them to the cores that were asked for",),
                f"ask for {total} cores, or write fewer loaders",
                sum=(
                    Term("training processes of a node", started[0], "processes"),
                    Term("loaders of each", workers.value, "processes"),
                    Term("cores of the job on a node", cores, "cores"),
                ),
            )


RULE = Rule(
    name="more-workers-than-cores",
    severity="warning",
    consequence="slow",
    consumers=("transformers",),
    sources=(
        (
            "torch 2.13.0 utils/data/dataloader.py `check_worker_number_rationality`: this "
            "DataLoader "
            "will create N worker processes in total, the suggested max number is the cores'"
        ),
        "Slurm 24.05 sbatch manual page: --cpus-per-task; slurm.conf manual page: DefCpuPerGPU",
    ),
    check=_check,
)
