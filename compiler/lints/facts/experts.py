"""The mixture of experts in a run's model."""

import re
from collections.abc import Mapping
from typing import Final

from tunec.compiler.lints.context import LintContext

BLOCKS: Final[Mapping[str, str]] = {
    "mixtral": "MixtralSparseMoeBlock",
    "qwen2_moe": "Qwen2MoeSparseMoeBlock",
    "qwen3_moe": "Qwen3MoeSparseMoeBlock",
    "deepseek_v2": "DeepseekV2MoE",
    "deepseek_v3": "DeepseekV3MoE",
    "olmoe": "OlmoeSparseMoeBlock",
    "jamba": "JambaSparseMoeBlock",
    "dbrx": "DbrxFFN",
    "phimoe": "PhimoeSparseMoeBlock",
}
"""The block that holds the experts, by model_type: transformers 4.57.6 models/*/modeling_*.py, and
LLaMA-Factory 0.9.5 model/model_utils/moe.py `add_z3_leaf_module`."""

_NAMES: Final[Mapping[str, str]] = {
    r"mixtral-8x": "mixtral",
    r"qwen1\.5-moe|qwen2-57b-a14b": "qwen2_moe",
    r"qwen3-(?:coder-)?\d+b-a\d+b": "qwen3_moe",
    r"deepseek-(?:coder-)?v2": "deepseek_v2",
    r"deepseek-(?:v3|r1)(?!.*(?:distill|qwen|llama))": "deepseek_v3",
    r"olmoe-": "olmoe",
    r"jamba-(?:v0|mini|large|1\.)": "jamba",
    r"/dbrx-": "dbrx",
    r"phi-3\.5-moe": "phimoe",
}
"""Names of models that the catalogue need not have, and the `model_type` of their config.json."""


def experts(run: LintContext) -> int:
    """Experts in each layer of the model; 0 where there are none, or the model is unknown."""
    if run.model is None:
        return 0
    counts = (each.experts.count for each in run.model.architecture.stacks if each.experts)
    return max(counts, default=0)


def family(run: LintContext) -> str:
    """The model's `model_type`; empty where the model is unknown."""
    return run.model.architecture.family if run.model is not None else ""


def named_family(run: LintContext) -> str:
    """The `model_type` of a model with experts, by its name alone; empty where that tells none."""
    name = (run.model_name or "").lower()
    return next((kind for each, kind in _NAMES.items() if re.search(each, name)), "")
