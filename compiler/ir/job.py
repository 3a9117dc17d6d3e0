"""The group `job`: what a cluster is asked for beside its devices, and what must be there."""

from typing import Annotated

from msgspec import Struct


class Job(Struct, frozen=True):
    """What a cluster is asked for beside its devices, and what a job brings along."""

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
