"""What a diffusion transformer takes by the tokens of its picture and its text, off its class."""

from collections.abc import Mapping

from msgspec import Struct


class Plane(Struct, frozen=True, omit_defaults=True):
    """A quantity of one sample by its tokens: so much at all, for each of the picture, the text."""

    fixed: float = 0.0
    image: float = 0.0
    text: float = 0.0
    square: float = 0.0
    """For each pair of tokens, of picture and text together: masks and scores made as tensors."""

    pairs: float = 0.0
    """For each pair of the text's tokens."""

    def at(self, image: float, text: float) -> float:
        """The quantity of a sample of so many tokens."""
        squares = self.square * (image + text) ** 2 + self.pairs * text**2
        return self.fixed + self.image * image + self.text * text + squares


class BlockBytes(Struct, frozen=True, omit_defaults=True):
    """One block's bytes of one sample in one way of computing (`arithmetic.way`)."""

    way: str
    saved: tuple[Plane, ...]
    """What the forward pass keeps for the backward pass, by the highest of these."""
    working: tuple[Plane, ...]
    """The most that the backward pass of the block takes besides; gradients of weights not."""
    forward: tuple[Plane, ...]
    """The most that its forward pass takes, what it keeps included."""
    inputs: tuple[Plane, ...]
    """What is kept of it where it is recomputed: what it hands to the next one."""


class Around(Struct, frozen=True, omit_defaults=True):
    """Bytes of one sample that are kept outside of the blocks, in one way of computing."""

    way: str
    saved: tuple[Plane, ...]


class Denoiser(Struct, frozen=True, omit_defaults=True):
    """What a diffusion transformer gets and keeps."""

    text_tokens: int
    """Text tokens that its pipeline conditions it on."""
    rows: Mapping[str, Plane]
    """Rows of one sample that each linear layer or convolution multiplies, by its path."""
    around: tuple[Around, ...]
    lists: tuple[str, ...] = ()
    """Of each stack, the list of modules that its blocks stand in; (): it is not known."""
    multiple: int = 1
    """Tokens to whose multiples picture and text are each filled up."""
    oblong: int = 0
    """Tokens that a picture is filled up to unless it is square; 0: none is."""

    def filled(self, tokens: int) -> int:
        """So many tokens as the class makes of them."""
        return -(-tokens // self.multiple) * self.multiple


def highest(planes: tuple[Plane, ...], image: float, text: float) -> float:
    """Bytes of a sample of so many tokens."""
    return max((each.at(image, text) for each in planes), default=0.0)
