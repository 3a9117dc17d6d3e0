"""The layer classes that FSDP has to be told of, where a model's own list cannot be used.

accelerate 0.34.2 to 1.15.0 wraps the classes of a model's `_no_split_modules`, and refuses the
model if it has no module of one of them: "Could not find the transformer layer class"
(utils/dataclasses.py `set_auto_wrap_policy`, utils/fsdp_utils.py `fsdp2_prepare_auto_wrap_policy`).
"""

from collections.abc import Mapping
from typing import Any, Final

_TOWERS: Final = frozenset({"clip_vision_model", "siglip2_vision_model", "siglip_vision_model"})
"""Vision towers whose list names modules of their text models: `CLIPTextEmbeddings`,
`SiglipTextEmbeddings`, `SiglipMultiheadAttentionPoolingHead`.

transformers 5.1.0 to 5.23.0 modeling_utils.py `PreTrainedModel.post_init` joins the lists of all
parts. Gemma 3 names the pooling head itself (4.50.3 to 5.23.0).
"""
_CLASSES: Final[Mapping[str, str]] = {
    "clip_vision_model": "CLIPEncoderLayer",
    "gemma": "GemmaDecoderLayer",
    "gemma2": "Gemma2DecoderLayer",
    "gemma3_text": "Gemma3DecoderLayer",
    "gemma4_text": "Gemma4TextDecoderLayer",
    "gemma4_vision": "Gemma4VisionEncoderLayer",
    "lfm2": "Lfm2DecoderLayer",
    "llama": "LlamaDecoderLayer",
    "minicpmv4_6_vision": "MiniCPMV4_6VisionEncoderLayer",
    "mistral": "MistralDecoderLayer",
    "qwen2": "Qwen2DecoderLayer",
    "qwen3_5_text": "Qwen3_5DecoderLayer",
    "siglip2_vision_model": "Siglip2EncoderLayer",
    "siglip_vision_model": "SiglipEncoderLayer",
}
"""The layer of each part by its `model_type`: transformers 4.57.6 and 5.23.0 modeling files."""
_PARTS: Final = ("text_config", "vision_config", "audio_config")


def layer_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The layer classes of a config's parts; empty where the model's own list can be used."""
    parts = [each for part in _PARTS if isinstance(each := config.get(part), Mapping)]
    types = [str(each.get("model_type")) for each in parts]
    if not _names_absent_classes(config, types):
        return ()
    return tuple(_CLASSES[each] for each in types) if _CLASSES.keys() >= set(types) else ()


def _names_absent_classes(config: Mapping[str, Any], types: list[str]) -> bool:
    """Whether the list of a model of such parts names a class that it does not have.

    transformers 5.23.0: Gemma 4 names `Gemma4AudioLayer` also where it does not hear, MiniCPM-V 4.6
    `Qwen3_5VisionBlock` (models/*/modeling_*.py).
    """
    family = config.get("model_type")
    if family == "gemma4":
        return not isinstance(config.get("audio_config"), Mapping)
    return family == "minicpmv4_6" or not _TOWERS.isdisjoint(types)
