"""What adapters keep for their backward pass, in bytes."""

from collections.abc import Callable, Iterable
from math import prod

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.modules import reads_attention, wants_gradient
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module, Part


def adapters_saved(
    workload: Workload,
    modules: Iterable[Module],
    widths: Arithmetic,
    tokens: Callable[[Module], float],
) -> float:
    """Bytes of one sample that the adapters on some modules keep.

    Each fp32 adapter casts its input for itself (peft 0.21 `tuners/lora/layer.py`,
    `Linear.forward`) and keeps the cast: 4 bytes an input without autocast, 2 under it, one more
    for the dropout mask; and its inner activation. Adapters in the base's own dtype read the base's
    input: modules beside each other share one, and the attention's output is kept anyway, unless it
    has to be put in order first. Traced with peft 0.21.2.

    DoRA keeps the base's result and the adapter's to weigh them (`tuners/lora/dora.py`,
    `DoraLinearLayer.forward`); with dropout it takes the base's anew, in the adapter's dtype.

    `tokens`: how many tokens of one sample a module works on.
    """
    inner = widths.adapter_product * workload.adapter.rank
    masked = bool(workload.adapter.dropout)
    base = widths.adapter_product if masked else widths.compute
    weighed = base + widths.adapter_product if workload.adapter.dora else 0
    shared = widths.adapters_share_inputs and not masked
    read: set[tuple[str, int, int]] = set()
    saved = 0.0
    for module in modules:
        if is_stack(module):
            continue
        source = _source(module)
        kept = shared and (source in read or _is_kept(module, widths))
        if not kept:
            read.add(source)
        bytes_read = 0 if kept else (widths.adapter_product + masked) * source[1]
        saved += module.copies * tokens(module) * (inner + bytes_read + weighed * module.shape[0])
    return saved


def inputs_kept(workload: Workload, part: Part, widths: Arithmetic) -> float:
    """Bytes a token of what frozen linear layers of a part read, where each keeps it.

    At stage 3 every product is DeepSpeed's own, which keeps its input whether or not its weight is
    trained (0.19.8 `runtime/zero/linear.py`, `LinearFunctionForZeroStage3.setup_context`). Modules
    beside each other read one tensor, which adapters in its dtype keep anyway.
    """
    adapted = workload.adapted if widths.adapters_share_inputs and not widths.drops else ()
    known = {_source(module) for module in adapted}
    kept = 0.0
    for module in workload.architecture.modules:
        inside = module.kind == "linear" and module.part == part and "{}" in module.path
        if inside and _source(module) not in known and not _is_kept(module, widths):
            known.add(_source(module))
            kept += module.copies * widths.compute * module.shape[-1]
    return kept


def _source(module: Module) -> tuple[str, int, int]:
    """What tells apart the tensors that modules read."""
    return module.path.rpartition(".")[0], prod(module.shape[1:]), module.copies


def adapters_working(workload: Workload, widths: Arithmetic) -> float:
    """Bytes a token that adapters add to the work of a layer, in a pass that keeps nothing.

    At the widest module that has one: its input is cast to another dtype of the adapters, and what
    the second product gives is scaled, beside the base's own result (peft 0.21
    `tuners/lora/layer.py`, `Linear.forward`); a feed-forward's third tensor is not there yet.
    Traced.
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


def is_stack(module: Module) -> bool:
    """Whether a module is the weights of all experts in one tensor."""
    return module.kind == "parameter" and len(module.shape) == 3


def experts_merged(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Sizes:
    """Bytes of expert weights with their adapters added, kept for the gradient of their inputs.

    peft 0.21 merges A and B into a copy of the whole tensor in each forward pass (`tuners/lora/
    layer.py`, `_LoraFactorsProxy`), which the graph keeps (traced); nothing of a token is kept.
    """
    if checkpointed:
        return {}
    elements = sum(prod(m.shape) * m.copies for m in workload.adapted if is_stack(m))
    return {"merged experts": float(widths.stream * elements)}


def experts_merging(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Sizes:
    """Bytes of merged weights while one layer is differentiated, the smaller stack first.

    A gradient of each, and where the layer is recomputed the copies of those to come (traced).
    """
    stacks = [prod(module.shape) for module in workload.adapted if is_stack(module)]
    if not stacks:
        return {}
    most = max(sum(stacks) + min(stacks), 2 * max(stacks)) if checkpointed else max(stacks)
    return {"merged experts and gradient": float(widths.stream * most)}


def norms_working(workload: Workload, widths: Arithmetic) -> float:
    """Bytes in which DoRA makes one module's norm, whatever the number of tokens.

    A square of ones to multiply the adapter with, the base's weight, the adapter's product, that
    product scaled, and the sum of both, in the dtype of the adapter's input (traced, peft 0.21.2).
    """
    sizes = [(prod(m.shape[1:]), m.shape[0]) for m in workload.adapted]
    return widths.adapter_product * max(n * (n + 4 * outputs) for n, outputs in sizes)


def weights_kept(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> float:
    """Bytes of base weights that DoRA keeps a cast of; of one layer where layers are recomputed.

    With dropout the base's result is taken of the masked input, in the adapter's dtype, which
    autocast narrows again (peft 0.21.2 `tuners/lora/dora.py`, `DoraLinearLayer.forward`: `weight =
    weight.to(x.dtype)`; traced).
    """
    as_it_lies = widths.adapter == widths.held == widths.adapter_product
    if not workload.adapter.dora or not workload.adapter.dropout or as_it_lies:
        return 0
    reading = (m for m in workload.adapted if wants_gradient(workload.architecture, m))
    elements = sum(prod(m.shape) * (1 if checkpointed else m.copies) for m in reading)
    return float(widths.adapter_product * elements)


def _is_kept(module: Module, widths: Arithmetic) -> bool:
    return widths.rotary != "concatenated" and reads_attention(module)
