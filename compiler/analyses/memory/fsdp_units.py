"""The units into which FSDP cuts a model, each gathered together.

accelerate makes the embedding and the head units of their own (from 1.14 `utils/fsdp_utils.py`,
`fsdp2_prepare_model`); the root unit of version 1 holds both.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.analyses.memory.dtypes import BYTES, PACKED
from tunec.compiler.analyses.memory.modules import FOUR_BIT, adapter_elements, quantizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import Fsdp, States
from tunec.schemas.models.architecture import Module
from tunec.schemas.terms import FloatDtype

_OWN_UNITS: Final = Version("1.14")
"""The first accelerate that makes the embedding and the head units of their own."""


class Unit(NamedTuple):
    """What is gathered together, in bytes of the gathered copy, and its trained elements."""

    size: float
    trained: float


class Units(NamedTuple):
    """The units of a model."""

    layer: Unit
    """The largest of those that repeat."""
    embedding: Unit
    """Nothing where the output projection shares its weight, or the root holds it."""
    tail: Unit
    """The output projection, the final norm, and an embedding that shares the weight."""
    root: Unit
    """All that is in no other unit."""
    every: Unit


def computed_states(states: States, compute: FloatDtype, fsdp: Fsdp, *, adapted: bool) -> States:
    """The dtypes in which a forward pass meets the parameters: those of the gathered copies.

    An adapter with a unit of its own, as peft has version 1 make, is gathered only after it was
    asked for its dtype, that of its shards: its input is cast to that and back (peft 0.21
    `tuners/lora/layer.py`, `Linear.forward`; torch 2.13 `distributed/fsdp/_runtime_utils.py`,
    `_pre_forward`).
    """
    if not fsdp.version or not states.autocast:
        return states
    if adapted and fsdp.version == 1:
        return replace(states, weights=compute)
    return replace(states, weights=compute, trainable=compute)


@cached(512)
def units_of(workload: Workload, fsdp: Fsdp, states: States) -> Units:
    """The units into which accelerate cuts a model."""
    model, size = workload.architecture, _sizes(workload, states)
    layers: dict[tuple[str, int], list[float]] = {}
    whole, inside = [0.0, 0.0], [0.0, 0.0]
    ends = {"embedding": [0.0, 0.0], "tail": [0.0, 0.0]}
    for module in model.modules:
        gathered, learnt = size(module)
        whole[0] += gathered
        whole[1] += learnt
        prefix, repeats, _ = module.path.partition("{}")
        if repeats and fsdp.wrap != "none":
            places = {place[0] for place in module.places()}
            for place in places:
                found = layers.setdefault((prefix, place), [0.0, 0.0])
                found[0] += gathered / len(places)
                found[1] += learnt / len(places)
            inside[0] += gathered
            inside[1] += learnt
        elif _has_ends(workload, fsdp):
            end = _end(workload, module)
            if end:
                ends[end][0] += gathered
                ends[end][1] += learnt
    largest = max(layers.values(), default=[0.0, 0.0])
    spent = [inside[i] + ends["embedding"][i] + ends["tail"][i] for i in (0, 1)]
    return Units(
        layer=Unit(*largest),
        embedding=Unit(*ends["embedding"]),
        tail=Unit(*ends["tail"]),
        root=Unit(*(max(whole[i] - spent[i], 0.0) for i in (0, 1))),
        every=Unit(*whole),
    )


def unit_sizes(workload: Workload, fsdp: Fsdp, states: States) -> tuple[tuple[float, int], ...]:
    """Bytes of each unit of version 1 in its parameters' own dtypes, and how many there are."""
    size = _sizes(workload, replace(states, autocast=False))
    found: dict[tuple[str, int], float] = {}
    for module in workload.architecture.modules:
        gathered, _ = size(module)
        prefix, repeats, _ = module.path.partition("{}")
        inside = bool(repeats) and fsdp.wrap != "none"
        units = {(prefix, place[0]) for place in module.places()} if inside else {("", 0)}
        for unit in units:
            found[unit] = found.get(unit, 0.0) + gathered / len(units)
    return tuple(Counter(found.values()).items())


def _has_ends(workload: Workload, fsdp: Fsdp) -> bool:
    version = workload.version("accelerate")
    return fsdp.version == 2 and (version is None or version >= _OWN_UNITS)


def _end(workload: Workload, module: Module) -> str | None:
    """Which end of the model a module is, if any."""
    model = workload.architecture
    if module.path == model.embedding:
        return "tail" if model.tied else "embedding"
    adapted = workload.adapter.kind != "none"
    final = module.kind == "norm" and not adapted and module.part == "text"
    return "tail" if module.path == model.head or final else None


def _sizes(workload: Workload, states: States) -> Callable[[Module], tuple[float, float]]:
    """How many gathered bytes and trained elements a module has, over all copies."""
    carried = {id(each) for each in workload.adapted}
    taught = {id(each) for each in workload.trained}
    wanting = taught | {id(each) for each in workload.idle}
    mixed = BYTES[workload.precision.compute] if states.autocast else 0

    def size(module: Module) -> tuple[float, float]:
        base, learnt = module.parameters, module.parameters if id(module) in taught else 0
        adapters = adapter_elements(workload, module) if id(module) in carried else 0
        width = mixed or BYTES[states.trainable if id(module) in wanting else states.weights]
        packed = workload.quantization.format in FOUR_BIT and quantizes(workload, module)
        return (
            base * (PACKED if packed else width) + adapters * (mixed or BYTES[states.trainable]),
            learnt + adapters,
        )

    return size
