"""Which derivation reads which family's config."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Final

from tunec.compiler.analyses.architecture.backbones import BACKBONES
from tunec.compiler.analyses.architecture.decoder import causal_lm
from tunec.compiler.analyses.architecture.encoder_decoder import ENCODER_DECODERS
from tunec.compiler.analyses.architecture.encoders import ENCODERS
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.qwen_vl import QWEN_VLMS
from tunec.compiler.analyses.architecture.vlm import VLMS
from tunec.schemas.models.architecture import Architecture

Derive = Callable[[Facts], Architecture]


def _in(module: str, name: str) -> Derive:
    """A derivation whose module is imported when a config asks for it."""

    def derive(facts: Facts) -> Architecture:
        found: Derive = getattr(import_module(f"{__package__}.{module}"), name)
        return found(facts)

    return derive


FAMILIES: Final[Mapping[str, Derive]] = {
    **{family: partial(causal_lm, read) for family, read in BACKBONES.items()},
    **VLMS,
    **QWEN_VLMS,
    **ENCODER_DECODERS,
    **ENCODERS,
    "mllama": _in("mllama", "mllama"),
    "chatglm": _in("chatglm", "chatglm"),
    "VisualGLMModel": _in("chatglm", "visualglm"),
    "minicpmv": _in("minicpm", "minicpmv"),
    "internvl_chat": _in("internvl_chat", "internvl_chat"),
    "UNet2DConditionModel": _in("unet", "unet_2d_condition"),
    "SD3Transformer2DModel": _in("diffusion", "sd3"),
    "FluxTransformer2DModel": _in("diffusion", "flux"),
    "AutoencoderKL": _in("autoencoder", "autoencoder_kl"),
}
"""From `model_type` (Hugging Face) or `_class_name` (diffusers) to the derivation."""
