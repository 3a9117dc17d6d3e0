"""The layer classes that FSDP has to be told of, where a model's own list cannot be used.

accelerate 0.34.2 to 1.15.0 wraps the classes of a model's `_no_split_modules`, and refuses the
model if it has no module of one of them: "Could not find the transformer layer class"
(utils/dataclasses.py `set_auto_wrap_policy`, utils/fsdp_utils.py `fsdp2_prepare_auto_wrap_policy`).
Of an empty list it wraps no layer: the whole model is one unit.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

_TOWERS: Final = frozenset({"clip_vision_model", "siglip2_vision_model", "siglip_vision_model"})
"""Vision towers whose list names modules of their text models: `CLIPTextEmbeddings`,
`SiglipTextEmbeddings`, `SiglipMultiheadAttentionPoolingHead`.

transformers 5.1.0 to 5.23.0 modeling_utils.py `PreTrainedModel.post_init` joins the lists of all
parts. Gemma 3 names the pooling head itself (4.50.3 to 5.23.0).
"""
_INCOMPLETE: Final = frozenset({"idefics2", "idefics3", "internvl", "mistral3", "smolvlm"})
"""Families whose list lacks classes of their parts before these are joined: Mistral 3's is empty,
InternVL's names a layer of its tower alone, the others' a decoder layer that does not exist.

transformers 4.55.4 to 4.57.6 modeling_utils.py `PreTrainedModel.__init__`; 5.7.0
models/smolvlm/modeling_smolvlm.py `SmolVLMPreTrainedModel`: `SmolVLMDecoderLayer`.
"""
LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
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
    "bert": ("BertLayer",),
    "roberta": ("RobertaLayer",),
    "xlm-roberta": ("XLMRobertaLayer",),
    "camembert": ("CamembertLayer",),
    "distilbert": ("TransformerBlock",),
    "electra": ("ElectraLayer",),
    "modernbert": ("ModernBertEncoderLayer",),
    "deberta": ("DebertaLayer",),
    "deberta-v2": ("DebertaV2Layer",),
    "eurobert": ("EuroBertDecoderLayer",),
    "esm": ("EsmLayer",),
    "t5": ("T5Block",),
    "mt5": ("MT5Block",),
    "umt5": ("UMT5Block",),
    "bart": ("BartEncoderLayer", "BartDecoderLayer"),
    "mbart": ("MBartEncoderLayer", "MBartDecoderLayer"),
    "gptj": ("GPTJBlock",),
    "gpt_neo": ("GPTNeoBlock",),
    "gpt_bigcode": ("GPTBigCodeBlock",),
    "codegen": ("CodeGenBlock",),
    "mpt": ("MptBlock",),
    "xglm": ("XGLMDecoderLayer",),
    "dbrx": ("DbrxBlock",),
    "smollm3": ("SmolLM3DecoderLayer",),
    "granite": ("GraniteDecoderLayer",),
    "granitemoe": ("GraniteMoeDecoderLayer",),
    "granitemoehybrid": ("GraniteMoeHybridDecoderLayer",),
    "gpt_oss": ("GptOssDecoderLayer",),
    "ministral3": ("Ministral3DecoderLayer",),
    "lfm2": ("Lfm2DecoderLayer",),
    "lfm2_moe": ("Lfm2MoeDecoderLayer",),
    "cohere2": ("Cohere2DecoderLayer",),
    "nemotron": ("NemotronDecoderLayer",),
    "nemotron_h": ("NemotronHBlock",),
    "olmo3": ("Olmo3DecoderLayer",),
    "olmoe": ("OlmoeDecoderLayer",),
    "glm4_moe": ("Glm4MoeDecoderLayer",),
    "glm4_moe_lite": ("Glm4MoeLiteDecoderLayer",),
    "hunyuan_v1_dense": ("HunYuanDenseV1DecoderLayer",),
    "hunyuan_v1_moe": ("HunYuanMoEV1DecoderLayer",),
    "ernie4_5": ("Ernie4_5DecoderLayer",),
    "ernie4_5_moe": ("Ernie4_5_MoeDecoderLayer",),
    "exaone4": ("Exaone4DecoderLayer",),
    "seed_oss": ("SeedOssDecoderLayer",),
    "minimax": ("MiniMaxDecoderLayer",),
    "minimax_m2": ("MiniMaxM2DecoderLayer",),
    "phimoe": ("PhimoeDecoderLayer",),
    "falcon_h1": ("FalconH1DecoderLayer",),
    "qwen3_next": ("Qwen3NextDecoderLayer",),
    "arcee": ("ArceeDecoderLayer",),
    "apertus": ("ApertusDecoderLayer",),
    "helium": ("HeliumDecoderLayer",),
    "jamba": ("JambaAttentionDecoderLayer", "JambaMambaDecoderLayer"),
}
"""Layer classes of transformers 5.23.0 models/*/modeling_*.py by model_type; models that consist of
several parts, whose classes depend on the parts, are left out."""
_BESIDE_TOWERS: Final = (
    *("cohere", "cohere2", "gemma", "gemma2", "gemma3_text", "granite", "lfm2", "llama"),
    *("ministral3", "mistral", "qwen2", "qwen3", "qwen3_moe"),
)
"""Families of text that are a part of models that see, too."""
_CLASSES: Final[Mapping[str, str]] = {
    **{family: LAYERS[family][0] for family in _BESIDE_TOWERS},
    "clip_vision_model": "CLIPEncoderLayer",
    "gemma4_text": "Gemma4TextDecoderLayer",
    "gemma4_vision": "Gemma4VisionEncoderLayer",
    "idefics2_vision": "Idefics2EncoderLayer",
    "idefics3_vision": "Idefics3EncoderLayer",
    "internvl_vision": "InternVLVisionLayer",
    "minicpmv4_6_vision": "MiniCPMV4_6VisionEncoderLayer",
    "mistral4": "Mistral4DecoderLayer",
    "pixtral": "PixtralAttentionLayer",
    "qwen3_5_text": "Qwen3_5DecoderLayer",
    "siglip2_vision_model": "Siglip2EncoderLayer",
    "siglip_vision_model": "SiglipEncoderLayer",
    "smolvlm_vision": "SmolVLMEncoderLayer",
}
"""The layer of each part by its `model_type`: transformers 4.57.6 and 5.23.0 modeling files."""
_OF_TEXT: Final[Mapping[str, str]] = {
    "esm": "EsmLayer",
    "gemma4_text": "Gemma4TextDecoderLayer",
    "qwen3_5_moe_text": "Qwen3_5MoeDecoderLayer",
    "qwen3_5_text": "Qwen3_5DecoderLayer",
}
"""Models of text alone whose list names classes of other models: of a tower, or of ESMFold."""
_PARTS: Final = ("text_config", "vision_config", "audio_config")


def layer_classes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The layer classes of a config's parts; empty where the model's own list can be used."""
    if config.get("model_type") in _OF_TEXT:
        return (_OF_TEXT[config["model_type"]],)
    parts = [each for part in _PARTS if isinstance(each := config.get(part), Mapping)]
    types = [str(each.get("model_type")) for each in parts]
    classes = tuple(_CLASSES[each] for each in types) if _CLASSES.keys() >= set(types) else ()
    is_incomplete = lists_too_few(str(config.get("model_type")), classes)
    return classes if is_incomplete or _names_absent_classes(config, types) else ()


def lists_too_few(family: str, classes: Container[str]) -> bool:
    """Whether a model's own list has too few classes in transformers before 5.1, and all since."""
    return family in _INCOMPLETE or _CLASSES["pixtral"] in classes


def _names_absent_classes(config: Mapping[str, Any], types: list[str]) -> bool:
    """Whether the list of a model of such parts names a class that it does not have.

    transformers 5.23.0: Gemma 4 names `Gemma4AudioLayer` also where it does not hear, MiniCPM-V 4.6
    `Qwen3_5VisionBlock` (models/*/modeling_*.py).
    """
    family = config.get("model_type")
    if family == "gemma4":
        return not isinstance(config.get("audio_config"), Mapping)
    return family == "minicpmv4_6" or not _TOWERS.isdisjoint(types)
