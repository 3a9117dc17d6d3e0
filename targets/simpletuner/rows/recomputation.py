"""Which blocks are recomputed, and where their inputs wait, in config.json."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, fixed, named
from tunec.targets.simpletuner.rows.precision import TRAINER

_SEGMENTS: Final = ("activation_checkpointing.segment", "activation_checkpointing.gap")
_OFFLOAD: Final = "activation_checkpointing.offload"
_INTERVAL: Final = "gradient_checkpointing_interval"
_STRIDE: Final = "gradient_checkpointing_segment_stride"
_BACKEND: Final = "gradient_checkpointing_backend"
_PLACES: Final = {"torch": False, "unsloth": True}
"""Words that end in -ffn, from 4.5 on, recompute the feed-forwards alone: no slot says that."""


def _segments(segment: int, gap: int) -> Mapping[str, int]:
    return dict(zip(_SEGMENTS, (segment, gap), strict=True))


def _write_every(plan: Plan) -> Mapping[str, Json]:
    """One block of each so many; a segment of several has no word."""
    asked = plan.activation_checkpointing
    return {_INTERVAL: asked.gap + 1} if asked.segment == 1 and asked.gap else {}


def _write_segments(plan: Plan) -> Mapping[str, Json]:
    """So many blocks together, in each stride; one block with a gap behind it has no word."""
    asked = plan.activation_checkpointing
    if asked.segment == 1:
        return {}
    stride = {_STRIDE: asked.segment + asked.gap} if asked.gap else {}
    return {_INTERVAL: asked.segment, **stride}


def _read_segments(found: Mapping[str, Json]) -> Mapping[str, Any]:
    segment = int(found.get(_INTERVAL) or 1)
    if segment <= 1:
        return _segments(1, 0)
    return _segments(segment, int(found.get(_STRIDE) or segment) - segment)


def _write_place(plan: Plan) -> Mapping[str, Json]:
    return {_BACKEND: "unsloth"} if plan.activation_checkpointing.offload else {}


def _read_place(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found[_BACKEND]
    return {_OFFLOAD: _PLACES[word]} if word in _PLACES else {}


CHECKPOINTING: Final = (
    named(
        "gradient_checkpointing",
        "activation_checkpointing.mode",
        {"layer": True, "none": False},
        f"{TRAINER} enable_gradient_checkpointing",
        absent=((ALWAYS, "layer"),),
    ),
    fixed(
        "activation_checkpointing.reentrant",
        value=False,
        source="diffusers 0.35.2 and 0.42.1, ModelMixin.enable_gradient_checkpointing",
    ),
    Entry(
        (_INTERVAL,),
        _SEGMENTS,
        _write_every,
        lambda found: _segments(1, max(int(found[_INTERVAL] or 1), 1) - 1),
        "3.1.6 to 4.5.2 helpers/models/flux/transformer.py forward: index_block % interval == 0",
        until="4.6",
        absent=((ALWAYS, _segments(1, 0)),),
    ),
    Entry(
        (_INTERVAL, _STRIDE),
        _SEGMENTS,
        _write_segments,
        _read_segments,
        "4.6.1 to 4.10.1 helpers/training/gradient_checkpointing_interval.py "
        "checkpoint_sequential_state; safety_check.py takes an interval of one for none",
        since="4.6",
        absent=((ALWAYS, _segments(1, 0)),),
    ),
    fixed(
        _OFFLOAD,
        value=False,
        source="3.1.6 to 3.3.4: no helpers/training/offloaded_gradient_checkpointer.py",
        until="4.0",
    ),
    Entry(
        (_BACKEND,),
        (_OFFLOAD,),
        _write_place,
        _read_place,
        "4.0.6 to 4.10.1 helpers/training/offloaded_gradient_checkpointer.py offloaded_checkpoint",
        since="4.0",
        absent=((ALWAYS, {_OFFLOAD: False}),),
    ),
)
