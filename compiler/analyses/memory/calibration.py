"""A stored trace: the measured phases of one run, used where the account would compute them.

`tunec trace --save` writes the file. For each phase it holds the bytes that do not depend on the
micro batch and the bytes per sample. It applies to one model's config and one set of slots except
the micro batch, because in every other slot the bytes are not linear.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from tunec.compiler.analyses.memory.timeline import Moment, Term, lasting, of_samples

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Layout, Workload

FILE: Final = "tunec-calibration.json"
"""The usual name of the file, beside the model's config.json."""
FORMAT: Final = 2
TRACED: Final = ("forward", "backward", "optimizer step")
"""The phases that a trace has."""

_Bytes = tuple[tuple[str, int], ...]


class Unusable(ValueError):
    """A text that is not a calibration; the message gives the reason."""


class Line(Struct, frozen=True):
    """One traced phase: fixed bytes and bytes per sample, by name."""

    name: str
    fixed: _Bytes
    per_sample: _Bytes


class Calibration(Struct, frozen=True):
    """The contents of a calibration file, and its path."""

    name: str
    """The file's name, as in the spec or the model's directory."""
    config: str
    """Digest of the model's config."""
    key: str
    """Digest of every slot that the trace depends on, except the micro batch."""
    versions: tuple[tuple[str, str], ...]
    """Versions of the libraries that ran."""
    lines: tuple[Line, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """The traced phases as terms of the account."""
        found: list[Term] = []
        for at, line in enumerate(self.lines):
            moment = Moment(at, line.name)
            found += lasting(dict(line.fixed), moment, moment)
            found += of_samples(dict(line.per_sample), moment, moment)
        return tuple(found)


def calibration_of(found: Any, name: str) -> Calibration:
    """Read a file's contents. Raises Unusable with the reason."""
    if not isinstance(found, Mapping) or "tunec_calibration" not in found:
        raise Unusable("it is not a calibration, which `tunec trace --save` writes")
    if found["tunec_calibration"] != FORMAT:
        raise Unusable(f"its format is {found['tunec_calibration']!r}, and {FORMAT} is read")
    try:
        lines = tuple(
            Line(str(each), _bytes(line["fixed"]), _bytes(line["per_sample"]))
            for each, line in found["phases"].items()
        )
        versions = tuple((str(k), str(v)) for k, v in found["versions"].items())
        made = Calibration(name, str(found["config"]), str(found["key"]), versions, lines)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise Unusable(f"it is damaged: {fault!r}") from None
    if [line.name for line in lines] != list(TRACED):
        raise Unusable(f"its phases are not {', '.join(TRACED)}")
    return made


def _bytes(found: Mapping[str, Any]) -> _Bytes:
    sizes = tuple((str(name), size) for name, size in found.items())
    if not all(type(size) is int for _, size in sizes):
        raise ValueError("bytes that are not whole numbers")
    return sizes


def config_digest(config: Mapping[str, Any]) -> str:
    """Digest of a model's config."""
    return digest(dict(config))


def digest(facts: Mapping[str, Any]) -> str:
    """Digest of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def calibrated(workload: "Workload", layout: "Layout", *, padded: bool) -> tuple[Term, ...]:
    """The traced terms of a layout; empty if the calibration belongs to another layout."""
    known = workload.calibration
    if workload.critic is not None:
        return ()  # no trace has both models
    if known is None or known.key != key_of(workload, layout, padded=padded):
        return ()
    return known.terms


def key_of(workload: "Workload", layout: "Layout", *, padded: bool) -> str:
    """Digest of everything that a trace depends on, except the config and the micro batch."""
    facts: dict[str, Any] = {
        name: _plain(getattr(workload, name)) for name in _WORKLOAD if hasattr(workload, name)
    }
    facts["data"] = {k: v for k, v in facts["data"].items() if k not in _DATA_SET}
    facts |= {
        name: _plain(getattr(layout, name))
        for name in layout.__struct_fields__
        if name not in ("batch", "states")
    }
    facts["states"] = _plain(layout.states)
    facts["accumulates"] = layout.batch.accumulation > 1
    if layout.adds_unreduced:
        facts["adds_unreduced"] = True
    facts["padded"] = padded
    return digest(facts)


_WORKLOAD: Final = (
    *("data", "precision", "attention", "quantization", "adapter", "optimizer"),
    *("loss", "preference", "generation"),
)
_DATA_SET: Final = frozenset({"train", "evaluation", "samples"})
"""Slots of the data that no byte depends on."""


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Struct) else value
