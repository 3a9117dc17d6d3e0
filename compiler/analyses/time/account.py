"""The time account: where the seconds of a step go, and how long a whole run takes."""

from collections.abc import Collection
from math import hypot, sqrt
from typing import Final, NamedTuple

from msgspec import Struct, field

from tunec.compiler.analyses.memory.modules import FOUR_BIT
from tunec.compiler.analyses.memory.terms.critic import PREFIX, of_critic
from tunec.compiler.analyses.memory.terms.generation import cache_bytes
from tunec.compiler.analyses.memory.terms.host import moved_activations
from tunec.compiler.analyses.memory.workload import Layout, Workload, pixels_of
from tunec.compiler.analyses.padding import padded_length, uneven_share
from tunec.compiler.analyses.time.accuracy import HALF, LATE, MOST, RUNS
from tunec.compiler.analyses.time.coefficients import FITTED, Constants
from tunec.compiler.analyses.time.communication import Volume, communication, volume_of
from tunec.compiler.analyses.time.compute import Work, compute, product_rate, sequences, work_of
from tunec.compiler.analyses.time.encoders import encoding
from tunec.compiler.analyses.time.flops import operations, sample_tokens
from tunec.compiler.analyses.time.kernels import forward_kernels
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.pace import scaled
from tunec.compiler.analyses.time.update import REACHED, UpdateTraffic, held_bytes, moved_of, update
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import QuantFormat


class TimeAccount(Struct, frozen=True):
    """The time of one optimizer step of one layout, over all its micro batches."""

    terms: dict[str, float]
    """Seconds by name; the terms run one after another."""
    samples: int
    """Samples in one step, over all devices."""
    tokens: float
    """Tokens in one step, over all devices."""
    accounted: dict[str, float] = field(default_factory=dict)
    """The terms without the factors from measured runs on the cluster; empty if there are no such
    runs."""
    encoding: float = 0.0
    """Seconds in which all devices together encode one sample, if that happens before training."""

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


class _Asked(NamedTuple):
    """The demands of one optimizer step of a layout, whatever the machine."""

    work: Work
    volume: Volume
    moved: UpdateTraffic
    samples: int
    """Over all devices, like `tokens`."""
    tokens: float


@cached(4096)
def _asked(workload: Workload, layout: Layout) -> _Asked:
    samples = layout.batch.micro * layout.batch.accumulation * layout.parallel.data
    return _Asked(
        work_of(workload, layout),
        volume_of(workload, layout),
        moved_of(workload, layout),
        samples,
        samples * sequences(workload) * sample_tokens(workload),
    )


def as_padded(workload: Workload, layout: Layout) -> Workload:
    """The workload with samples as long as those of the batch that a step waits for.

    Ranks that gather parameters wait for each other in each micro batch; others only once a step,
    when long and short batches have evened out. If lengths are unknown, the workload is unchanged.
    """
    if not workload.lengths:
        return workload
    batch, ranks = layout.batch, layout.parallel.data
    own = _padded(workload, batch.micro)
    slowest = _padded(workload, batch.micro * ranks)
    gathers = layout.zero.stage == 3 or layout.fsdp.sharding != "none"
    evened = 1 if gathers else sqrt(batch.accumulation)
    uneven = uneven_share(workload.lengths, workload.data.sequence, batch.micro)
    return _of_length(workload, _tokens(own + (slowest - own) / evened), round(uneven, 3))


@cached(1024)
def _padded(workload: Workload, draws: int) -> float:
    return padded_length(workload.lengths, workload.data.sequence, draws)


def with_length(workload: Workload, tokens: float) -> Workload:
    """The workload with samples of `tokens` text tokens; the same object for equal inputs."""
    return _of_length(workload, _tokens(tokens), 0)


def _tokens(mean: float) -> int:
    return max(1, round(mean))


@cached(1024)
def _of_length(workload: Workload, tokens: int, uneven: float) -> Workload:
    data = replace(workload.data, sequence=tokens)
    return replace(workload, data=data, lengths=(), uneven=uneven)


def step_time(
    workload: Workload, layout: Layout, machine: Machine, at: Constants = FITTED
) -> TimeAccount:
    """Account for the time of one optimizer step.

    The account is meant to rank layouts of one workload on one machine; docs/time-accuracy.md shows
    its errors. `at` are the constants, for the code that fits them.

    Raises `ValueError` if a layout offloads to NVMe and the machine has none.
    """
    workload = as_padded(workload, layout)
    asked = _asked(workload, layout)
    terms = _trained(workload, layout, machine, at)
    if workload.critic is not None:
        terms = {name: seconds * workload.critic.epochs for name, seconds in terms.items()}
        terms |= _criticised(workload, layout, machine, at)
    if workload.preference is not None:
        terms |= answers(workload, layout, machine)
    terms["data loading"] = loading(workload, layout, machine, sum(terms.values()))
    spent = {name: seconds for name, seconds in terms.items() if seconds}
    paced, plain = (scaled(spent, machine.pace), spent) if machine.pace else (spent, {})
    return TimeAccount(paced, asked.samples, asked.tokens, plain, _encoding(workload, machine, at))


def _trained(
    workload: Workload, layout: Layout, machine: Machine, at: Constants
) -> dict[str, float]:
    """Seconds in which one model is trained on the samples of a step."""
    asked, times = _asked(workload, layout), layout.batch.accumulation
    terms = {name: seconds * times for name, seconds in compute(asked.work, machine, at).items()}
    forward = terms["forward"]
    busy = sum(terms.values())
    terms |= communication(asked.volume, machine, busy)
    terms |= update(asked.moved, machine, busy, at)
    if layout.activation_checkpointing.offload:
        terms |= offloading(workload, layout, machine, forward)
    return terms


def _criticised(
    workload: Workload, layout: Layout, machine: Machine, at: Constants
) -> dict[str, float]:
    """Seconds of a critic in one step: a pass that gives values, and its own training."""
    second = of_critic(workload, layout)
    if workload.critic is None or second is None:
        return {}
    critic, own = as_padded(second[0], layout), second[1]
    terms = _trained(critic, own, machine, at)
    epochs = workload.critic.epochs
    values = _share(layout) * operations(critic).forward / product_rate(machine)
    trained = {name: seconds * epochs for name, seconds in terms.items()}
    return {PREFIX + name: seconds for name, seconds in {**trained, "values": values}.items()}


def _encoding(workload: Workload, machine: Machine, at: Constants) -> float:
    """Seconds for one sample's texts and pictures, if encoders are removed before training."""
    gone = tuple(each for each in workload.components if each not in workload.kept_components)
    if not gone:
        return 0.0
    done = encoding(workload, gone)
    host = machine.patience * at.kernel * done.kernels
    devices = machine.nodes * machine.per_node
    return max(done.operations / product_rate(machine, at), host) / devices


MARGIN: Final = LATE
"""The share above a step's account that one in ten of the runs that judge it exceeds, if many runs
of one source count less (docs/time-accuracy.md). Evaluation has no margin of its own, as its amount
of data is unknown."""
OFF: Final = (
    f"half of {RUNS} published runs are within {HALF:.0%} of what it says, and nine in ten within "
    f"{MOST:.0%}"
)
"""The account's error, as a sentence."""


def doubt(quantization: QuantFormat, vendors: Collection[str]) -> str | None:
    """Why a forecast may be far further off than usual; None if nothing is known."""
    if quantization in FOUR_BIT and "amd" in vendors:
        return (
            "how fast bitsandbytes expands weights on AMD's devices is not known: the one "
            "published run took 6 times its forecast"
        )
    return None


START_SECONDS: Final = 900.0
"""Seconds until the first step, for containers, imports, tokenising and compiling kernels: a
judgement."""
STORAGE: Final = 0.5e9
"""Bytes per second to and from shared storage: less than half of 10 Gigabit Ethernet, a
judgement."""
_SAVED: Final = 16
"""The most bytes of a checkpoint per trained parameter: weights, a master copy, two moments."""


class Run(Struct, frozen=True):
    """A whole run: its steps, and the work around them."""

    steps: int
    step_seconds: float
    saves: int
    trained: int
    """The number of parameters with gradients."""
    weights: int
    """Bytes of the model's weights, which are read at the start."""
    encoding: float = 0.0
    """Seconds in which texts and pictures of all samples are encoded before the first step."""

    @property
    def seconds(self) -> float:
        """Seconds from the start of the job to its end, without a margin."""
        loading = START_SECONDS + self.weights / STORAGE
        return loading + self.encoding + self.steps * self.step_seconds + self.saving

    @property
    def saving(self) -> float:
        """Seconds of writing checkpoints, including the last one."""
        return (self.saves + 1) * _SAVED * self.trained / STORAGE


def bounded(run: Run) -> int:
    """Seconds to request for a run: with the margin, rounded up to whole minutes."""
    return -round(-run.seconds * (1 + MARGIN) // 60) * 60


def answers(workload: Workload, layout: Layout, machine: Machine) -> dict[str, float]:
    """Seconds in one optimizer step; empty for supervised training.

    A separate server that generates the answers is not counted, as its devices are unknown.
    """
    return {
        "reference forward": _reference(workload, layout, machine),
        "generation": _generation(workload, layout, machine),
    }


def _share(layout: Layout) -> int:
    return layout.batch.micro * layout.batch.accumulation


def _reference(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Another forward pass of every sequence, without the adapters' products."""
    asked = workload.preference
    if asked is None or asked.reference not in ("resident", "base"):
        return 0
    sequences = asked.sequences * _share(layout)
    return sequences * operations(workload).forward / product_rate(machine)


def _generation(workload: Workload, layout: Layout, machine: Machine) -> float:
    """Prompts at once, then token by token, each as long as weights and cache take to be read.

    A step of decoding reads every weight and what the sequences have cached, half of the whole on
    average; with transformers' loop it waits for Python to launch the kernels of every layer
    (`Constants.kernel`), which an engine with recorded graphs does not.
    """
    asked = workload.generation
    if asked is None or not asked.steps:
        return 0
    sequences = _share(layout) if asked.by_sample else asked.sequences
    prompts = sequences * operations(workload).forward * (1 - asked.steps / asked.tokens)
    cached = sequences * (asked.tokens - asked.steps / 2) * cache_bytes(workload, layout.states)
    read = (held_bytes(workload, layout.states) + cached) / machine.bandwidth
    launched = (
        0.0 if workload.generation_engine_bytes else FITTED.kernel * forward_kernels(workload)
    )
    return prompts / product_rate(machine) + asked.steps * hypot(read, launched)


_PIXEL: Final = 60e-9
"""Seconds of a core for each pixel: 5 ms for a JPEG of a megapixel (Pillow 13.0) and 54 ms for
scaling, normalising and patches (transformers 5.23 `Qwen2VLImageProcessorPil`; CLIP's takes 10 ms),
both measured. Texts of the same step take less than a thousandth."""


def loading(workload: Workload, layout: Layout, machine: Machine, busy: float) -> float:
    """Seconds of one optimizer step that `busy` seconds of the device do not hide.

    Loading processes work ahead while the device does; latents that were made before are read.
    """
    if workload.components and not workload.kept_components:
        return 0.0
    pixels = pixels_of(workload)
    samples = layout.batch.micro * layout.batch.accumulation
    workers = workload.dataloader_workers or machine.loaders
    return max(samples * pixels * _PIXEL * machine.patience / workers - busy, 0.0)


def offloading(
    workload: Workload, layout: Layout, machine: Machine, forward: float
) -> dict[str, float]:
    """Seconds of one optimizer step that `forward` seconds of forward passes do not hide.

    Out, a stream of its own copies while the next layers run; back, the backward pass waits for
    each tensor when it asks for it (trl 1.16 `models/activation_offloading.py`,
    `unpack_tensor_with_streams`: `self.s0.wait_stream(self.s1)`).
    """
    carried = moved_activations(workload, layout).carried * layout.batch.accumulation
    seconds = carried / (REACHED * machine.pcie) if carried else 0.0
    return {"offloaded activations": max(seconds - forward, 0.0) + seconds}
