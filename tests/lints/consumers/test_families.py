"""The layers that a family is said to have, beside those of its class in transformers."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tunec.compiler.lints.facts.model import FAMILIES, HEADS, family_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TYPES: Mapping[str, str] = {
    "meta-llama/Llama-2-7b-chat-hf": "llama",
    "meta-llama/Meta-Llama-3-8B-Instruct": "llama",
    "huggyllama/llama-13b": "llama",
    "codellama/CodeLlama-7b-hf": "llama",
    "HuggingFaceTB/SmolLM2-360M": "llama",
    "01-ai/Yi-34B": "llama",
    "deepseek-ai/deepseek-coder-6.7b-instruct": "llama",
    "mistralai/Mistral-Nemo-Instruct-2407": "mistral",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral",
    "Qwen/Qwen2-7B-Instruct": "qwen2",
    "Qwen/Qwen1.5-MoE-A2.7B": "",
    "Qwen/Qwen2-57B-A14B": "qwen2_moe",
    "Qwen/Qwen3-235B-A22B": "qwen3_moe",
    "Qwen/QwQ-32B": "qwen2",
    "Qwen/Qwen2-VL-7B-Instruct": "qwen2_vl",
    "Qwen/Qwen2.5-VL-72B-Instruct": "qwen2_5_vl",
    "Qwen/Qwen2-Audio-7B": "",
    "google/gemma-7b-it": "gemma",
    "google/gemma-2-9b": "gemma2",
    "google/codegemma-7b": "gemma",
    "google/paligemma-3b-pt-224": "",
    "microsoft/phi-2": "phi",
    "stabilityai/stablelm-2-1_6b": "stablelm",
    "bigcode/starcoder2-15b": "starcoder2",
    "CohereForAI/c4ai-command-r-v01": "cohere",
    "deepseek-ai/DeepSeek-V2-Lite": "deepseek_v2",
    "deepseek-ai/DeepSeek-V3": "deepseek_v3",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": "",
    "google-bert/bert-base-uncased": "bert",
    "FacebookAI/xlm-roberta-large": "xlm-roberta",
    "distilbert/distilbert-base-uncased": "distilbert",
    "microsoft/deberta-v3-base": "deberta-v2",
    "openai/whisper-large-v3": "whisper",
    "facebook/bart-large-cnn": "bart",
    "bigscience/bloomz-7b1": "bloom",
    "tiiuae/falcon-7b": "falcon",
    "EleutherAI/pythia-6.9b": "gpt_neox",
    "openai-community/gpt2-xl": "gpt2",
    "bigcode/starcoderbase": "gpt_bigcode",
    "mosaicml/mpt-7b": "mpt",
    "microsoft/Phi-3-mini-4k-instruct": "phi3",
    "google-t5/t5-small": "t5",
    "google/flan-t5-xxl": "mt5",
    "facebook/opt-350m": "opt",
    "EleutherAI/gpt-j-6b": "gptj",
    "Salesforce/codegen-350M-mono": "codegen",
}
"""Repositories with the model_type of their config.json; nothing: no family is told by the name."""
OWN_CODE = {"ChatGLM", "Baichuan", "InternLM", "InternLM2", "Qwen of 2023"}
"""Families whose classes are in their repositories, not in transformers."""
ELSEWHERE = {
    "Mixtral": {"w1", "w2", "w3", "gate"},
    "Qwen": {"gate"},
    "DeepSeek-V2": {"q_proj", "gate"},
    "Phi-2": {"Wqkv", "out_proj"},
    "OPT": {"project_in", "project_out"},
    "DistilBERT": {"pre_classifier"},
}
"""Layers that are not in every model of a family, or were in earlier releases."""


def leaves(model_type: str) -> set[str]:
    """The last parts of the names of layers that PEFT can adapt, in a model of few layers."""
    from transformers import CONFIG_MAPPING, AutoModel
    from transformers.pytorch_utils import Conv1D

    config: Any = CONFIG_MAPPING[model_type]()
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
        if hasattr(config, name):
            setattr(config, name, 4)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    kinds = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv1d, Conv1D)
    return {
        name.rpartition(".")[2] for name, each in model.named_modules() if isinstance(each, kinds)
    }


@pytest.mark.parametrize("name", sorted({name for name, _ in FAMILIES.values()} - OWN_CODE))
def test_a_family_has_the_layers_of_its_class(name: str) -> None:
    """lora-targets-match-nothing"""
    told = {each: family_of(each) for each in TYPES}
    mine = [each for each, known in told.items() if known is not None and known[0] == name]
    found = set[str]().union(*(leaves(TYPES[each]) for each in mine))
    (layers,) = {known[1] for known in told.values() if known is not None and known[0] == name}
    assert mine
    assert found <= layers
    assert layers - found <= ELSEWHERE.get(name, set()) | HEADS


def test_a_name_tells_its_family_or_nothing() -> None:
    assert {each for each in TYPES if family_of(each) is None} == {
        each for each, model_type in TYPES.items() if not model_type
    }


def test_every_pattern_is_of_a_known_repository() -> None:
    every = [*TYPES, "THUDM/chatglm2-6b", "baichuan-inc/Baichuan2-13B-Chat"]
    every += ["internlm/internlm-chat-7b", "internlm/internlm2_5-7b", "Qwen/Qwen-7B-Chat"]
    unmet = {
        pattern
        for pattern in FAMILIES
        if not any(re.search(pattern, each, re.IGNORECASE) for each in every)
    }
    assert unmet == set()
