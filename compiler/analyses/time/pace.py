"""The resource that each term of the time account waits for, and a cluster's factors on them.

The account computes the terms first; the cluster's factors are applied at the end, so that measured
runs can be compared with the account term by term. What factors leave of a measured run's error is
its own, but runs whose terms have alike shares have it too (benchmarks/README.md).
"""

from collections.abc import Mapping, Sequence
from math import exp
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.terms.critic import PREFIX
from tunec.schemas.terms import RESOURCES, Resource

Pace = tuple[tuple[Resource, float], ...]
"""Factors on the seconds of each resource; absent resources are unchanged."""

WAITS_FOR: Final[Mapping[str, Resource]] = {
    "forward": "products",
    "backward": "products",
    "recomputation": "products",
    "attention": "products",
    "adapters": "products",
    "wide products": "products",
    "encoders": "products",
    "reference forward": "products",
    "orthogonalisation": "products",
    "memory traffic": "memory",
    "conversions": "memory",
    "loss": "memory",
    "dequantization": "memory",
    "sums of experts": "memory",
    "optimizer step": "memory",
    "generation": "memory",
    "kernel launches": "host",
    "parameter gathering": "host",
    "gradient hooks": "host",
    "data loading": "host",
    "tensor parallel exchange": "links",
    "sequence parallel exchange": "links",
    "gradient exchange": "links",
    "parameter exchange": "links",
    "offloaded activations": "pcie",
    "offloaded gradients": "pcie",
    "offloaded parameters": "pcie",
    "paged optimizer states": "pcie",
    "host optimizer step": "host memory",
    "NVMe parameters": "storage",
    "NVMe optimizer states": "storage",
}
"""The resource of each term."""


def resource_of(term: str) -> Resource:
    """The resource that a term waits for; products if the term is not in the table."""
    return WAITS_FOR.get(term.removeprefix(PREFIX), "products")


def scaled(terms: Mapping[str, float], pace: Pace) -> dict[str, float]:
    """Terms multiplied by a cluster's factors."""
    if not pace:
        return dict(terms)
    factors = dict(pace)
    return {name: seconds * factors.get(resource_of(name), 1.0) for name, seconds in terms.items()}


def by_resource(terms: Mapping[str, float]) -> dict[Resource, float]:
    """Seconds by resource, in the order of `RESOURCES`."""
    found = dict.fromkeys(RESOURCES, 0.0)
    for name, seconds in terms.items():
        found[resource_of(name)] += seconds
    return {name: seconds for name, seconds in found.items() if seconds}


class Seen(NamedTuple):
    """A measured step on the cluster."""

    terms: Mapping[str, float]
    """Seconds by term, without factors."""
    left: float
    """What factors leave unexplained: ln(measured / accounted with factors)."""


ALIKE: Final = 0.2
"""Steps are alike if the shares of their terms differ by less than this, summed over all terms. The
nearer they are, the more of what is left of one is expected of the other."""


def expected(terms: Mapping[str, float], seen: Sequence[Seen]) -> float:
    """The factor on a step's seconds that measured steps alike it lead to expect; 1 without any."""
    weights = [max(0.0, 1 - apart(terms, each.terms) / ALIKE) for each in seen]
    left = sum(weight * each.left for weight, each in zip(weights, seen, strict=True))
    return exp(left / max(1.0, sum(weights)))


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """How far two steps are apart: by how much the shares of their terms differ, from 0 to 2."""
    whole, whole_of_other = sum(one.values()), sum(other.values())
    return sum(
        abs(one.get(name, 0.0) / whole - other.get(name, 0.0) / whole_of_other)
        for name in one.keys() | other.keys()
    )
