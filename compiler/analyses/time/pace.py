"""What each term of the time account waits for, and a cluster's own pace of it.

The terms stand as the account has them; a factor of the cluster is put on each in the end, so that
what runs came to can be compared with the sum term by term.
"""

from collections.abc import Mapping
from typing import Final

from tunec.schemas.terms import RESOURCES, Resource

Pace = tuple[tuple[Resource, float], ...]
"""Factors on the seconds of each resource; what is absent is as accounted."""

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
    """What a term waits for; one that is not in the table is taken for products."""
    return WAITS_FOR.get(term, "products")


def scaled(terms: Mapping[str, float], pace: Pace) -> dict[str, float]:
    """Terms at a cluster's own pace."""
    if not pace:
        return dict(terms)
    factors = dict(pace)
    return {name: seconds * factors.get(resource_of(name), 1.0) for name, seconds in terms.items()}


def by_resource(terms: Mapping[str, float]) -> dict[Resource, float]:
    """Seconds by what is waited for, in the order of `RESOURCES`."""
    found = dict.fromkeys(RESOURCES, 0.0)
    for name, seconds in terms.items():
        found[resource_of(name)] += seconds
    return {name: seconds for name, seconds in found.items() if seconds}
