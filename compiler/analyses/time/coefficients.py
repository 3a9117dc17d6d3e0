"""What the time account was fitted to: few numbers, each with what it stands for.

`tests/analyses/time/fit.py` fits them to the runs of `sources.json` whose split is `fit`, and
prints how far off the account then is on both halves.
"""

from typing import Final

from msgspec import Struct


class Constants(Struct, frozen=True):
    """Constants of all devices; `crossings` and `overlap` are held, the rest is fitted."""

    sustained: float = 0.87
    """Share of the fastest product's rate (`machine.reached`) that products of a model keep up: not
    every shape is the best, and what runs beside takes of the same power."""
    crossings: float = 1.0
    """Times that what a product reads and writes crosses memory, while it multiplies."""
    traffic: float = 3.83
    """Times that the bytes a layer keeps cross memory in one pass over the layer, between the
    products; a backward pass counts as two."""
    fused: float = 0.461
    """What is left of that where Liger's kernels, which its loss brings, take one pass for norms,
    rotary positions and gated products."""
    adapter: float = 4.10
    """Times that an adapter's output, in its own dtype, crosses memory in one pass: written,
    scaled, added to the base's output and cast (peft 0.21 `tuners/lora/layer.py`,
    `Linear.forward`)."""
    expansion: float = 51.9
    """Instructions of a core for each weight that bitsandbytes expands from 4 bits: its kernel
    walks a tree of comparisons (bitsandbytes 0.43 `csrc/kernels.cu`, `dDequantizeNF4`)."""
    single: float = 0.458
    """Share of the fp32 rate that attention and a head in fp32 keep up; known of a T4 alone."""
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
