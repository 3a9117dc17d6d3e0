"""A comparison for people (text) and for machines (JSON)."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.tracing.comparison import Comparison, Difference
from tunec.compiler.tracing.recording import Tensors, TracedPhase
from tunec.schemas.units import format_bytes

_SHOWN: Final = 8
_WORTH_A_LOOK: Final = 0.005
_SHOWN_JSON: Final = 50


def trace_text(comparison: Comparison) -> str:
    """Aligned lines: the peaks, each phase by groups, and the tensors behind the differences."""
    return "\n".join(_lines(comparison))


def peaks_text(comparison: Comparison) -> str:
    """One line: the account's peak beside the traced one, and the phase with the traced peak."""
    traced, found = comparison.trace.peak, comparison.accounted_bytes
    return (
        f"traced  {format_bytes(traced.peak_bytes)} allocated in {traced.name}; accounted "
        f"{format_bytes(found)}, {100 * comparison.error:+.2f} %"
    )


def _lines(comparison: Comparison) -> Iterator[str]:
    trace = comparison.trace
    used = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    yield f"traced in {trace.seconds:.1f} s with {used}"
    yield from (f"note: {note}" for note in trace.notes)
    yield ""
    yield f"{'':<26} {'traced':>12} {'accounted':>12} {'difference':>12}"
    peak = trace.peak.peak_bytes
    yield _row("peak", peak, comparison.accounted_bytes)
    for each in comparison.phases:
        yield from _phase(each)
    yield ""
    yield f"alive at the peak, in {trace.peak.name}"
    yield from (_tensors(each) for each in trace.peak.tensors[:_SHOWN])


def _phase(each: Difference) -> Iterator[str]:
    yield ""
    yield _row(each.phase, each.traced, each.accounted) + f"  {each.accounted_phase}"
    for name, (traced, accounted) in each.groups.items():
        yield _row(f"  {name}", traced, accounted)
    if abs(each.error) > _WORTH_A_LOOK:
        yield "  largest where it differs most"
        yield from (_tensors(tensors) for tensors in each.tensors[:_SHOWN])


def _row(name: str, traced: int, accounted: int) -> str:
    share = f"{100 * (accounted / traced - 1):+.2f} %" if traced else "-"
    return f"{name:<26} {format_bytes(traced):>12} {format_bytes(accounted):>12} {share:>12}"


def _tensors(each: Tensors) -> str:
    shape = "x".join(map(str, each.shape)) or "scalar"
    made = f"{each.module or 'outside of modules'}: {each.operation}"
    return f"    {format_bytes(each.bytes):>12}  {each.count:>5} x {each.dtype} {shape}  {made}"


def trace_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON of `tunec trace --format json`; sizes in bytes, errors as shares."""
    trace = comparison.trace
    return {
        "trace": {
            "peak_bytes": trace.peak.peak_bytes,
            "peak_phase": trace.peak.name,
            "seconds": trace.seconds,
            "versions": dict(trace.versions),
            "notes": list(trace.notes),
            "phases": [_phase_json(each) for each in trace.phases],
        },
        "account": {
            "peak_bytes": comparison.accounted_bytes,
            "phases": {name: dict(terms) for name, terms in comparison.account.phases.items()},
        },
        "error": comparison.error,
        "differences": [_difference_json(each) for each in comparison.phases],
    }


def _phase_json(phase: TracedPhase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "peak_bytes": phase.peak_bytes,
        "terms": dict(phase.terms),
        "tensors": [_tensors_json(each) for each in phase.tensors[:_SHOWN_JSON]],
    }


def _tensors_json(each: Tensors) -> dict[str, Any]:
    return {
        "category": each.category,
        "module": each.module,
        "operation": each.operation,
        "shape": list(each.shape),
        "dtype": each.dtype,
        "count": each.count,
        "bytes": each.bytes,
    }


def _difference_json(each: Difference) -> dict[str, Any]:
    return {
        "phase": each.phase,
        "accounted_phase": each.accounted_phase,
        "traced_bytes": each.traced,
        "accounted_bytes": each.accounted,
        "error": each.error,
        "groups": {
            name: {"traced_bytes": traced, "accounted_bytes": accounted}
            for name, (traced, accounted) in each.groups.items()
        },
    }
