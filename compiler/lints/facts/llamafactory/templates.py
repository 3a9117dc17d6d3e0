"""The template that LLaMA-Factory itself has for a model.

By repository name; llamafactory 0.9.5 extras/constants.py `register_model_group(..., template=)`,
chat models and models that see only: a base model has no template of its own.
"""

import re
from collections.abc import Mapping
from typing import Final

TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    r"/llama-2-\d+b-chat": ("llama2",),
    r"/(meta-)?llama-3(\.[123])?-\d+b-instruct": ("llama3",),
    r"/llama-3\.2-\d+b-vision-instruct": ("mllama",),
    r"/qwen2(\.5)?-vl-\d+b-instruct": ("qwen2_vl",),
    r"/qwen2(\.5)?-(math-|coder-)?[\d.]+b-instruct": ("qwen",),
    r"/qwen3-[\d.]+b(-a\d+b)?$": ("qwen3", "qwen3_nothink"),
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
    r"/mistral-small-24b-instruct": ("mistral_small",),
    r"/gemma-(1\.1-)?[27]b-it": ("gemma",),
    r"/llama-4-.*-instruct": ("llama4",),
    r"/glm-4\.5(-air)?$": ("glm4_moe",),
    r"/llava-v1\.6-vicuna-\d+b-hf": ("llava_next",),
    r"/vicuna-\d+b-v1": ("vicuna",),
    r"/zephyr-7b": ("zephyr",),
    r"/gemma-2-\d+b-it": ("gemma2", "gemma"),
    r"/gemma-3-\d+b-it": ("gemma3",),
    r"/mistral-7b-instruct": ("mistral",),
    r"/mixtral-8x\d+b-instruct": ("mistral",),
    r"/phi-3(\.5)?-(mini|medium)-\w+-instruct": ("phi",),
    r"/glm-4-9b-chat": ("glm4",),
    r"/chatglm3-6b$": ("chatglm3",),
    r"/llava-1\.5-\d+b-hf": ("llava",),
    r"/llava-v1\.6-mistral-7b-hf": ("llava_next_mistral",),
    r"/minicpm-v-2_6": ("minicpm_v",),
}
_SEEING: Final = frozenset(
    {"mllama", "qwen2_vl", "gemma3", "llava", "llava_next_mistral", "minicpm_v", "llava_next"}
    | {"qwen3_vl", "qwen3_vl_nothink", "intern_vl", "llama4"}
)


def templates_of(repository: str) -> tuple[str, ...]:
    """The templates that fit a chat model; none where nobody knows it."""
    name = f"/{repository.rpartition('/')[2].lower()}"
    return next((each for pattern, each in TEMPLATES.items() if re.search(pattern, name)), ())


def sees(template: str) -> bool:
    """Whether a template handles images."""
    return template in _SEEING
