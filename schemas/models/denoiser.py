"""Bytes of a diffusion transformer by its image and text tokens, measured on its class."""

from collections.abc import Mapping

from msgspec import Struct


class Plane(Struct, frozen=True, omit_defaults=True):
    """A quantity per sample: a fixed part, and parts for each image token and each text token."""

    fixed: float = 0.0
    image: float = 0.0
    text: float = 0.0
    square: float = 0.0
    """For each pair of tokens, image and text together: masks and scores held as tensors."""

    pairs: float = 0.0
    """For each pair of the text's tokens."""

    def at(self, image: float, text: float) -> float:
        """The quantity for a sample with this many tokens."""
        squares = self.square * (image + text) ** 2 + self.pairs * text**2
        return self.fixed + self.image * image + self.text * text + squares


class BlockBytes(Struct, frozen=True, omit_defaults=True):
    """One block's bytes of one sample in one way of computing (`arithmetic.way`)."""

    way: str
    saved: tuple[Plane, ...]
    """What the forward pass keeps for the backward pass: the maximum of these."""
    working: tuple[Plane, ...]
    """The maximum that the block's backward pass needs besides, without gradients of weights."""
    forward: tuple[Plane, ...]
    """The maximum that its forward pass needs, including what it keeps."""
    inputs: tuple[Plane, ...]
    """What is kept of it if it is recomputed: its output to the next block."""


class Around(Struct, frozen=True, omit_defaults=True):
    """Bytes of one sample that are kept outside of the blocks, in one way of computing."""

    way: str
    saved: tuple[Plane, ...]


class Denoiser(Struct, frozen=True, omit_defaults=True):
    """Inputs and stored bytes of a diffusion transformer."""

    text_tokens: int
    """Text tokens on which its pipeline conditions it."""
    rows: Mapping[str, Plane]
    """Rows of one sample that each linear layer or convolution multiplies, by its path."""
    around: tuple[Around, ...]
    lists: tuple[str, ...] = ()
    """For each stack, the list of modules that holds its blocks; (): unknown."""
    multiple: int = 1
    """Image and text tokens are each padded to a multiple of this."""
    oblong: int = 0
    """Tokens to which an image is padded unless it is square; 0: no padding."""

    def filled(self, tokens: int) -> int:
        """A number of tokens, padded as the class does."""
        return -(-tokens // self.multiple) * self.multiple


def highest(planes: tuple[Plane, ...], image: float, text: float) -> float:
    """Bytes of a sample with this many tokens."""
    return max((each.at(image, text) for each in planes), default=0.0)
