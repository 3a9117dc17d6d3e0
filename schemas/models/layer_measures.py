"""What layers take that no formula describes, read off the real class (`tunec card`)."""

from typing import Final

from msgspec import Struct

ALONE: Final = " alone"
"""Ends a way of computing in which a micro batch of one sample takes less than its share of two:
what is cut from one sequence lies in order where there is one sample."""

FILLED: Final = 16
"""What the gradient of a bias on scores is filled up to (torch 2.13 `_meta_registrations.py`,
`meta__scaled_dot_product_efficient_backward`: `lastDimAligned`)."""


def filled_up(length: float, chunk: int) -> float:
    """The tokens of whole chunks that hold so many."""
    return -(-length // chunk) * chunk


class Curve(Struct, frozen=True, omit_defaults=True):
    """Bytes a token of a sample, by the tokens that the sample has."""

    token: float = 0.0
    key: float = 0.0
    """More for each token that it is compared with: scores made as tensors."""
    padded: float = 0.0
    """The part of layers that work in chunks, for each token of the last chunk filled up."""
    chunk: int = 0
    """Tokens of a chunk; 0: there are none."""
    aligned: float = 0.0
    """More for each token where the last chunk is full."""
    sample: float = 0.0
    """Bytes of a sample, however long: a state that chunks hand on."""
    filled: float = 0.0
    """More for each token that it is compared with, their number filled up to a multiple of 16."""

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
    """Trained or frozen, bytes of the weights as they lie, autocast, packed, eager."""
    saved: tuple[Curve, ...]
    """What the forward pass keeps for the backward pass, by the highest of these."""
    working: tuple[Curve, ...] = ()
    """The most that the backward pass of the layer takes besides, the gradient of its input
    included, gradients of weights not."""
    forward: tuple[Curve, ...] = ()
    """The most that its forward pass takes, what it keeps included."""
    common: tuple[Curve, ...] = ()
    """Of what it keeps, what all samples of a batch have in common: it is there once."""


def highest(curves: tuple[Curve, ...], keys: float) -> float:
    """Bytes a token in a sample of `keys` tokens."""
    return max((each.at(keys) for each in curves), default=0.0)


def find(measures: tuple[Measured, ...], way: str) -> Measured | None:
    """The measure of a way of computing, None where it was not read off."""
    return next((each for each in measures if each.way == way), None)
