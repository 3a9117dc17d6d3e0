"""Families of models whose activations or gradients exceed fp16, whose largest number is 65504."""

from typing import Final

OVERFLOWS: Final[dict[str, str]] = {
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
