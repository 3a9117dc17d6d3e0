"""What adapters keep for their backward pass, in bytes a token."""

from math import prod

from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module, Part


def adapters_saved(workload: Workload, part: Part, widths: Arithmetic) -> float:
    """Bytes a token that all adapters of a part keep together.

    Each fp32 adapter casts its input for itself (peft 0.21 `tuners/lora/layer.py`, `Linear.forward`)
    and keeps the cast: 4 bytes an input without autocast, 2 under it, one more for the dropout mask;
    and its inner activation. Adapters in the base's own dtype read the base's input; modules that
    read the same input share it. Traced with peft 0.21.2.
    """
    modules = [module for module in workload.adapted if module.part == part]
    inner = widths.adapter_product * workload.adapter.rank
    saved = sum(inner * module.copies for module in modules)
    if workload.adapter.dropout:
        return saved + (widths.adapter_product + 1) * _inputs(modules)
    if widths.adapters_share_inputs:
        return saved + widths.compute * _shared_inputs(modules)
    return saved + widths.adapter_product * _inputs(modules)


def _inputs(modules: list[Module]) -> int:
    return sum(prod(module.shape[1:]) * module.copies for module in modules)


def _shared_inputs(modules: list[Module]) -> int:
    """Inputs of adapted modules, once for all that stand beside each other."""
    shared = {(m.path.rpartition(".")[0], m.shape[1], m.copies) for m in modules}
    return sum(width * copies for _, width, copies in shared)
