"""The mixture of experts in a run's model."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.lints.run import Run

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


def experts(run: Run) -> int:
    """Experts in each layer of the model; 0 where there are none, or the model is unknown."""
    if run.model is None:
        return 0
    counts = (each.experts.count for each in run.model.architecture.stacks if each.experts)
    return max(counts, default=0)


def family(run: Run) -> str:
    """The model's `model_type`; empty where the model is unknown."""
    return run.model.architecture.family if run.model is not None else ""
