"""The plain chat template, and what is known of others: which base models lack one, how turns end.

Nothing follows from a name: makers of base models differ, and a copy may lack what its original
has.
"""

import re
from collections.abc import Mapping
from typing import Final

PLAIN: Final = """\
{%- macro words(content) %}
    {%- if content is string %}
        {{- content }}
    {%- else %}
        {%- for part in content if part['type'] == 'text' %}
            {{- part['text'] }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'assistant' %}
        {{- 'Assistant: ' + words(message['content']) | trim + eos_token + '\\n\\n' }}
    {%- else %}
        {{- message['role'] | capitalize + ': ' + words(message['content']) | trim + '\\n\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- 'Assistant:' }}
{%- endif %}
"""
"""It needs no token that the tokenizer lacks: roles are words, and an answer ends with the
tokenizer's own end token, at which generation stops. TRL hands a model that sees the words of each
message as a part of its own (trl 1.16.0 data_utils.py `prepare_multimodal_messages`)."""
_ANSWER: Final = "words(message['content']) | trim + eos_token"
PLAIN_WITH_MARKS: Final = PLAIN.replace(
    f"{{{{- 'Assistant: ' + {_ANSWER} + '\\n\\n' }}}}",
    f"{{{{- 'Assistant: ' }}}}{{% generation %}}{{{{- {_ANSWER} }}}}{{% endgeneration %}}"
    "{{- '\\n\\n' }}",
)
"""`PLAIN` with transformers' marks around each answer, which plain Jinja does not know."""
_WITHOUT: Final[Mapping[str, str]] = {
    name.lower(): source
    for name, source in {
        "EleutherAI/gpt-j-6b": "EleutherAI/lm-evaluation-harness 2310 (2024-09)",
        "google/gemma-2-2b": (
            "tdrussell/diffusion-pipe 8f83dbf2 configs/gemma_2_2b/tokenizer_config.json; "
            "hiyouga/LlamaFactory 5904 (2024-11)"
        ),
        "google/gemma-3-270m": "p-e-w/heretic 281 (2026-04)",
        "google/gemma-4-12B": "jundot/omlx 2005 (2026-06)",
        "google/gemma-4-31B": (
            "NVIDIA-NeMo/Automodel 36044ad3 examples/convergence/tulu3/models/gemma4-31b/README.md"
        ),
        "meta-llama/Llama-2-7b-hf": "modelscope/ms-swift 2831 (2025-01)",
        "meta-llama/Llama-3.1-8B": "OpenRLHF/OpenRLHF 613 (2024-12)",
        "meta-llama/Llama-3.2-1B": "sgl-project/sglang 3385 (2025-02)",
        "meta-llama/Llama-3.2-3B": "langchain-ai/langchain 29126 (2025-01)",
        "meta-llama/Llama-3.2-11B-Vision": "tenstorrent/tt-forge-models 298 (2025-11)",
        "meta-llama/Meta-Llama-3-8B": "OpenRLHF/OpenRLHF 544 (2024-11)",
        "meta-llama/Meta-Llama-3.1-8B": "OpenRLHF/OpenRLHF 613 (2024-12)",
        "mistralai/Mistral-7B-v0.1": "vllm-project/vllm 1425 (2023-10), 7739 (2024-08)",
        "swiss-ai/Apertus-8B-2509": "OpenEuroLLM/JudgeArena 11 (2026-02)",
    }.items()
}


def lacks_template(repository: str) -> str | None:
    """The source which says that a repository's tokenizer has no chat template; None: unknown."""
    return _WITHOUT.get(repository.lower())


_QWEN: Final = re.compile(r"Qwen/Qwen(2\.5-[\d.]+B|3-[\d.]+B(-A\d+B)?-Base)", re.IGNORECASE)
"""Base models with ChatML, whose tokenizer's end token is `<|endoftext|>`: QwenLM/Qwen3 927
(2024-09); huggingface/trl f2cd5771 docs/source/sft_trainer.md; huggingface/open-r1 604 (2025-04):
what was trained so never stops."""


def turn_end(repository: str) -> str | None:
    """The end of a turn in a base model's template, if its tokenizer has another end token."""
    return "<|im_end|>" if _QWEN.fullmatch(repository) else None
