"""One moment of a training step: a sum of named terms, each a line over the micro batch."""

from collections.abc import Mapping
from typing import Final, NamedTuple

Terms = Mapping[str, float]
"""Bytes by name."""


class Group(NamedTuple):
    """Terms that come and go together, in whole bytes, with their sum."""

    terms: Mapping[str, int]
    total: int


def group(*parts: Terms) -> Group:
    """Round terms to bytes and add them up; the parts name different things."""
    terms = {name: round(size) for part in parts for name, size in part.items()}
    return Group(terms, sum(terms.values()))


def times(several: Group, number: int) -> Group:
    """Terms multiplied by a number, with their sum."""
    terms = {name: size * number for name, size in several.terms.items()}
    return Group(terms, several.total * number)


def scaled(whole: Group, share: float) -> Group:
    """A share of terms, in whole bytes."""
    return group({name: size * share for name, size in whole.terms.items()})


NOTHING: Final = Group({}, 0)


class Phase(NamedTuple):
    """One moment of a training step; its bytes are a line over the samples of a micro batch."""

    name: str
    fixed: tuple[Group, ...]
    """What does not depend on the micro batch; the groups name different things."""
    per_sample: tuple[Group, ...]
    """What each sample adds."""
    fixed_bytes: int
    sample_bytes: int
    evaluates: bool = False
    """Whether its samples are those of an evaluation batch."""

    def at(self, samples: int) -> int:
        """All bytes for a micro batch."""
        return self.fixed_bytes + self.sample_bytes * samples

    def terms(self, samples: int) -> dict[str, int]:
        """Bytes by name for a micro batch, empty terms left out."""
        found = {n: size for each in self.fixed for n, size in each.terms.items() if size}
        for each in self.per_sample:
            found |= {n: size * samples for n, size in each.terms.items() if size * samples}
        return found


def phase(name: str, fixed: tuple[Group, ...], samples: tuple[Group, ...] = ()) -> Phase:
    """Put a phase of training together."""
    whole, each = sum(one.total for one in fixed), sum(one.total for one in samples)
    return Phase(name, fixed, samples, whole, each)


def evaluation_phase(name: str, fixed: tuple[Group, ...], samples: tuple[Group, ...]) -> Phase:
    """Put a phase of evaluation together, whose samples are those of an evaluation batch."""
    whole, each = sum(one.total for one in fixed), sum(one.total for one in samples)
    return Phase(name, fixed, samples, whole, each, evaluates=True)
