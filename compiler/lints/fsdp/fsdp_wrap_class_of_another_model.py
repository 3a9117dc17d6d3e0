"""The layers to wrap are of a class that the model does not have."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked
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


def _check(run: Run) -> Iterator[Finding]:
    model = run.model
    own = _LAYERS.get(model.architecture.family) if model is not None else None
    if model is None or own is None or model.components:
        return
    for each in asked(run):
        place = each.get("transformer_layer_cls_to_wrap")
        policy = each.get("auto_wrap_policy")
        if place is None or (policy and str(policy.value).upper() != "TRANSFORMER_BASED_WRAP"):
            continue
        for name in _names(place.value):
            if name in _KNOWN and name not in own:
                yield Finding(
                    f"{model.path} has no layers of class {name}",
                    (place.label("refused"),),
                    (f"its layers are {', '.join(own)}",),
                    f"write {own[0]}, or leave the key out: the model names its own",
                    Fix((place.replaced(own[0]),), "safe") if place.value == name else None,
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
