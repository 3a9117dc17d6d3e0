"""Rows of diffusion models: the trained weights, and the segments that are recomputed."""

from collections.abc import Iterator
from typing import Final

from trace_models import Model
from trace_row import Combination

from tunec.schemas.frozen import replace

_SEGMENTED: Final = frozenset({"sd3-medium", "flux.1-dev"})
"""Families for which SimpleTuner supports an interval."""
_UNETS: Final = frozenset({"sdxl-base-1.0", "stable-diffusion-v1-5"})
"""UNets, whose adapters on every linear layer are outside of recomputed blocks too."""
_MEASURED: Final = frozenset({"pixart-sigma-xl-2-1024", "wan2.1-t2v-1.3b"})
"""Models whose blocks were measured on their class: only adapters are trained on them."""
_EDITS: Final = frozenset({"flux.1-kontext-dev", "qwen-image-edit-2511"})
"""Models that take reference images."""
_ATTENTION: Final = ("to_q", "to_k", "to_v", "to_out.0")


def denoisers(model: Model) -> Iterator[Combination]:
    """The whole model and adapters, with and without recomputation."""
    one = Combination(model.name, sequence=0, packing=False)
    targets = _ATTENTION
    adapters = replace(one, method="lora", states="bf16-adapters", targets=targets, micro=2)
    if model.name in _EDITS:
        edited = replace(adapters, pictures=1, targets=(*_ATTENTION, "to_out.{}"))
        yield replace(edited, micro=1)
        yield replace(edited, checkpointed=True)
        yield replace(edited, checkpointed=True, pictures=2, micro=1)
        yield replace(one, checkpointed=True, pictures=1)
        return
    if model.name in _MEASURED:
        measured = replace(adapters, targets=(*_ATTENTION[:-1], "to_out.{}"))
        yield measured
        yield replace(measured, checkpointed=True)
        yield from _packed(replace(one, targets=measured.targets))
        return
    yield one
    yield replace(one, checkpointed=True, micro=2)
    yield replace(one, method="lora", states="bf16-adapters", targets=targets)
    yield replace(one, method="lora", states="bf16-adapters", targets=targets, checkpointed=True)
    four = replace(one, method="lora", states="bf16-adapters", targets=targets, checkpointed=True)
    four = replace(four, micro=4)
    yield four
    yield replace(one, method="lora", states="autocast")
    yield replace(one, method="lora", states="autocast", targets=targets, checkpointed=True)
    yield from _packed(replace(one, targets=targets))
    if model.name in _UNETS:
        for states in ("bf16-adapters", "autocast-bf16"):
            yield replace(one, method="qlora", states=states, checkpointed=True)
    if model.name in _SEGMENTED:
        yield replace(one, method="lora", states="kbit", targets=targets)
        yield replace(one, checkpointed=True, segment=4)
        yield replace(four, segment=2)
        yield replace(four, gap=1)
        yield replace(four, segment=2, gap=2)
        yield replace(four, offload=True)
        yield adapters


def _packed(one: Combination) -> Iterator[Combination]:
    """Adapters on packed weights under autocast, which answer in the dtype of what they are given.

    With adapters on every linear layer, scales and gates get gradients too.
    """
    one = replace(one, method="qlora", states="autocast-bf16")
    yield one
    yield replace(one, checkpointed=True, micro=2)
    if one.model in _SEGMENTED:
        yield replace(one, targets=())
        yield replace(one, targets=(), checkpointed=True)
