"""The number of kernels that the host launches in one micro batch, from the modules."""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.arithmetic import arithmetic, is_fused_gate, is_fused_qkv
from tunec.compiler.analyses.memory.modules import (
    BYTES,
    FOUR_BIT,
    FUSED_EXPERTS,
    experts_apart,
    is_stack,
    quantizes,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.time.flops import PARTS, operands, part_tokens
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module, Part

FORWARD: Final = 38 / 9
_BACKWARD: Final = 71 / 9
_ADAPTER: Final = 6
_ADAPTER_BACKWARD: Final = 7.4
"""Of a module and of an adapter (traced: transformers 5.23, peft 0.21; a Llama layer, which has
seven products and two norms, launches 38 and 71)."""
_EXPANSION: Final = 3
"""Of each quantised module in each pass: scales, scales of scales, the weight."""
_EXPERT: Final = 2
"""Modules that an expert of its own counts for, for each of the two stacks that it is part of:
three products, the activation, and tokens that are picked and added."""
_SLICE: Final = 0.5
"""Modules that an expert which is a slice counts for: one product; backward two, zeros, a copy and
a sum."""
_LAYER_NORM: Final = 2 / (FORWARD + _BACKWARD)
"""Modules that a LayerNorm counts for: a kernel in each pass."""
_SLICED: Final = frozenset({"granitemoe", "granitemoeshared", "jetmoe"})


def forward_kernels(workload: Workload) -> float:
    """Kernels of one forward pass, adapters included."""
    adapted = sum(each.copies for each in workload.adapted)
    return FORWARD * _launching(workload) + _ADAPTER * adapted


class KernelCounts(NamedTuple):
    """The number of kernels in each pass of a micro batch."""

    forward: float
    backward: float
    recomputation: float


def kernels(workload: Workload, *, repeated: float) -> KernelCounts:
    """Kernels forward, backward and repeated."""
    adapted = sum(module.copies for module in workload.adapted)
    backward = _BACKWARD * _launching(workload) + _ADAPTER_BACKWARD * adapted
    expanded = _EXPANSION * _expanded(workload)
    forward = forward_kernels(workload) + expanded
    return KernelCounts(forward, backward + expanded, repeated * forward)


_EXCHANGED: Final = 13
_EXCHANGED_BACKWARD: Final = 11
"""Of each layer that shares a sequence: queries, keys and values are copied, exchanged and copied,
outputs exchanged and copied; forward positions too are gathered and joined (deepspeed 0.19.8
`runtime/sequence_parallel/ulysses_sp.py`, `UlyssesSPAttentionHF.forward`)."""


def exchanging(workload: Workload, width: int, *, repeated: float) -> KernelCounts:
    """Kernels around the exchanges of ranks that share a sequence."""
    layers = sum(stack.layers for stack in workload.architecture.stacks) if width > 1 else 0
    forward = _EXCHANGED * layers
    return KernelCounts(forward, _EXCHANGED_BACKWARD * layers, repeated * forward)


def is_read_back(workload: Workload) -> bool:
    """Whether the host waits in each layer for what the device finds: the tokens of each expert.

    transformers 4.52.4 `models/granitemoe/modeling_granitemoe.py`, `GraniteMoeTopKGating`:
    `expert_size.tolist()`; 4.45 `models/mixtral/modeling_mixtral.py`: `torch.where` on the mask.
    """
    return experts_apart(workload) or sliced(workload)


def sliced(workload: Workload) -> bool:
    """Whether each expert's weight is a slice of all, read in a loop.

    transformers 4.52.4 `models/granitemoe/modeling_granitemoe.py`,
    `GraniteMoeParallelExperts.forward`.
    """
    version = workload.version("transformers")
    before = version is not None and version < FUSED_EXPERTS
    return before and workload.architecture.family in _SLICED


def sliced_bytes(workload: Workload, states: States) -> float:
    """Bytes that gradients of slices move: each fills a tensor as large as all, and is added to it.

    torch's `select` has `select_backward` for a gradient: zeros, a slice of them filled.
    """
    if not sliced(workload):
        return 0
    width = BYTES[states.trainable]
    return sum(
        4 * width * _elements(module) * module.shape[0] * module.copies
        for module in workload.trained
        if is_stack(module)
    )


SCATTERED: Final = 3.0e10
"""Elements a second that torch's `index_add_` adds in 16 bits, one by one whatever the device:
33.5 million in 1.10 ms (flagos-ai/FlagGems pull request 427), 67 million in 2.07 ms on an H20
(4502); 23 billion a second on a B200 where half of the rows are one (pytorch/pytorch pull request
183950).
"""


def scattered(workload: Workload) -> float:
    """Elements of one sample that experts add to their tokens in one pass.

    transformers 4.52.4 `models/granitemoe/modeling_granitemoe.py`, `GraniteMoeMoE.forward`; 4.45
    `models/mixtral/modeling_mixtral.py`: `index_add`. Backward, the gradients of the tokens that
    experts had picked are added up likewise: torch 2.13 `tools/autograd/derivatives.yaml`,
    `index.Tensor`: `index_put` that accumulates. It sorts first, and is taken to be no slower.
    """
    if not is_read_back(workload):
        return 0.0
    return sum(
        part_tokens(workload, stack.part) * stack.layers * stack.experts.active * stack.hidden
        for stack in workload.architecture.stacks
        if stack.experts is not None
    )


def _elements(module: Module) -> int:
    return module.shape[0] * module.shape[1] * module.shape[2]


@cached(256)
def _launching(workload: Workload) -> float:
    """Modules of parts that compute in every step; experts in one parameter count once."""
    model, apart, slices = workload.architecture, experts_apart(workload), sliced(workload)
    each = _EXPERT if apart else _SLICE
    return sum(
        module.copies
        * (
            each * module.shape[0]
            if (apart or slices) and is_stack(module)
            else _parts(model, module)
        )
        for module in model.modules
        if module.part in PARTS and module.kind != "embedding"
    )


def _parts(model: Architecture, module: Module) -> float:
    """Modules of a Llama layer that a module stands for; what follows each is launched anyway.

    Traced: a layer of Phi-3, which has four products, launches 38 and 72 too. LayerNorm is a kernel
    of its own, where an RMSNorm is six: layers of BERT, DistilBERT, GPT-2 and GPT-NeoX launch 74 to
    82 in both passes, those of OPT 64.
    """
    stack = next((each for each in model.stacks if each.part == module.part), None)
    if stack is None:
        return 1
    if module.kind == "norm":
        return _LAYER_NORM if stack.norm == "layer" else 1
    if module.kind == "linear" and is_fused_gate(module, stack):
        return 2
    return 3 if module.kind == "linear" and is_fused_qkv(module, stack) else 1


def _expanded(workload: Workload) -> int:
    """Modules whose weights are expanded before each product."""
    return sum(
        module.copies * (module.shape[0] if is_stack(module) else 1)
        for module in workload.architecture.modules
        if quantizes(workload, module)
    )


_SINGLE: Final = 4


@cached(1024)
def converted_bytes(workload: Workload, states: States, part: Part) -> float:
    """Bytes of one sample's casts in one pass over a part's layers."""
    stacks = [stack for stack in workload.architecture.stacks if stack.part == part]
    tokens = part_tokens(workload, part)
    if not stacks or not tokens:
        return 0.0
    widths, product = arithmetic(workload, states, part), BYTES[workload.precision.compute]
    if widths.stream == product:
        return 0.0
    packed = [each for each in operands(workload, part) if quantizes(workload, each.module)]
    cast = sum(each.read + each.written for each in packed)
    if not packed and widths.autocast:
        normed = sum((each.positions or tokens) * each.layers * each.hidden for each in stacks)
        cast = widths.readers * normed
    return (widths.stream + product) * cast


def is_wide(workload: Workload, states: States) -> bool:
    """Whether attention and the head compute in fp32 while 4-bit products use 16 bits."""
    packed = workload.quantization.format in FOUR_BIT
    narrow = BYTES[workload.precision.compute] < _SINGLE and not workload.precision.tf32
    return packed and narrow and not states.autocast and BYTES[states.weights] == _SINGLE


def wide_head(workload: Workload) -> float:
    """Forward operations of one sample's head; the gradient of its input takes as many."""
    model = workload.architecture
    return 2 * part_tokens(workload, "text") * model.vocab * model.hidden
