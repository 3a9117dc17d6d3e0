"""What adapters keep for their backward pass, and the memory needed to merge them."""

import re
from collections.abc import Callable, Iterable
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.modules import (
    BYTES,
    is_in_encoder,
    is_stack,
    quantized_bytes,
    quantizes,
    reads_attention,
    wants_gradient,
)
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module, Part


def adapters_saved(
    workload: Workload,
    modules: Iterable[Module],
    widths: Arithmetic,
    tokens: Callable[[Module], float],
    *,
    in_order: bool = False,
    several: bool = False,
) -> float:
    """Bytes of one sample that the adapters on some modules keep.

    Each fp32 adapter casts its input for itself (peft 0.21 `tuners/lora/layer.py`,
    `Linear.forward`) and keeps the cast: 4 bytes an input without autocast, 2 under it, one more
    for the dropout mask; and its inner activation. Adapters in the base's own dtype read the base's
    input: modules beside each other share one, and the attention's output is kept anyway, unless it
    has to be put in order first, as is what a ReLU gives. Traced with peft 0.21.2.

    DoRA keeps the base's result and the adapter's to weigh them (`tuners/lora/dora.py`,
    `DoraLinearLayer.forward`); with dropout it takes the base's anew, in the adapter's dtype.

    What a decoder reads of an encoder that reads no text is one tensor for all of its layers.

    `tokens`: how many tokens of one sample a module works on. `in_order`: whether attention gives
    its result in token order whatever it is given, as the kernel that takes a mask does. `several`:
    whether a micro batch has more than one sample.
    """
    inner = widths.adapter_product * workload.adapter.rank
    masked = bool(workload.adapter.dropout)
    base = widths.adapter_product if masked else widths.compute
    weighed = base + widths.adapter_product if workload.adapter.dora else 0
    shared = widths.adapters_share_inputs and not masked
    narrow = widths.adapter == widths.compute and not masked
    read: set[tuple[str, int, int, bool, bool]] = set()
    saved, model = 0.0, workload.architecture
    for module in modules:
        if is_stack(module) or not tokens(module):
            continue
        source = _source(model, module)
        how = {"in_order": in_order, "several": several}
        as_it_is = narrow and is_kept(model, module, widths, **how)
        as_it_is |= shared and module.positions > 0 and not is_in_encoder(module)
        kept = as_it_is or (shared and source in read)
        if not kept:
            read.add(source)
        bytes_read = 0 if kept else (widths.adapter_product + masked) * source[1]
        saved += module.copies * tokens(module) * (inner + bytes_read + weighed * module.shape[0])
    return saved


def inputs_kept(
    workload: Workload,
    part: Part,
    widths: Arithmetic,
    tokens: Callable[[Module], float] = lambda _: 1.0,
    *,
    several: bool = False,
) -> float:
    """Bytes of the inputs of a part's frozen linear layers, if each keeps its own; per token.

    At stage 3 every product is DeepSpeed's own, which keeps its input whether or not its weight is
    trained (0.19.8 `runtime/zero/linear.py`, `LinearFunctionForZeroStage3.setup_context`). Modules
    beside each other read one tensor, which adapters in its dtype keep anyway.
    """
    adapted = workload.adapted if widths.adapters_share_inputs and not widths.drops else ()
    known = {_source(workload.architecture, module) for module in adapted}
    kept, model = 0.0, workload.architecture
    for module in model.modules:
        inside = module.kind == "linear" and module.part == part and "{}" in module.path
        read = _source(workload.architecture, module)
        if not inside or read in known:
            continue
        if not is_kept(model, module, widths, in_order=False, several=several):
            known.add(read)
            kept += module.copies * tokens(module) * widths.compute * module.shape[-1]
    return kept


def _source(model: Architecture, module: Module) -> tuple[str, int, int, bool, bool]:
    """A key of the tensor that a module reads; a block's last one reads what the others made.

    An attention over two streams has products of the second beside those of the first. What the
    only norm of a layer gives is read by attention and feed-forward.
    """
    parent, _, name = module.path.rpartition(".")
    if _reads_only_norm(model, module):
        parent = f"{module.path.partition('{}')[0]}{module.indices}"
    second = name.startswith(("add_", "to_add_"))
    return parent, prod(module.shape[1:]), module.copies, reads_attention(module), second


def _reads_only_norm(model: Architecture, module: Module) -> bool:
    stacks = [stack for stack in model.stacks if stack.part == module.part]
    lone = all(stack.norms == 1 and stack.hidden != stack.ffn for stack in stacks)
    inside = bool(stacks) and lone and "{}" in module.path and module.kind == "linear"
    return inside and module.shape[-1] == stacks[0].hidden and not reads_attention(module)


def adapters_working(workload: Workload, widths: Arithmetic) -> float:
    """Working bytes per token that adapters add to a layer, in a pass that keeps nothing.

    At the widest module that has one: its input is cast to the adapters' dtype, and the output of
    the second product is scaled, beside the base's own result (peft 0.21 `tuners/lora/layer.py`,
    `Linear.forward`); a feed-forward's third tensor does not exist yet. Traced.
    """
    layers = [m for m in workload.adapted if m.part == "text" and m.kind == "linear"]
    outputs = [m.shape[0] for m in layers if "{}" in m.path]
    if not outputs:
        return 0
    stacks = [each for each in workload.architecture.stacks if each.part == "text"]
    hidden, ffn = stacks[0].hidden, max(each.ffn for each in stacks)
    product, base = widths.adapter_product, widths.answer
    most = max(outputs)
    cast = product * hidden if product != base else 0
    there = base * (ffn + most) + product * most + cast + max(product, base) * most
    return max(there - 3 * max(widths.compute, base) * ffn, 0)


def experts_merged(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Sizes:
    """Bytes of expert weights with their adapters added, kept for the gradient of their inputs.

    peft 0.21 merges A and B into a copy of the whole tensor in each forward pass (`tuners/lora/
    layer.py`, `_LoraFactorsProxy`), which the graph keeps (traced).
    """
    if checkpointed:
        return {}
    elements = sum(prod(m.shape) * m.copies for m in workload.adapted if is_stack(m))
    return {"merged experts": float(widths.held * elements)}


class Merging(NamedTuple):
    """Bytes of merged weights, and of their gradients, while one layer is differentiated."""

    merged: float
    """Both stacks, merged for the forward pass."""
    gradient: float
    """The most that a gradient needs besides the merged weights: that of the smaller stack.

    When the larger stack's gradient is made, the smaller stack, which is half as large, is
    freed."""


def experts_merging(workload: Workload, widths: Arithmetic) -> Merging:
    """The memory of merging in one layer (traced)."""
    stacks = [prod(module.shape) for module in workload.adapted if is_stack(module)]
    larger, smaller = max(stacks, default=0), min(stacks, default=0)
    most = max(smaller, larger - smaller) if len(stacks) > 1 else larger
    return Merging(float(widths.held * sum(stacks)), float(widths.held * most))


def norms_working(workload: Workload, widths: Arithmetic) -> float:
    """Bytes in which DoRA computes one module's norm, independent of the number of tokens.

    A square of ones to multiply the adapter with, the base's weight, the adapter's product, that
    product scaled, and the sum of both, in the dtype of the adapter's input (traced, peft 0.21.2).
    """
    sizes = [(prod(m.shape[1:]), m.shape[0]) for m in workload.adapted]
    return widths.adapter_product * max(n * (n + 4 * outputs) for n, outputs in sizes)


def weights_kept(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> float:
    """Bytes of base weights of which DoRA keeps a cast; of one layer if layers are recomputed.

    With dropout the base's result is computed from the masked input, in the adapter's dtype, which
    autocast narrows again (peft 0.21.2 `tuners/lora/dora.py`, `DoraLinearLayer.forward`: `weight =
    weight.to(x.dtype)`; traced).
    """
    as_it_lies = widths.adapter == widths.held == widths.adapter_product
    if not workload.adapter.dora or not workload.adapter.dropout or as_it_lies:
        return 0
    reading = (m for m in workload.adapted if wants_gradient(workload.architecture, m))
    elements = sum(prod(m.shape) * (1 if checkpointed else m.copies) for m in reading)
    return float(widths.adapter_product * elements)


_PRODUCTS: Final = 2
"""The product of B and A, and the same scaled (peft 0.21 `tuners/lora/layer.py`,
`get_delta_weight`), which goes into the weight as it is."""
_FP32: Final = 4
_CENTRED: Final = 2 * 4 / 64
"""Bytes an element of block scales, and of them less their mean, while they are quantised too
(bitsandbytes 0.50 `functional.py`, `quantize_4bit`)."""
_HALF: Final = 2
"""What 8-bit weights are packed from (bitsandbytes 0.50 `nn/modules.py`, `Int8Params._quantize`).
"""


def merged(workload: Workload, plan: Sharding, *, repeated: bool = False) -> Sizes:
    """What is held on a device while the largest adapted weight is added to, in bytes.

    DoRA adds to a copy of the weight, scales the sum and brings it back to the weight's dtype
    (`tuners/lora/variants.py`, `DoraLinearVariant.merge_unsafe`). `repeated`: and taken off again,
    for the next time. Traced.
    """
    size, base = BYTES[plan.states.trainable], BYTES[plan.states.weights]
    packed = [module for module in workload.adapted if quantizes(workload, module)]
    if packed:
        each = _repacked(workload, size, repeated=repeated)
        return {"merged adapters": float(each * max(prod(module.shape) for module in packed))}
    each = _PRODUCTS * size
    if workload.adapter.dora:
        each = 3 * size + base + (base if size > base else 0)
    return {"merged adapters": float(each * _largest(workload))}


def _repacked(workload: Workload, size: int, *, repeated: bool) -> float:
    """Bytes an element while a sum is packed anew beside the weight that was packed before it.

    The weight expanded, the adapters' product and the sum are there while the sum, which went to
    the host, comes back to be packed (peft 0.21 `tuners/lora/bnb.py`, `Linear4bit.merge` and
    `Linear8bitLt.merge`): 8 bits in fp16, 4 bits in the sum's own dtype, in which the weight is
    expanded from then on. DoRA holds the weight expanded three times, the sum, and that scaled
    (`tuners/lora/variants.py`, `DoraLinearVariant.merge_safe`).
    """
    quantization, dora = workload.quantization, workload.adapter.dora
    eight = quantization.format == "int8"
    base = _FP32 if eight else BYTES[quantization.compute]
    if repeated:
        base = max(base, size)
    total = max(base, size)
    if dora:
        return 3 * base + size + 2 * total
    if eight:
        return base + 2 * size + _HALF + quantized_bytes(quantization)
    centred = _CENTRED if quantization.double else 0
    return base + size + 2 * total + quantized_bytes(quantization) + centred


def packed_before(workload: Workload) -> float:
    """Bytes of the packed weights that merging replaces."""
    if workload.quantization.format == "none":
        return 0.0
    elements = sum(
        m.parameters - m.bias * m.copies for m in workload.adapted if quantizes(workload, m)
    )
    return quantized_bytes(workload.quantization) * elements


def merged_on_host(workload: Workload) -> Sizes:
    """Bytes that a separate process holds while it merges adapters into a 16-bit base.

    On a CPU the products of 16-bit adapters are made in fp32 (`get_delta_weight`: `cast_to_fp32`).
    """
    base = BYTES[workload.precision.compute] * workload.architecture.parameters
    return {
        "base to merge into": float(base),
        "merged adapters": float(_PRODUCTS * _FP32 * _largest(workload)),
    }


def _largest(workload: Workload) -> int:
    return max((prod(module.shape) for module in workload.adapted), default=0)


_OF_STATES: Final = re.compile(r"(\b(conv|mamba|linear_attn)\.\w+|mixer\.out_proj)$")
"""Projections of what a convolution or a state space gives, which are called as attention's are
(transformers 5.23 `Lfm2ShortConv`, `Mamba2`, `Qwen3NextGatedDeltaNet` and their like)."""
_LINEAR: Final = frozenset({"SanaTransformer2DModel", "SanaVideoTransformer3DModel"})
"""Denoisers whose first attention in a block is linear, whose result nothing keeps (diffusers 0.42
`attention_processor.py`, `SanaLinearAttnProcessor2_0`; `transformer_sana_video.py`)."""
_GATES: Final = ("gate_proj", "g_proj")
"""Names of the projection of a gate that multiplies the attention's output."""


def is_kept(
    model: Architecture,
    module: Module,
    widths: Arithmetic,
    *,
    in_order: bool,
    several: bool = False,
) -> bool:
    """Whether a module's input is kept anyway, in the dtype of products.

    `in_order`: whether attention gives its result in token order whatever its input. `several`:
    whether a micro batch has more than one sample. An audio model passes attention copies in the
    order of heads (transformers 5.23 `WhisperAttention.forward`). A denoiser brings the kernel's
    output to the dtype of its queries (diffusers 0.42 `transformer_flux.py`, `FluxAttnProcessor`:
    `hidden_states.to(query.dtype)`), from which the product copies it again if that is wider. What
    eager attention gives is put in order, and nothing frozen keeps that (transformers 5.23
    `models/gemma2/modeling_gemma2.py`, `eager_attention_forward`: `contiguous`).
    """
    if _is_of_relu(model, module, widths):
        return True
    if widths.eager and not widths.keeps_inputs:
        return False
    if model.kind == "diffusion" and widths.answer > widths.compute:
        return False
    as_given = in_order or (widths.rotary != "concatenated" and not model.source)
    copied = several and _reads_part(model, module)
    return as_given and not copied and _reads_kernel(model, module)


def _reads_part(model: Architecture, module: Module) -> bool:
    """Whether a module reads the image's or the text's share of one kernel's output.

    Such shares of several samples are not contiguous, so that a product copies its input (diffusers
    0.42 `transformer_flux.py`, `FluxAttnProcessor`: `split_with_sizes`; traced).
    """
    parent = module.path.partition(".to_")[0]
    return f"{parent}.to_add_out" in _paths(model)


@cached(256)
def _paths(model: Architecture) -> frozenset[str]:
    return frozenset(module.path for module in model.modules)


_OF_T5: Final = "Attention.o"
"""The end of the path of such a projection in T5: of a layer's own attention, or the other."""


def _reads_kernel(model: Architecture, module: Module) -> bool:
    """Whether a module reads the unchanged output of the attention kernel."""
    reads = reads_attention(module) or module.path.endswith(_OF_T5)
    if not reads or _OF_STATES.search(module.path):
        return False
    if model.family in _LINEAR and ".attn1." in module.path:
        return False
    return (module.path, module.indices) not in _gated(model)


@cached(256)
def _gated(model: Architecture) -> frozenset[tuple[str, object]]:
    """Projections that read the attention's output multiplied by a gate for each element.

    The gate is a separate projection (AFMoE), or half of the queries' (Qwen3-Next, Qwen3.5).
    """
    parts = [(*m.path.rpartition(".")[::2], m) for m in model.modules if m.kind == "linear"]
    apart = {parent for parent, name, _ in parts if name in _GATES and parent.endswith("attn")}
    queries = {(parent, m.indices): m.shape[0] for parent, name, m in parts if name == "q_proj"}
    return frozenset(
        (m.path, m.indices)
        for parent, _, m in parts
        if reads_attention(m)
        if parent in apart or queries.get((parent, m.indices)) == 2 * m.shape[-1]
    )


def _is_of_relu(model: Architecture, module: Module, widths: Arithmetic) -> bool:
    """Whether a module reads the output of a ReLU, which keeps it, without a copy or dropout."""
    if widths.activation != "relu" or widths.copies_inner or model.dropout.inner:
        return False
    own = (each.ffn for each in model.stacks if each.part == module.part and not each.gated)
    as_given = widths.answer == widths.compute and module.shape[0] == model.hidden
    return as_given and module.shape[-1] in own
