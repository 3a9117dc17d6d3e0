"""The possible shapes, and the reasons why others are impossible."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import lcm
from operator import attrgetter
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.passes.defaults import BATCH, BATCH_IMAGES, BATCH_TOKENS
from tunec.compiler.passes.fit.fsdp import impossible_fsdp, kinds, usual_version
from tunec.compiler.passes.fit.muon import impossible_muon
from tunec.compiler.passes.fit.parallel import impossible_groups
from tunec.compiler.passes.fit.problem import SHAPE_SLOTS, Problem, Shape
from tunec.compiler.passes.fit.states import leaves_adapters
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import STEPS_IN_BACKWARD, Checkpointing, Engine, FsdpSharding, Offload

_OFFLOADS: tuple[Offload, ...] = ("none", "cpu", "nvme")
_ENGINES: tuple[Engine, ...] = ("none", "ddp", "deepspeed")
_MODES: tuple[Checkpointing, ...] = ("none", "layer")
_SMALL_SHARE = 0.05
"""Below this share of trained parameters, their states are smaller than one layer's activations."""

_Kind = tuple[Engine, int, Offload, Offload, Checkpointing]


def shapes(problem: Problem) -> Iterator[Shape]:
    """Every shape that the pins allow, possible or not; without pins, all that could run."""
    pinned = any(slot in SHAPE_SLOTS for slot in problem.pinned)
    return _shapes(problem, _EVERY if pinned else _SENSIBLE)


def _shapes(problem: Problem, kinds: Sequence[_Kind]) -> Iterator[Shape]:
    nodes, per_node = devices_used(problem)
    pinned = {slot: value for slot, value in problem.pinned.items() if slot in SHAPE_SLOTS}
    tensor, sequence = _ways(problem, "tensor"), _ways(problem, "sequence")
    every = (Shape(*kind, nodes, per_node, tensor=tensor, sequence=sequence) for kind in kinds)
    fsdp = (replace(each, tensor=tensor, sequence=sequence) for each in _fsdp(nodes, per_node))
    for shape in chain(every, fsdp if problem.takes_fsdp or _asks_for_fsdp(problem) else ()):
        if all(shape.says(slot) == value for slot, value in pinned.items()):
            yield shape


def _asks_for_fsdp(problem: Problem) -> bool:
    """Whether the spec requests something that only FSDP has (decision 10)."""
    pinned = problem.pinned
    return (
        pinned.get("parallel.engine") == "fsdp"
        or pinned.get("fsdp.sharding", "none") != "none"
        or any(pinned.get(f"fsdp.{name}") for name in ("version", "offload_params"))
    )


def _fsdp(nodes: int, per_node: int) -> Iterator[Shape]:
    for kind, mode in product(kinds(), _MODES):
        yield Shape("fsdp", 0, "none", "none", mode, nodes, per_node, kind)


def ladders(problem: Problem) -> tuple[tuple[Shape, ...], ...]:
    """The possible shapes in groups that differ only in what is recomputed, the least first.

    Unless ranks share more than data, or a pin says how many there are, rules tell one device from
    several, and no more of their number.
    """
    if not _COUNTING.isdisjoint(problem.pinned) or _asks_for_fsdp(problem):
        return _ladders(problem)
    nodes, per_node = devices_used(problem)
    several = min(nodes * per_node, 2)
    alike = replace(anywhere(problem), nodes=1, per_node=several, global_batch=None)
    return tuple(
        tuple(replace(shape, nodes=nodes, per_node=per_node) for shape in ladder)
        for ladder in _ladders(alike)
    )


_COUNTING: Final = frozenset(
    {f"parallel.{name}" for name in ("data", "world", "tensor", "sequence")}
)


@cached(256)
def _ladders(problem: Problem) -> tuple[tuple[Shape, ...], ...]:
    found: dict[Shape, list[Shape]] = {}
    for shape in _shapes(problem, _RUNNABLE):
        if impossible(problem, shape) is None:
            found.setdefault(replace(shape, checkpointing="none"), []).append(shape)
    return tuple(map(tuple, found.values()))


def anywhere(problem: Problem) -> Problem:
    """The problem without its machine and its memory, which no rule reads.

    Problems that differ only in these have equal shapes.
    """
    return replace(problem, **_NOWHERE)


_NOWHERE: Final[Mapping[str, Any]] = {
    "machine": Machine(*(0.0,) * 8, nodes=0, per_node=0),
    "budget": 0,
    "reserve": 0,
    "host_budget": None,
    "vendor": "nvidia",
}
posed: Final[Callable[[Problem], tuple[Any, ...]]] = attrgetter(
    *(name for name in Problem.__struct_fields__ if name not in _NOWHERE)
)
"""The rest of a problem; problems that agree in it have equal shapes."""

_EVERY: tuple[_Kind, ...] = tuple(
    (engine, stage, optimizer, param, mode)
    for engine in _ENGINES
    for stage in (range(4) if engine == "deepspeed" else (0,))
    for optimizer, param, mode in product(_OFFLOADS, _OFFLOADS, _MODES)
)


def _is_sensible(kind: _Kind) -> bool:
    """Whether some machine and model could run it: offload needs DeepSpeed and certain stages."""
    engine, stage, optimizer, param, _ = kind
    if engine == "deepspeed" and stage == 0:
        return False
    if param != "none":
        return stage == 3
    return optimizer == "none" or (stage > 0 and (optimizer == "cpu" or stage == 3))


_SENSIBLE = tuple(filter(_is_sensible, _EVERY))
_UNSHARDED: Final = ("deepspeed", 0, "none", "none")
_RUNNABLE = tuple(kind for kind in _EVERY if _is_sensible(kind) or kind[:4] == _UNSHARDED)
"""What no rule forbids for every problem: DeepSpeed without ZeRO runs too, where it is asked for.
"""


def _ways(problem: Problem, what: str) -> int:
    """The number of ranks that share each layer (`tensor`) or each sequence, by pin."""
    ways: int = problem.pinned.get(f"parallel.{what}", 1)
    return ways


def devices_used(problem: Problem) -> tuple[int, int]:
    """Nodes and devices a node: the most whose number divides the global batch, or as pinned."""
    ways = _ways(problem, "tensor") * _ways(problem, "sequence")
    wanted, batch = _devices_pinned(problem, ways), problem.global_batch

    def is_fit(pair: tuple[int, int]) -> bool:
        width, rest = divmod(pair[0] * pair[1], ways)
        return rest == 0 and (wanted is not None or batch is None or batch % width == 0)

    pairs = _most_first(problem) if wanted is None else _of_as_many(problem, wanted)
    return next(filter(is_fit, pairs), (problem.nodes, problem.per_node))


def _devices_pinned(problem: Problem, ways: int) -> int | None:
    """How many devices the pinned ranks need."""
    data: int | None = problem.pinned.get("parallel.data")
    world: int | None = problem.pinned.get("parallel.world")
    return data * ways if data else world


def _most_first(problem: Problem) -> Iterator[tuple[int, int]]:
    """Nodes with all their devices, then parts of one."""
    yield from ((nodes, problem.per_node) for nodes in range(problem.nodes, 0, -1))
    yield from ((1, per_node) for per_node in range(problem.per_node - 1, 0, -1))


def _of_as_many(problem: Problem, devices: int) -> Iterator[tuple[int, int]]:
    """The nodes that have so many devices together, or the part of one."""
    nodes, rest = divmod(devices, problem.per_node)
    if nodes == 0:
        yield 1, devices
    elif rest == 0 and nodes <= problem.nodes:
        yield nodes, problem.per_node


def global_batch(problem: Problem, width: int) -> int:
    """Samples in one step: as given, or the smallest multiple of the width at a usual size."""
    if problem.global_batch is not None:
        return problem.global_batch
    least = lcm(width, problem.group)
    return -(-usual_batch(problem.workload) // least) * least


def usual_batch(workload: Workload) -> int:
    """Samples in one step by default: as many as usual, but fewer of long ones."""
    if workload.architecture.kind == "diffusion":
        return int(BATCH_IMAGES.value)
    sequences = workload.preference.sequences if workload.preference is not None else 1
    tokens = sequences * (workload.data.sequence + workload.data.image_tokens)
    return int(min(BATCH.value, max(1, BATCH_TOKENS.value // max(1, tokens))))


def impossible(problem: Problem, shape: Shape) -> str | None:
    """Why a shape cannot run or makes no sense; None if it can."""
    if shape.engine == "none" and shape.devices > 1:
        return f"one process drives one device, not {shape.devices}"
    refusal = impossible_groups(problem, shape)
    if refusal is not None:
        return refusal
    if shape.engine == "ddp" and shape.width == 1:
        return "there is only one device, so there is nothing to run in parallel"
    if shape.checkpointing == "none" and _keeps_unknown(problem):
        return (
            "the memory that classes of the model's own repository keep for the backward pass "
            "is unknown"
        )
    refusal = _recomputation(problem, shape) or _merging(problem.workload, shape)
    if refusal is not None:
        return refusal
    refusal = impossible_muon(problem.workload, shape)
    if refusal is not None:
        return refusal
    if shape.engine != "none" and problem.workload.optimizer.name in STEPS_IN_BACKWARD:
        # lomo-optim 0.1.1 `fuse_update`; accelerate 1.15 accelerator.py `backward`: under DeepSpeed
        # the engine's own pass runs, in which no hook knows of stages below 3
        return "LOMO updates each tensor before the ranks have summed its gradient"
    if shape.engine == "fsdp":
        return _fsdp_refusal(problem, shape)
    if shape.engine != "deepspeed":
        return _offload_without_engine(shape)
    return _sharding(problem, shape) or _offload(problem, shape) or _optimizer(problem, shape)


def _merging(workload: Workload, shape: Shape) -> str | None:
    """Why adapters cannot be added to the base where it was trained.

    peft 0.21 `tuners/lora/layer.py`, `Linear.merge`, adds to the weight that is there, of which
    shards are a part.
    """
    if workload.adapter.merge != "device":
        return None
    if shape.stage == 3 or shape.engine == "fsdp":
        return "adapters merge into whole weights, which are split here: merge in host RAM"
    return None


def _recomputation(problem: Problem, shape: Shape) -> str | None:
    """Why recomputation does not go with a class, or what is pinned of it with a shape.

    transformers 5.23 `modeling_utils.py`, `gradient_checkpointing_enable`, raises where
    `supports_gradient_checkpointing` is false; FSDP's own recomputation asks no class.
    """
    kept = not problem.workload.architecture.recomputes and shape.checkpointing != "none"
    if kept and shape.engine != "fsdp":
        return f"the class of {problem.workload.architecture.family} recomputes no layers"
    if not problem.pins:
        return None
    name, usual = "activation_checkpointing", {"segment": 1, "gap": 0, "offload": False}
    asked = [k for k, v in usual.items() if problem.pinned.get(f"{name}.{k}", v) != v]
    if asked and shape.checkpointing == "none":
        return f"{name}.{asked[0]} applies only where layers are recomputed"
    if asked and problem.workload.architecture.unet:
        return f"a UNet recomputes all of its blocks or none, so {name}.{asked[0]} has no meaning"
    return None


def _keeps_unknown(problem: Problem) -> bool:
    """Whether activations depend on untraced code, so that only recomputation bounds them."""
    remote = problem.workload.architecture.remote_code
    return remote and "activation_checkpointing.mode" not in problem.pinned


def _offload_without_engine(shape: Shape) -> str | None:
    if shape.offload_optimizer != "none" or shape.offload_param != "none":
        return "only DeepSpeed offloads"
    return None


def _fsdp_refusal(problem: Problem, shape: Shape) -> str | None:
    version, sharding, _ = shape.fsdp
    pinned = problem.pinned
    units = _units(pinned)
    usual = usual_version(problem.workload, units)
    if version != usual and "fsdp.version" not in pinned and sharding in ("full", "grad_op"):
        return f"FSDP {usual} is the one for the releases that will run"
    if not _asks_for_fsdp(problem) and (why := _unasked(problem.workload, sharding)):
        return why
    if sharding == "none" and pinned.get("fsdp.sharding") != "none":
        return "unsharded FSDP does what DDP does"
    if sharding == "hybrid" and usual == 2 and not {"fsdp.version", "fsdp.sharding"} & set(pinned):
        return "only FSDP 1 can be set to hybrid by these files"
    ranks = {"width": shape.width, "nodes": shape.nodes}
    return impossible_fsdp(shape.fsdp, problem.workload, **ranks, units=units)


def _units(pinned: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The classes that pins name as units; None: those that the model itself names."""
    if pinned.get("fsdp.wrap", "transformer") != "transformer":
        return ()
    return pinned.get("fsdp.wrap_classes") or None


def _unasked(workload: Workload, sharding: FsdpSharding) -> str | None:
    """Why FSDP is not chosen without a request, though it may run."""
    if sharding == "hybrid":
        return "hybrid is tried only if the spec requests FSDP"
    if workload.architecture.remote_code:
        return "the units into which the repository's own code can be split are unknown"
    return None


def _sharding(problem: Problem, shape: Shape) -> str | None:
    offloads = shape.offload_optimizer != "none" or shape.offload_param != "none"
    asked = shape.tensor > 1 or problem.pinned.get("parallel.engine") == "deepspeed"
    if shape.stage == 0 and not asked:
        return "without ZeRO, DeepSpeed does the same as the plain trainer"
    if problem.loses_schedule and problem.pinned.get("parallel.engine") != "deepspeed":
        return "the schedule of adapters fails under DeepSpeed with the torch that is installed"
    shares = shape.width * shape.sequence > 1 or problem.workload.optimizer.name == "muon"
    if shape.stage and not shares and not offloads:
        return "there is only one device, so there is nothing to shard over"
    if shape.stage == 3 and problem.workload.quantization.format != "none":
        # transformers integrations/deepspeed.py and bitsandbytes: zero.Init partitions weights
        # before they are quantised (memory goes up), and packed weights fail its 2-D checks
        return "ZeRO-3 cannot shard a quantised base"
    if shape.stage == 3 and leaves_adapters(problem.workload):
        return _beside_fp32_adapters(problem.workload)
    return None


def _beside_fp32_adapters(workload: Workload) -> str | None:
    """What adapters that ZeRO-3 leaves in fp32 rule out, over a base in 16 bits.

    deepspeed 0.19.8 runtime/zero/utils.py `defragment` asserts one dtype for all that is trained;
    runtime/fp16/loss_scaler.py `CreateLossScaler` scales only where that is fp16. 0.19.2 alone
    gathers persistent parameters of both dtypes into buffers of one (its issue 8072).
    """
    if workload.precision.compute == "fp32":
        return None
    if workload.version("deepspeed") == Version("0.19.2"):
        return "ZeRO-3 of DeepSpeed 0.19.2 fails if adapters are fp32 and the base is not"
    if workload.trained or workload.adapter.bias != "none":
        return "ZeRO-3 trains parameters of one dtype, but only the adapters are fp32"
    if workload.precision.compute == "fp16":
        return "ZeRO-3 does not scale the loss of fp32 adapters, and an fp16 base needs it"
    return None


def _offload(problem: Problem, shape: Shape) -> str | None:
    """Why offload is impossible: DeepSpeed runtime/zero/config.py and engine.py, 0.14 to 0.19."""
    if shape.offload_param != "none" and shape.stage != 3:
        return "parameters can only be offloaded at stage 3; below it the setting is ignored"
    if shape.offload_optimizer != "none" and _is_small(problem):
        return "the optimizer states of so few trained parameters are not worth offloading"
    if shape.offload_optimizer != "none" and shape.stage == 0:
        return "optimizer states can only be offloaded from stage 1 on"
    if shape.offload_optimizer == "nvme" and shape.stage != 3:
        return "optimizer states can go to NVMe only at stage 3"
    if "nvme" in (shape.offload_optimizer, shape.offload_param) and problem.nvme_path is None:
        return "the nodes have no NVMe"
    if shape.offload_optimizer == "none" and shape.offload_param == "nvme":
        return "parameters on NVMe with optimizer states on the device saves only the smaller part"
    return None


def _is_small(problem: Problem) -> bool:
    """Whether few parameters are trained, and no pin places their optimizer states."""
    small = problem.trainable < _SMALL_SHARE * problem.workload.architecture.parameters
    return small and "zero.offload_optimizer" not in problem.pinned


def _optimizer(problem: Problem, shape: Shape) -> str | None:
    """Why an optimizer cannot run: DeepSpeed engine.py `_do_optimizer_sanity_check` and others.

    Those of bitsandbytes run at every stage: they step the flat shard that they get (deepspeed
    0.19.8 runtime/zero/stage3.py `_optimizer_step`; trained and resumed with 0.50.2 on two ranks).
    """
    name = problem.workload.optimizer.name
    if name == "adamw_bf16":
        return "DeepSpeed keeps fp32 copies, which adamw_bf16 exists to avoid"
    if name == "adafactor" and shape.stage:
        return "ZeRO flattens parameters, so Adafactor has no matrices to factor"
    if name != "adamw" and shape.offload_optimizer != "none":
        return f"DeepSpeed offloads its own CPU Adam, not {name}"
    return None
