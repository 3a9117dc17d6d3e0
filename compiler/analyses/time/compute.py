"""Seconds in which a device computes one micro batch."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.rank import of_rank
from tunec.compiler.analyses.memory.segments import repeated_share
from tunec.compiler.analyses.memory.sharding import GRADIENTS
from tunec.compiler.analyses.memory.terms.fsdp_units import gradient_width
from tunec.compiler.analyses.memory.terms.passes import loss_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.coefficients import FITTED, Constants
from tunec.compiler.analyses.time.communication import rearranged_bytes
from tunec.compiler.analyses.time.encoders import encoding
from tunec.compiler.analyses.time.flops import (
    PARTS,
    Passes,
    kept_bytes,
    module_tokens,
    operations,
    part_tokens,
)
from tunec.compiler.analyses.time.gathering import (
    carried,
    copied,
    found_whole,
    gathers,
    hooks,
    units,
)
from tunec.compiler.analyses.time.kernels import (
    SCATTERED,
    KernelCounts,
    converted_bytes,
    exchanging,
    is_read_back,
    is_wide,
    kernels,
    scattered,
    sliced_bytes,
    wide_head,
)
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.analyses.time.tiles import Product, products_of, slowed
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached

_UNKNOWN_EXPANSION: Final = 4.8
"""How many times longer expansion takes than its memory traffic if a chip's fp32 rate is unknown:
as on an A100."""


_ADDED: Final = 2
"""How often an output crosses memory if an adapter is added into it: read and written."""


_COPIED: Final = 3
_CARRIED: Final = 6
"""Kernels that take the host as long as copying a module from it, and a gradient to it. Measured:
deepspeed 0.19.8 on a core of an EPYC, which takes 10 us for a kernel, in Llamas of 2 and 16 layers;
20 to 42 us and 45 to 85 us."""


class Pass(NamedTuple):
    """The matrix products of one pass."""

    operations: float
    moved: float
    """Bytes that the products read and write."""
    products: tuple[Product, ...]


class Work(NamedTuple):
    """The work of one micro batch on one device, whatever the device."""

    forward: Pass
    backward: Pass
    recomputation: Pass
    attention: float
    """Operations of fused attention in all passes."""
    masked: float
    """Those of them that fused kernels compute behind a mask."""
    adapters: float
    single: bool
    """Whether adapters compute in fp32."""
    wide: float
    """Operations in fp32 with a base in 4 bits: of the head and of attention's scores."""
    converted: float
    """Bytes moved by casts between the dtypes of the residual stream and of products."""
    traffic: float
    """Bytes that elementwise operations keep, summed over all passes."""
    fused: bool
    """Whether norms, rotary positions and gated products use fused kernels, such as Liger's or
    Unsloth's."""
    sliced: float
    """Bytes of gradients of experts that are slices of one weight."""
    rearranged: float
    """Bytes of copies around the exchanges of ranks that share a sequence."""
    scattered: float
    """Elements that experts add to their tokens, and gradients of those that they picked, in all
    passes."""
    accumulated: float
    """Bytes moved by adding gradients to those of earlier micro batches."""
    adapter_traffic: float
    """Bytes of adapters' outputs, summed over all passes."""
    added: bool
    """Whether adapters are added into the base's output by one kernel."""
    loss: float
    """Bytes of logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights."""
    expanded: float
    """Weights that are expanded from 4 bits, in all passes."""
    kernels: KernelCounts
    read_back: bool
    """Whether the host waits for the device in each layer, and cannot launch kernels ahead."""
    repeated: float
    """Share of the layers whose forward pass is repeated."""
    gathered: float
    """Modules that ZeRO-3 gathers, in all passes."""
    whole: float
    """Modules that ZeRO-3's hooks find whole, in all passes."""
    units: float
    """Units that FSDP gathers, in all passes."""
    hooks: float
    """Gradients that a hook of ZeRO's stages 1 and 2 takes from the backward pass."""
    copied: float
    """Modules that ZeRO-3 copies from the host, in all passes."""
    carried: float
    """Gradients that ZeRO copies to the host."""
    encoding: float
    """Operations of models that encode the samples."""


def compute(work: Work, machine: Machine, at: Constants = FITTED) -> dict[str, float]:
    """Seconds of one micro batch on one device, by activity; the activities follow one another."""
    rate, memory = product_rate(machine, at), machine.bandwidth
    kept = at.traffic * (at.fused if work.fused else 1)
    own = _ADDED if work.added else at.adapter
    single = machine.single if work.single and machine.single else rate
    busy = {
        "forward": _seconds(work.forward, machine, at),
        "backward": _seconds(work.backward, machine, at),
        "recomputation": _seconds(work.recomputation, machine, at),
        "attention": (work.attention / machine.attention + work.masked / machine.masked)
        / machine.rate,
        "adapters": work.adapters / single,
        "wide products": work.wide / (at.single * (machine.single or rate)),
        "memory traffic": (kept * work.traffic + own * work.adapter_traffic + _once(work)) / memory,
        "conversions": work.converted / memory,
        "loss": work.loss / memory,
        "encoders": work.encoding / rate,
        "dequantization": _expansion(work, machine, at),
    }
    # a layer's last kernel, before the host waits: no launch hides it
    added = {"sums of experts": work.scattered / SCATTERED}
    return busy | _waits(work, machine, at, busy) | added


def _once(work: Work) -> float:
    """Traffic in bytes that is counted exactly, without a fitted factor."""
    return work.sliced + work.rearranged + work.accumulated


def _expansion(work: Work, machine: Machine, at: Constants) -> float:
    """Seconds of expanding weights: the slower of what a chip's cores and its memory allow."""
    moved = work.dequantized / machine.bandwidth
    if not machine.single:
        return _UNKNOWN_EXPANSION * moved
    # a fused multiply-add counts for two operations of the rate
    return max(moved, 2 * at.expansion * work.expanded / machine.single)


def _waits(
    work: Work, machine: Machine, at: Constants, busy: Mapping[str, float]
) -> dict[str, float]:
    """Seconds in which the device waits for the host.

    The host launches kernels ahead of the device, so that the slower of the two decides; if nothing
    is launched ahead, the slower in each pass. Gathering and reducing were not seen to be hidden by
    the device, and are added.
    """
    kernel = machine.patience * at.kernel
    passes = [(sum(busy.values()), sum(work.kernels))]
    if work.read_back:
        passes = list(zip(_by_pass(work, machine, busy), work.kernels, strict=True))
    waits = sum(_idle(seconds, kernel * count, at.overlap) for seconds, count in passes)
    gathered = at.gather * work.gathered + at.hook * work.whole + _COPIED * at.kernel * work.copied
    reduced = machine.patience * (at.hook * work.hooks + _CARRIED * at.kernel * work.carried)
    return {
        "kernel launches": waits,
        "parameter gathering": machine.patience * gathered + at.unit * work.units,
        "gradient hooks": reduced,
    }


def _by_pass(work: Work, machine: Machine, busy: Mapping[str, float]) -> tuple[float, ...]:
    """Busy seconds forward, backward and repeated; backward counts twice, except for products."""
    products = [busy[name] for name in ("forward", "backward", "recomputation")]
    slices = work.sliced / machine.bandwidth
    one = (sum(busy.values()) - sum(products) - slices) / (3 + work.repeated)
    return products[0] + one, products[1] + 2 * one + slices, products[2] + work.repeated * one


def _idle(busy: float, host: float, overlap: float) -> float:
    """The seconds by which the slower of device and host exceeds the device."""
    together: float = (busy**overlap + host**overlap) ** (1 / overlap)
    return together - busy


def _seconds(products: Pass, machine: Machine, at: Constants) -> float:
    """Seconds of one pass's products: the slower of arithmetic and memory, which run side by side.

    A kernel reads the next tiles while it multiplies (Williams et al., "Roofline: an insightful
    visual performance model for multicore architectures", 2009).
    """
    done = slowed(products.products, machine.units, machine.read) * products.operations
    return max(done / product_rate(machine, at), at.crossings * products.moved / machine.bandwidth)


def product_rate(machine: Machine, at: Constants = FITTED) -> float:
    """Operations per second that large matrix products sustain."""
    return machine.rate * machine.reached * at.sustained


def work_of(workload: Workload, layout: Layout) -> Work:
    """The work of one micro batch of a layout."""
    done, parallel = operations(workload), layout.parallel
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    repeated = repeated_share(max(layers, 1), layout.activation_checkpointing)
    moved = _moved(workload, layout.states, repeated=repeated)
    samples = layout.batch.micro * sequences(workload) / (parallel.sequence * parallel.tensor)
    fused = workload.attention.implementation != "eager"
    width, wide = BYTES[workload.precision.compute], is_wide(workload, layout.states)
    apart = done.scores if fused or wide else Passes()
    masked = Passes() if wide else done.masked

    made = products_of(workload, samples * parallel.tensor, parallel.tensor)

    def of(name: Literal["forward", "backward", "layers"], apart: float, times: float = 1) -> Pass:
        done_of, elements, weights = (
            getattr(each, name) for each in (done, done.elements, done.weights)
        )
        bytes_moved = width * (samples * elements + weights / parallel.tensor)
        amount = times * samples * (done_of - apart)
        return Pass(amount, times * bytes_moved, getattr(made, name))

    head = wide_head(workload) if wide else 0.0
    encoders = encoding(workload, workload.kept_components)
    return Work(
        forward=of("forward", apart.forward + head),
        backward=of("backward", apart.backward + head),
        recomputation=of("layers", apart.layers, repeated),
        attention=0 if wide else samples * (_scored(apart, repeated) - _scored(masked, repeated)),
        masked=samples * _scored(masked, repeated),
        adapters=samples * done.adapters * (1 + repeated / 3),
        single=layout.states.trainable == "fp32" and not layout.states.autocast,
        wide=samples * (_scored(apart, repeated) + 2 * head) if wide else 0,
        converted=0 if layout.fsdp.version else samples * moved.converted,
        traffic=samples * moved.traffic,
        fused=workload.loss == "fused" or _brings_kernels(workload),
        sliced=moved.sliced,
        rearranged=samples * (2 + repeated) * rearranged_bytes(workload, parallel.sequence),
        scattered=samples * (2 + repeated) * scattered(workload),
        accumulated=accumulated_bytes(workload, layout),
        adapter_traffic=samples * moved.adapters,
        added=by_unsloth(workload) and not workload.adapter.dropout,
        loss=samples * moved.loss,
        dequantized=moved.dequantized,
        expanded=moved.expanded,
        kernels=_launched(
            kernels(workload, repeated=repeated),
            exchanging(workload, parallel.sequence, repeated=repeated),
            KernelCounts(encoders.kernels, 0, 0),
        ),
        read_back=is_read_back(workload),
        repeated=repeated,
        gathered=gathers(workload, layout),
        whole=found_whole(workload, layout),
        units=units(workload, layout),
        hooks=hooks(workload, layout),
        copied=copied(workload, layout),
        carried=carried(workload, layout),
        encoding=samples * encoders.operations,
    )


def _launched(*each: KernelCounts) -> KernelCounts:
    return KernelCounts(*map(sum, zip(*each, strict=True)))


def _scored(scores: Passes, repeated: float) -> float:
    """Operations of attention's scores in all passes."""
    return scores.forward + scores.backward + repeated * scores.layers


class _Moved(NamedTuple):
    """The memory traffic of a micro batch, whatever its size and the machine."""

    traffic: float
    """Bytes of one sample that layers keep, summed over all passes."""
    adapters: float
    """Bytes of one sample's adapter outputs, summed over all passes."""
    loss: float
    """Bytes of one sample's logits and their gradients, each written and read."""
    dequantized: float
    """Bytes read and written to expand quantised weights, once in every pass over the layers."""
    expanded: float
    """The number of weights that are expanded, summed over these passes."""
    converted: float
    """Bytes of one sample's casts, summed over all passes."""
    sliced: float
    """Bytes of gradients of experts that are slices of one weight."""


@cached(1024)
def _moved(workload: Workload, states: States, *, repeated: float) -> _Moved:
    passes = 3 + repeated
    return _Moved(
        passes * sum(kept_bytes(workload, states, part) for part in PARTS),
        passes * _adapter_outputs(workload, states),
        _loss_bytes(workload, states),
        _dequantized_bytes(workload, repeated=repeated),
        (2 + repeated) * count(workload).quantized,
        (2 + repeated) * sum(converted_bytes(workload, states, part) for part in PARTS),
        sliced_bytes(workload, states),
    )


def _brings_kernels(workload: Workload) -> bool:
    """Whether a trainer takes one pass for norms, rotary positions and gated products by itself.

    unsloth 2026.10.9 `models/llama.py`: `fast_rms_layernorm`, `fast_rope_embedding`. NeMo AutoModel
    has Liger's by default, without its loss (`_transformers/auto_model.py`, `use_liger_kernel`).
    """
    return by_unsloth(workload) or workload.version("nemo-automodel") is not None


def by_unsloth(workload: Workload) -> bool:
    """Whether Unsloth trains, which adds adapters into the base's output.

    unsloth 2026.10.9 `kernels/utils.py`, `matmul_lora`: `addmm_`.
    """
    return workload.version("unsloth") is not None


def _adapter_outputs(workload: Workload, states: States) -> float:
    """Bytes of one sample's adapter outputs."""
    narrow = states.autocast or by_unsloth(workload)
    dtype = workload.precision.compute if narrow else states.trainable
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
    """The number of sequences of one sample: two for a pair of answers."""
    return workload.preference.sequences if workload.preference is not None else 1


def accumulated_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes of one micro batch, on average over a step.

    All but the first add theirs: two are read and one written. Stages 2 and 3 add what is left
    after the exchange, a shard (deepspeed 0.19.8 `runtime/zero/stage3.py`, `partition_grads`).
    FSDP 1 joins the gradients of a unit first (torch 2.13 `distributed/fsdp/_flat_param.py`,
    `_get_unflat_views_aligned`: `torch.split`, whose gradient is a copy of all).
    """
    trainable = count(of_rank(workload, layout.parallel.tensor)).trainable
    times, sharded = layout.batch.accumulation, layout.zero.stage >= GRADIENTS
    engine = layout.parallel.engine
    ranks = layout.parallel.data * layout.parallel.sequence
    own = trainable / ranks if engine == "deepspeed" and sharded else trainable
    is_fsdp = bool(layout.fsdp.version)
    width = gradient_width(workload, layout.states) if is_fsdp else BYTES[layout.states.gradients]
    added = 3 * width * own * (times - 1) / times
    return added + (2 * width * trainable if layout.fsdp.version == 1 else 0)
