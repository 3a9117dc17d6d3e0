"""One moment of a training step: a sum of named terms, each a line over the micro batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Terms = Mapping[str, float]
"""Bytes by name."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One moment of a training step; its bytes are a line over the samples of a micro batch."""

    name: str
    fixed: tuple[tuple[str, int], ...]
    """Bytes by name, whatever the micro batch."""
    per_sample: tuple[tuple[str, int], ...]
    """Bytes a sample by name."""
    fixed_bytes: int
    sample_bytes: int
    evaluates: bool = False
    """Whether its samples are those of an evaluation batch."""

    def at(self, samples: int) -> int:
        """All bytes for a micro batch."""
        return self.fixed_bytes + self.sample_bytes * samples

    def terms(self, samples: int) -> dict[str, int]:
        """Bytes by name for a micro batch, empty terms left out."""
        terms = {name: size for name, size in self.fixed if size}
        for name, size in self.per_sample:
            if size:
                terms[name] = terms.get(name, 0) + size * samples
        return terms


def phase(name: str, *, fixed: Iterable[Terms], samples: Iterable[Terms]) -> Phase:
    """Put a phase of training together; terms of the same name must mean the same bytes."""
    return _phase(name, fixed, samples, evaluates=False)


def evaluation_phase(name: str, *, fixed: Iterable[Terms], samples: Iterable[Terms]) -> Phase:
    """Put a phase of evaluation together, whose samples are those of an evaluation batch."""
    return _phase(name, fixed, samples, evaluates=True)


def _phase(
    name: str, fixed: Iterable[Terms], samples: Iterable[Terms], *, evaluates: bool
) -> Phase:
    whole, each = _joined(fixed), _joined(samples)
    return Phase(
        name=name,
        fixed=tuple(whole.items()),
        per_sample=tuple(each.items()),
        fixed_bytes=sum(whole.values()),
        sample_bytes=sum(each.values()),
        evaluates=evaluates,
    )


def _joined(groups: Iterable[Terms]) -> dict[str, int]:
    """Take the larger value where two groups name the same bytes."""
    joined: dict[str, int] = {}
    for group in groups:
        for name, size in group.items():
            joined[name] = max(joined.get(name, 0), round(size))
    return joined
