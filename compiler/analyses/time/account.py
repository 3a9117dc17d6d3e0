"""The time account: where the seconds of an optimizer step go."""

from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.answers import answers
from tunec.compiler.analyses.time.communication import communication
from tunec.compiler.analyses.time.compute import compute, sequences
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.offloading import offloading
from tunec.compiler.analyses.time.tokens import sample_tokens
from tunec.compiler.analyses.time.update import update
from tunec.schemas.frozen import dataclass


@dataclass(frozen=True, slots=True)
class TimeAccount:
    """The time of one optimizer step of one layout, over all its micro batches."""

    terms: dict[str, float]
    """Seconds by name; they run one after the other."""
    samples: int
    """Samples in one step, over all devices."""
    tokens: float
    """Tokens in one step, over all devices."""

    @property
    def step_seconds(self) -> float:
        """Seconds from one optimizer step to the next."""
        return sum(self.terms.values())

    @property
    def samples_per_second(self) -> float:
        """Samples a second, over all devices."""
        return self.samples / self.step_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second, over all devices; of a diffusion model, image and text tokens."""
        return self.tokens / self.step_seconds


def step_time(workload: Workload, layout: Layout, machine: Machine) -> TimeAccount:
    """Account for the time of one optimizer step.

    The constants were fitted to published runs on an A100 (`compute.py`); the account is meant to
    rank layouts of one workload on one machine, and is off by tens of percent between devices.
    Raises `ValueError` where a layout offloads to NVMe and the machine has none.
    """
    micro_batch = compute(workload, layout, machine)
    computed = {name: s * layout.batch.accumulation for name, s in micro_batch.items()}
    exchanged = communication(workload, layout, machine, sum(computed.values()))
    terms = {**computed, **exchanged, **update(workload, layout, machine)}
    if layout.activation_checkpointing.offload:
        terms |= offloading(workload, layout, machine, computed["forward"])
    if workload.preference is not None:
        terms |= answers(workload, layout, machine)
    samples = layout.batch.micro * layout.batch.accumulation * layout.parallel.data
    return TimeAccount(
        terms={name: seconds for name, seconds in terms.items() if seconds},
        samples=samples,
        tokens=samples * sequences(workload) * sample_tokens(workload),
    )
