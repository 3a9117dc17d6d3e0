"""The releases of transformers that contain a family of models and take its configs."""

from typing import Final

_NEW: Final = {
    "4.41": "jetmoe paligemma phi3 video_llava",
    "4.42": "gemma2 instructblipvideo llava-next-video",
    "4.43": "chameleon hiera zoedepth",
    "4.44": "mamba2 nemotron",
    "4.45": (
        "dac falcon_mamba granite granitemoe llava_next_video llava_onevision mimi mllama "
        "olmoe omdet-turbo pixtral qwen2_vl"
    ),
    "4.46": "glm idefics3 moshi phimoe zamba",
    "4.47": "ijepa olmo2",
    "4.48": (
        "aria aria_text bamba cohere2 colpali diffllama emu3 modernbert moonshine textnet "
        "timm_wrapper vitpose vitpose_backbone"
    ),
    "4.49": (
        "depth_pro got_ocr2 granitemoeshared granitevision helium qwen2_5_vl superglue zamba2"
    ),
    "4.50": "gemma3 gemma3_text mistral3 prompt_depth_anything shieldgemma2 siglip2 smolvlm",
    "4.51": "deepseek_v3 glm4 llama4 llama4_text phi4_multimodal qwen3 qwen3_moe",
    "4.52": (
        "bitnet csm d_fine granite_speech granitemoehybrid hgnet_v2 internvl janus mlcd "
        "qwen2_5_omni qwen2_5_vl_text qwen2_vl_text timesfm"
    ),
    "4.53": (
        "arcee colqwen2 dia dots1 falcon_h1 gemma3n gemma3n_text glm4v glm4v_text "
        "kyutai_speech_to_text lightglue minimax smollm3 t5gemma vjepa2"
    ),
    "4.54": (
        "deepseek_v2 deepseek_vl deepseek_vl_hybrid doge efficientloftr ernie4_5 "
        "ernie4_5_moe evolla exaone4 fastspeech2_conformer_with_hifigan glm4_moe lfm2 "
        "modernbert-decoder perception_lm voxtral xlstm"
    ),
    "4.55": "gpt_oss",
    "4.56": (
        "apertus florence2 glm4v_moe glm4v_moe_text hunyuan_v1_dense hunyuan_v1_moe "
        "kosmos-2.5 metaclip_2 ovis2 seed_oss xcodec"
    ),
    "4.57": (
        "blt edgetam edgetam_video flex_olmo lfm2_vl longcat_flash ministral olmo3 "
        "parakeet_ctc qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe qwen3_vl_moe_text "
        "qwen3_vl_text vaultgemma"
    ),
    "5.0": (
        "afmoe audioflamingo3 cwm ernie4_5_vl_moe fast_vlm glm46v glm4_moe_lite glm_image "
        "glm_image_text glm_image_vqmodel jais2 layoutxlm lfm2_moe lighton_ocr minimax_m2 "
        "ministral3 nanochat paddleocr_vl pe_audio_video pe_video pixio solar_open t5gemma2 "
        "video_llama_3"
    ),
    "5.1": "exaone_moe glm_ocr glm_ocr_text youtu",
    "5.2": (
        "glm_moe_dsa moonshine_streaming qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text "
        "voxtral_realtime voxtral_realtime_text"
    ),
    "5.3": ("colmodernvbert eurobert higgs_audio_v2 modernvbert nemotron_h olmo_hybrid timesfm2_5"),
    "5.4": "chmv2 jina_embeddings_v3 mistral4 pi0 slanext uvdoc uvdoc_backbone",
    "5.5": "gemma4 gemma4_text musicflamingo nomic_bert",
    "5.7": "deimv2 laguna minicpmv4_6",
    "5.8": "deepseek_v4 exaone4_5 granite4_vision_text granite_speech_plus",
    "5.9": "cohere2_moe hrm_text hyperclovax parakeet_tdt",
    "5.10": (
        "deepseek_ocr2 deepseek_ocr2_text gemma4_unified gemma4_unified_text glmga mellum "
        "sapiens2 sapiens2_head"
    ),
    "5.11": "cosmos3_omni deepseek_v32 diffusion_gemma diffusion_gemma_text",
    "5.12": "minimax_m3_vl minimax_m3_vl_text parakeet_rnnt",
    "5.13": (
        "hunyuan_vl hunyuan_vl_text kimi_k25 mimo_v2_flash minicpm3 radio videoprism xcodec2 zaya"
    ),
    "5.14": "inkling_text tipsv2 tipsv2_dpt",
    "5.15": (
        "axk1 axk2 cosmos3_edge cosmos3_edge_text granite_swa granitemoe_swa muse_glimmer "
        "muse_glimmer_text"
    ),
    "5.16": (
        "cohere_compass cohere_compass_text esmc esmfold2 glm5_next glm5_next_text "
        "granite_speech5_ctc qwen4_exp qwen4_exp_text step3p5 step3p7"
    ),
    "5.17": "canary hy_v4 kimi_linear neomme neucodec vibevoice",
    "5.18": "gte hyperclovax_vision_v2 minicpmv4_7 nemotron_h_omni",
    "5.19": "embedding_gemma2 embedding_gemma2_text",
    "5.21": "flint minicpm_ocr ultravbert",
    "5.22": "mistral_large4 mistral_large4_text nemo_speechlm",
    "5.23": (
        "dots3_note dots3_note_text granite_docling granite_docling_text inkling2 "
        "inkling2_text internlm3 iquestcoder jev lfm3 lfm3_vl"
    ),
}
"""The families that a minor release of transformers added, by their `model_type`: those of
`CONFIG_MAPPING_NAMES` in its newest patch that the release before lacks
(models/auto/configuration_auto.py and auto_mappings.py of the wheels 4.40.2 to 5.23.0)."""
_SINCE: Final = {name: release for release, names in _NEW.items() for name in names.split()}

_WHOLE_HEADS: Final = {
    "5.4": "arcee cwm deepseek_v2 gemma2 gemma3_text gpt_neox jais2 llama vaultgemma",
    "5.6": "eurobert",
    "5.23": "internlm3",
}
_WHOLE_HEADS_SINCE: Final = {
    name: release for release, names in _WHOLE_HEADS.items() for name in names.split()
}


def whole_heads_since(family: str) -> str | None:
    """The first release that refuses a hidden size which is no multiple of the number of heads.

    transformers 5.4.0 to 5.23.0, `validate_architecture` of the families' configuration classes;
    5.3.0 has none. None: the family's class takes such a size.
    """
    return _WHOLE_HEADS_SINCE.get(family)


def known_since(family: str) -> str | None:
    """The first minor release, such as `5.2`; None: 4.40 has it, or no release that was read."""
    return _SINCE.get(family)
