"""Which derivation reads which family's config."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tunec.compiler.analyses.architecture.autoencoder import autoencoder_kl
from tunec.compiler.analyses.architecture.backbones import BACKBONES
from tunec.compiler.analyses.architecture.chatglm import chatglm
from tunec.compiler.analyses.architecture.decoder import causal_lm
from tunec.compiler.analyses.architecture.diffusion import flux, sd3
from tunec.compiler.analyses.architecture.encoder_decoder import ENCODER_DECODERS
from tunec.compiler.analyses.architecture.encoders import ENCODERS
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.internvl_chat import internvl_chat
from tunec.compiler.analyses.architecture.minicpm import minicpmv
from tunec.compiler.analyses.architecture.mllama import mllama
from tunec.compiler.analyses.architecture.qwen_vl import QWEN_VLMS
from tunec.compiler.analyses.architecture.unet import unet_2d_condition
from tunec.compiler.analyses.architecture.visualglm import visualglm
from tunec.compiler.analyses.architecture.vlm import VLMS
from tunec.schemas.models.architecture import Architecture

Derive = Callable[[Facts], Architecture]

FAMILIES: Final[Mapping[str, Derive]] = {
    **{family: partial(causal_lm, read) for family, read in BACKBONES.items()},
    **VLMS,
    **QWEN_VLMS,
    **ENCODER_DECODERS,
    **ENCODERS,
    "mllama": mllama,
    "chatglm": chatglm,
    "VisualGLMModel": visualglm,
    "minicpmv": minicpmv,
    "internvl_chat": internvl_chat,
    "UNet2DConditionModel": unet_2d_condition,
    "SD3Transformer2DModel": sd3,
    "FluxTransformer2DModel": flux,
    "AutoencoderKL": autoencoder_kl,
}
"""From `model_type` (Hugging Face) or `_class_name` (diffusers) to the derivation."""
