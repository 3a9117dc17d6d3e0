"""Adapters on routed experts: how each family's are reached, and who takes or refuses them."""

import pytest
import yaml
from planning import decided, errors, planned

import tunec

GPT_OSS = ("experts.gate_up_proj", "experts.down_proj")
SPEC = """\
tunec: 1
model: openai/gpt-oss-20b
method: {{lora: {{experts: true}}}}
data: {{train: train.jsonl, samples: 1000, sequence: 1024}}
hardware: h200-x1
targets: ['{target}']
"""


def method(**lora):
    return {"lora": {"experts": True, **lora}}


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("openai/gpt-oss-20b", GPT_OSS),
        ("Qwen/Qwen3.6-35B-A3B", GPT_OSS),
        ("google/gemma-4-26B-A4B-it", GPT_OSS),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ("experts.up_proj", "experts.down_proj")),
    ],
)
def test_experts_that_no_target_reaches_are_named_as_parameters(model, parameters):
    adapter = decided(model=model, method=method(), hardware="b300-x1").adapter
    plain = decided(model=model, method="lora", hardware="b300-x1").adapter
    assert adapter.parameters == parameters
    assert (adapter.targets, plain.parameters) == (plain.targets, ())
    assert adapter.trainable_parameters > plain.trainable_parameters


def test_experts_with_names_of_their_own_are_targets():
    adapter = decided(model="qwen3-30b-a3b", method=method(), hardware="b300-x1").adapter
    assert adapter.targets[-3:] == ("gate_proj", "up_proj", "down_proj")
    assert adapter.parameters == ()


def test_a_router_gets_no_adapter():
    targets = decided(model="google/gemma-4-26B-A4B-it", hardware="h200-x1").adapter.targets
    assert "router" not in str(targets)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "llama-3.1-8b"}, "has no routed experts to adapt"),
        ({"software": {"transformers": "4.57.6"}}, "need transformers 5.0, and 4.57.6 will run"),
        ({"pin": {"adapter.parameters": ["experts.w1"]}}, "has no parameter named 'experts.w1'"),
        ({"software": {"peft": "0.16.0"}}, "need peft 0.17, and 0.16.0 will run"),
        ({"method": method(dropout=0.1)}, "whose adapters cannot have dropout"),
        ({"method": method(dora=True)}, "whose adapters cannot have dora"),
        (
            {"model": "qwen3-30b-a3b", "method": method(targets=r".*self_attn\.[qv]_proj")},
            "to which no names of experts can be added",
        ),
    ],
)
def test_what_cannot_be_is_told(changes, why):
    asked = {"model": "openai/gpt-oss-20b", "method": method(), "hardware": "h200-x1", **changes}
    told = errors(planned(**asked, repairing=False))
    assert [why in each for each in told if "nothing fits" not in each] == [True]


@pytest.mark.parametrize(
    ("target", "file", "key"),
    [
        ("trl", "trl/sft.yaml", "lora_target_parameters"),
        ("axolotl", "axolotl/axolotl.yaml", "lora_target_parameters"),
        ("ms-swift", "ms-swift/ms-swift.yaml", "target_parameters"),
    ],
)
def test_trainers_are_given_the_parameters(target, file, key):
    made = tunec.compile(SPEC.format(target=target), targets=[target], output="out")
    assert made.ok, [each.message for each in made.diagnostics]
    assert tuple(yaml.safe_load(made.texts()[file])[key]) == GPT_OSS


@pytest.mark.parametrize(
    ("target", "why"),
    [
        *((name, "adapter.parameters") for name in ("unsloth", "verl", "openrlhf")),
        *((name, "need transformers 5.0") for name in ("llamafactory", "trl@0.25")),
    ],
)
def test_a_trainer_that_cannot_name_parameters_is_refused(target, why):
    made = tunec.compile(SPEC.format(target=target), targets=[target])
    told = [each.message for each in made.diagnostics if each.severity == "error"]
    assert any(why in each for each in told), told
