"""Families of models whose activations or gradients exceed fp16, whose largest number is 65504."""

from typing import Final

_FAMILIES: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("t5", "mt5", "umt5"),
        "huggingface/transformers#9295, #10956 (under autocast too), #23918 (flan-t5-xl)",
    ),
    **dict.fromkeys(("gemma3", "gemma3_text"), "huggingface/transformers#36822, #37226"),
    **dict.fromkeys(
        (
            *("gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gpt_oss"),
            *("glm4_moe", "glm4_moe_lite", "qwen3_moe"),
            *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        ),
        "unslothai/unsloth unsloth/models/loader.py `FORCE_FLOAT32`, with what became nan of each",
    ),
}
"""The source by family, under the names of `model_type`."""
_IN_BF16: Final[dict[str, str]] = dict.fromkeys(
    ("chatglm", "glm"),
    "zai-org/GLM-4#96 (its maintainer), hiyouga/LlamaFactory#4116, modelscope/ms-swift#1099",
)
"""Families of which only the weights that were trained in bf16 do: GLM-4-9B, unlike ChatGLM 2 and
3."""


def overflow_source(family: str, stored_dtype: str) -> str | None:
    """Where it is told that a model exceeds fp16, by its `model_type` and the dtype of its weights.

    None: nobody is known to say so.
    """
    of_bf16 = _IN_BF16.get(family) if stored_dtype == "bf16" else None
    return _FAMILIES.get(family, of_bf16)
