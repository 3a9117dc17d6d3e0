"""The resource that each term of the time account waits for, and a cluster's factors on them.

The account computes the terms first; the cluster's factors are applied at the end, so that measured
runs can be compared with the account term by term.
"""

from collections.abc import Mapping
from typing import Final

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
    return WAITS_FOR.get(term, "products")


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
