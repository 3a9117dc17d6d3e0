"""Models that see, trained on text alone: what each trainer is told, or why it refuses.

Small random models were trained on a CPU by the real programs, with what asks for a GPU answered:
OpenRLHF 0.10.4 and 0.11.2 (texts and pairs), verl 0.8.0 and 0.9.1 (FSDP 1 and 2), NeMo AutoModel
0.7.0, and TRL 1.16.0 (pairs and rewards); 1 and 2 ranks, in full and by adapters.
"""

from typing import Any

import pytest
import yaml
from tests.small_spec import SPEC

import tunec

DPO = {"objective": "dpo"}


def compiled(target: str, model: str, data: dict[str, Any] | None = None, **changed: Any):
    small = yaml.safe_load(SPEC) | {"hardware": "h100-80g-x2", "model": model, "method": "lora"}
    file = "train.parquet" if target == "verl" else "train.jsonl"
    held = {**small["data"], "train": file, "images": {"per_sample": 0}, **(data or {})}
    return tunec.compile(yaml.safe_dump({**small, "data": held, **changed}), targets=[target])


@pytest.mark.parametrize(
    ("target", "model", "changed"),
    [
        ("verl", "qwen3.5-4b", {}),
        ("verl", "gemma-3-4b", {}),
        ("verl", "ministral-3-8b", {}),
        ("verl", "qwen2.5-vl-3b", {"software": {"verl": "0.8.0"}}),
        ("openrlhf", "qwen3.5-4b", DPO),
        ("openrlhf", "gemma-3-4b", {}),
        ("openrlhf", "ministral-3-8b", {}),
        ("nemo-automodel", "gemma-3-4b", {}),
        ("trl", "qwen3.5-4b", DPO),
        ("trl", "gemma-3-4b", {"objective": {"grpo": {"rewards": ["think_format_reward"]}}}),
    ],
)
def test_what_trains_is_written(target, model, changed):
    made = compiled(target, model, **changed)
    assert made.ok, [each.message for each in made.diagnostics]


@pytest.mark.parametrize(
    ("target", "model", "changed", "said"),
    [
        ("verl", "qwen2.5-vl-3b", {}, "has no mean"),
        ("verl", "glm-4.1v-9b", {"software": {"verl": "0.8.0"}}, "positions of one kind"),
        ("openrlhf", "gemma-3-4b", {"data": {"packing": True}}, "packed samples"),
        ("nemo-automodel", "ministral-3-8b", {}, "a class of its own"),
        ("nemo-automodel", "qwen3.5-4b", {}, "a class of its own"),
        (
            "nemo-automodel",
            "ministral-3-8b",
            {"software": {"nemo-automodel": "0.6.0"}},
            "AutoModelForCausalLM",
        ),
        ("nemo-automodel", "llava-1.5-7b", {}, "AutoModelForCausalLM"),
        ("axolotl", "gemma-3-4b", DPO, "by pairs or rewards"),
        ("trl", "gemma-3-4b", {**DPO, "software": {"trl": "1.3.0"}}, "before 1.6"),
        ("verl", "qwen3.5-4b", {"data": {"images": {}}}, "text alone"),
    ],
)
def test_what_does_not_train_is_refused(target, model, changed, said):
    made = compiled(target, model, **changed)
    assert any(said in each.message for each in made.diagnostics if each.severity == "error")


def test_the_tower_that_verl_runs_is_trained():
    """It sends an image of zeros through the towers of Qwen, and of no other family."""
    towers = {
        model: compiled("verl", model, method="full").planned.plan["data.vision_tokens"]
        for model in ("qwen3.5-0.8b", "gemma-3-4b")
    }
    assert towers == {"qwen3.5-0.8b": 16, "gemma-3-4b": 0}
