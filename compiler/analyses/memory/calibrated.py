"""Which layout a kept trace speaks of."""

from dataclasses import asdict, is_dataclass
from typing import Any, Final

from tunec.compiler.analyses.memory.calibration import digest
from tunec.compiler.analyses.memory.timeline import Term
from tunec.compiler.analyses.memory.workload import Layout, Workload


def calibrated(workload: Workload, layout: Layout, *, padded: bool) -> tuple[Term, ...]:
    """The traced terms of a layout; none where the workload's calibration is of something else."""
    known = workload.calibration
    if known is None or known.key != key_of(workload, layout, padded=padded):
        return ()
    return known.terms


def key_of(workload: Workload, layout: Layout, *, padded: bool) -> str:
    """Digest of all that a trace depends on besides the config, the micro batch apart."""
    facts: dict[str, Any] = {
        name: _plain(getattr(workload, name)) for name in _WORKLOAD if hasattr(workload, name)
    }
    facts["data"] = {k: v for k, v in facts["data"].items() if k not in _DATA_SET}
    facts |= {
        name: _plain(getattr(layout, name))
        for name in layout.__dataclass_fields__
        if name not in ("batch", "states")
    }
    facts["states"] = _plain(layout.states)
    facts["accumulates"] = layout.batch.accumulation > 1
    facts["padded"] = padded
    return digest(facts)


_WORKLOAD: Final = (
    *("data", "precision", "attention", "quantization", "adapter", "optimizer"),
    *("loss", "preference", "generation"),
)
_DATA_SET: Final = frozenset({"train", "evaluation", "samples"})
"""Slots of the data that no byte depends on."""


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
