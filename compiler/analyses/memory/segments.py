"""Which layers are recomputed: in segments, each from the input of its first layer, with gaps.

torch's checkpointing of single layers is a segment of one without a gap.
"""

from typing import NamedTuple

from tunec.compiler.ir.slots import ActivationCheckpointing
from tunec.schemas.caches import cached


class SegmentedLayers(NamedTuple):
    """The numbers of a model's layers by how they are checkpointed."""

    segments: int
    """Segments that are recomputed as a whole, with one kept input each."""
    whole: int
    """Layers that keep everything."""
    first: int
    """Layers of the first segment; 0: there is none, or the model begins with other layers."""
    last: int
    """Layers of the last segment."""
    tail: int
    """Layers after the last segment."""

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
def recomputed(layers: int, segment: int, gap: int) -> SegmentedLayers:
    """Split layers into segments and gaps; `segment` 0: none is recomputed."""
    if segment == 0 or layers == 0:
        return SegmentedLayers(0, layers, 0, 0, layers)
    window = segment + gap
    before = (layers - 1) // window
    rest = layers - before * window
    last = min(segment, rest)
    whole = before * gap + rest - last
    return SegmentedLayers(before + 1, whole, min(segment, layers), last, rest - last)


def repeated_share(layers: int, asked: ActivationCheckpointing) -> float:
    """The share of the layers that run a second time."""
    if asked.mode == "none" or layers == 0:
        return 0.0
    return recomputed(layers, asked.segment, asked.gap).repeated / layers
