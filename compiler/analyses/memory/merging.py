"""Adapters added to the weights that they are on, module by module."""

from math import prod
from typing import Final

from tunec.compiler.analyses.memory.dtypes import BYTES, quantized_bytes
from tunec.compiler.analyses.memory.modules import quantizes
from tunec.compiler.analyses.memory.sharding import Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.workload import Workload

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
    """Bytes of the packed weights that merging puts others in the place of."""
    if workload.quantization.format == "none":
        return 0.0
    elements = sum(
        m.parameters - m.bias * m.copies for m in workload.adapted if quantizes(workload, m)
    )
    return quantized_bytes(workload.quantization) * elements


def merged_on_host(workload: Workload) -> Sizes:
    """What a process of its own holds that merges adapters into a 16-bit base, in bytes.

    On a CPU the products of 16-bit adapters are made in fp32 (`get_delta_weight`: `cast_to_fp32`).
    """
    base = BYTES[workload.precision.compute] * workload.architecture.parameters
    return {
        "base to merge into": float(base),
        "merged adapters": float(_PRODUCTS * _FP32 * _largest(workload)),
    }


def _largest(workload: Workload) -> int:
    return max((prod(module.shape) for module in workload.adapted), default=0)
