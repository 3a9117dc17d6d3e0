"""The group `job`: what a cluster is asked for beside its devices, and what must be there."""

from tunec.compiler.ir.slot import slot
from tunec.schemas.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """What a cluster is asked for beside its devices, and what a job brings along."""

    name: str = slot("what the queue calls the run")
    host_memory: int = slot(
        "host RAM asked for on each node: what is needed, and a margin", "bytes"
    )
    duration: int | None = slot(
        "how long the run is expected to take, and a margin; none: not known", "seconds"
    )
    time_limit: int | None = slot("when the cluster ends the run; none: as it does", "seconds")
    torch: str | None = slot(
        "release and build of torch that has kernels for the devices, as pip spells it: "
        "`2.13.0+cu130`; none: not known"
    )
    packages: tuple[str, ...] = slot("what else must be installed, as pip is told")
    image: str | None = slot("container image that the run starts in; none: the target's usual")
    setup: tuple[str, ...] = slot("shell lines on each node before the run starts")
    queue: str | None = slot("which queue takes the job (a partition of Slurm, a queue of Kueue)")
    account: str | None = slot("who the job is charged to (Slurm)")
    qos: str | None = slot("quality of service (Slurm)")
    namespace: str | None = slot("namespace of the job (Kubernetes)")
    volume: str | None = slot("claim of the volume that holds code, data and output (Kubernetes)")
    infra: str | None = slot("where machines are rented: `aws/us-east-1` (SkyPilot)")
    spot: bool = slot("whether machines may be taken away while the run goes on (SkyPilot)")
