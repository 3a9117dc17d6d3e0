"""Configs that transformers 5 wrote, beside releases that pass over what they say of positions."""

import pytest

import tunec
from tunec.schemas.models.config_forms import read_since

_QWEN = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
_TURNED = {"rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}}


def planned(target: str, config=_QWEN | _TURNED, **more):
    spec = {
        "tunec": 1,
        "model": {"path": "./mine", "config": config},
        "method": "lora",
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512},
        "hardware": "a100-80g-x1",
    }
    return tunec.plan({**spec, **more}, targets=[target, "kubeflow"])


def errors(target: str, **more) -> list[str]:
    return [each.id for each in planned(target, **more).diagnostics if each.severity == "error"]


def installed(target: str, **more) -> list[str]:
    packages = planned(target, **more).plan["job.packages"]
    return [each for each in packages if each.startswith("transformers==")]


def test_a_trainer_of_both_gets_the_release_that_reads_it():
    assert installed("llamafactory") == ["transformers==5.6.0"]
    plain = _QWEN | {"rope_theta": 1000000.0}
    assert installed("llamafactory", config=plain) == ["transformers==4.57.6"]


@pytest.mark.parametrize(
    ("target", "software"),
    [("llamafactory@0.9.4", {}), ("llamafactory", {"transformers": "4.57.6"}), ("trl@0.19", {})],
)
def test_a_release_that_passes_over_it_is_refused(target, software):
    assert errors(target, software=software) == ["E0608"]
    assert errors(target, software=software, config=_QWEN | {"rope_theta": 1000000.0}) == []


@pytest.mark.parametrize(
    ("config", "since"),
    [
        ({"model_type": "llama", "rope_parameters": {"rope_theta": 10000.0}}, None),
        ({"model_type": "llama", "rope_parameters": {"rope_theta": 500000.0}}, "5.0"),
        ({"model_type": "mixtral", "rope_parameters": {"rope_theta": 1000000.0}}, None),
        ({"model_type": "llama", "rope_parameters": {"rope_type": "llama3"}}, "5.0"),
        ({"rope_theta": 1.0, "rope_parameters": {"rope_theta": 1.0}}, None),
        (
            {"text_config": {"rope_parameters": {"rope_theta": 10000.0, "mrope_section": [1]}}},
            "5.0",
        ),
        (
            {
                "model_type": "gemma3_text",
                "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0}},
            },
            "5.0",
        ),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, None),
        ({"model_type": "gpt2"}, None),
    ],
)
def test_what_an_earlier_class_would_do_otherwise(config, since):
    assert read_since(config) == since
