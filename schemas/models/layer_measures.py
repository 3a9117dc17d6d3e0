"""Bytes of layers that no formula describes, measured on the real class (`tunec card`)."""

from typing import Final

from msgspec import Struct

ALONE: Final = " alone"
"""Suffix of a way of computing in which a micro batch of one sample needs less than half of one of
two: slices of a single sequence are contiguous."""

FILLED: Final = 16
"""The gradient of a bias on scores is padded to a multiple of this (torch 2.13
`_meta_registrations.py`, `meta__scaled_dot_product_efficient_backward`: `lastDimAligned`)."""


def filled_up(length: float, chunk: int) -> float:
    """A length, rounded up to whole chunks."""
    return -(-length // chunk) * chunk


class Curve(Struct, frozen=True, omit_defaults=True):
    """Bytes per token of a sample, as a function of the sample's length."""

    token: float = 0.0
    key: float = 0.0
    """More for each token that it is compared with: scores held as tensors."""
    padded: float = 0.0
    """For layers that work in chunks: bytes for each token, with the last chunk padded."""
    chunk: int = 0
    """Tokens of a chunk; 0: there are none."""
    aligned: float = 0.0
    """More for each token if the last chunk is full."""
    sample: float = 0.0
    """Bytes of a sample of any length: a state that chunks pass on."""
    filled: float = 0.0
    """More for each token that it is compared with, their number rounded up to a multiple of 16."""

    def at(self, keys: float) -> float:
        """Bytes a token in a sample of `keys` tokens."""
        size = self.token + self.key * keys + (self.sample / keys if keys else 0)
        size += self.filled * filled_up(keys, FILLED)
        if self.chunk and keys:
            chunks = filled_up(keys, self.chunk)
            size += self.padded * chunks / keys + self.aligned * (chunks == keys)
        return size


class Measured(Struct, frozen=True, omit_defaults=True):
    """One layer's bytes in one way of computing."""

    way: str
    """Trained or frozen, bytes per stored weight, autocast, packed, eager."""
    saved: tuple[Curve, ...]
    """What the forward pass keeps for the backward pass: the maximum of these."""
    working: tuple[Curve, ...] = ()
    """The maximum that the layer's backward pass needs besides, including the gradient of its input
    but no gradients of weights."""
    forward: tuple[Curve, ...] = ()
    """The maximum that its forward pass needs, including what it keeps."""
    common: tuple[Curve, ...] = ()
    """Of what it keeps, what all samples of a batch have in common: it is there once."""


def highest(curves: tuple[Curve, ...], keys: float) -> float:
    """Bytes a token in a sample of `keys` tokens."""
    return max((each.at(keys) for each in curves), default=0.0)


def find(measures: tuple[Measured, ...], way: str) -> Measured | None:
    """The measure of a way of computing, None where it was not read off."""
    return next((each for each in measures if each.way == way), None)
