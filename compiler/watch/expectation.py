"""The numbers that a plan expects of a run, for comparison with what the run shows."""

from collections.abc import Mapping

from msgspec import Struct

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.memory.margin import WORKSPACE, apart
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.facts import Facts
from tunec.schemas.terms import Vendor


class Expected(Struct, frozen=True):
    """A plan's accounts, without the results of other runs on the cluster."""

    name: str
    """The spec's name."""
    cluster: str
    vendor: Vendor
    """The vendor of the devices."""
    devices: int
    """The number of ranks."""
    samples: int
    """Samples of one optimizer step, over all devices."""
    seconds: Mapping[str, float]
    """Seconds of one optimizer step, by term."""
    tensors: int
    """Bytes of tensors at the peak."""
    allowed: int
    """Bytes that torch's allocator may use: the tensors and their slack."""
    required: int
    """Bytes needed on each device, including everything outside the allocator."""
    versions: Mapping[str, str]
    """The versions of packages that the plan is for."""

    @property
    def step_seconds(self) -> float:
        """Seconds of one optimizer step."""
        return sum(self.seconds.values())


def expected(facts: Facts, memory: Account, time: TimeAccount) -> Expected:
    """The numbers that a plan expects of a run."""
    beside = sum(memory.apart.values()) - WORKSPACE
    return Expected(
        name=facts.spec.name,
        cluster=facts.cluster.name,
        vendor=memory.vendor,
        devices=memory.layout.parallel.world,
        samples=time.samples,
        seconds={name: value for name, value in (time.accounted or time.terms).items() if value},
        tensors=memory.peak_bytes,
        allowed=memory.required_bytes - beside,
        required=memory.required_bytes,
        versions=dict(facts.versions),
    )


def assumed(vendor: Vendor = "nvidia") -> dict[str, int]:
    """Bytes outside torch's allocator that plans assume, for "one" rank and for "several"."""
    worlds = {"one": 1, "several": 2}
    return {
        ranks: sum(apart(world, vendor).values()) - WORKSPACE for ranks, world in worlds.items()
    }
