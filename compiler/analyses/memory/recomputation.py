"""Which layers are recomputed in the backward pass, and what layers hold at each moment.

Layers are recomputed in segments, each from its first layer's input; the layers of a gap behind it
keep everything. torch's checkpointing of single layers is a segment of one without a gap.
"""

from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import ActivationCheckpointing

IN_TRANSIT: Final = 4
"""Inputs of layers that are on the device though they wait on the host, all together.

TRL's context holds what it last moved until five more tensors are saved, of which a recomputed
layer has two; an autograd node that it remembers, with what was brought back for it; and tensors
that two operations saved, as the final norm's fp32 copy, which is two inputs (trl 1.16
`models/activation_offloading.py`, `max_fwd_stash_size`, `curr_autograd_node`,
`storage_to_tensor_id`). Traced: four with adapters, up to three without."""


class Recomputed(NamedTuple):
    """The layers of a model by what becomes of them."""

    segments: int
    """Recomputed together, with one input kept for each."""
    whole: int
    """Layers that keep everything."""
    first: int
    """Layers of the first segment; 0: there is none, or the model begins with other layers."""
    last: int
    """Layers of the last segment."""
    tail: int
    """Layers behind the last segment."""

    @property
    def layers(self) -> int:
        """All of them."""
        return self.whole + self.repeated

    @property
    def gap(self) -> int:
        """Layers between two segments."""
        return (self.whole - self.tail) // (self.segments - 1) if self.segments > 1 else 0

    @property
    def repeated(self) -> int:
        """Layers that run again."""
        return self.last + (self.segments - 1) * self.first if self.segments else 0


@cached(1024)
def recomputed(layers: int, segment: int, gap: int) -> Recomputed:
    """Split layers into segments and gaps; `segment` 0: none is recomputed."""
    if segment == 0 or layers == 0:
        return Recomputed(0, layers, 0, 0, layers)
    window = segment + gap
    before = (layers - 1) // window
    rest = layers - before * window
    last = min(segment, rest)
    whole = before * gap + rest - last
    return Recomputed(before + 1, whole, min(segment, layers), last, rest - last)


def repeated_share(layers: int, asked: ActivationCheckpointing) -> float:
    """The share of the layers that run a second time."""
    if asked.mode == "none" or layers == 0:
        return 0.0
    return recomputed(layers, asked.segment, asked.gap).repeated / layers


class Layers(NamedTuple):
    """What the layers of a part hold, in bytes a sample."""

    most: float
    """What the largest layer keeps."""
    mean: float
    """What a layer keeps on average."""
    working: float
    """Gradients on their way while a layer is differentiated."""
    inputs: float
    """The input of a layer."""


def kept(
    part: str, layers: Layers, split: Recomputed, *, offload: bool, transit: int = IN_TRANSIT
) -> Sizes:
    """Bytes that wait for the backward pass; `transit`: inputs here though they wait elsewhere."""
    here = min(split.segments, transit) if offload else split.segments
    name = "inputs in transit" if offload else "layer inputs"
    terms = {f"{part} {name}": layers.inputs * here} if here else {}
    if split.whole:
        terms[f"{part} activations"] = layers.mean * split.whole
    return terms


def named(part: str, split: Recomputed) -> str:
    """What the working memory of a layer is called."""
    return f"{part} recomputed layer" if split.segments else f"{part} layer gradients"


def at_last(layers: Layers, split: Recomputed) -> float:
    """Bytes besides what is kept when the last layer is differentiated, or a late segment.

    By the time of a segment the layers behind it are done. The last one may be cut short: then the
    one before it holds more.
    """
    if not split.segments:
        return layers.working
    last = split.last * layers.most - split.tail * layers.mean
    before = split.first * layers.most - (split.tail + split.gap) * layers.mean - layers.inputs
    return layers.working + max(last, before if split.segments > 1 else 0.0, 0.0)


def beside(layers: Layers, split: Recomputed) -> float:
    """Bytes of a segment's other layers, which are recomputed before its last is differentiated."""
    return (split.first - 1) * layers.most if split.first > 1 else 0.0
