"""Real models on the meta device, by their configs."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

AUTO = {
    "causal-lm": "AutoModelForCausalLM",
    "vision-language": "AutoModelForImageTextToText",
    "encoder-decoder": "AutoModelForSeq2SeqLM",
}


def build_transformers(config: Mapping[str, Any], kind: str) -> Any:
    """Build the class that `architectures` names, or the one that `Auto...` chooses."""
    import torch
    import transformers

    real = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    named = (config.get("architectures") or [""])[0]
    with torch.device("meta"):
        if hasattr(transformers, named):
            return getattr(transformers, named)(real)
        if kind == "encoder":
            return transformers.AutoModel.from_config(real)
        return getattr(transformers, AUTO[kind]).from_config(real)


def build_diffusers(config: Mapping[str, Any]) -> Any:
    """Build the class that `_class_name` names."""
    import diffusers
    import torch

    options = {key: value for key, value in config.items() if not key.startswith("_")}
    with torch.device("meta"):
        return getattr(diffusers, config["_class_name"])(**options)


def built(config: Mapping[str, Any], kind: str) -> Any:
    """Build the real model of a config."""
    if "_class_name" in config:
        return build_diffusers(config)
    # Idefics2's config class takes keys out of what it is given
    return build_transformers(deepcopy(dict(config)), kind)
