"""The memory of the host: the RAM that one node needs, in bytes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from tunec.compiler.analyses.memory.lora import merged_on_host
from tunec.compiler.analyses.memory.modules import BYTES, PACKED
from tunec.compiler.analyses.memory.rank import of_rank
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, sharding_of
from tunec.compiler.analyses.memory.terms.critic import PREFIX, of_critic
from tunec.compiler.analyses.memory.terms.fsdp_ends import head_on_host
from tunec.compiler.analyses.memory.terms.fsdp_units import unit_sizes
from tunec.compiler.analyses.memory.terms.optimizer import (
    MASTER_BYTES,
    is_paged,
    moments_of,
    paged_moments,
)
from tunec.compiler.analyses.memory.terms.passes import activations, pass_of
from tunec.compiler.analyses.memory.terms.saving import moments_saved, saving
from tunec.compiler.analyses.memory.terms.turns import is_away, put_aside, waiting
from tunec.compiler.analyses.memory.terms.weights import frozen_bytes, second_shards
from tunec.compiler.analyses.memory.timeline import (
    At,
    Moment,
    Phase,
    Sizes,
    Term,
    lasting,
    timeline,
)
from tunec.compiler.analyses.memory.vision import image_activations
from tunec.compiler.analyses.memory.workload import Layout, Workload, pixels_of
from tunec.schemas.caches import cached
from tunec.schemas.units import MIB


class HostTensors(NamedTuple):
    """Tensors that are moved to the host in a forward pass and back in the backward pass."""

    carried: float
    """Bytes that cross the device's slot in one direction."""
    taken: float
    """Bytes of the host buffers that hold the tensors."""


def moved_activations(workload: Workload, layout: Layout) -> HostTensors:
    """Bytes that one device's micro batch moves, with the plan's own checkpointing.

    torch's allocator of pinned memory rounds each buffer up to a power of two (torch 2.13
    `ATen/core/CachingHostAllocator.h`, `allocate`: `PowerOf2Ceil`), and TRL uses one buffer for
    each tensor (trl 1.16 `models/activation_offloading.py`, `use_pin_memory`). SimpleTuner's
    buffers have the same size from 4.6 on, if they are pinned.
    """
    asked, micro = layout.activation_checkpointing, layout.batch.micro
    if not asked.offload:
        return HostTensors(0.0, 0.0)
    run = pass_of(workload, layout, padded=False)
    sequences = workload.preference.sequences if workload.preference is not None else 1
    found = (activations(workload, run).moved, image_activations(workload, run).moved)
    sizes = [(sequences * micro * size, number) for size, number in found if number]
    return HostTensors(
        sum(size * number for size, number in sizes),
        sum(power_of_two(round(size)) * number for size, number in sizes),
    )


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(size - 1, 0).bit_length()


_PROCESS: Final = 450 * MIB
"""A process that has imported torch, transformers, peft and deepspeed (measured resident size,
CPU builds, Linux). CUDA's libraries add to it; how much was not measured."""

_WORKER: Final = 320 * MIB
"""The most that a forked data loading process comes to own as it writes to pages that it shares
with its parent (measured: 320 MiB are private in the parent, 40 in a worker after 20,000 short
samples). The decoded samples come on top."""

_PREFETCHED: Final = 2
"""Batches that each worker holds ready (torch `DataLoader`, `prefetch_factor`)."""

_PINNED: Final = 1.5
"""DeepSpeed's own factor for buffers beside offloaded state (deepspeed 0.19.8
`runtime/zero/stage3.py`, `estimate_zero3_model_states_mem_needs`, `additional_buffer_factor`)."""

_NVME_OPTIMIZER_BUFFERS: Final = 4
_NVME_PARAM_BUFFERS: Final = 5
_NVME_PARAM_BUFFER: Final = 100_000_000
_NVME_PARAMS_IN_CPU: Final = 1_000_000_000
"""Defaults of deepspeed 0.19.8 `runtime/zero/offload_config.py`: buffer counts, and elements."""


class _At:
    """The moments of a node."""

    LOADING: Final = Moment(0, "loading")
    PINNING: Final = Moment(1, "pinning")
    TRAINING: Final = Moment(2, "training")
    SAVING: Final = Moment(3, "saving")
    SAVING_STATES: Final = Moment(4, "saving states")
    MERGING: Final = Moment(5, "merging")


BESIDE: Final = {
    _At.LOADING: At.LOADING,
    _At.PINNING: At.START,
    _At.TRAINING: At.START,
    _At.SAVING: At.SAVING,
    _At.SAVING_STATES: At.SAVING,
    _At.MERGING: At.MERGING,
}
"""The device's moment that corresponds to each moment of the host."""


class HostAccount(Struct, frozen=True):
    """The RAM that one node needs, namely the node that holds rank 0."""

    lines: tuple[Phase, ...]

    @property
    def phases(self) -> dict[str, dict[str, int]]:
        """Bytes by phase and by name; terms of zero bytes are left out."""
        return {line.name: line.terms(1) for line in self.lines}

    @property
    def course(self) -> tuple[Term, ...]:
        """All terms of the run."""
        return self.lines[0].course

    @property
    def peak(self) -> Phase:
        """The phase that needs the most memory."""
        return max(self.lines, key=lambda line: line.fixed_bytes)

    @property
    def peak_phase(self) -> str:
        """The peak phase's name."""
        return self.peak.name

    @property
    def peak_bytes(self) -> int:
        """The peak phase's bytes."""
        return self.peak.fixed_bytes

    @property
    def terms(self) -> dict[str, int]:
        """The peak phase's terms, largest first."""
        return dict(sorted(self.peak.terms(1).items(), key=lambda term: -term[1]))


@cached(4096)
def host_account(workload: Workload, layout: Layout) -> HostAccount:
    """Compute the RAM of the node that holds rank 0; the other nodes need no more."""
    return HostAccount(timeline(_terms(workload, layout)))


def _terms(workload: Workload, layout: Layout) -> Iterator[Term]:
    accumulates = layout.batch.accumulation > 1
    plan = sharding_of(workload, layout, accumulates=accumulates)
    rank = of_rank(workload, layout.parallel.tensor)
    stepped = sharding_of(rank, layout, accumulates=accumulates)
    ranks = -(-layout.parallel.world // layout.nodes)
    away = _away(rank, plan, stepped, ranks)
    moved = {"offloaded activations": moved_activations(workload, layout).taken * ranks}
    aside = {**moved, **waiting(rank, stepped, ranks), **head_on_host(rank, plan, ranks)}
    trains = {**away.held, **aside, **_data_loading(workload, layout, ranks)}
    processes = {"processes": float(_PROCESS * ranks)}
    yield from lasting(processes, _At.LOADING, _At.SAVING_STATES)
    loaded = {**away.loaded, **loading(workload, plan, ranks)}
    yield from lasting(loaded, _At.LOADING, _At.LOADING)
    yield from lasting(away.pinning, _At.PINNING, _At.PINNING)
    yield from lasting(trains, _At.TRAINING, _At.SAVING_STATES)
    yield from lasting(saving(workload, plan, ranks), _At.SAVING, _At.SAVING)
    yield from lasting(moments_saved(plan, ranks), _At.SAVING_STATES, _At.SAVING_STATES)
    yield from lasting(_merging(workload), _At.MERGING, _At.MERGING)
    second = of_critic(workload, layout)
    if second is not None:
        of_turns = _critics(*second, ranks, waits=is_away(workload))
        yield from lasting(of_turns, _At.TRAINING, _At.SAVING_STATES)


def _critics(workload: Workload, layout: Layout, ranks: int, *, waits: bool) -> Sizes:
    """What a critic has on the host; it is loaded before the actor, and waits while that trains."""
    plan = sharding_of(workload, layout, accumulates=layout.batch.accumulation > 1)
    away = _away(workload, plan, plan, ranks).held
    held = {**away, **(put_aside(workload, plan, ranks) if waits else {})}
    return {PREFIX + name: size for name, size in held.items()}


def _merging(workload: Workload) -> Sizes:
    """The memory of a separate process that merges adapters into a base after training."""
    if workload.adapter.merge != "host":
        return {}
    return {"processes": float(_PROCESS), **merged_on_host(workload)}


class _Away(NamedTuple):
    """The memory that is moved off the devices of one node."""

    held: Sizes
    """Host memory while the run trains."""
    loaded: Sizes
    """The part of `held` that exists while the model is loaded."""
    pinning: Sizes
    """All host memory while it is being pinned, including memory that is freed then."""


def _away(workload: Workload, plan: Sharding, stepped: Sharding, ranks: int) -> _Away:
    """Parameters and training state on the host, whichever engine moves them."""
    if plan.fsdp.version == 1 and plan.parameters_away:
        return _units_away(workload, stepped, ranks)
    of_parameters = _shards if plan.fsdp.version else _parameters
    before = of_parameters(plan, ranks) if plan.parameters_away else {}
    state = _stepped if plan.fsdp.version else _optimizer
    held = {**before, **(state(workload, stepped, ranks) if plan.optimizer_away else {})}
    if is_paged(workload.optimizer):
        held |= {"paged optimizer states": paged_moments(workload, plan) * ranks}
    return _Away(held, before, {})


def loading(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """Weights on their way to the devices.

    Every rank builds the whole model in RAM before it moves it. At stage 3 rank 0 alone reads all
    files and broadcasts (transformers 5.23 `modeling_utils.py`, `_load_pretrained_model`); with
    quantisation each weight goes to the device as soon as it is read, and comes back packed where
    it is to be split: on each rank, under FSDP on the first (4.46.3 and 4.57.6,
    `_load_state_dict_into_meta_model`). What encodes the data is gone before the trained model
    comes (`weights.encoders`).
    """
    counts, size = plan.counts, BYTES[plan.states.weights]
    alone = plan.fsdp.efficient_loading if plan.fsdp.version else plan.stage == PARAMETERS
    copies = 1 if alone else ranks
    if workload.quantization.format != "none":
        packed = frozen_bytes(workload, plan) if plan.stage == PARAMETERS else 0.0
        return {
            "weights while loading": float(size * max(n for n, _ in counts.sizes) * ranks),
            "packed weights": packed * (1 if plan.fsdp.version else ranks),
        }
    asked = workload.preference
    second = counts.base if asked is not None and asked.reference == "resident" else 0
    every = max(counts.base + second, counts.components)
    return {"weights while loading": float(size * every * copies)}


def _optimizer(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """Training state that ZeRO moves off the devices of one node, with DeepSpeed's buffers.

    On the CPU a trained element needs its fp32 copy, its moments and an fp32 gradient: 16 bytes for
    Adam.
    """
    share = ranks / plan.shards
    trainable = plan.counts.trainable * share
    if plan.zero.offload_optimizer == "nvme":
        group = min(plan.counts.trainable / plan.shards, plan.zero.sub_group_size)
        return {
            "NVMe optimizer buffers": MASTER_BYTES * group * _NVME_OPTIMIZER_BUFFERS * ranks,
            "offloaded gradients": MASTER_BYTES * trainable * _PINNED,
        }
    moments = moments_of(workload, plan) * share
    # stages 1 and 2 hold those of earlier micro batches besides, parameter by parameter (deepspeed
    # 0.19.8 runtime/zero/stage_1_and_2.py, `async_accumulate_grad_in_cpu_via_gpu`)
    waits = plan.accumulates and plan.deepspeed and plan.stage < PARAMETERS
    return {
        "offloaded master weights": MASTER_BYTES * trainable * _PINNED,
        "offloaded optimizer states": moments * _PINNED,
        "offloaded gradients": MASTER_BYTES * trainable * _PINNED,
        "accumulated gradients": float(plan.parameter * trainable * waits),
    }


def _units_away(workload: Workload, plan: Sharding, ranks: int) -> _Away:
    """FSDP 1's units: each has a pinned shard and a pinned gradient, trained or not.

    torch 2.13 `_flat_param.py`, `init_flat_param_attributes`, before the first forward pass; the
    shards from which they are copied are freed during that pass (`_use_sharded_flat_param`). Pinned
    buffers are powers of two (`moved_activations`).
    """
    found = unit_sizes(workload, plan.fsdp, plan.states)
    sizes = [(max(round(size / plan.shards), 1), number) for size, number in found]
    pinned = float(ranks * sum(number * power_of_two(size) for size, number in sizes))
    moved = {"offloaded parameters": pinned, "offloaded gradients": pinned}
    copied = float(ranks * sum(number * size for size, number in sizes))
    moments = ranks / plan.shards * moments_of(workload, plan)
    return _Away(
        held={**moved, "offloaded optimizer states": moments},
        loaded={},
        pinning={**moved, "shards before they are pinned": copied},
    )


def _shards(plan: Sharding, ranks: int) -> Sizes:
    """FSDP 2's shards, each pinned, at the next power of two (`moved_activations`).

    torch 2.13 `_fsdp_param.py`, `_init_sharded_param`.
    """
    share, counts = ranks / plan.shards, plan.counts
    learnt = plan.parameter * counts.trainable * _roundings(plan, plan.parameter)
    size = BYTES[plan.states.weights]
    packed = counts.base - counts.trained - counts.frozen
    plain = size * counts.frozen * _roundings(plan, size)
    small = PACKED * packed * _roundings(plan, PACKED)
    return {"offloaded parameters": share * (learnt + plain + small)}


def _stepped(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """The optimizer's host memory under FSDP: gradients pinned like shards, and unpinned moments.

    torch 2.13 `_fsdp_collectives.py`, `foreach_reduce`: `.to("cpu", non_blocking=True)`, for which
    ATen's `_to_copy` allocates pinned memory.
    """
    share = ranks / plan.shards
    gradients = plan.gradient * plan.counts.trainable * _roundings(plan, plan.gradient)
    return {
        "offloaded gradients": share * gradients,
        "offloaded optimizer states": share * moments_of(workload, plan),
    }


def _roundings(plan: Sharding, width: float) -> float:
    """The ratio of the bytes of pinned buffers to the bytes of the shards that they hold."""
    needed = taken = 0.0
    for size, total in plan.counts.sizes:
        shard = max(-(-size // plan.shards) * width, 1.0)
        needed += total
        taken += total * power_of_two(round(shard)) / shard
    return taken / needed if needed else 1.0


def _parameters(plan: Sharding, ranks: int) -> Sizes:
    """Parameters that stage 3 moves off the devices of one node, 2 bytes an element in 16 bit."""
    share = ranks / plan.shards
    size, elements = BYTES[plan.states.weights], plan.counts.base + plan.counts.adapters
    if plan.zero.offload_param == "nvme":
        kept = min(elements / plan.shards, _NVME_PARAMS_IN_CPU)
        buffers = _NVME_PARAM_BUFFERS * _NVME_PARAM_BUFFER
        return {
            "NVMe parameter buffers": float(size * buffers * ranks),
            "offloaded parameters": size * kept * ranks * _PINNED,
        }
    return {
        "offloaded parameters": size * elements * share * _PINNED,
        "second shards": second_shards(plan) * ranks * _PINNED,
    }


def _data_loading(workload: Workload, layout: Layout, ranks: int) -> Sizes:
    data, workers = workload.data, workload.dataloader_workers
    pixels = pixels_of(workload) * 3 * BYTES["fp32"]
    ready = max(workers * _PREFETCHED, 1) * layout.batch.micro
    return {
        "data loading processes": float(_WORKER * workers * ranks),
        "decoded batches": float(ready * ranks * (pixels + 3 * 8 * data.sequence)),
    }
