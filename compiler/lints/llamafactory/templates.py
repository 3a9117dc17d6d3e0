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
    r"/qwen3-[\d.]+b$": ("qwen3", "qwen3_nothink"),
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
    {"mllama", "qwen2_vl", "gemma3", "llava", "llava_next_mistral", "minicpm_v"}
)


def templates_of(repository: str) -> tuple[str, ...]:
    """The templates that fit a chat model; none where nobody knows it."""
    name = f"/{repository.rpartition('/')[2].lower()}"
    return next((each for pattern, each in TEMPLATES.items() if re.search(pattern, name)), ())


def sees(template: str) -> bool:
    """Whether a template handles images."""
    return template in _SEEING
