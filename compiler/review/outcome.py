"""The outcome of one spec on one cluster as plain data, which fleet, diff and report show."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from tunec.compiler.analyses.time.account import doubt
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Ledger
from tunec.compiler.ir.plan import Plan
from tunec.schemas.hardware.profile import Cluster


class Pair(NamedTuple):
    """A spec and the hardware it is planned for."""

    spec: str
    cluster: str

    def __str__(self) -> str:
        """The pair in words: `invoices on a100-80g-x8`."""
        return f"{self.spec} on {self.cluster}"


class Traits(Struct, frozen=True):
    """The traits that distinguish clusters when many of them are listed together."""

    devices: str
    """Names of the device models, joined."""
    memory: int
    """Memory of the smallest device, in bytes, as the driver reports it."""
    capability: str | None
    """Compute capability of the oldest device, such as `7.0`; None for vendors other than
    NVIDIA."""
    nodes: int
    per_node: int
    """The number of devices of the smallest node."""


class Needs(Struct, frozen=True):
    """Memory and speed of a plan."""

    required: int
    """Bytes needed on each device, margin included."""
    budget: int
    """Bytes of each device that the run may use."""
    host_required: int
    """Bytes needed in the host memory of each node."""
    host_budget: int | None
    step_seconds: float
    tokens_per_second: float
    samples_per_second: float
    run_cost: float | None
    """Dollars of the whole run; None if its price or its length is unknown."""
    encoding: float = 0.0
    """Seconds of encoding all samples before training, if their number is known."""

    @property
    def headroom(self) -> int:
        """Bytes of a device's budget that stay free."""
        return self.budget - self.required


class Outcome(Struct, frozen=True):
    """The outcome of one pair."""

    pair: Pair
    traits: Traits | None
    values: Mapping[str, Any] = field(default_factory=dict)
    """The value of each slot; empty if there is no plan."""
    ledger: Ledger = field(default_factory=Ledger)
    """The definitions behind the values; only read for explanations."""
    needs: Needs | None = None
    faults: tuple[Diagnostic, ...] = ()
    """The errors; empty if there is a plan."""

    @property
    def fits(self) -> bool:
        """Whether there is a plan."""
        return self.needs is not None

    def reason(self, slot: str) -> str:
        """Why a slot has its value; empty if there is no plan."""
        winner = self.ledger.winner(slot)
        return winner.reason if winner else ""

    def follows_from(self, slot: str) -> tuple[str, ...]:
        """The slots from which a slot follows; empty if the slot also rests on anything else."""
        winner = self.ledger.winner(slot)
        if winner is None or any(origin.kind != "slot" for origin in winner.rests):
            return ()
        return tuple(origin.path for origin in winner.rests)


def outcome_of(planned: Planned, pair: Pair) -> Outcome:
    """Reduce a planned spec to the data that is compared, listed and stored."""
    faults = tuple(each for each in planned.diagnostics if each.severity == "error")
    traits = traits_of(planned.facts) if planned.facts else None
    if planned.plan is None or planned.facts is None or faults:
        return Outcome(pair, traits, faults=faults)
    return Outcome(pair, traits, planned.plan.values(), planned.ledger, needs_of(planned))


def traits_of(facts: Facts) -> Traits:
    """The traits that distinguish the cluster of a spec."""
    used = [facts.devices[name] for name in sorted(facts.devices)]
    groups = [group for node in facts.cluster.nodes for group in node.accelerators]
    sizes = [group.memory or facts.devices[group.device].memory for group in groups]
    capabilities = [device.compute_capability for device in used if device.compute_capability]
    oldest = min(capabilities, default=None)
    return Traits(
        devices=", ".join(dict.fromkeys(device.name for device in used)),
        memory=min(sizes),
        capability="{}.{}".format(*oldest) if oldest else None,
        nodes=facts.cluster.node_count,
        per_node=min(node.device_count for node in facts.cluster.nodes),
    )


def needs_of(planned: Planned) -> Needs | None:
    """Memory and speed of a planned spec; None if there is no plan."""
    plan, memory, time = planned.plan, planned.memory, planned.time
    if plan is None or memory is None or time is None or planned.facts is None:
        return None
    return Needs(
        required=memory.required_bytes,
        budget=plan.devices.budget,
        host_required=memory.host.peak_bytes,
        host_budget=plan.devices.host_budget,
        step_seconds=time.step_seconds,
        tokens_per_second=time.tokens_per_second,
        samples_per_second=time.samples_per_second,
        run_cost=_cost(planned.facts.cluster, expected_steps(plan), time.step_seconds),
        encoding=time.encoding * (plan.data.samples or 0),
    )


def doubt_of(planned: Planned) -> str | None:
    """Why the forecast of a planned spec may be far further off than usual, if that is known."""
    if planned.plan is None or planned.facts is None:
        return None
    vendors = {device.vendor for device in planned.facts.devices.values()}
    return doubt(planned.plan.quantization.format, vendors)


def is_at_most(planned: Planned) -> bool:
    """Whether the forecast takes each sample to be as long as `data.sequence`."""
    if planned.plan is None or planned.facts is None or planned.plan.model.kind == "diffusion":
        return False
    return planned.facts.lengths is None and not planned.plan.data.packing


def expected_steps(plan: Plan) -> int | None:
    """Optimizer steps, exact or estimated; None if neither is known."""
    return plan.schedule.steps or plan.schedule.estimated_steps


def _cost(cluster: Cluster, steps: int | None, step_seconds: float) -> float | None:
    if cluster.price_per_hour is None or steps is None:
        return None
    return cluster.price_per_hour * steps * step_seconds / 3600
