"""Models of today that no card can be made of yet, by name: the reason, and what can be done."""

from collections.abc import Mapping
from typing import Final

_SOUND: Final = "it reads sounds of any length, and a card counts that of its text"
_HEARS: Final = "it reads sound beside text, and no plan counts what sound becomes"
_SPEAKS: Final = "it makes sound, which no trainer of tunec's targets trains"
_FEEDS: Final = "its encoder feeds a decoder, and no rule of tunec derives its family"
_SEES: Final = "it reads pictures alone, and tunec plans models that write, classify text or paint"
_LAYERED: Final = "it paints several layers of a picture at once, whose tokens no plan counts"
_CLIPS: Final = "each of its clips starts from a given picture, which no plan counts"
_KEYS: Final = (
    "its config.json is for code of its own, and the class of transformers 5.23.0 reads other keys"
)
_NO_CONFIG: Final = "its config does not come with tunec"
_UNTRAINED: Final = f"no trainer of tunec's targets trains it, and {_NO_CONFIG}"
_SEEN: Final = "each of its passes demands pictures, and a card is measured over text alone"


_TERNARY: Final = "its weights are ternary, over which no method of tunec trains"
_MASKED: Final = (
    "it reads a mask and a picture in channels of their own, and no trainer of tunec's targets "
    "trains it"
)
_DEPTHS: Final = (
    "the blocks of its UNet have attention of several depths, or lack some, which no rule derives"
)
_ADAPTER: Final = "its repository holds an adapter for another model, and no weights of its own"
_SHARED_LAYERS: Final = "its layers are one set of weights, which a card counts for each layer"


def _own(family: str) -> str:
    return f"its config.json names code of its own (`{family}`), which transformers 5.23.0 lacks"


UNPLANNED: Final[Mapping[str, str]] = {
    "moonshotai/Kimi-K2-": "its class is code of its own (`kimi_k2`), and its weights are "
    "published in FP8 or INT4, over which no method of tunec trains",
    "moonshotai/Kimi-K2.": "its weights are published in INT4, over which no method of tunec "
    "trains",
    "moonshotai/Kimi-VL-": _own("kimi_vl"),
    "LGAI-EXAONE/EXAONE-4.5-": "no rule of tunec says how many tokens an image becomes in it",
    "moonshotai/Kimi-Audio-": _HEARS,
    "microsoft/Phi-4-multimodal-": _own("phi4mm"),
    "microsoft/Phi-3.5-vision-": _own("phi3_v"),
    "microsoft/Phi-3-vision-": _own("phi3_v"),
    "Qwen/Qwen3-Omni-": _HEARS,
    "Qwen/Qwen2-Audio-": _HEARS,
    "Qwen/Qwen-Audio": _HEARS,
    "mistralai/Voxtral-": _HEARS,
    "mistralai/Pixtral-": "its files are of Mistral's own form, which transformers does not load",
    "openbmb/MiniCPM-o-": _HEARS,
    "Qwen/Qwen3-TTS-": _SPEAKS,
    "Qwen/Qwen3-ASR-": _SOUND,
    "sesame/csm-": _SPEAKS,
    "bosonai/higgs-audio-": _SPEAKS,
    "kyutai/moshi": _SPEAKS,
    "facebook/seamless-m4t-": _SPEAKS,
    "nvidia/audio-flamingo-": _HEARS,
    "fixie-ai/ultravox-": _HEARS,
    "ibm-granite/granite-speech-": _HEARS,
    "hexgrad/Kokoro-": _SPEAKS,
    "nari-labs/Dia-": _SPEAKS,
    "microsoft/VibeVoice-": _SPEAKS,
    "facebook/musicgen-": _SPEAKS,
    "facebook/mms-": _SPEAKS,
    "nvidia/parakeet-": _SOUND,
    "nvidia/canary-": _SOUND,
    "facebook/wav2vec2-": _SOUND,
    "facebook/w2v-bert-": _SOUND,
    "facebook/hubert-": _SOUND,
    "microsoft/wavlm-": _SOUND,
    "google/long-t5-": _FEEDS,
    "google/pegasus-x-": _NO_CONFIG,
    "google/bigbird-pegasus-": _FEEDS,
    "facebook/nllb-moe-": _FEEDS,
    "allenai/led-": _NO_CONFIG,
    "microsoft/trocr-": _FEEDS,
    "naver-clova-ix/donut-": _FEEDS,
    "microsoft/Florence-2-": _FEEDS,
    "openai/clip-vit-": _SEES,
    "google/vit-": _SEES,
    "google/siglip": _SEES,
    "facebook/dino": _SEES,
    "facebook/detr-": _SEES,
    "facebook/sam": _SEES,
    "microsoft/resnet-": _SEES,
    "microsoft/swin-": _SEES,
    "nvidia/segformer-": _SEES,
    "PekingU/rtdetr": _SEES,
    "Qwen/Qwen-Image-Layered": _LAYERED,
    "Wan-AI/Wan2.2-I2V-": _CLIPS,
    "Wan-AI/Wan2.1-I2V-": _CLIPS,
    "Wan-AI/Wan2.1-FLF2V-": _CLIPS,
    "black-forest-labs/FLUX.1-Fill-": _MASKED,
    "runwayml/stable-diffusion-inpainting": _MASKED,
    "stable-diffusion-v1-5/stable-diffusion-inpainting": _MASKED,
    "stabilityai/stable-diffusion-2-inpainting": _MASKED,
    "sd2-community/stable-diffusion-2-inpainting": _MASKED,
    "diffusers/stable-diffusion-xl-1.0-inpainting-": _MASKED,
    "segmind/SSD-1B": _DEPTHS,
    "segmind/Segmind-Vega": _DEPTHS,
    "Wan-AI/Wan2.1-VACE-": "it reads clips that guide it, which no plan counts",
    "Freepik/F-Lite": "diffusers 0.42.1 has no class of it",
    "hunyuanvideo-community/HunyuanImage-2.1-": _NO_CONFIG,
    "tencent/HunyuanDiT-": _UNTRAINED,
    "briaai/BRIA-3": _UNTRAINED,
    "briaai/FIBO": _UNTRAINED,
    "THUDM/CogVideoX": _UNTRAINED,
    "zai-org/CogVideoX": _UNTRAINED,
    "THUDM/CogView": _UNTRAINED,
    "zai-org/CogView": _UNTRAINED,
    "genmo/mochi-": _UNTRAINED,
    "nvidia/Cosmos-1.0-": _UNTRAINED,
    "nvidia/Cosmos-Predict": _NO_CONFIG,
    "hunyuanvideo-community/HunyuanVideo-1.5": _NO_CONFIG,
    "tencent/HunyuanVideo-1.5": _NO_CONFIG,
    "baidu/ERNIE-Image": _NO_CONFIG,
    "meituan-longcat/LongCat-Image": _NO_CONFIG,
    "kandinskylab/Kandinsky-5.0-T2I-": _NO_CONFIG,
    "AIDC-AI/Ovis-Image-": _UNTRAINED,
    "Tencent-Hunyuan/HunyuanDiT-": _UNTRAINED,
    "tencent/HunyuanVideo": _UNTRAINED,
    "hunyuanvideo-community/HunyuanVideo": _UNTRAINED,
    "Lightricks/LTX-2": "it makes sound beside a clip, and no plan counts what sound becomes",
    "Shitao/OmniGen-": "its pictures and words are one sequence, and a card of a model that "
    "paints counts them apart",
    "OmniGen2/OmniGen2": "diffusers 0.42.1 has no class of it",
    "Salesforce/blip2-": _SEEN,
    "Salesforce/instructblip-": _SEEN,
    "Salesforce/blip-": "its class for captions has no output projection that a card finds",
    "microsoft/kosmos-2-": _SEEN,
    "HuggingFaceM4/idefics-": _SEEN,
    "state-spaces/mamba2-": "its files are those of mamba_ssm, which transformers does not load",
    "deepseek-ai/DeepSeek-V4": "its attention compresses what lies far behind, so that its bytes "
    "follow no curve of the length",
    "google/embeddinggemma-": "its modules stand without the head of a model that writes, and no "
    "rule of tunec names them so",
    "albert/albert-": _SHARED_LAYERS,
    "ai4bharat/indic-bert": _SHARED_LAYERS,
    "allenai/longformer-": _NO_CONFIG,
    "google/bigbird-roberta-": "its attention draws blocks at random, so that its bytes follow no "
    "curve of the batch",
    "google/fnet-": "its Fourier transforms run in no 16 bits",
    "google/mobilebert-": "its layers have bottlenecks of their own, which no rule derives",
    "Alibaba-NLP/gte-multilingual-": _own("new"),
    "Alibaba-NLP/gte-base-en-v1.5": _own("new"),
    "Alibaba-NLP/gte-large-en-v1.5": _own("new"),
    "Snowflake/snowflake-arctic-embed-m-long": _KEYS,
    "nomic-ai/nomic-embed-text-": _KEYS,
    "nomic-ai/nomic-bert-": _KEYS,
    "jinaai/jina-embeddings-v2-": _KEYS,
    "jinaai/jina-embeddings-v3": _KEYS,
    "nvidia/NV-Embed-": _own("nvembed"),
    "nvidia/llama-embed-": _own("llama_bidirec"),
    "nvidia/llama-nemotron-embed-": _own("llama_bidirec"),
    "openbmb/MiniCPM-2B-": _own("minicpm"),
    "openbmb/MiniCPM4": _own("minicpm"),
    "baichuan-inc/Baichuan-7B": _own("baichuan"),
    "baichuan-inc/Baichuan-13B": _own("baichuan"),
    "baichuan-inc/Baichuan2-": _own("baichuan"),
    "XiaomiMiMo/MiMo-7B-": _own("mimo"),
    "inclusionAI/Ling-": _own("bailing_moe"),
    "inclusionAI/Ring-": _own("bailing_moe"),
    "inclusionAI/LLaDA2.": _own("llada2_moe"),
    "LGAI-EXAONE/EXAONE-3": _own("exaone"),
    "LGAI-EXAONE/EXAONE-Deep-": _own("exaone"),
    "stepfun-ai/Step-3.5-": "transformers 5.23.0 has its modules in the class of Step 3.7 alone, "
    "which reads pictures",
    "sarvamai/sarvam-30b": _own("sarvam_moe"),
    "nvidia/Llama-3_": _own("nemotron-nas"),
    "nvidia/Nemotron-Flash-": _own("nemotron_flash"),
    "internlm/internlm2": _own("internlm2"),
    "internlm/Intern-S1": _own("interns1"),
    "upstage/solar-pro-preview": _own("solar"),
    "upstage/Solar-Open2-": _own("solar_open2"),
    "kakaocorp/kanana-2-1.3b": _own("kanana2_tiny"),
    "naver-hyperclovax/HyperCLOVAX-SEED-Vision-": _own("hyperclovax_vlm"),
    "skt/A.X-4.0-VL-": _own("a.x-4-vl"),
    "Motif-Technologies/Motif-": _own("Motif"),
    "microsoft/Phi-4-mini-flash-": _own("phi4flash"),
    "pfnet/plamo-2": _own("plamo2"),
    "apple/OpenELM-": _own("openelm"),
    "apple/FastVLM-": _own("llava_qwen2"),
    "chandar-lab/NeoBERT": _own("neobert"),
    "ByteDance/Ouro-": _own("ouro"),
    "OrionStarAI/Orion-14B-": _own("orion"),
    "fla-hub/rwkv7-": _own("rwkv7"),
    "RWKV/": "its config.json names code of its own (`rwkv5`, `rwkv7`), or a class of transformers "
    "whose passes take a step a token",
    "allenai/Molmo-": _own("molmo"),
    "AIDC-AI/Ovis2": _own("ovis"),
    "vikhyatk/moondream": _own("moondream1"),
    "deepseek-ai/deepseek-vl2": _own("deepseek_vl_v2"),
    "deepseek-ai/DeepSeek-OCR": _own("deepseek_vl_v2"),
    "rednote-hilab/dots.ocr": _own("dots_ocr"),
    "THUDM/cogvlm": _own("cogvlm"),
    "baidu/ERNIE-4.5-VL-": _own("ernie4_5_moe_vl"),
    "microsoft/Phi-4-reasoning-vision-": _own("phi4-siglip"),
    "Qwen/Qwen2.5-Math-RM-": _own("Qwen2ForRewardModel"),
    "Qwen/Qwen2.5-Math-PRM-": _own("Qwen2ForProcessRewardModel"),
    "Qwen/WorldPM-": _own("Qwen2ForRewardModel"),
    "RLHFlow/ArmoRM-": _own("LlamaForRewardModelWithGating"),
    "infly/INF-ORM-": _own("INFORMForSequenceClassification"),
    "jinaai/jina-reranker-v3": _own("JinaForRanking"),
    "jinaai/jina-embeddings-v4": _own("JinaEmbeddingsV4Model"),
    "nvidia/Eagle2.5-": _own("eagle_2_5_vl"),
    "nvidia/Hymba-": _own("hymba"),
    "deepseek-ai/deepseek-moe-": _own("deepseek"),
    "stepfun-ai/Step3-VL-": _own("step_robotics"),
    "xlangai/OpenCUA-": _own("opencua"),
    "Skywork/Skywork-R1V": _own("skywork_chat"),
    "GSAI-ML/LLaDA-": _own("llada"),
    "Dream-org/Dream-": _own("Dream"),
    "apple/DiffuCoder-": _own("Dream"),
    "hugohrban/progen2-": _own("progen"),
    "ibm-research/MoLFormer-": _own("molformer"),
    "LongSafari/hyenadna-": _own("hyenadna"),
    "ServiceNow-AI/Apriel-5B-": _own("apriel"),
    "InstaDeepAI/nucleotide-transformer-v2-": "its config.json names code of its own beside `esm`, "
    "and the class of transformers 5.23.0 has another feed-forward",
    "kuleshov-group/caduceus-": _own("caduceus"),
    "Kwai-Keye/Keye-VL-8B-": _own("KeyeForConditionalGeneration"),
    "Kwai-Keye/Keye-VL-1_5-": _own("KeyeVL1_5ForConditionalGeneration"),
    "Kwai-Keye/Keye-VL-2.0-": _own("KeyeVL2"),
    "lmms-lab/LLaVA-OneVision-1.5-": _own("LLaVAOneVision1_5_ForConditionalGeneration"),
    "cerebras/btlm-": _own("btlm"),
    "ai4bharat/indictrans2-": _own("IndicTrans"),
    "EvolutionaryScale/esm3": "its files are those of EvolutionaryScale's package `esm`, which "
    "transformers does not load",
    "arcinstitute/evo2_": "its files are those of its makers' package `evo2`, which transformers "
    "does not load",
    "nvidia/Nemotron-4-340B-": "its files are those of NeMo, which transformers does not load",
    "urchade/gliner": "its files are those of the package `gliner`, which transformers does not "
    "load",
    "knowledgator/gliclass-": "its files are those of the package `gliclass`, which transformers "
    "does not load",
    "sentence-transformers/static-": "it is a table of embeddings without layers, which no target "
    "trains",
    "vidore/colpali-v1": _ADAPTER,
    "microsoft/bitnet-": _TERNARY,
    "tiiuae/Falcon-E-": _TERNARY,
    "parler-tts/": _SPEAKS,
    "coqui/XTTS-": _SPEAKS,
    "suno/bark": _SPEAKS,
    "ResembleAI/chatterbox": _SPEAKS,
    "ACE-Step/": _SPEAKS,
    "stabilityai/stable-audio-": _SPEAKS,
    "microsoft/speecht5_tts": _SPEAKS,
    "LiquidAI/LFM2-Audio-": _HEARS,
    "stepfun-ai/Step-Audio-": _HEARS,
    "zai-org/GLM-ASR-": _SOUND,
    "kyutai/stt-": _SOUND,
    "laion/clap-": _SOUND,
    "unsloth/csm-": _SPEAKS,
    "SparkAudio/Spark-TTS-": _SPEAKS,
    "MIT/ast-": _SOUND,
    "nvidia/C-RADIO": _SEES,
    "Qwen/Qwen-7B": _own("qwen"),
    "Qwen/Qwen-VL": _own("qwen"),
}
"""What names begin with, and why (transformers 5.23.0, `models/auto/configuration_auto.py`; the
rows of `benchmarks/card_sweep.jsonl`; `model_type` in llmfit 1.1.17, embedded hf_models.json; the
classes of reward models and rerankers by their model cards; architectures of ms-swift 4.6.0,
`model/models`; ComfyUI, `comfy/model_detection.py`, for SSD-1B and Vega; hlky/dinoml_v2
2b9830f3d697 for the configs of BigBird and nomic-bert and ColPali's adapter_config.json; public
code that loads ESM3, Evo 2, GLiNER, GLiClass and BTLM by classes of their own; torch 2.13.0,
`fft.fftn`, which takes neither bfloat16 nor half)."""

_SIGHT: Final = (
    "of models that see, `llava-1.5-7b`, `idefics2-8b` and `qwen2.5-vl-7b` can be planned"
)
INSTEAD: Final[Mapping[str, str]] = {
    "microsoft/Phi-4-multimodal-": "for its text alone, `model: microsoft/Phi-4-mini-instruct` has "
    "a decoder of these widths",
    "Qwen/Qwen3-Omni-30B-A3B-": "for its text alone, `model: Qwen/Qwen3-30B-A3B`",
    "openbmb/MiniCPM-o-4_5": "for its text and pictures, `model: openbmb/MiniCPM-V-4_5` has a "
    "decoder of these widths",
    "black-forest-labs/FLUX.1-Fill-": "all but its first projection are the modules of `model: "
    "black-forest-labs/FLUX.1-dev`",
    "Wan-AI/Wan2.2-I2V-A14B": "its blocks are those of `model: Wan-AI/Wan2.2-T2V-A14B-Diffusers`",
    "state-spaces/mamba2-": "transformers' `models/mamba2/convert_mamba2_ssm_checkpoint_to_pytorch"
    ".py` converts it; then `model: path/to/config.json`",
    **dict.fromkeys(
        (
            *("Salesforce/blip-", "Salesforce/blip2-", "Salesforce/instructblip-"),
            *("microsoft/kosmos-2-", "HuggingFaceM4/idefics-"),
        ),
        _SIGHT,
    ),
    "google/embeddinggemma-": "of models that embed, `bge-m3` and `qwen3-embedding-0.6b` can be "
    "planned",
}
"""What names begin with, and what their user can do (transformers 5.23.0 and diffusers 0.42.1;
widths of decoders in llmfit 1.1.17, embedded hf_models.json)."""
_OWN_CODE: Final = (
    "where you trust it, `tunec card path/to/config.json --trust-remote-code` reads its own code"
)
_DIFFUSERS: Final = (
    "`hf download {name} transformer/config.json` lets it be found by its name, and `tunec card "
    "{name}` makes its card"
)

TAKEN_OUT: Final[Mapping[str, str]] = {"qwen2_5_omni_thinker": "llamafactory"}
"""Families that are a part of what is published, and the one trainer that takes it out."""

STORED: Final[Mapping[str, str]] = {
    "-bnb-4bit": "4 bits by bitsandbytes",
    "-awq": "4 bits by AWQ",
    "-awq-int4": "4 bits by AWQ",
    "-gptq": "4 bits by GPTQ",
    "-gptq-int4": "4 bits by GPTQ",
    "-gptq-int8": "8 bits by GPTQ",
    "-gguf": "the file format of llama.cpp",
    "_gguf": "the file format of llama.cpp",
    "-4bit": "4 bits for MLX",
    "-8bit": "8 bits for MLX",
    "-fp8": "FP8",
    "-nvfp4": "NVFP4",
    "-int8": "8 bits",
    "-int4": "4 bits",
}
"""What names of repositories with packed weights end with, and how they are stored."""


def why_unplanned(name: str) -> str | None:
    """Why a model of this name cannot be planned; None: nothing is known of it."""
    low = name.lower()
    return next((why for start, why in UNPLANNED.items() if low.startswith(start.lower())), None)


def what_instead(name: str) -> str | None:
    """What the user of a model of this name can do; None: nothing better is known."""
    low, why = name.lower(), why_unplanned(name)
    told = next((each for start, each in INSTEAD.items() if low.startswith(start.lower())), None)
    if told is None and why is not None and "code of its own" in why:
        told = _OWN_CODE
    if told is None and why in (_UNTRAINED, _NO_CONFIG):
        told = _DIFFUSERS
    return told and told.replace("NAME", name).replace("{name}", name)


def how_stored(name: str) -> str | None:
    """How the weights of a repository are packed, by the end of its name."""
    return STORED.get(_ending(name))


def unpacked(name: str) -> str:
    """A name in lower case without the ends that say how weights are packed."""
    left = name.lower()
    while end := _ending(left):
        left = left.removesuffix(end)
    return left


def _ending(name: str) -> str:
    low = name.lower()
    return next((end for end in STORED if low.endswith(end)), "")
