"""The job section of a spec: where a job queues, and what it starts in."""

from typing import Annotated

from pydantic import Field

from tunec.schemas.shape import Shape
from tunec.schemas.units import Duration

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._,+-]*$", max_length=200)]
"""A name as clusters give them; Slurm takes several partitions with commas between."""
_Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
_Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9/.~_-][A-Za-z0-9/.~_:@#+-]*$", max_length=500)]
_Infra = Annotated[str, Field(pattern=r"^[a-z0-9*-]+(/[A-Za-z0-9*_-]+){0,2}$", max_length=200)]
_Line = Annotated[str, Field(pattern=r"^[^\r\n]+$", max_length=2000)]


class Job(Shape):
    """Settings of the cluster's job; each cluster manager uses those that it supports."""

    queue: Word | None = None
    """Queue that takes the job: a partition of Slurm, a local queue of Kueue on Kubernetes."""
    account: Word | None = None
    """Account that the job is charged to (Slurm)."""
    qos: Word | None = None
    """Quality of service (Slurm)."""
    time: Duration | None = None
    """Time limit of the run: `12h`, `90min`, `2d`; when absent, Slurm gets the expected time with a
    margin, and others get none."""
    image: _Image | None = None
    """Container image that the run starts in: Slurm by pyxis, Kubernetes, SkyPilot by docker; when
    absent, PyTorch's own on Kubernetes, with a build of torch that has the devices' kernels."""
    setup: tuple[_Line, ...] = ()
    """Shell lines on each node before the run starts: `module load cuda`, `. env/bin/activate`."""
    namespace: _Label | None = None
    """Namespace of the job (Kubernetes)."""
    volume: _Label | None = None
    """PersistentVolumeClaim that holds code, data and output (Kubernetes): the run starts in its
    root; where there are several nodes, each of them writes to it."""
    infra: _Infra | None = None
    """Where machines are rented, in SkyPilot's form: `aws`, `gcp/us-central1`, `k8s/my-context`."""
    spot: bool = False
    """Whether machines may be preempted during the run (SkyPilot)."""
