"""Seconds that the device computes for one micro batch."""

from math import hypot
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.activations import repeated_share
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.terms.passes import loss_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.flops import (
    PARTS,
    kept_bytes,
    module_tokens,
    operations,
    part_tokens,
)
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached

PEAK_SHARE: Final = 0.75
HALF_WIDTH: Final = 550
"""Matrix products reach PEAK_SHARE x h / (h + HALF_WIDTH) of the data sheet's rate at hidden width
h: 0.66 at 4096. Fitted, with TRAFFIC, to the tokens a second of full and LoRA fine-tuning on one
A100-80GB in foundation-model-stack/fms-acceleration, `scripts/benchmarks/refs/a100_80gb.csv`
(04702cc5b9f0) and `a100_80gb_granite.csv` (426a4a50158d), rows without fused kernels; the errors
are in `tests/analyses/time/test_published.py`. On an L40 the same constants are a quarter too slow
(`l40_40gb.csv`, 8af8fa7de2b2)."""

TRAFFIC: Final = 1.9
"""Times that the bytes a layer keeps cross the device's memory in one pass over the layer, between
the products; a backward pass counts as two."""

ADAPTER_TRAFFIC: Final = 7
"""Times that an adapter's output, in its own dtype, crosses memory in one pass: written, scaled,
added to the base's output and cast (peft 0.21 `tuners/lora/layer.py`, `Linear.forward`)."""

KERNEL: Final = 20e-6
"""Seconds from one kernel's launch to the next where the device waits for Python. Fitted to the
shortest sequences of QwenLM/Qwen, README.md (2df8e8ac450f), "Profiling of Memory and Speed": LoRA
of Qwen-7B and Qwen-1.8B at 256 tokens on an A100."""

_KERNELS: Final = 38
_KERNELS_BACKWARD: Final = 71
_ADAPTER_KERNELS: Final = 6
_ADAPTER_KERNELS_BACKWARD: Final = 7.4
"""Kernels a layer and an adapted module (traced: transformers 5.23, peft 0.21, a Llama layer)."""

_DEQUANTIZE: Final = 0.3
"""Share of the memory bandwidth that bitsandbytes' 4-bit kernel reaches; what the QLoRA rows of the
same table take longer than its LoRA rows (Mistral-7B, `accelerated-peft-bnb`)."""


class Work(NamedTuple):
    """What one micro batch takes of one device, whatever the device."""

    width: int
    """Hidden width of the widest stack, by which products reach more or less of the rate."""

    forward: float
    """Operations, as the next three."""
    backward: float
    recomputation: float
    adapters: float
    traffic: float
    """Bytes that elementwise operations move through the device's memory."""
    loss: float
    """Bytes of logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights."""
    launched: float
    """Seconds from the first kernel's launch to the last, where the device waits for Python."""


def compute(work: Work, machine: Machine) -> dict[str, float]:
    """Seconds of one micro batch on one device, by what they are spent on; one after the other."""
    rate = rate_at(work.width, machine)
    busy = {
        "forward": work.forward / rate,
        "backward": work.backward / rate,
        "recomputation": work.recomputation / rate,
        "adapters": work.adapters / rate,
        "memory traffic": work.traffic / machine.bandwidth,
        "loss": work.loss / machine.bandwidth,
        "dequantization": work.dequantized / (_DEQUANTIZE * machine.bandwidth),
    }
    # Launches cost nothing while the device is far behind, and all their time where it waits.
    total = sum(busy.values())
    busy["kernel launches"] = hypot(total, work.launched) - total
    return busy


def work_of(workload: Workload, layout: Layout) -> Work:
    """The work of one micro batch of a layout."""
    done, parallel = operations(workload), layout.parallel
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    repeated = repeated_share(max(layers, 1), layout.activation_checkpointing)
    moved = _moved(workload, layout.states, repeated=repeated)
    samples = layout.batch.micro * sequences(workload) / (parallel.sequence * parallel.tensor)
    return Work(
        width=_widest(workload),
        forward=samples * done.forward,
        backward=samples * done.backward,
        recomputation=samples * done.layers * repeated,
        adapters=samples * done.adapters * (1 + repeated / 3),
        traffic=samples * moved.traffic,
        loss=samples * moved.loss,
        dequantized=moved.dequantized,
        launched=KERNEL * moved.kernels,
    )


def product_rate(workload: Workload, machine: Machine) -> float:
    """Operations a second that matrix products of the widest stack reach."""
    return rate_at(_widest(workload), machine)


def rate_at(width: int, machine: Machine) -> float:
    """Operations a second that matrix products of a stack of this hidden width reach."""
    return machine.rate * PEAK_SHARE * width / (width + HALF_WIDTH)


@cached(256)
def _widest(workload: Workload) -> int:
    return max((stack.hidden for stack in workload.architecture.stacks), default=HALF_WIDTH)


class _Moved(NamedTuple):
    """What a micro batch moves and launches, whatever its size and the machine."""

    traffic: float
    """Bytes of one sample that elementwise operations move through the device's memory."""
    loss: float
    """Bytes of one sample's logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights, once in every pass over the layers."""
    kernels: float
    """Kernels of one micro batch, forward, backward and repeated."""


@cached(1024)
def _moved(workload: Workload, states: States, *, repeated: float) -> _Moved:
    return _Moved(
        _traffic_bytes(workload, states, repeated=repeated),
        _loss_bytes(workload, states),
        _dequantized_bytes(workload, repeated=repeated),
        _kernels(workload, repeated=repeated),
    )


def _traffic_bytes(workload: Workload, states: States, *, repeated: float) -> float:
    passes = 3 + repeated
    kept = sum(kept_bytes(workload, states, part) for part in PARTS)
    return passes * (TRAFFIC * kept + ADAPTER_TRAFFIC * _adapter_outputs(workload, states))


def _adapter_outputs(workload: Workload, states: States) -> float:
    """Bytes of one sample's adapter outputs."""
    dtype = workload.precision.compute if states.autocast else states.trainable
    return sum(
        BYTES[dtype] * module_tokens(workload, module) * module.shape[0] * module.copies
        for module in workload.adapted
    )


def _loss_bytes(workload: Workload, states: States) -> float:
    found = loss_of(workload, states)
    return 2 * part_tokens(workload, "text") * (found.forward + found.backward)


def _dequantized_bytes(workload: Workload, *, repeated: float) -> float:
    quantization = workload.quantization
    if quantization.format == "none":
        return 0
    expanded = quantized_bytes(quantization) + BYTES[quantization.compute]
    return (2 + repeated) * expanded * count(workload).quantized


def forward_kernels(workload: Workload) -> float:
    """Kernels of one forward pass, adapters included."""
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    return _KERNELS * layers + _ADAPTER_KERNELS * sum(each.copies for each in workload.adapted)


def sequences(workload: Workload) -> int:
    """Sequences of one sample: two of a pair of answers."""
    return workload.preference.sequences if workload.preference is not None else 1


def _kernels(workload: Workload, *, repeated: float) -> float:
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    adapters = sum(module.copies for module in workload.adapted)
    forward = forward_kernels(workload)
    backward = _KERNELS_BACKWARD * layers + _ADAPTER_KERNELS_BACKWARD * adapters
    return forward * (1 + repeated) + backward
