"""The numbers that a plan expects of a run, and the conditions of a short run before it."""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.memory.margin import WORKSPACE, apart
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Plan
from tunec.schemas.terms import Vendor
from tunec.schemas.units import format_bytes


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


STEPS: Final = 2
"""The number of steps of the short run; it is resumed from the first."""
CLOSE: Final = 0.02
"""Share by which the loss of a resumed step may differ, as the order of sums is not fixed."""


def settings(plan: Plan, output: str | None, name: str) -> tuple[str, ...]:
    """Settings that a short run adds to a spec; `output` is the spec's output directory, if any."""
    evaluates = plan.schedule.evaluation_steps is not None
    return (
        f"name={name}-smoke",
        "watch=true",
        "train.epochs=null",
        f"train.steps={STEPS}",
        "pin.schedule.warmup_steps=0",
        "pin.schedule.log_steps=1",
        "pin.schedule.save_steps=1",
        "pin.schedule.keep_checkpoints=null",
        *([f"pin.schedule.evaluation_steps={STEPS}"] if evaluates else []),
        *([f"train.output={output}-smoke"] if output is not None else []),
    )


def must_show(plan: Plan, expected: Expected) -> Iterator[tuple[str, str]]:
    """Each check by name, with a description of the expected result."""
    yield "steps", f"{STEPS} steps on the longest samples, each with a loss that is a number"
    tensors = format_bytes(expected.allowed)
    yield "memory", f"at most {tensors} of tensors on a device"
    if plan.schedule.evaluation_steps is not None:
        yield "evaluation", f"one evaluation after step {STEPS}"
    yield "save", f"a checkpoint after step {STEPS}"
    yield "resume", f"step {STEPS} once more from the checkpoint of step 1, with the same loss"
