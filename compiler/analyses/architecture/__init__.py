"""Architectures: from a model's own config to its modules, layers, tokens and adapters.

A module's path is the dotted name that PEFT sees in transformers 5.23 and diffusers 0.42.1.
Transformers 4 had other prefixes in vision-language models (`language_model.model.layers` for
`model.language_model.layers`) and a linear layer for each expert; the last parts, which targets
name, are the same but for the experts.
"""

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.architecture.facts import (
    Fault,
    UnknownArchitecture,
    UnusableConfig,
)
from tunec.compiler.analyses.architecture.families import FAMILIES
from tunec.compiler.analyses.architecture.image_rules import with_images
from tunec.compiler.analyses.architecture.image_tokens import (
    UnfitImage,
    image_tokens,
    latent_tokens,
    vision_tokens,
)
from tunec.compiler.analyses.architecture.lora import (
    HalfTarget,
    expert_parameters,
    expert_targets,
    half_target,
    is_moved,
    is_refused,
    lora_parameters,
    matching,
    parameters_named,
    rank_factor,
    takes_no_adapter,
)

__all__ = [
    "FAMILIES",
    "Fault",
    "HalfTarget",
    "UnfitImage",
    "UnknownArchitecture",
    "UnusableConfig",
    "derive",
    "expert_parameters",
    "expert_targets",
    "half_target",
    "image_tokens",
    "is_moved",
    "is_refused",
    "latent_tokens",
    "lora_parameters",
    "matching",
    "parameters_named",
    "rank_factor",
    "takes_no_adapter",
    "vision_tokens",
    "with_images",
]
