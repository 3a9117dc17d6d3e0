"""What the inputs of a diffusion transformer are made of: its config, and one sample in tokens."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import torch
from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable

Layout = Literal["packed", "image", "video", "frames", "last", "sound"]

_TEXT_WIDTHS: Final = (
    *("joint_attention_dim", "caption_channels", "text_embed_dim", "text_dim", "cap_feat_dim"),
    *("text_in_dim", "encoder_hidden_states_channels", "cross_attention_dim", "text_states_dim"),
    *("in_channels_text", "context_in_dim", "text_embed_2_dim", "cross_attention_input_dim"),
    *("in_text_dim", "text_hidden_dim", "cond_token_dim", "dit_text_dim", "encoder_hidden_size"),
)
"""Keys of a config that hold the width of the text's states, the first that is set."""
_CHANNELS: Final = (
    *("in_channels", "in_visual_dim", "num_channels_latents", "io_channels", "latent_dim"),
    "sample_channels",
)
"""Keys of a config that hold the channels of what is painted, the first that is set."""


class Grid(Struct, frozen=True):
    """One sample's picture and text in tokens."""

    frames: int
    rows: int
    columns: int
    text: int

    @property
    def image(self) -> int:
        """Tokens of the picture."""
        return self.frames * self.rows * self.columns


class Given(Struct, frozen=True):
    """What inputs are made of."""

    config: Any
    grid: Grid
    samples: int
    dtype: torch.dtype
    patch: tuple[int, int, int]
    """Latent elements of a token: over time, height and width."""
    pictures: int = 0
    """Pictures of the same size that are given beside the one to be painted."""

    def zeros(self, *shape: int) -> torch.Tensor:
        """A tensor of all samples."""
        return torch.zeros(self.samples, *shape, dtype=self.dtype, device="meta")

    def integers(self, *shape: int) -> torch.Tensor:
        """A tensor of ones, of all samples."""
        return torch.ones(self.samples, *shape, dtype=torch.long, device="meta")

    def words(self, width: int) -> torch.Tensor:
        """States of the text."""
        return self.zeros(self.grid.text, width)

    @property
    def tokens(self) -> int:
        """Tokens of the picture and of those that are given beside it."""
        return self.grid.image * (1 + self.pictures)

    @property
    def all_tokens(self) -> int:
        """Tokens of pictures and text together."""
        return self.tokens + self.grid.text

    @property
    def shapes(self) -> list[list[tuple[int, int, int]]]:
        """Frames, rows and columns of the pictures of each sample."""
        each = (self.grid.frames, self.grid.rows, self.grid.columns)
        return [[each] * (1 + self.pictures)] * self.samples

    @property
    def latent(self) -> tuple[int, int, int]:
        """Elements of the latent: frames, height, width."""
        grid, patch = self.grid, self.patch
        return grid.frames * patch[0], grid.rows * patch[1], grid.columns * patch[2]

    def get(self, *names: str) -> Any:
        """The first key of the config that is set."""
        values = (getattr(self.config, name, None) for name in names)
        return next((each for each in values if each is not None), None)

    def of_width(self, *names: str) -> torch.Tensor | None:
        """A vector a sample, as wide as a key of the config; None: no key is set."""
        width = self.get(*names)
        return None if width is None else self.zeros(width)

    @property
    def channels(self) -> int:
        """Channels of what is painted."""
        found = self.get(*_CHANNELS)
        if not isinstance(found, int):
            raise Untraceable("its config does not say how many channels the picture has")
        return found

    @property
    def text_width(self) -> int:
        """Width of the text's states."""
        found = self.get(*_TEXT_WIDTHS)
        if isinstance(found, list | tuple):
            found = found[0]
        if not isinstance(found, int):
            raise Untraceable("its config does not say how wide the states of the text are")
        return found

    def latents(self, layout: Layout, channels: int) -> torch.Tensor:
        """What is to be painted, in noise."""
        frames, high, wide = self.latent
        shapes = {
            "packed": (self.tokens, channels),
            "image": (channels, high, wide),
            "video": (channels, frames, high, wide),
            "frames": (frames, channels, high, wide),
            "last": (frames, high, wide, channels),
            "sound": (channels, frames * high * wide),
        }
        return self.zeros(*shapes[layout])

    def rotary(self, tokens: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of each token's place, which the pipeline makes."""
        cos = torch.zeros(tokens, width, device="meta")
        return cos, torch.zeros(tokens, width, device="meta")

    def places(self, tokens: int) -> torch.Tensor:
        """The place of each token, on as many axes as the config has."""
        axes = self.get("axes_dims_rope", "axes_dim", "rope_axes_dim") or (0, 0, 0)
        return torch.zeros(tokens, len(axes), device="meta")


def numbers(count: int) -> torch.Tensor:
    """The first whole numbers."""
    return torch.arange(count, device="meta")


def shared(*shape: int) -> torch.Tensor:
    """Whole numbers that all samples share."""
    return torch.zeros(*shape, dtype=torch.long, device="meta")


Maker = Callable[[Given], Any]


class Traits(Struct, frozen=True):
    """What a class's signature does not tell."""

    layout: Layout = "image"
    """How the picture comes: as tokens, as latents, as latents of frames, frames before channels,
    channels last, or as one row of sound."""
    text: int = 256
    """Text tokens that the pipeline conditions on (`max_sequence_length`)."""
    scale: int = 8
    """Pixels a side that become one latent element (the VAE's factor)."""
    pack: int = 1
    """Latent elements a side that the pipeline packs into one token of its own."""
    more: Mapping[str, Maker] = {}
    """Arguments that have a meaning of their own."""
    finer: Mapping[int, int] = {}
    """Other factors, by the channels of the latents, where a family has several autoencoders."""
    without: frozenset[str] = frozenset()
    """Arguments that the pipeline leaves out, though the signature demands or names them."""
    fixed: Callable[[Any], int | None] | None = None
    """Of a config: the one length of the text that the class takes; None: it takes any."""
    unit: int = 1
    """Tokens a side to whose multiples a picture's sides are cut."""
    square: bool = False
    """Whether it takes none but square pictures, or fills up what others have."""
    oblong: Callable[[Any], int] | None = None
    """Of a config: the tokens that a picture is filled up to unless it is square."""
    numbered: str = ""
    """The key of the config that holds places of blocks, which change where some are left out."""
    placed: tuple[str, str] | None = None
    """The key of the config that has a place for each block of a list, and that list."""
    counts: Maker | None = None
    """How many tokens each of a list of counts has, which a pass asks for; None: the text's."""
    apart: frozenset[str] = frozenset()
    """Lists of blocks that no gradient of adapters passes: they make the condition, not tokens."""
    whole: bool = False
    """Whether its blocks are told apart by their places, so that none can be left out."""
    experts: str = ""
    """The key of the config that holds how many experts share the tokens."""
    values: bool = False
    """Whether its passes ask for values, which meta tensors lack: all that is asked is no."""
