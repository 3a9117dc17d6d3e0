"""Decoders that stand alone or inside a vision-language model, by their `model_type`."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.analyses.architecture.decoder import Read
from tunec.compiler.analyses.architecture.decoders import DECODERS
from tunec.compiler.analyses.architecture.gpt import GPT_DECODERS
from tunec.compiler.analyses.architecture.latent import LATENT_DECODERS
from tunec.compiler.analyses.architecture.moe import MOE_DECODERS

BACKBONES: Final[Mapping[str, Read]] = {
    **DECODERS,
    **GPT_DECODERS,
    **MOE_DECODERS,
    **LATENT_DECODERS,
}
