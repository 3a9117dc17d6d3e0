"""The slots of the training loop and of the job: the length of the run and its surroundings."""

from typing import Annotated

from msgspec import Struct

from tunec.schemas.terms import ScheduleKind


class Schedule(Struct, frozen=True):
    """How long training lasts and how the learning rate changes."""

    kind: Annotated[ScheduleKind, "shape of the learning rate over time"]
    arguments: Annotated[
        tuple[tuple[str, int | float | str], ...],
        "further arguments of the shape, by transformers' names",
    ]
    epochs: Annotated[
        float | None, "passes over the data; none: the length is given in steps", "epochs"
    ]
    steps: Annotated[
        int | None,
        "optimizer steps, given or counted as the trainer does; none: not known exactly",
        "steps",
    ]
    estimated_steps: Annotated[
        int | None,
        "estimated optimizer steps; none: the exact number is known, or no estimate is possible",
        "steps",
    ]
    warmup_share: Annotated[
        float | None, "share of all steps in which the learning rate rises; none: given in steps"
    ]
    warmup_steps: Annotated[
        int | None, "steps of rising learning rate; none: a share of an unknown number", "steps"
    ]
    log_steps: Annotated[int, "steps between log lines", "steps"]
    save_steps: Annotated[int | None, "steps between checkpoints; none: after each epoch", "steps"]
    keep_checkpoints: Annotated[int | None, "checkpoints kept; none: all"]
    evaluation_steps: Annotated[int | None, "steps between evaluations; none: never", "steps"]


class Runtime(Struct, frozen=True):
    """What surrounds the training loop."""

    seed: Annotated[int, "seed of data order and initialisation"]
    output: Annotated[str, "directory for checkpoints and logs"]
    dataloader_workers: Annotated[int, "data loading processes of each rank", "processes"]
    dataloader_pin_memory: Annotated[bool, "whether batches are page-locked before the copy"]
    report_to: Annotated[tuple[str, ...], "trackers; empty: none"]
    neftune_alpha: Annotated[
        float | None,
        "noise added to the embeddings in training (arXiv 2310.05914), before it is scaled by "
        "1/sqrt(tokens x width); none: no noise",
    ]
    extra: Annotated[
        tuple[str, ...],
        "keys of targets that no other slot covers, such as `trl.dataset_num_proc=8`",
    ]


class Job(Struct, frozen=True):
    """What a job requests from the cluster beside its devices, and what it brings along."""

    name: Annotated[str, "name of the run in the queue"]
    host_memory: Annotated[
        int, "host RAM requested on each node: what is needed, plus a margin", "bytes"
    ]
    duration: Annotated[
        int | None, "how long the run is expected to take, plus a margin; none: unknown", "seconds"
    ]
    time_limit: Annotated[
        int | None, "time limit of the run; none: the cluster's default", "seconds"
    ]
    torch: Annotated[
        str | None,
        "release and build of torch that has kernels for the devices, as pip spells it: "
        "`2.13.0+cu130`; none: not known",
    ]
    packages: Annotated[tuple[str, ...], "other packages to install, as pip requirements"]
    image: Annotated[str | None, "container image that the run starts in; none: the target's usual"]
    setup: Annotated[tuple[str, ...], "shell lines on each node before the run starts"]
    queue: Annotated[str | None, "queue of the job (a Slurm partition, a Kueue queue)"]
    account: Annotated[str | None, "account that the job is charged to (Slurm)"]
    qos: Annotated[str | None, "quality of service (Slurm)"]
    namespace: Annotated[str | None, "namespace of the job (Kubernetes)"]
    volume: Annotated[
        str | None, "claim of the volume that holds code, data and output (Kubernetes)"
    ]
    infra: Annotated[str | None, "where machines are rented, such as `aws/us-east-1` (SkyPilot)"]
    spot: Annotated[bool, "whether the machines may be preempted (SkyPilot)"]
