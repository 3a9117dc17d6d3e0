"""The layers to wrap are of a class that the model does not have."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "llama": ("LlamaDecoderLayer",),
    "mistral": ("MistralDecoderLayer",),
    "mixtral": ("MixtralDecoderLayer",),
    "qwen2": ("Qwen2DecoderLayer",),
    "qwen2_moe": ("Qwen2MoeDecoderLayer",),
    "qwen2_vl": ("Qwen2VLDecoderLayer", "Qwen2VLVisionBlock"),
    "qwen2_5_vl": ("Qwen2_5_VLDecoderLayer", "Qwen2_5_VLVisionBlock"),
    "qwen3": ("Qwen3DecoderLayer",),
    "qwen3_moe": ("Qwen3MoeDecoderLayer",),
    "gemma": ("GemmaDecoderLayer",),
    "gemma2": ("Gemma2DecoderLayer",),
    "gemma3_text": ("Gemma3DecoderLayer",),
    "phi": ("PhiDecoderLayer",),
    "phi3": ("Phi3DecoderLayer",),
    "gpt2": ("GPT2Block",),
    "gpt_neox": ("GPTNeoXLayer",),
    "falcon": ("FalconDecoderLayer",),
    "bloom": ("BloomBlock",),
    "opt": ("OPTDecoderLayer",),
    "olmo": ("OlmoDecoderLayer",),
    "olmo2": ("Olmo2DecoderLayer",),
    "deepseek_v2": ("DeepseekV2DecoderLayer",),
    "deepseek_v3": ("DeepseekV3DecoderLayer",),
    "glm": ("GlmDecoderLayer",),
    "glm4": ("Glm4DecoderLayer",),
    "starcoder2": ("Starcoder2DecoderLayer",),
    "stablelm": ("StableLmDecoderLayer",),
    "cohere": ("CohereDecoderLayer",),
}
"""Layer classes of transformers 5.23.0 models/*/modeling_*.py by model_type; models of several
parts, whose classes depend on those, are left out."""
_KNOWN: Final = frozenset(name for names in _LAYERS.values() for name in names)
_SPELT: Final = {name.casefold(): name for name in _KNOWN}
_MAKERS: Final = (
    (r"Qwen/Qwen(1\.5|2|2\.5)-(Coder-|Math-)?[\d.]+B(-Instruct|-Chat)?", "qwen2"),
    (r"Qwen/Qwen3-[\d.]+B(-Base)?", "qwen3"),
    (r"(meta-llama|huggyllama|NousResearch)/(Meta-)?llama-(2|3|3\.1|3\.3)?-?\d+b.*", "llama"),
    (r"lmsys/vicuna-\d+b-v1\.[35](-16k)?", "llama"),
    (r"mistralai/Mistral-7B-.*", "mistral"),
    (r"mistralai/Mixtral-8x.*", "mixtral"),
    (r"google/gemma-[27]b(-it)?", "gemma"),
    (r"google/gemma-2-.*", "gemma2"),
    (r"facebook/opt-.*", "opt"),
    (r"bigscience/bloomz?(-.*)?", "bloom"),
    (r"EleutherAI/(pythia|gpt-neox)-.*", "gpt_neox"),
    (r"tiiuae/falcon-\d+b(-instruct)?", "falcon"),
    (r"(openai-community/)?gpt2(-medium|-large|-xl)?", "gpt2"),
)
"""Models out of the catalogue by the names that their makers gave them, with the model_type of
each one's config.json."""


def _check(run: Run) -> Iterator[Finding]:
    path, own = _model(run)
    for each in asked(run):
        place = each.get("transformer_layer_cls_to_wrap")
        policy = each.get("auto_wrap_policy")
        if place is None or (policy and str(policy.value).upper() != "TRANSFORMER_BASED_WRAP"):
            continue
        for name in _names(place.value):
            meant = own[0] if own else _SPELT.get(name.casefold(), name)
            if own and name in _KNOWN and name not in own:
                yield _finding(f"{path} has no layers of class {name}", place, name, meant)
            elif name not in _KNOWN and name.casefold() in _SPELT:
                yield _finding(f"no model has layers of class {name}", place, name, meant)


def _model(run: Run) -> tuple[str, tuple[str, ...]]:
    """The model with its classes of layers; none where it is not known or is of several parts."""
    model = run.model
    if model is not None:
        own = () if model.components else _LAYERS.get(model.architecture.family, ())
        return model.path, own
    path = run.model_name or ""
    for pattern, family in _MAKERS:
        if re.fullmatch(pattern, path, re.IGNORECASE):
            return path, _LAYERS[family]
    return "", ()


def _finding(message: str, place: Place, name: str, meant: str) -> Finding:
    return Finding(
        message,
        (place.label("refused"),),
        (f"the layers are of class {meant}",),
        f"write {meant}, or leave the key out: the model names its own",
        Fix((place.replaced(meant),), "safe") if place.value == name else None,
    )


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(each.strip() for each in value.split(","))
    return tuple(each for each in value if isinstance(each, str)) if _is_list(value) else ()


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


RULE = Rule(
    name="fsdp-wrap-class-of-another-model",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `set_auto_wrap_policy`: Could not "
            "find the transformer layer class in the model"
        ),
        "transformers 5.23.0 models/*/modeling_*.py: class names",
    ),
    check=_check,
)
