"""Adapters and quantization by the real libraries, on the real module tree without weights."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any
from unittest.mock import patch

import peft
import torch
import transformers
from transformers import AutoConfig

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage


def adapt(question: Mapping[str, Any]) -> dict[str, Any]:
    """Attach a LoRA adapter to the real module tree, on the meta device, and count its modules.

    In: `model_config` (a config.json object with `model_type`), `auto_class` (default
    AutoModelForCausalLM) or, for a model whose class is not in the release, `modules` (dotted name,
    kind, shape and bias of each, from which the tree is built); `lora` (the arguments of
    LoraConfig, as adapter_config.json has them), `dtype` of the weights. Out: `versions`; `refused`
    (None, or stage, type and message); `values`, the adapter's final configuration; parameter
    counts; `modules`, the number of each adapted module, with layer numbers written as `*`; the
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
        if question.get("peft_type", "LORA") != "LORA":
            raise ValueError(f"peft_type is {question['peft_type']!r}, and no LoraConfig")
        wanted = peft.LoraConfig(**question["lora"])
        settled = plain(wanted.to_dict())
        wrapped = peft.get_peft_model(model, wanted)
    trainable = {name: each for name, each in wrapped.named_parameters() if each.requires_grad}
    frozen = [each for each in wrapped.parameters() if not each.requires_grad]
    return {
        "values": settled,
        "trainable_parameters": sum(each.numel() for each in trainable.values()),
        "all_parameters": sum(each.numel() for each in wrapped.parameters()),
        "modules": dict(sorted(Counter(_grouped(name) for name in _targets(wrapped)).items())),
        "trained_in_full": sorted({_grouped(name) for name in trainable if "lora_" not in name}),
        "adapter_dtypes": sorted({plain(each.dtype) for each in trainable.values()}),
        "base_dtypes": sorted({plain(each.dtype) for each in frozen}),
    }


def _model(question: Mapping[str, Any]) -> Any:
    dtype = getattr(torch, question.get("dtype", "float32"))
    if "model_config" not in question:
        return _tree(question["modules"]).to(dtype)
    try:
        return _built(question).to(dtype)
    except Exception:
        if "modules" not in question:
            raise
        return _tree(question["modules"]).to(dtype)


def _built(question: Mapping[str, Any]) -> Any:
    config = AutoConfig.for_model(**question["model_config"])
    kind = getattr(transformers, question.get("auto_class", "AutoModelForCausalLM"))
    with torch.device("meta"):
        return kind.from_config(config)


def _tree(modules: Iterable[Sequence[Any]]) -> Any:
    """A tree of modules without weights, from tuples (dotted name, kind, shape, bias)."""
    root: Any = _Tree()
    for name, kind, shape, bias in modules:
        *parents, last = name.split(".")
        place = root
        for parent in parents:
            if not hasattr(place, parent):
                place.add_module(parent, torch.nn.Module())
            place = getattr(place, parent)
        _put(place, last, _leaf(kind, shape, bias=bool(bias)))
    return root


class _Config(dict[str, Any]):
    """A model's configuration: PEFT reads it as attributes and, in 0.18, by `get`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(name)


class _Tree(torch.nn.Module):  # type: ignore[misc]
    """A model with the attributes that PEFT reads besides modules.

    See peft 0.10.0 to 0.21.2 peft_model.py.
    """

    config = _Config(model_type="custom", tie_word_embeddings=False)

    def prepare_inputs_for_generation(self) -> None:
        """Wrapped by `PeftModelForCausalLM`, but never called."""

    def _prepare_encoder_decoder_kwargs_for_generation(self) -> None:
        """Wrapped by `PeftModelForSeq2SeqLM`, but never called."""


def _put(place: Any, name: str, leaf: Any) -> None:
    """Add a leaf to the tree; a module of the same name that has inner modules keeps them."""
    if isinstance(leaf, torch.nn.Parameter):
        place.register_parameter(name, leaf)
    elif hasattr(place, name):
        getattr(place, name).register_parameter("weight", leaf.weight)
    else:
        place.add_module(name, leaf)


def _leaf(kind: str, shape: Sequence[int], *, bias: bool) -> Any:
    with torch.device("meta"):
        if kind == "linear":
            return torch.nn.Linear(shape[1], shape[0], bias=bias)
        if kind == "embedding":
            return torch.nn.Embedding(shape[0], shape[1])
        if kind == "conv":
            return _convolution(shape, bias=bias)
        if kind == "norm":
            return torch.nn.LayerNorm(shape[0], bias=bias)
        return torch.nn.Parameter(torch.empty(tuple(shape)))


def _convolution(shape: Sequence[int], *, bias: bool) -> Any:
    outputs, inputs, *kernel = shape
    kinds = {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}
    return kinds[len(kernel)](inputs, outputs, tuple(kernel), bias=bias)


def _targets(wrapped: Any) -> list[str]:
    return [name for name, each in wrapped.named_modules() if isinstance(each, _LAYER)]


_LAYER: Any = peft.tuners.lora.LoraLayer


def _grouped(name: str) -> str:
    """A module's name with numbers as stars, such as `model.layers.*.self_attn.q_proj`."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name.removeprefix("base_model.model."))


def quantize(question: Mapping[str, Any]) -> dict[str, Any]:
    """Construct BitsAndBytesConfig from `arguments`; `bitsandbytes` is the release it finds."""
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
