"""Adapters and quantisation by the real libraries, on the real module tree without weights."""

import re
from collections import Counter
from collections.abc import Mapping
from importlib import metadata
from typing import Any
from unittest.mock import patch

import peft
import torch
import transformers
from transformers import AutoConfig

from tunec.compiler.consumers.json_types import plain
from tunec.targets.huggingface.consumer.arguments import Refused, stage


def adapt(question: Mapping[str, Any]) -> dict[str, Any]:
    """Put a LoRA adapter on the real module tree, on the meta device, and count.

    In: `model_config` (a config.json object with `model_type`), `auto_class` (default
    AutoModelForCausalLM), `lora` (the arguments of LoraConfig, as adapter_config.json has them),
    `dtype` of the weights. Out: `versions`; `refused` (None, or stage, type and message); parameter
    counts; `modules`, how many of each adapted module there are, layer numbers written as `*`; the
    dtypes of adapter and base.
    """
    answer: dict[str, Any] = {
        "versions": {"transformers": transformers.__version__, "peft": peft.__version__},
        "refused": None,
    }
    try:
        return answer | _adapted(question)
    except Refused as refused:
        return answer | {"refused": refused.told()}


def _adapted(question: Mapping[str, Any]) -> dict[str, Any]:
    with stage("model"):
        model = _model(question)
    with stage("adapter"):
        wanted = peft.LoraConfig(**question["lora"])
        wrapped = peft.get_peft_model(model, wanted)
    trainable = {name: each for name, each in wrapped.named_parameters() if each.requires_grad}
    frozen = [each for each in wrapped.parameters() if not each.requires_grad]
    return {
        "trainable_parameters": sum(each.numel() for each in trainable.values()),
        "all_parameters": sum(each.numel() for each in wrapped.parameters()),
        "modules": dict(sorted(Counter(_grouped(name) for name in _targets(wrapped)).items())),
        "trained_in_full": sorted({_grouped(name) for name in trainable if "lora_" not in name}),
        "adapter_dtypes": sorted({plain(each.dtype) for each in trainable.values()}),
        "base_dtypes": sorted({plain(each.dtype) for each in frozen}),
    }


def _model(question: Mapping[str, Any]) -> Any:
    config = AutoConfig.for_model(**question["model_config"])
    kind = getattr(transformers, question.get("auto_class", "AutoModelForCausalLM"))
    with torch.device("meta"):
        model = kind.from_config(config)
    return model.to(getattr(torch, question.get("dtype", "float32")))


def _targets(wrapped: Any) -> list[str]:
    return [name for name, each in wrapped.named_modules() if isinstance(each, _LAYER)]


_LAYER: Any = peft.tuners.lora.LoraLayer


def _grouped(name: str) -> str:
    """A module's name, its numbers as stars: `model.layers.*.self_attn.q_proj`."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name.removeprefix("base_model.model."))


def quantize(question: Mapping[str, Any]) -> dict[str, Any]:
    """Construct BitsAndBytesConfig from `arguments`; it finds the release `bitsandbytes`."""
    found = question.get("bitsandbytes", "0.48.0")
    real = metadata.version

    def version(name: str) -> str:
        return found if name == "bitsandbytes" else real(name)

    answer: dict[str, Any] = {"version": transformers.__version__, "refused": None, "values": {}}
    with patch.object(metadata, "version", version):
        try:
            with stage("quantization"):
                held = transformers.BitsAndBytesConfig(**question["arguments"])
        except Refused as refused:
            return answer | {"refused": refused.told()}
    return answer | {"values": plain(held.to_dict())}
