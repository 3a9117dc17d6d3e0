"""The layers that a family is said to have, beside those of its class in transformers."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from tests.tables import table

from tunec.compiler.lints.facts.model import FAMILIES, HEADS, family_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

TYPES: Mapping[str, str] = table(__file__)
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
