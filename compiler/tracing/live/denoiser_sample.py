"""The source of a diffusion transformer's inputs: its config, and one sample in tokens."""

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
"""Config keys with the width of the text's states; the first that is set counts."""
_CHANNELS: Final = (
    *("in_channels", "in_visual_dim", "num_channels_latents", "io_channels", "latent_dim"),
    "sample_channels",
)
"""Config keys with the channels of the denoised latents; the first that is set counts."""


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
    """The facts from which inputs are made."""

    config: Any
    grid: Grid
    samples: int
    dtype: torch.dtype
    patch: tuple[int, int, int]
    """Latent elements of a token: over time, height and width."""
    pictures: int = 0
    """The number of reference images, each of the generated image's size."""

    def zeros(self, *shape: int) -> torch.Tensor:
        """A tensor of zeros for all samples."""
        return torch.zeros(self.samples, *shape, dtype=self.dtype, device="meta")

    def integers(self, *shape: int) -> torch.Tensor:
        """An integer tensor of ones for all samples."""
        return torch.ones(self.samples, *shape, dtype=torch.long, device="meta")

    def words(self, width: int) -> torch.Tensor:
        """States of the text."""
        return self.zeros(self.grid.text, width)

    @property
    def tokens(self) -> int:
        """Tokens of the picture and of its reference pictures."""
        return self.grid.image * (1 + self.pictures)

    @property
    def all_tokens(self) -> int:
        """Tokens of all pictures and of the text."""
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
        """The value of the first config key that is set; None if none is set."""
        values = (getattr(self.config, name, None) for name in names)
        return next((each for each in values if each is not None), None)

    def of_width(self, *names: str) -> torch.Tensor | None:
        """A vector per sample, as wide as a config key's value; None: no key is set."""
        width = self.get(*names)
        return None if width is None else self.zeros(width)

    @property
    def channels(self) -> int:
        """Channels of the denoised latents. Raises Untraceable if the config has none."""
        found = self.get(*_CHANNELS)
        if not isinstance(found, int):
            raise Untraceable("its config does not say how many channels the picture has")
        return found

    @property
    def text_width(self) -> int:
        """Width of the text's states. Raises Untraceable if the config has none."""
        found = self.get(*_TEXT_WIDTHS)
        if isinstance(found, list | tuple):
            found = found[0]
        if not isinstance(found, int):
            raise Untraceable("its config does not say how wide the states of the text are")
        return found

    def latents(self, layout: Layout, channels: int) -> torch.Tensor:
        """The noisy latents."""
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
        """Cosines and sines of each token's position, which the pipeline makes."""
        cos = torch.zeros(tokens, width, device="meta")
        return cos, torch.zeros(tokens, width, device="meta")

    def places(self, tokens: int) -> torch.Tensor:
        """The position of each token, on as many axes as the config has."""
        axes = self.get("axes_dims_rope", "axes_dim", "rope_axes_dim") or (0, 0, 0)
        return torch.zeros(tokens, len(axes), device="meta")


def numbers(count: int) -> torch.Tensor:
    """The integers from 0 up to `count`, exclusive."""
    return torch.arange(count, device="meta")


def shared(*shape: int) -> torch.Tensor:
    """An integer tensor of zeros that all samples share."""
    return torch.zeros(*shape, dtype=torch.long, device="meta")


Maker = Callable[[Given], Any]


class Traits(Struct, frozen=True):
    """Facts about a class that its signature does not show."""

    layout: Layout = "image"
    """How the picture comes: as tokens, as latents, as latents of frames, frames before channels,
    channels last, or as one row of sound."""
    text: int = 256
    """Text tokens that the pipeline conditions on (`max_sequence_length`)."""
    scale: int = 8
    """Pixels per side of one latent element (the VAE's factor)."""
    time: int = 0
    """Frames of a clip for one of the latent after the first; 0: pictures alone are planned."""
    pack: int = 1
    """Latent elements per side that the pipeline itself packs into one token."""
    more: Mapping[str, Maker] = {}
    """Arguments with a meaning that only this class has."""
    finer: Mapping[int, int] = {}
    """Other factors, by the channels of the latents, if a family has several autoencoders."""
    without: frozenset[str] = frozenset()
    """Arguments that the pipeline leaves out, although the signature requires or names them."""
    fixed: Callable[[Any], int | None] | None = None
    """Returns, for a config, the only length of text that the class takes; None: it takes any."""
    unit: int = 1
    """Tokens per side; a picture's sides are cut to multiples of this number."""
    square: bool = False
    """Whether the class takes only square pictures, or pads others."""
    oblong: Callable[[Any], int] | None = None
    """Returns, for a config, the number of tokens to which a picture is padded unless it is
    square."""
    numbered: str = ""
    """The config key with indices of blocks, which change if some blocks are left out."""
    placed: tuple[str, str] | None = None
    """The config key with an entry for each block of a list, and the path of that list."""
    counts: Maker | None = None
    """How many tokens each of a list of counts has, which a pass asks for; None: the text's."""
    apart: frozenset[str] = frozenset()
    """Lists of blocks that no gradient of adapters passes: they make the condition, not tokens."""
    whole: bool = False
    """Whether its blocks are distinguished by their indices, so that none can be left out."""
    experts: str = ""
    """The config key with the number of experts that share the tokens."""
    values: bool = False
    """Whether its passes request values, which meta tensors lack; every answer is then no."""
