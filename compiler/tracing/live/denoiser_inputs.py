"""What the forward pass of a diffusion transformer is given, by its signature and its config.

Most arguments have one name and one meaning in all classes of diffusers 0.42.1
(`models/transformers`); what a signature cannot tell is a row of `TRAITS`. A row that names its
pipeline was read there; the others are not yet held against theirs.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import torch
from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable

_TEXT_WIDTHS: Final = (
    *("joint_attention_dim", "caption_channels", "text_embed_dim", "text_dim", "cap_feat_dim"),
    *("text_in_dim", "encoder_hidden_states_channels", "cross_attention_dim", "text_states_dim"),
    *("in_channels_text", "context_in_dim", "text_embed_2_dim", "cross_attention_input_dim"),
)
"""Keys of a config that hold the width of the text's states, the first that is set."""


class Traits(Struct, frozen=True):
    """What a class's signature does not tell."""

    layout: Literal["packed", "image", "video", "frames"] = "image"
    """How the picture comes: as tokens, as latents, as latents of frames, frames before channels.
    """
    text: int = 256
    """Text tokens that the pipeline conditions on (`max_sequence_length`)."""
    scale: int = 8
    """Pixels a side that become one latent element (the VAE's factor)."""
    pack: int = 1
    """Latent elements a side that the pipeline packs into one token of its own."""
    more: Mapping[str, Callable[["Given"], Any]] = {}
    """Arguments that have a meaning of their own."""
    finer: Mapping[int, int] = {}
    """Other factors, by the channels of the latents, where a family has several autoencoders."""
    without: frozenset[str] = frozenset()
    """Arguments that the pipeline leaves out, though the signature demands or names them."""


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
    def latent(self) -> tuple[int, int, int]:
        """Elements of the latent: frames, height, width."""
        grid, patch = self.grid, self.patch
        return grid.frames * patch[0], grid.rows * patch[1], grid.columns * patch[2]

    def get(self, *names: str) -> Any:
        """The first key of the config that is set."""
        values = (getattr(self.config, name, None) for name in names)
        return next((each for each in values if each is not None), None)

    @property
    def text_width(self) -> int:
        """Width of the text's states."""
        found = self.get(*_TEXT_WIDTHS)
        if isinstance(found, list | tuple):
            found = found[0]
        if not isinstance(found, int):
            raise Untraceable("its config does not say how wide the states of the text are")
        return found

    def rotary(self, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of each token's place, which the pipeline makes."""
        shape = self.grid.image, width
        cos = torch.zeros(shape, device="meta")
        return cos, torch.zeros(shape, device="meta")


def _ids(given: Given, tokens: int) -> torch.Tensor:
    axes = given.get("axes_dims_rope", "axes_dim", "rope_axes_dim") or (0, 0, 0)
    return torch.zeros(tokens, len(axes), device="meta")


def _grid_of(given: Given) -> list[list[tuple[int, int, int]]]:
    return [[(given.grid.frames, given.grid.rows, given.grid.columns)]] * given.samples


def _size(given: Given) -> torch.Tensor:
    return given.zeros(2)


_USUAL: Final[Mapping[str, Callable[[Given], Any]]] = {
    "encoder_hidden_states": lambda given: given.words(given.text_width),
    "timestep": lambda given: given.zeros(),
    "timesteps": lambda given: given.zeros(),
    "guidance": lambda given: given.zeros() if given.get("guidance_embeds") else None,
    "pooled_projections": lambda given: given.zeros(
        given.get("pooled_projection_dim", "pooled_projection_type_dim", "in_text_dim2")
    ),
    "encoder_attention_mask": lambda given: given.integers(given.grid.text),
    "encoder_hidden_states_mask": lambda _: None,
    "img_ids": lambda given: _ids(given, given.grid.image),
    "txt_ids": lambda given: _ids(given, given.grid.text),
    "img_shapes": _grid_of,
    "num_frames": lambda given: given.latent[0],
    "height": lambda given: given.latent[1],
    "width": lambda given: given.latent[2],
    "original_size": _size,
    "target_size": _size,
    "crop_coords": _size,
}
"""Arguments by name, of a meaning that is the same in all classes."""


def _latents(given: Given, layout: str) -> torch.Tensor:
    channels = given.get("in_channels", "in_visual_dim", "num_channels_latents")
    frames, high, wide = given.latent
    if layout == "packed":
        return given.zeros(given.grid.image, channels)
    if layout == "image":
        return given.zeros(channels, high, wide)
    if layout == "frames":
        return given.zeros(frames, channels, high, wide)
    return given.zeros(channels, frames, high, wide)


def _pixart_conditions(given: Given) -> Mapping[str, Any]:
    shared = given.config.use_additional_conditions
    if shared is None:
        shared = given.config.sample_size == 128
    return (
        {"resolution": given.zeros(2), "aspect_ratio": given.zeros(1)}
        if shared
        else {
            "resolution": None,
            "aspect_ratio": None,
        }
    )


def _hidream_llama(given: Given) -> torch.Tensor:
    layers = len(given.config.llama_layers)
    width = given.config.caption_channels[1]
    return torch.zeros(
        layers, given.samples, given.grid.text, width, dtype=given.dtype, device="meta"
    )


_FLUX: Final = Traits("packed", 512, pack=2)
TRAITS: Final[Mapping[str, Traits]] = {
    "SD3Transformer2DModel": Traits(text=333),
    "FluxTransformer2DModel": _FLUX,
    # pipelines/flux2: 512 tokens, a VAE of 8 and two by two latents to a channel
    "Flux2Transformer2DModel": _FLUX,
    "ChromaTransformer2DModel": Traits(
        "packed",
        512,
        pack=2,
        more={"attention_mask": lambda given: given.integers(given.grid.text + given.grid.image)},
    ),
    "OvisImageTransformer2DModel": Traits("packed", 256, pack=2),
    "LongCatImageTransformer2DModel": Traits("packed", 512, pack=2),
    "BriaTransformer2DModel": Traits("packed", 128, pack=2),
    "QwenImageTransformer2DModel": Traits("packed", 1024, pack=2),
    "AuraFlowTransformer2DModel": Traits(text=256),
    "PixArtTransformer2DModel": Traits(
        text=300,
        more={
            "added_cond_kwargs": _pixart_conditions,
            "encoder_attention_mask": lambda given: given.integers(given.grid.text),
        },
    ),
    # the autoencoder (AutoencoderDC) makes one element of 32 by 32 pixels
    "SanaTransformer2DModel": Traits(text=300, scale=32),
    "SanaVideoTransformer3DModel": Traits("video", 300),
    "Lumina2Transformer2DModel": Traits(text=256),
    "CogView4Transformer2DModel": Traits(text=1024),
    "CogView3PlusTransformer2DModel": Traits(text=224),
    "HiDreamImageTransformer2DModel": Traits(
        text=128,
        more={
            "encoder_hidden_states_t5": lambda given: given.words(given.config.caption_channels[0]),
            "encoder_hidden_states_llama3": _hidream_llama,
            "pooled_embeds": lambda given: given.zeros(given.config.text_emb_dim),
        },
    ),
    # the autoencoder of Wan 2.2's 5B has 48 channels, and makes one element of 16 by 16 pixels
    "WanTransformer3DModel": Traits("video", 512, finer={48: 16}),
    "SkyReelsV2Transformer3DModel": Traits("video", 512),
    "ChronoEditTransformer3DModel": Traits("video", 512),
    "HunyuanVideoTransformer3DModel": Traits("video", 256),
    "CogVideoXTransformer3DModel": Traits(
        "frames",
        226,
        more={"image_rotary_emb": lambda given: given.rotary(given.config.attention_head_dim)},
    ),
    # a VAE of 32 in space and 8 in time, whose elements are tokens as they are
    "LTXVideoTransformer3DModel": Traits("packed", 128, 32),
    "MochiTransformer3DModel": Traits("video", 256),
    "AllegroTransformer3DModel": Traits("video", 512),
    "LatteTransformer3DModel": Traits("video", 120),
    "CosmosTransformer3DModel": Traits("video", 512),
    "EasyAnimateTransformer3DModel": Traits("video", 256),
    "ZImageTransformer2DModel": Traits(
        "image",
        512,
        more={
            "x": lambda given: list(given.zeros(given.config.in_channels, *given.latent).unbind(0)),
            "t": lambda given: given.zeros(),
            "cap_feats": lambda given: list(given.words(given.config.cap_feat_dim).unbind(0)),
        },
    ),
}
"""By class. Text tokens are `max_sequence_length` of the class's own pipeline."""


def traits_of(family: str, forward: Callable[..., Any]) -> Traits:
    """The row of a class, or what its name and signature tell of it."""
    if family in TRAITS:
        return TRAITS[family]
    if "img_ids" in inspect.signature(forward).parameters:
        return Traits("packed", pack=2)
    return Traits("video" if "3D" in family else "image")


def patch_of(config: Any, traits: Traits) -> tuple[int, int, int]:
    """Latent elements of one token over time, height and width."""
    patch = getattr(config, "patch_size", None) or 1
    if isinstance(patch, list | tuple):
        own = (*patch,) if len(patch) == 3 else (1, *patch)
        return int(own[0]), int(own[1]), int(own[2])
    time = getattr(config, "patch_size_t", None) or 1
    return (time, patch, patch) if traits.layout != "packed" else (1, 1, 1)


def inputs(model: torch.nn.Module, given: Given) -> dict[str, Any]:
    """The arguments of one forward pass. Raises Untraceable where one has no known meaning."""
    family = type(model).__name__
    traits = traits_of(family, model.forward)
    made: dict[str, Any] = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if name in traits.without or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if name in traits.more:
            made[name] = traits.more[name](given)
        elif name == "hidden_states":
            made[name] = _latents(given, traits.layout)
        elif name in _USUAL and (parameter.default is inspect.Parameter.empty or _wanted(name)):
            made[name] = _USUAL[name](given)
        elif parameter.default is inspect.Parameter.empty:
            raise Untraceable(f"the forward pass of {family} takes {name}, which is not known")
    return {name: value for name, value in made.items() if value is not None}


@contextmanager
def counted(text: int) -> Iterator[None]:
    """Answer how many tokens a mask leaves of a text: all of them, which meta tensors do not hold.

    diffusers 0.42 `transformer_lumina2.py`, `Lumina2RotaryPosEmbed.forward`.
    """
    plain = torch.Tensor.tolist

    def tolist(self: torch.Tensor) -> Any:
        return [text] * self.numel() if self.device.type == "meta" else plain(self)

    torch.Tensor.tolist = tolist
    try:
        yield
    finally:
        torch.Tensor.tolist = plain


def _wanted(name: str) -> bool:
    """Whether an argument that may be left out is given: all but masks of whole texts."""
    return not name.endswith("_mask")
