"""The constants to which the time account was fitted, each with its meaning.

`tests/analyses/time/fit.py` fits them to the runs of `sources.json` whose split is `fit`, and
prints the account's errors on both halves.
"""

from typing import Final

from msgspec import Struct


class Constants(Struct, frozen=True):
    """Constants of all devices; `crossings` and `overlap` are fixed, the rest is fitted."""

    sustained: float = 0.87
    """Share of the fastest product's rate (`machine.reached`) that a model's products sustain: not
    every shape is the best, and concurrent work uses some of the same power."""
    crossings: float = 1.0
    """How often the operands and results of a product cross memory while it multiplies."""
    traffic: float = 3.83
    """How often the bytes that a layer keeps cross memory in one pass over the layer, between the
    products; a backward pass counts as two."""
    fused: float = 0.461
    """The remaining share of that traffic if Liger's kernels, which its loss brings, do norms,
    rotary positions and gated products in one pass each."""
    adapter: float = 4.10
    """How often an adapter's output, in its own dtype, crosses memory in one pass: written, scaled,
    added to the base's output and cast (peft 0.21 `tuners/lora/layer.py`, `Linear.forward`)."""
    expansion: float = 51.9
    """Instructions of a core for each weight that bitsandbytes expands from 4 bits: its kernel
    walks a tree of comparisons (bitsandbytes 0.43 `csrc/kernels.cu`, `dDequantizeNF4`)."""
    single: float = 0.458
    """Share of the fp32 rate that attention and a head in fp32 sustain; known only for a T4."""
    adam: float = 0.475
    """Share of the host's memory bandwidth that DeepSpeed's Adam on the host reaches."""
    kernel: float = 21.1e-6
    """Seconds of the host for each kernel, in Python and PyTorch."""
    gather: float = 441e-6
    """Seconds of the host for each module in each pass of ZeRO-3: its hooks run in Python, and each
    starts a collective (deepspeed 0.19.8 `runtime/zero/parameter_offload.py`). On a CPU, in two
    processes, they take as long as 24 kernels of the same model with 0.14.0."""
    hook: float = 74.3e-6
    """Seconds of the host for each gradient that a hook of ZeRO's stage 2 takes: what three models
    take longer at stage 2 than at stage 1 (deepspeedai/DeepSpeedExamples, training/autotuning). As
    long is taken for a hook of stage 3 that finds its module whole."""
    unit: float = 501e-6
    """Seconds of the host for each unit of FSDP, which has hooks and collectives too."""
    overlap: float = 4.0
    """How sharply the slower of host and device decides: the exponent of the norm of both."""


FITTED: Final = Constants()
