"""Dtypes that meet inside a layer: casts around products, and fp32 beside a base in 4 bits.

peft's `prepare_model_for_kbit_training` makes norms, embeddings and head fp32. Then bitsandbytes'
layers cast what they read to 16 bits and their result back (0.50.2 `nn/modules.py`,
`Linear4bit.forward`: `x.to(self.compute_dtype)`, `.to(inp_dtype)`); without autocast attention and
the head compute in fp32. Under autocast over weights in fp32 each product casts what it reads of
the stream; not under FSDP, which gathers parameters in 16 bits, those of embeddings and norms too
(accelerate 1.15 `utils/dataclasses.py`, `FullyShardedDataParallelPlugin.set_mixed_precision`).
"""

from typing import Final

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.modules import BYTES, FOUR_BIT, quantizes
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.time.flops import operands, part_tokens
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Part

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
