"""LLaMA-Factory's chat templates: which fit a model, and which release added each.

By repository name: llamafactory 0.9.5 extras/constants.py `register_model_group(..., template=)`,
only chat models and vision-language models, since a base model has no template. The names:
data/template.py `register_template` of v0.8.3 to v0.9.5; users may register other names themselves.
"""

import re
from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.schemas.caches import cached

TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    r"/llama-2-\d+b-chat": ("llama2",),
    r"/(meta-)?llama-3(\.[123])?-\d+b-instruct": ("llama3",),
    r"/llama-3\.2-\d+b-vision-instruct": ("mllama",),
    r"/qwen2(\.5)?-vl-\d+b-instruct": ("qwen2_vl",),
    r"/qwen2(\.5)?-(math-|coder-)?[\d.]+b(-a\d+b)?-instruct": ("qwen",),
    r"/qwq-32b": ("qwen",),
    r"/qvq-72b": ("qwen2_vl",),
    r"/qwen3-[\d.]+b(-a\d+b)?(-awq|-gptq-int\d)?$": ("qwen3", "qwen3_nothink"),
    r"/qwen3-next-.*-instruct": ("qwen3_nothink", "qwen3"),
    r"/qwen3-next-.*-thinking": ("qwen3", "qwen3_nothink"),
    r"/qwen3\.5-[\d.]+b(-a\d+b)?(-base)?$": ("qwen3_5", "qwen3_5_nothink"),
    r"/qwen3-[\d.]+b(-a\d+b)?-instruct-2507": ("qwen3_nothink", "qwen3"),
    r"/qwen3-[\d.]+b(-a\d+b)?-thinking-2507": ("qwen3", "qwen3_nothink"),
    r"/qwen3-vl-.*-instruct": ("qwen3_vl_nothink", "qwen3_vl"),
    r"/qwen3-vl-.*-thinking": ("qwen3_vl", "qwen3_vl_nothink"),
    r"/deepseek-r1": ("deepseekr1", "deepseek3"),
    r"/deepseek-v3(-0324)?$": ("deepseek3",),
    r"/deepseek-(llm|moe|math)-.*-(chat|instruct)": ("deepseek",),
    r"/deepseek-coder-(v2-(lite-)?instruct|[\d.]+b-instruct)": ("deepseekcoder", "deepseek"),
    r"/gpt-oss-": ("gpt_oss", "gpt"),
    r"/internlm(2(_5)?|3)-.*(chat|instruct)": ("intern2",),
    r"/yi-(1\.5-)?\d+b-chat": ("yi",),
    r"/baichuan2-\d+b-chat": ("baichuan2",),
    r"/internvl(2_5|3|3_5)-.*-hf": ("intern_vl",),
    r"/phi-4$": ("phi4",),
    r"/phi-4-mini-instruct": ("phi4_mini", "phi4"),
    r"/mistral-small-(3\.\d-)?24b-instruct": ("mistral_small",),
    r"/devstral-small-2507": ("mistral_small",),
    r"/(mistral-nemo-instruct-2407|ministral-8b-instruct-2410)": ("ministral",),
    r"/ministral-3-\d+b-(instruct|base)": ("ministral3",),
    r"/(code)?gemma-(1\.1-)?[27]b-it": ("gemma",),
    r"/llama-4-.*-instruct": ("llama4",),
    r"/glm-4-(9|32)b-0414": ("glm4",),
    r"/glm-z1-(9|32)b-0414": ("glmz1",),
    r"/glm-4\.5(-air)?$": ("glm4_moe",),
    r"/glm-4\.7-flash": ("glm4_7",),
    r"/glm-4\.1v-9b-thinking": ("glm4v",),
    r"/glm-4\.[56]v": ("glm4_5v",),
    r"/glm-ocr": ("glm_ocr",),
    r"/llava-v1\.6-vicuna-\d+b-hf": ("llava_next",),
    r"/vicuna-\d+b-v1": ("vicuna",),
    r"/zephyr-7b": ("zephyr",),
    r"/gemma-2-\d+b-it": ("gemma2", "gemma"),
    r"/gemma-3-(1b|270m)-it": ("gemma2", "gemma"),
    r"/gemma-3-\d+b-it": ("gemma3",),
    r"/gemma-4-(26b-a4b|31b)-it": ("gemma4", "gemma4n"),
    r"/gemma-4-e[24]b-it": ("gemma4n", "gemma4"),
    r"/medgemma-4b-it": ("gemma3",),
    r"/medgemma-27b-text-it": ("gemma2",),
    r"/gemma-3n-e[24]b-it": ("gemma3n",),
    r"/qwen2\.5-omni-\d+b": ("qwen2_omni",),
    r"/falcon-h1-.*-instruct": ("falcon_h1",),
    r"/moonlight-16b-a3b-instruct": ("moonlight",),
    r"/minimax-m2(\.1)?$": ("minimax2",),
    r"/aya-23-\d+b": ("cohere",),
    r"/c4ai-command-r-(v01|plus)$": ("cohere",),
    r"/mistral-7b-instruct": ("mistral",),
    r"/mixtral-8x\d+b-instruct": ("mistral",),
    r"/phi-3(\.5)?-(mini|medium|moe)-(\w+-)?instruct": ("phi",),
    r"/phi-3-small-\w+-instruct": ("phi_small",),
    r"/smollm-.*-instruct": ("smollm",),
    r"/smollm2-.*-instruct": ("smollm2",),
    r"/granite-3\.\d-.*-instruct": ("granite3",),
    r"/granite-vision-3\.2-2b": ("granite3_vision",),
    r"/mimo-vl-7b-rl": ("mimo_vl",),
    r"/mimo-vl-7b-sft": ("qwen2_vl",),
    r"/hunyuan-(.*-instruct|mt-7b)": ("hunyuan",),
    r"/lfm2\.5-.*-instruct": ("lfm2",),
    r"/seed-oss-36b-instruct": ("seed_oss",),
    r"/kimi-vl-a3b": ("kimi_vl",),
    r"/codestral-22b": ("mistral",),
    r"/ernie-4\.5-[\d.]+b(-a\d+b)?-pt": ("ernie_nothink", "ernie"),
    r"/opencoder-\d+b-instruct": ("opencoder",),
    r"/pixtral-12b": ("pixtral",),
    r"/lfm2\.5-vl": ("lfm2_vl",),
    r"/llama3-llava-next-8b-hf": ("llava_next_llama3",),
    r"/llava-v1\.6-34b-hf": ("llava_next_yi",),
    r"/youtu-llm-2b$": ("youtu",),
    r"/glm-4-9b-chat": ("glm4",),
    r"/chatglm3-6b$": ("chatglm3",),
    r"/llava-1\.5-\d+b-hf": ("llava",),
    r"/llava-v1\.6-mistral-7b-hf": ("llava_next_mistral",),
    r"/minicpm-v-(2_6|4|4_5)$": ("minicpm_v",),
    r"/minicpm4(\.1)?-": ("cpm4",),
}
_SEEING: Final = frozenset(
    {"mllama", "qwen2_vl", "gemma3", "llava", "llava_next_mistral", "minicpm_v", "llava_next"}
    | {"qwen3_vl", "qwen3_vl_nothink", "intern_vl", "llama4", "gemma3n", "qwen2_omni"}
    | {"qwen3_5", "qwen3_5_nothink", "gemma4", "gemma4n", "glm4v", "glm4_5v", "glm_ocr"}
    | {"mistral_small", "ministral3", "kimi_vl", "pixtral", "lfm2_vl"}
    | {"llava_next_llama3", "llava_next_yi", "granite3_vision", "mimo_vl"}
)


ENDS_ONCE: Final = frozenset(
    {"baichuan", "baichuan2", "bailing", "bailing_v2", "breeze", "chatglm2", "chatglm3"}
    | {"codegeex4", "dots_ocr", "falcon", "fewshot", "gemma2", "glm4", "glm4_7", "glm4_moe"}
    | {"glm4_5v", "glm4v", "glm_ocr", "glmz1", "gpt_oss", "index", "solar", "yi_vl", "aeva"}
)
"""Templates that put the end token behind the last turn alone: `train_on_prompt` is refused.

llamafactory 0.9.3 to 0.9.5 data/template.py `get_template_and_fix_tokenizer`: `efficient_eos`.
"""


def templates_of(repository: str) -> tuple[str, ...]:
    """The templates that fit a chat model; none if it is unknown."""
    name = f"/{repository.rpartition('/')[2].lower()}"
    return next((each for pattern, each in TEMPLATES.items() if re.search(pattern, name)), ())


def sees(template: str) -> bool:
    """Whether a template handles images."""
    return template in _SEEING


_FIRST: Final = """
    alpaca aquila atom baichuan baichuan2 belle bluelm breeze chatglm2 chatglm3 chatml
    chatml_de codegeex2 codegeex4 cohere cpm dbrx deepseek deepseekcoder default empty
    falcon fewshot gemma glm4 intern intern2 llama2 llama2_zh llama3 mistral olmo openchat
    openchat-3.6 orion phi qwen solar starchat telechat vicuna xuanyuan xverse yayi yi yi_vl
    yuan zephyr ziya
"""
_ADDED: Final = {
    "0.9.0": """
        cpm3 llava paligemma qwen2_vl sailor
    """,
    "0.9.1": """
        exaone index llava_next llava_next_llama3 llava_next_mistral llava_next_qwen
        llava_next_video llava_next_video_mistral llava_next_video_yi llava_next_yi
        mllama opencoder phi_small pixtral video_llava
    """,
    "0.9.2": """
        bailing deepseek3 granite3 marco minicpm_o minicpm_v ministral mistral_small
        moonlight paligemma_chat phi4 qwen2_audio skywork_o1 telechat2
    """,
    "0.9.3": """
        cpm4 deepseekr1 gemma3 glmz1 granite3_vision hunyuan intern_vl kimi_vl llama4
        mimo mimo_vl qwen2_omni qwen3 seed_coder smollm smollm2
    """,
    "0.9.4": """
        bailing_v2 dots_ocr ernie ernie_nothink ernie_vl falcon_h1 gemma2 gemma3n
        glm4_5v glm4_moe glm4v gpt_oss granite4 intern_s1 keye_vl mimo_v2 minimax1
        minimax2 ministral3 qwen3_nothink qwen3_omni qwen3_omni_nothink qwen3_vl
        qwen3_vl_nothink seed_oss
    """,
    "0.9.5": """
        aeva gemma4 gemma4n glm4_7 glm_ocr hunyuan_small hy3 lfm2 lfm2_vl minicpm_v_4_6
        phi4_mini qwen3_5 qwen3_5_nothink qwen3_6 youtu youtu_vl
    """,
}
_GONE: Final = {
    "0.9.5": """
        aquila atom baichuan baichuan2 belle bluelm chatglm2 codegeex2 codegeex4 cpm
        cpm3 intern marco orion skywork_o1 telechat xverse yayi ziya
    """
}
"""Templates that were removed with their models, by release."""


@cached()
def template_names(release: str) -> frozenset[str]:
    """The templates of a release, or of the newest known one before it."""
    asked = Version(release)
    names = set(_FIRST.split())
    for each, added in _ADDED.items():
        if Version(each) <= asked:
            names |= set(added.split())
            names -= set(_GONE.get(each, "").split())
    return frozenset(names)


@cached()
def since(name: str) -> str | None:
    """The release that added a template; empty: the first has it; None: no release has it."""
    if name in _FIRST.split():
        return ""
    return next((each for each, added in _ADDED.items() if name in added.split()), None)
