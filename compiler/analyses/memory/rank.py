"""What one rank of a run has of its model, and what a run trains of what it may train.

Under DeepSpeed's AutoTP a rank of a tensor parallel group holds a smaller model: AutoTP shards by
the plan of the model's own class (deepspeed 0.19.8 `runtime/engine.py`,
`_apply_autotp_partitioning`; transformers 5.23 `base_model_tp_plan`): projections into heads and
into the feed-forward by their outputs, those out of them by their inputs. Norms, and the embedding
of a model whose head is its own, stay whole. Such a head is sharded by the vocabulary and its
logits are gathered; a head that is the embedding stays sharded with it, and the loss is taken
across the ranks (`module_inject/layers.py`, `VocabParallelLinear`).

A tower that no picture passes gets no gradient: its parameters' gradients stay None, which autograd
never fills, and optimizers pass over such parameters without a state for them (torch 2.13
`optim/adamw.py` through `Adam._init_group`: `if p.grad is not None`). FSDP reduces the units that a
backward pass has reached, and no others; a unit of version 1 is one flat tensor, whose gradient has
all of it. DDP has room in its buckets for every parameter that wants a gradient
(`nn/parallel/distributed.py`, `_build_params_for_reducer`); DeepSpeed has all of them in its
partitions, with states.
"""

from collections.abc import Callable
from typing import Final, Literal

from packaging.version import Version

from tunec.compiler.analyses.memory.modules import tower_of
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Module, Stack

FAMILIES: Final = frozenset({"llama", "mistral", "qwen2", "qwen3", "granite", "cohere"})
"""Families whose whole plan DeepSpeed 0.19.8 uses, with one model of each traced."""

_BY_OUTPUTS: Final = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})
_BY_INPUTS: Final = frozenset({"o_proj", "down_proj"})

_GATHERS_LOGITS: Final = Version("0.19.4")
"""The first release that knows `colwise_gather_output`, the style of a head: before, the plan was
replaced by one that is based on names (`module_inject/tp_plan_converter.py` in the sdists 0.19.0 to
0.19.7)."""
_SHARDS_VOCABULARY: Final = Version("0.19.8")
"""The first release that shards a tied embedding with its head."""


def unknown(workload: Workload, ways: int) -> str | None:
    """Why a rank's share is not known or such ranks are impossible; None if both are fine."""
    model = workload.architecture
    if model.kind != "causal-lm" or model.family not in FAMILIES or model.remote_code:
        return f"AutoTP's way through the family {model.family} is not accounted for"
    if workload.adapter.kind != "none":
        return "AutoTP replaces the layers that hold adapters, at which DeepSpeed's ZeRO stops"
    version, least = workload.version("deepspeed"), _least(model)
    if version is not None and version < least:
        return f"AutoTP is accounted for from DeepSpeed {least} on, not for {version}"
    if workload.loss != "full":
        return "the loss in pieces multiplies with a whole head, which AutoTP has split"
    return _indivisible(model, ways)


def _least(model: Architecture) -> Version:
    return _SHARDS_VOCABULARY if model.tied else _GATHERS_LOGITS


def _indivisible(model: Architecture, ways: int) -> str | None:
    stack = model.stacks[0]
    widths = {
        "attention heads": stack.heads,
        "key and value heads": stack.kv_heads,
        "feed-forward units": stack.ffn,
        "rows of the vocabulary": model.vocab,
    }
    odd = next((name for name, size in widths.items() if size % ways), None)
    return None if odd is None else f"{widths[odd]} {odd} do not divide by {ways}"


def of_rank(workload: Workload, ways: int, *, several: bool = True) -> Workload:
    """The workload of one rank in a group of `ways` ranks; the same object if `ways` is 1.

    `several`: whether a micro batch has more than one sample.
    """
    return workload if ways == 1 else _of_rank(workload, ways, several or not _splits(workload))


def _splits(workload: Workload) -> bool:
    """Whether logits stay split by the vocabulary, as they do if the head is the embedding."""
    return workload.architecture.tied


@cached(256)
def _of_rank(workload: Workload, ways: int, several: bool) -> Workload:
    model = workload.architecture
    shared = {module: _share(model, module, ways) for module in model.modules}
    rank = replace(
        model,
        modules=tuple(shared.values()),
        stacks=tuple(_stack(stack, ways) for stack in model.stacks),
        vocab=model.vocab // ways if model.tied else model.vocab,
    )
    return replace(
        workload,
        architecture=rank,
        trained=tuple(shared.get(module, module) for module in workload.trained),
        idle=tuple(shared.get(module, module) for module in workload.idle),
        vocabulary_ways=ways if model.tied else 1,
        copies_logits=several,
    )


def _stack(stack: Stack, ways: int) -> Stack:
    return replace(
        stack,
        heads=max(stack.heads // ways, 1),
        kv_heads=max(stack.kv_heads // ways, 1),
        ffn=stack.ffn // ways,
    )


def _share(model: Architecture, module: Module, ways: int) -> Module:
    name = module.path.rpartition(".")[2]
    whole = module.path in (model.head, model.embedding)
    if len(module.shape) < 2 or (whole and not model.tied and module.path != model.head):
        return module
    rows, *rest = module.shape
    if whole or name in _BY_OUTPUTS:
        return replace(module, shape=(rows // ways, *rest), bias=module.bias // ways)
    if name in _BY_INPUTS:
        return replace(module, shape=(rows, rest[0] // ways))
    return module


_Stepped = Literal["all", "root", "none"]
"""Which parameters have optimizer states although no sample reaches them."""

_IS_STEPPED: Final[dict[_Stepped, Callable[[Module], bool]]] = {
    "all": lambda _: True,
    "root": lambda module: "{}" not in module.path,
    "none": lambda _: False,
}


def reached(workload: Workload, layout: Layout) -> Workload:
    """The workload with unreached modules marked.

    Samples of text alone reach no vision tower, and none reaches what its class does not call.
    """
    return _without_unreached(workload, _stepped(layout))


def _stepped(layout: Layout) -> _Stepped:
    if layout.parallel.engine == "deepspeed":
        return "all"
    if layout.fsdp.version != 1:
        return "none"
    return "all" if layout.fsdp.wrap == "none" else "root"


def _unreached(modules: tuple[Module, ...], pictured: bool) -> tuple[Module, ...]:
    tower = () if pictured else tower_of(modules)
    return tuple(each for each in modules if not each.calls or each in tower)


@cached(256)
def _without_unreached(workload: Workload, stepped: _Stepped) -> Workload:
    pictured = workload.data.vision_tokens > 0
    idle, adapted = (_unreached(m, pictured) for m in (workload.trained, workload.adapted))
    if not idle and not adapted:
        return workload
    keeps = _IS_STEPPED[stepped]
    return replace(
        workload,
        idle=idle,
        idle_adapted=adapted,
        trained=tuple(each for each in workload.trained if each not in idle or keeps(each)),
        adapted=tuple(each for each in workload.adapted if each not in adapted or keeps(each)),
    )
