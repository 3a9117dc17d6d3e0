"""train.neftune_alpha is the noise that transformers adds; who adds none refuses it."""

import math

import pytest
import yaml

import tunec
from tunec.compiler.read import found_plain, read
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: {model}
method: lora
data: {{train: {train}, samples: 40000}}
hardware: a100-80g-x1
train: {{neftune_alpha: 5, steps: 100}}
"""


def compiled(target, model="Qwen2.5-0.5B", train="train.jsonl"):
    text = SPEC.format(model=model, train=train)
    return tunec.compile(text, targets=[target])


def document(target, name):
    result = compiled(target)
    assert result.ok, [each.message for each in result.diagnostics]
    found = {each.name: each.text for each in result.artifacts[target.partition("@")[0]]}
    return yaml.safe_load(found[name])


def test_the_trainer_adds_that_much_noise():
    """The hook that the Trainer registers shifts embeddings by alpha / sqrt(tokens x width)."""
    import torch
    from accelerate import Accelerator
    from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
    from transformers.integrations.neftune import activate_neftune

    said = document("huggingface", "training_args.yaml")
    arguments = TrainingArguments(
        output_dir="unused", neftune_noise_alpha=said["neftune_noise_alpha"]
    )
    shape = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, intermediate_size=16, **shape)).train()
    words = torch.arange(8)[None]
    plain = model.get_input_embeddings()(words).detach()
    activate_neftune(model, arguments.neftune_noise_alpha, Accelerator(cpu=True))
    shift = (model.get_input_embeddings()(words) - plain).abs().max().item()
    most = 5 / math.sqrt(8 * 16)
    assert 0.8 * most < shift <= most * 1.001


@pytest.mark.parametrize("target", ["trl@0.8", "trl@0.17", "trl@1.16"])
def test_the_script_is_told(target):
    assert document(target, "sft.yaml")["neftune_noise_alpha"] == 5.0


def test_nothing_is_written_unasked():
    text = SPEC.format(model="Qwen2.5-0.5B", train="train.jsonl").replace("neftune_alpha: 5, ", "")
    result = tunec.compile(text, targets=["trl"])
    (sft,) = [each for each in result.artifacts["trl"] if each.name == "sft.yaml"]
    assert "neftune" not in sft.text


def test_it_is_read_back():
    target, version = TARGETS.resolve("huggingface")
    documents = {"training_args.yaml": found_plain({"neftune_noise_alpha": 10})}
    values = {each.slot: each.value for each in read(target, documents, version)}
    assert values["runtime.neftune_alpha"] == 10.0


def test_a_trainer_without_noise_refuses():
    result = compiled("simpletuner", model="sdxl-base-1.0", train="photos/")
    (fault,) = [each for each in result.diagnostics if each.id == "E0901"]
    assert "runtime.neftune_alpha 5" in fault.message
    assert "SimpleTuner adds no noise to embeddings" in fault.notes
