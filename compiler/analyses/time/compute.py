"""Seconds that the device computes for one micro batch."""

from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import repeated_share
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.terms.passes import loss_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.coefficients import FITTED, Constants
from tunec.compiler.analyses.time.flops import (
    PARTS,
    Passes,
    kept_bytes,
    module_tokens,
    operations,
    part_tokens,
)
from tunec.compiler.analyses.time.gathering import gathers, hooks, units
from tunec.compiler.analyses.time.kernels import kernels, sliced_bytes
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached


class Pass(NamedTuple):
    """Matrix products of one pass."""

    operations: float
    moved: float
    """Bytes that they read and write."""


class Work(NamedTuple):
    """What one micro batch takes of one device, whatever the device."""

    forward: Pass
    backward: Pass
    recomputation: Pass
    attention: float
    """Operations of fused attention in all passes."""
    adapters: float
    single: bool
    """Whether adapters compute in fp32."""
    traffic: float
    """Bytes that elementwise operations keep, by pass."""
    fused: bool
    """Whether they are Liger's."""
    sliced: float
    """Bytes of gradients of experts that are slices."""
    adapter_traffic: float
    """Bytes of adapters' outputs, by pass."""
    loss: float
    """Bytes of logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights."""
    kernels: float
    gathered: float
    """Modules that ZeRO-3 gathers, in all passes."""
    units: float
    """Units that FSDP gathers, in all passes."""
    hooks: float
    """Gradients that a hook of ZeRO's stage 2 takes from the backward pass."""


def compute(work: Work, machine: Machine, at: Constants = FITTED) -> dict[str, float]:
    """Seconds of one micro batch on one device, by what they are spent on; one after the other.

    The host launches ahead of the device, so that the slower of both decides.
    """
    rate, memory = product_rate(machine, at), machine.bandwidth
    kept = at.traffic * (at.fused if work.fused else 1)
    single = machine.single if work.single and machine.single else rate
    busy = {
        "forward": _seconds(work.forward, rate, memory / at.crossings),
        "backward": _seconds(work.backward, rate, memory / at.crossings),
        "recomputation": _seconds(work.recomputation, rate, memory / at.crossings),
        "attention": work.attention / (machine.rate * machine.attention),
        "adapters": work.adapters / single,
        "memory traffic": (kept * work.traffic + at.adapter * work.adapter_traffic + work.sliced)
        / memory,
        "loss": work.loss / memory,
        "dequantization": work.dequantized / (at.expansion * memory),
    }
    host = machine.patience * at.kernel * work.kernels
    total = sum(busy.values())
    waits = (total**at.overlap + host**at.overlap) ** (1 / at.overlap) - total
    gathered = machine.patience * at.gather * work.gathered + at.unit * work.units
    reduced = machine.patience * at.hook * work.hooks
    return busy | {
        "kernel launches": waits,
        "parameter gathering": gathered,
        "gradient hooks": reduced,
    }


def _seconds(products: Pass, rate: float, memory: float) -> float:
    return products.operations / rate + products.moved / memory


def product_rate(machine: Machine, at: Constants = FITTED) -> float:
    """Operations a second that large matrix products keep up."""
    return machine.rate * machine.reached * at.sustained


def work_of(workload: Workload, layout: Layout) -> Work:
    """The work of one micro batch of a layout."""
    done, parallel = operations(workload), layout.parallel
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    repeated = repeated_share(max(layers, 1), layout.activation_checkpointing)
    moved = _moved(workload, layout.states, repeated=repeated)
    samples = layout.batch.micro * sequences(workload) / (parallel.sequence * parallel.tensor)
    fused = workload.attention.implementation != "eager"
    scores, width = done.scores, BYTES[workload.precision.compute]
    apart = scores if fused else Passes()

    def of(every: float, scored: float, elements: float, weights: float, times: float = 1) -> Pass:
        bytes_moved = width * (samples * elements + weights / parallel.tensor)
        return Pass(times * samples * (every - scored), times * bytes_moved)

    elements, weights = done.elements, done.weights
    return Work(
        forward=of(done.forward, apart.forward, elements.forward, weights.forward),
        backward=of(done.backward, apart.backward, elements.backward, weights.backward),
        recomputation=of(done.layers, apart.layers, elements.layers, weights.layers, repeated),
        attention=samples * (apart.forward + apart.backward + repeated * apart.layers),
        adapters=samples * done.adapters * (1 + repeated / 3),
        single=layout.states.trainable == "fp32" and not layout.states.autocast,
        traffic=samples * moved.traffic,
        fused=workload.loss == "fused",
        sliced=moved.sliced,
        adapter_traffic=samples * moved.adapters,
        loss=samples * moved.loss,
        dequantized=moved.dequantized,
        kernels=kernels(workload, repeated=repeated),
        gathered=gathers(workload, layout),
        units=units(workload, layout),
        hooks=hooks(workload, layout),
    )


class _Moved(NamedTuple):
    """What a micro batch moves and launches, whatever its size and the machine."""

    traffic: float
    """Bytes of one sample that layers keep, in each pass."""
    adapters: float
    """Bytes of one sample's adapter outputs, in each pass."""
    loss: float
    """Bytes of one sample's logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights, once in every pass over the layers."""
    sliced: float
    """Bytes of gradients of experts that are slices."""


@cached(1024)
def _moved(workload: Workload, states: States, *, repeated: float) -> _Moved:
    passes = 3 + repeated
    return _Moved(
        passes * sum(kept_bytes(workload, states, part) for part in PARTS),
        passes * _adapter_outputs(workload, states),
        _loss_bytes(workload, states),
        _dequantized_bytes(workload, repeated=repeated),
        sliced_bytes(workload, states),
    )


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


def sequences(workload: Workload) -> int:
    """Sequences of one sample: two of a pair of answers."""
    return workload.preference.sequences if workload.preference is not None else 1
