"""Turn a trace into a model's calibration, which plans of the same run then use."""

from typing import Any

from tunec.compiler.analyses.memory.calibration import FORMAT, config_digest, key_of
from tunec.compiler.tracing.comparison import GROUPS, group_of_category
from tunec.compiler.tracing.recording import Trace, TracedPhase
from tunec.compiler.tracing.subject import Subject


def calibration_json(subject: Subject, trace: Trace, more: Trace | None) -> dict[str, Any]:
    """The contents of the calibration file.

    `more` is the trace of one more sample. None: no comparable trace exists, since a single sample
    is not padded and two are; then all activations are attributed to the sample.
    """
    later = {each.name: each for each in more.phases} if more else {}
    micro = subject.layout.batch.micro
    return {
        "tunec_calibration": FORMAT,
        "config": config_digest(subject.config),
        "key": key_of(subject.workload, subject.layout, padded=subject.is_padded),
        "family": subject.family,
        "micro": micro,
        "versions": dict(trace.versions),
        "phases": {each.name: _line(each, later.get(each.name), micro) for each in trace.phases},
    }


def _line(one: TracedPhase, two: TracedPhase | None, micro: int) -> dict[str, dict[str, int]]:
    first = _groups(one)
    second = _groups(two) if two else {}
    names = [name for name in GROUPS if first.get(name) or second.get(name)]
    if two is None:
        grown = {n: first.get(n, 0) // micro if n == "activations" else 0 for n in names}
    else:
        grown = {n: second.get(n, 0) - first.get(n, 0) for n in names}
    fixed = {name: first.get(name, 0) - micro * each for name, each in grown.items()}
    return {"fixed": fixed, "per_sample": grown}


def _groups(traced: TracedPhase) -> dict[str, int]:
    found: dict[str, int] = {}
    for category, size in traced.terms.items():
        name = group_of_category(category, traced.name)
        found[name] = found.get(name, 0) + size
    return found
