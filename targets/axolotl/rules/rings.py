"""Sequences that are shared in a ring."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows

PACKED_SAMPLES_IN_A_RING: Final = rows(
    "packed-samples-in-a-ring",
    "error",
    "silent",
    consumers=("axolotl",),
    rows=(
        Row(
            "axolotl:ring_attn_func=batch_ring & sample_packing=true & context_parallel_size>1",
            "samples of one sequence see each other under batch_ring",
            "knows no ends of samples",
            "queries look at the samples before theirs, and the loss is higher",
            "remove ring_attn_func: varlen_llama3 is taken for packed samples",
        ),
    ),
)
