"""A trace kept as a model's calibration: each phase as a line over the micro batch.

The file stands beside a model's `config.json` and holds what `Phase` of the memory account holds,
measured: bytes that do not depend on the micro batch and bytes that each sample adds, by group.
Whoever accounts for a workload asks `calibrated` whether a file speaks of it; it does so only for
the same config and the same slots but the micro batch, because everything else bends the lines.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from tunec.compiler.analyses.memory.phase import Phase, group, phase
from tunec.compiler.tracing.comparison import group_of_category
from tunec.compiler.tracing.recording import Trace, TracedPhase
from tunec.compiler.tracing.subject import Subject

FILE: Final = "tunec-calibration.json"
"""The usual name of the file, beside the model's config.json."""
FORMAT: Final = 1


def calibration_json(subject: Subject, trace: Trace, more: Trace) -> dict[str, Any]:
    """What the file holds, of two traces of which the second has one more sample."""
    later = {each.name: each for each in more.phases}
    return {
        "tunec_calibration": FORMAT,
        "key": key_of(subject),
        "family": subject.family,
        "micro": subject.layout.batch.micro,
        "versions": dict(trace.versions),
        "phases": {
            each.name: _line(each, later[each.name], subject.layout.batch.micro)
            for each in trace.phases
        },
    }


def calibrated(subject: Subject, found: Mapping[str, Any]) -> tuple[Phase, ...]:
    """The phases that a file's contents give a subject; none if it speaks of something else."""
    if found.get("tunec_calibration") != FORMAT or found.get("key") != key_of(subject):
        return ()
    return tuple(
        phase(name, (group(line["fixed"]),), (group(line["per_sample"]),))
        for name, line in found["phases"].items()
    )


def key_of(subject: Subject) -> str:
    """A digest of the config and of every slot that a trace depends on, the micro batch apart."""
    workload, layout = subject.workload, subject.layout
    groups = (
        workload.data,
        workload.precision,
        workload.attention,
        workload.quantization,
        workload.adapter,
        workload.optimizer,
        layout.parallel,
        layout.states,
        layout.zero,
        layout.activation_checkpointing,
    )
    facts: dict[str, Any] = {type(each).__name__: asdict(each) for each in groups}
    facts["Data"] = {k: v for k, v in facts["Data"].items() if k not in _DATA_SET}
    facts["accumulates"] = layout.batch.accumulation > 1
    facts["padded"] = subject.is_padded
    facts["config"] = dict(subject.config)
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


_DATA_SET: Final = frozenset({"train", "evaluation", "samples"})
"""Slots of the data that no byte depends on."""


def _line(one: TracedPhase, two: TracedPhase, micro: int) -> dict[str, dict[str, int]]:
    first, second = _groups(one), _groups(two)
    names = first.keys() | second.keys()
    grown = {name: second.get(name, 0) - first.get(name, 0) for name in sorted(names)}
    fixed = {name: first.get(name, 0) - micro * each for name, each in grown.items()}
    return {"fixed": fixed, "per_sample": grown}


def _groups(traced: TracedPhase) -> dict[str, int]:
    found: dict[str, int] = {}
    for category, size in traced.terms.items():
        name = group_of_category(category, traced.name)
        found[name] = found.get(name, 0) + size
    return found
