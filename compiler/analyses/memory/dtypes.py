"""How many bytes an element takes."""

from typing import Final

from tunec.compiler.ir.slots import Quantization
from tunec.schemas.terms import StateDtype

BYTES: Final[dict[StateDtype, int]] = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}

PACKED: Final = 0.5
"""Bytes of a 4-bit element without scales."""

_FOUR_BIT_BLOCK: Final = 64
"""Elements that share a scale in 4-bit storage (bitsandbytes 0.43, `functional.quantize_4bit`)."""
_SCALE_BLOCK: Final = 256
"""Block scales that share a scale when they are quantised too (`compress_statistics`)."""


def quantized_bytes(quantization: Quantization) -> float:
    """Bytes an element of a quantised weight, scales of rows not counted.

    QLoRA (arXiv 2305.14314, section 3): 0.5 + 4/64 = 0.5625; with double quantisation
    0.5 + 1/64 + 4/(64 x 256) = 0.5159. LLM.int8() (arXiv 2208.07339) stores one byte.
    """
    if quantization.format == "int8":
        return 1
    if quantization.double:
        return PACKED + 1 / _FOUR_BIT_BLOCK + 4 / (_FOUR_BIT_BLOCK * _SCALE_BLOCK)
    return PACKED + 4 / _FOUR_BIT_BLOCK
