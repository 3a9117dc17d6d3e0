"""What an architecture is, as far as memory, time and adapters depend on it.

An `Architecture` is derived from a model's own `config.json` (`compiler/analyses/architecture`),
never typed in: its modules are the real module tree, so that parameter counts and adapter targets
are those of the model that will be built.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from tunec.schemas.models.denoiser import BlockBytes, Denoiser
from tunec.schemas.models.layer_measures import Measured

Count = Annotated[int, Meta(ge=0, le=10**12)]
Some = Annotated[int, Meta(ge=1, le=10**7)]
"""A number that is at least one."""

Part = Literal["text", "vision", "audio", "projector", "denoiser", "text_encoder", "vae"]
"""Which part of a model a module belongs to; `projector` includes resamplers and mergers."""

Kind = Literal["linear", "embedding", "norm", "conv", "router", "parameter"]
"""The kind of a module. A `router` is a subclass of a linear layer that also returns its choice:
PEFT treats it as a linear layer, and bitsandbytes leaves it alone."""


class Module(Struct, frozen=True):
    """Equal modules that hold parameters: one entry for all layers of a stack.

    `path` is the dotted name in the real module tree with `{}` where the indices go
    (`model.layers.{}.self_attn.q_proj`), `copies` how many there are, `shape` the weight's shape
    (linear: outputs, inputs) and `bias` the number of bias elements of one copy. A bare parameter
    (kind `parameter`: fused experts, router weights, class tokens) has its own dotted name as path.
    """

    path: str
    kind: Kind
    shape: tuple[Count, ...]
    part: Part
    bias: Count = 0
    copies: Some = 1
    indices: tuple[Sequence[int], ...] = ()
    """What the `{}` of the path run over, one sequence each; their product gives the copies."""
    fixed: bool = False
    """Whether its class never trains it, such as a table of sinusoids."""
    calls: Count = 1
    """How often each token passes it: twice where one attention reads encoder and decoder; 0: its
    class runs without it unless a batch has more than text, as Longformer's global attention."""
    positions: Count = 0
    """The length of its input per sample if that does not depend on the text, such as the audio
    that a decoder attends to; 0: the tokens of the text."""

    @property
    def parameters(self) -> int:
        """Elements of weight and bias over all copies."""
        size = 1
        for side in self.shape:
            size *= side
        return (size + self.bias) * self.copies

    def places(self) -> Iterator[tuple[int, ...]]:
        """The indices of every copy, one for each `{}` of the path."""
        counted = (range(self.copies),) if "{}" in self.path else ()
        return product(*(self.indices or counted))

    def names(self) -> Iterator[str]:
        """The dotted name of every copy, as `named_modules` gives them."""
        return (self.path.format(*place) for place in self.places())


class Experts(Struct, frozen=True):
    """The mixture of experts in each layer of a stack."""

    count: Count
    active: Count
    """Experts a token passes through, the shared ones not counted."""
    ffn: Count
    """Inner width of one expert."""
    shared_ffn: Count = 0
    """Inner width of the experts every token passes through, all together; 0: none."""


class LatentAttention(Struct, frozen=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    query_rank: Count
    """0: the query is not compressed."""
    key_value_rank: Count
    rope_head_dim: Count
    nope_head_dim: Count
    value_head_dim: Count


class Stack(Struct, frozen=True):
    """Equal transformer layers, one after the other."""

    part: Part
    layers: Some
    hidden: Some
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    """Inner width of the dense feed-forward; 0 in layers that only have experts."""
    gated: bool
    """Gate and up projections (SwiGLU, GeGLU) instead of one."""
    norm: Literal["rms", "layer"]
    norms: Count = 2
    """Norms over the hidden width in one layer (2 before attention and MLP; 4 in Gemma 2)."""
    qk_norm: bool = False
    causal: bool = True
    window: Count | None = None
    """Tokens that a sliding-window layer attends to; None: all."""
    windowed_layers: Count = 0
    """How many of the layers are sliding-window layers."""
    softcap: bool = False
    """Attention scores pass a tanh cap: flash kernels before 2.6 cannot, eager is used."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    cross_attention: Count = 0
    """Tokens-side width of a cross attention in each layer; 0: none."""
    joint: Literal["none", "double", "single"] = "none"
    """Diffusion transformers: two streams with joint attention, or one fused stream."""
    positions: Count = 0
    """The length of its input per sample if that does not depend on the text: 1,500 for thirty
    seconds of audio; 0: the tokens of the text."""
    streams: Some = 1
    """States of the hidden width that a layer hands on beside each other: 4 in Gemma 3n."""
    attends: bool = True
    """Whether its tokens are compared with each other; not in state spaces."""
    measured: tuple[Measured, ...] = ()
    """Bytes of one of these layers, measured on the real class; (): by formulas."""
    blocks: tuple[BlockBytes, ...] = ()
    """Bytes of one block of a diffusion transformer, measured on the real class."""

    @property
    def is_kept(self) -> bool:
        """Whether its class keeps all of these blocks when it recomputes others.

        Such as refiners before the main blocks (diffusers 0.42 `transformer_lumina2.py`,
        `forward`).
        """
        return bool(self.blocks) and all(each.inputs == each.saved for each in self.blocks)


class Dropout(Struct, frozen=True):
    """Where a model in training drops activations at random, by its own config."""

    states: bool = False
    """The outputs of attention and feed-forward, before they are added to the hidden states."""
    scores: bool = False
    """The attention weights."""
    inner: bool = False
    """Between the two projections of a feed-forward."""


NO_DROPOUT: Final = Dropout()


class UnetLevel(Struct, frozen=True):
    """One resolution of a UNet, down and up path together."""

    channels: Count
    resnets: Count
    """Residual blocks at this resolution, down, middle and up counted together."""
    transformers: Count
    """Transformer models at this resolution; 0: no attention."""
    depth: Count
    """Layers in each of those transformers."""
    scale: Some
    """Latent side divided by this is the side at this level."""
    heads: Count = 0
    """Attention heads at this resolution; 0: no attention."""
    cross_attention: Count = 0
    """Width of the text states that the transformers attend to; 0: none."""
    ffn: Count = 0
    """Inner width of the gated feed-forward of each layer."""
    text_tokens: Count = 77
    """Text tokens that the transformers attend to: CLIP's number, unless a model has another."""


class ImageTokens(Struct, frozen=True):
    """How pixels become tokens, by the family's own rule (`compiler/analyses/architecture`)."""

    rule: str
    """Name of the rule, such as `fixed`, `qwen2-vl`, `minicpm-v`, `llava-next`, `internvl`."""
    image_size: Some
    """Side in pixels that the tower sees for one image or slice."""
    patch: Some
    """Side in pixels of one patch."""
    merge: Some = 1
    """Patches per side joined into one token by the projector."""
    tokens: Count = 0
    """Tokens that one image or slice adds for the language model, if the number is fixed."""
    max_slices: Count = 1
    """The most slices (tiles, crops) one image is cut into, the overview not counted."""
    max_pixels: Count = 0
    """The most pixels that the processor keeps, for families of variable resolution; 0: no rule."""
    min_pixels: Count = 0
    """The fewest pixels that the processor makes of an image; 0: no rule."""
    max_side: Count = 0
    """The most pixels a side that the processor keeps; 0: no rule."""
    min_slices: Count = 1
    """The fewest slices one image is cut into."""
    grids: tuple[tuple[Count, Count], ...] = ()
    """The canvases, as height and width in pixels, that an image may be fitted to; (): no rule."""
    lead_tokens: Count = 0
    """Class tokens that the tower puts before the patches of each image or slice."""
    framing_tokens: Count = 0
    """Learned embeddings that the projector puts around an image (GLM-4V: begin and end)."""


ClassifierKind = Literal["sequence-classifier", "token-classifier"]
"""A head that gives each sequence, or each token, a label; on an encoder or a decoder."""


class References(Struct, frozen=True):
    """How many reference images a diffusion model takes as tokens beside the generated image."""

    least: Count
    most: Some
    seen: Count = 0
    """Tokens that one of them adds to the states of the text, whose encoder sees it; 0: none."""


class ClipEncoder(Struct, frozen=True):
    """What an autoencoder holds while it encodes one clip, in elements."""

    parameters: Count
    pixel: float
    """For each pixel of one frame, however many frames there are."""
    frame: float
    """For each pixel of every frame."""


class Architecture(Struct, frozen=True, dict=True):
    """A model as built: its modules, its stacks of layers, its vocabulary, its image rule."""

    family: str
    """`model_type` of a Hugging Face config, or the diffusers class name."""
    kind: Literal[
        "causal-lm",
        "vision-language",
        "encoder-decoder",
        "encoder",
        "diffusion",
        "autoencoder",
        "sequence-classifier",
        "token-classifier",
    ]
    modules: tuple[Module, ...]
    stacks: tuple[Stack, ...]
    hidden: Some
    vocab: Count
    """Rows of the output projection; 0 for models without one."""
    context: Count
    """The longest sequence the config allows; 0 where there is none."""
    tied: bool
    """Input embedding and output projection share one weight (then the modules list it once)."""
    logit_softcap: bool = False
    images: ImageTokens | None = None
    unet: tuple[UnetLevel, ...] = ()
    latent_channels: Count = 0
    """Channels of the latent that a diffusion model sees."""
    latent_scale: Some = 8
    """Pixels a side that become one latent element a side (the VAE's factor)."""
    latent_patch: Some = 1
    """Latent elements a side that become one token."""
    latent_time: Count = 0
    """Frames that become one latent frame, after the first, which is one by itself; 0: the model
    paints no clips."""
    remote_code: bool = False
    """Built by code in the model's own repository (`trust_remote_code`)."""
    head: str = ""
    """Dotted name of the output projection (it holds no weight of its own where `tied`)."""
    embedding: str = ""
    """Dotted name of the token embedding."""
    assumed: tuple[str, ...] = ()
    """Config keys that were absent, so that the config class's own default was taken."""
    dropout: Dropout = NO_DROPOUT
    activation: str = ""
    """The feed-forward's activation by its config; "": the family's usual one."""
    around: tuple[Measured, ...] = ()
    """Bytes that the language model keeps outside its layers, up to the final norm's output."""
    eager: bool = False
    """Whether its class supports none of torch's fused attention."""
    flash: bool = False
    """Whether a class that is `eager` takes FlashAttention 2 all the same."""
    unpacked: str = ""
    """Why its class cannot run on weights that bitsandbytes has packed; "": no obstacle is
    known."""
    plain_loss: bool = False
    """Whether its class computes the loss of unchanged logits, neither shifted nor cast to fp32."""
    window: Count = 0
    """Tokens to whose multiple its class pads each text; an encoder before a decoder alone pads;
    0: it pads none."""
    wide_stream: bool = False
    """Whether its layers pass on fp32 under autocast although their weights have 16 bits."""
    recomputes: bool = True
    """Whether its class can recompute its layers."""
    layer_classes: tuple[str, ...] = ()
    """Classes that FSDP wraps; empty: those that the model's class names itself."""
    new: tuple[str, ...] = ()
    """Modules that no published weights initialise, by dotted name: a classifier's head."""
    denoiser: Denoiser | None = None
    """Inputs and bytes of a diffusion transformer, measured on the real class."""
    references: References | None = None
    """What a diffusion model that edits is given; None: it paints from words alone."""
    clip_encoder: ClipEncoder | None = None
    """The autoencoder of a model that paints clips; None: another, or it was not measured."""

    def __hash__(self) -> int:
        """A hash computed once: architectures key the caches of every account."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.family, self.modules, self.stacks, self.context, self.assumed))

    @cached_property
    def parameters(self) -> int:
        """All parameters, each once."""
        return sum(module.parameters for module in self.modules)

    @cached_property
    def source(self) -> int:
        """Positions that an encoder reads and that are not text; 0: there is no such encoder."""
        return max((stack.positions for stack in self.stacks), default=0)

    @cached_property
    def by_part(self) -> dict[Part, int]:
        """Parameters of each part."""
        sums: dict[Part, int] = {}
        for module in self.modules:
            sums[module.part] = sums.get(module.part, 0) + module.parameters
        return sums
