"""Work of the models that encode texts and pictures for a diffusion model."""

from collections.abc import Iterable
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.diffusion import TEXT_TOKENS
from tunec.compiler.analyses.memory.workload import Workload, pixels_of
from tunec.compiler.analyses.time.kernels import FORWARD
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module

_CLIP_TOKENS: Final = 77
"""Tokens of CLIP's text encoders, even if another encoder reads the text too (diffusers 0.42
`pipelines`, `tokenizer.model_max_length`)."""
_LONG: Final = 1 << 20
"""Tokens of an encoder that has no limit."""
_HALF: Final = ("encoder.", "quant_conv")
"""The modules of an autoencoder that run before training, from pixels to latents."""


class Encoding(NamedTuple):
    """The forward work of encoding one sample."""

    operations: float
    kernels: float


@cached(256)
def encoding(workload: Workload, components: tuple[Architecture, ...]) -> Encoding:
    """The work of encoding one sample with these encoders."""
    found = [_encoding(workload, each) for each in components]
    return Encoding(sum(e.operations for e in found), sum(e.kernels for e in found))


def _encoding(workload: Workload, model: Architecture) -> Encoding:
    if model.kind == "autoencoder":
        return _pixels(workload, model)
    return _text(workload, model)


def _text(workload: Workload, model: Architecture) -> Encoding:
    """A text encoder: every weight but the embeddings' once a token, and attention's scores."""
    tokens = min(model.context or _LONG, _tokens(workload))
    own = [each for each in model.modules if each.kind == "linear"]
    scores = sum(4 * s.layers * s.heads * s.head_dim * tokens**2 for s in model.stacks)
    weights = sum(prod(each.shape) * each.copies for each in own)
    return Encoding(2 * tokens * weights + scores, _launched(model.modules))


def _tokens(workload: Workload) -> int:
    model = workload.architecture
    read = max((level.text_tokens for level in model.unet), default=_CLIP_TOKENS)
    return TEXT_TOKENS.get(model.family, read)


def _pixels(workload: Workload, model: Architecture) -> Encoding:
    """An autoencoder's first half, of all pictures: a convolution at its level's resolution."""
    half = [each for each in model.modules if each.path.startswith(_HALF)]
    positions = float(pixels_of(workload))
    total = 0.0
    for module in half:
        if "downsamplers" in module.path:
            positions /= 4
        if module.kind in ("conv", "linear"):
            total += 2 * prod(module.shape) * module.copies * positions
    return Encoding(total, _launched(half))


def _launched(modules: Iterable[Module]) -> float:
    return FORWARD * sum(each.copies for each in modules if each.kind != "embedding")
