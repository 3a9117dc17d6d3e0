"""Compare a trace with the account: peaks by phase, terms by category, the tensors that differ."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.account import AHEAD, Account, samples
from tunec.compiler.analyses.memory.timeline import Phase
from tunec.compiler.tracing.recording import BESIDE, Tensors, Trace, TracedPhase

_WEIGHTS: Final = frozenset(
    {"frozen weights", "trained weights", "adapters", "gathered parameters"}
    | {"persistent parameters", "weight casts"}
    | {"position table", "reference model", "second shards", "scales of packed weights"}
    | {"rotary tables", "text encoders and VAE", "causal masks"}
)
_STATES: Final = frozenset({"optimizer states", "master weights", "optimizer temporaries"})
_GRADIENTS: Final = frozenset(
    {"gradients", "new gradients", "accumulated gradients", "gradient partition"}
    | {"averaged gradients", "fp32 gradients", "largest gradient", "gradient all-reduce"}
    | {"gradient buckets", "reduce buckets", "tied gradient", "updates", "whole gradients"}
    | {"orthogonalisation", "gathering buffers", "whole momenta", "own momenta"}
    | {"earlier gradients"}
    | {"exchanged matrices", "gathering buffers kept"}
    | {"reduced copy", "waiting gradients", "fp64 gradients"}
)
_PART: Final = re.compile(r" (layers|gathering|head)$")
"""Suffixes with which the account distinguishes moments of one phase."""
_BACKWARD: Final = re.compile(r"backward|reduction")
GROUPS: Final = ("weights", "training state", "activations")
"""The groups by which a trace and an account are compared: weights; optimizer states, gradients and
their buffers; and everything else, which depends on the samples."""
_TRACED: Final = {
    "weights": "weights",
    "buffers": "weights",
    "gradients": "training state",
    "optimizer states": "training state",
    "training state": "training state",
}


class Difference(Struct, frozen=True):
    """The bytes of one phase in the trace and in the account."""

    phase: str
    traced: int
    accounted: int
    accounted_phase: str
    """The account's own name for this moment."""
    groups: Mapping[str, tuple[int, int]]
    """Traced and accounted bytes, by group."""
    tensors: tuple[Tensors, ...]
    """The tensors that are alive in the group with the largest difference, the largest first."""

    @property
    def error(self) -> float:
        """The relative error of the account: positive if it is above the trace."""
        return self.accounted / self.traced - 1 if self.traced else 0.0


class Comparison(Struct, frozen=True):
    """A whole step in the trace and in the account."""

    trace: Trace
    account: Account
    phases: tuple[Difference, ...]

    @property
    def accounted_bytes(self) -> int:
        """The account's peak over the phases that the trace has."""
        return max(each.accounted for each in self.phases)

    @property
    def error(self) -> float:
        """The relative error of the account's peak: positive if it is above the traced peak."""
        return self.accounted_bytes / self.trace.peak.peak_bytes - 1


def compare(trace: Trace, account: Account) -> Comparison:
    """Compare a trace with the account of the same workload and layout."""
    lines = {each.name: _highest(account, each.name) for each in trace.phases}
    found = [_difference(each, lines[each.name], account) for each in trace.phases]
    return Comparison(trace, account, tuple(found))


def phase_of(line: Phase) -> str:
    """The traced phase that contains a moment of the account; by default the moment's own name."""
    name = _PART.sub("", line.name)
    if line.evaluates or name in (*AHEAD, *BESIDE):
        return name
    if "step" in line.name:
        return "optimizer step"
    return "backward" if _BACKWARD.search(line.name) else "forward"


def _highest(account: Account, phase: str) -> Phase:
    lines = [line for line in account.lines if phase_of(line) == phase]
    return max(lines, key=lambda line: line.at(samples(line, account.layout)))


def _difference(traced: TracedPhase, line: Phase, account: Account) -> Difference:
    count = samples(line, account.layout)
    groups = _groups(traced, line.terms(count))
    worst = max(groups, key=lambda name: abs(groups[name][0] - groups[name][1]))
    tensors = tuple(
        each for each in traced.tensors if group_of_category(each.category, traced.name) == worst
    )
    return Difference(traced.name, traced.peak_bytes, line.at(count), line.name, groups, tensors)


def _groups(traced: TracedPhase, terms: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    found = {name: [0, 0] for name in GROUPS}
    for category, size in traced.terms.items():
        found[group_of_category(category, traced.name)][0] += size
    for name, size in terms.items():
        found[group_of_term(name)][1] += size
    return {name: (sizes[0], sizes[1]) for name, sizes in found.items()}


def group_of_category(category: str, phase: str) -> str:
    """The group that a category of storages belongs to in a phase."""
    if phase == "optimizer step" and category == "temporaries":
        return "training state"
    return _TRACED.get(category, "activations")


def group_of_term(name: str) -> str:
    """The group that a term of the account belongs to."""
    if name in _WEIGHTS:
        return "weights"
    return "training state" if name in _STATES | _GRADIENTS else "activations"
