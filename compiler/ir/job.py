"""The group `job`: what a cluster is asked for beside its devices, and what must be there."""

from tunec.compiler.ir.slot import slot
from tunec.schemas.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """What a cluster is asked for beside its devices, and what a job brings along."""

    name: str = slot("name of the run in the queue")
    host_memory: int = slot(
        "host RAM requested on each node: what is needed, plus a margin", "bytes"
    )
    duration: int | None = slot(
        "how long the run is expected to take, plus a margin; none: unknown", "seconds"
    )
    time_limit: int | None = slot("time limit of the run; none: the cluster's default", "seconds")
    torch: str | None = slot(
        "release and build of torch that has kernels for the devices, as pip spells it: "
        "`2.13.0+cu130`; none: not known"
    )
    packages: tuple[str, ...] = slot("other packages to install, as pip requirements")
    image: str | None = slot("container image that the run starts in; none: the target's usual")
    setup: tuple[str, ...] = slot("shell lines on each node before the run starts")
    queue: str | None = slot("queue of the job (a Slurm partition, a Kueue queue)")
    account: str | None = slot("account that the job is charged to (Slurm)")
    qos: str | None = slot("quality of service (Slurm)")
    namespace: str | None = slot("namespace of the job (Kubernetes)")
    volume: str | None = slot("claim of the volume that holds code, data and output (Kubernetes)")
    infra: str | None = slot("where machines are rented, such as `aws/us-east-1` (SkyPilot)")
    spot: bool = slot("whether the machines may be preempted (SkyPilot)")
