"""The layer names that an adapter's pattern stands for, for programs that accept only names."""

import re
from collections.abc import Container, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Draft, Plan
from tunec.schemas.spec import Spec

SAME_NAMES: Final = ("gemma3", "llama4", "qwen2_5_vl")
"""Families whose tower has linear layers of the same names as the text's.

PEFT adapts both by a list of names. transformers 4.57.6 to 5.23.0 models/siglip/modeling_siglip.py
`SiglipAttention`, llama4/modeling_llama4.py `Llama4VisionAttention`, qwen2_5_vl/
modeling_qwen2_5_vl.py `Qwen2_5_VLMLP`.
"""
LAYERS: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The layers of attention and feed-forward."""
_IN_THE_TEXT: Final = re.compile(r"\\\.language_model|language_model\\\.")
_NAMES: Final = re.compile(r"\\\.\(([\w|]+)\)")


def names_in_the_text(plan: Plan) -> tuple[str, ...]:
    """The layers of the language model that a pattern names; empty for any other pattern.

    A vision-language model's tower has layers with some of these names too.
    """
    pattern = plan.adapter.targets
    if not isinstance(pattern, str) or not _IN_THE_TEXT.search(pattern):
        return ()
    return tuple(name for found in _NAMES.findall(pattern) for name in found.split("|"))


def layer_names(spec: Spec, draft: Draft, families: Container[str]) -> Mapping[str, Any]:
    """The names of layers that a target without patterns adapts, where a pattern is the default.

    They are pinned for `families` if the method leaves its targets and the tower open.
    """
    lora, model = spec.method.lora or spec.method.qlora, draft.groups.get("model")
    if lora is None or model is None or model.family not in families:
        return {}
    is_open = lora.targets == "all-linear" and not lora.vision
    return {"adapter.targets": LAYERS} if is_open else {}
