"""Models that their own repository's code builds, against counts that others published."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tunec.compiler.analyses.architecture import derive, lora_parameters, matching
from tunec.schemas.models.catalogue import card

PUBLISHED = {
    # zai-org/GLM-4 issue 500
    "glm-4v-9b": 13_906_320_896,
    # logs of THUDM/glm-4-9b-chat and THUDM/chatglm3-6b
    "glm-4-9b-chat": 9_399_951_360,
    "chatglm3-6b": 6_243_584_000,
    # safetensors total of openbmb/MiniCPM-V-2_6
    "minicpm-v-2_6": 8_099_175_152,
    # model.safetensors.index.json of OpenGVLab/InternVL2-8B: 16,150,730,752 bytes
    "internvl2-8b": 8_075_365_376,
    # VisualGLMModel of THUDM/VisualGLM-6B e314fb9 on SwissArmyTransformer 0.4.12
    "visualglm-6b": 7_802_193_408,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_total_is_the_published_one(name):
    architecture = derive(card(name).config)
    assert architecture.remote_code
    assert architecture.parameters == PUBLISHED[name]


def test_parts_of_glm_4v_are_those_that_were_counted():
    # zai-org/GLM-4 issue 500: encoder 8,158,433,280, vision layers 4,279,387,392, the rest
    # 1,468,500,224.
    architecture = derive(card("glm-4v-9b").config)
    counted = {"transformer.encoder.layers": 0, "transformer.vision.transformer.layers": 0, "": 0}
    for module in architecture.modules:
        prefix = next(name for name in counted if module.path.startswith(name))
        counted[prefix] += module.parameters
    assert list(counted.values()) == [8_158_433_280, 4_279_387_392, 1_468_500_224]


def test_visualglm_is_the_model_that_swissarmytransformer_builds(census):
    measured = json.loads((Path(__file__).parent / "visualglm_parameters.json").read_text())
    real = Counter({(name, tuple(shape)): n for name, shape, n in measured["parameters"]})
    assert census(derive(card("visualglm-6b").config)) == real


def test_chatglm_6b_counts_as_its_lora_logs_do():
    config = {
        "model_type": "chatglm",
        "hidden_size": 4096,
        "inner_hidden_size": 16384,
        "num_attention_heads": 32,
        "num_layers": 28,
        "vocab_size": 130528,
        "max_sequence_length": 2048,
    }
    architecture = derive(config)
    # trainable params: 3670016 || all params: 6176956416, of LoRA with r=8 on query_key_value
    added = lora_parameters(architecture, matching(architecture, ["query_key_value"]), rank=8)
    assert added == 3_670_016
    assert architecture.parameters + added == 6_176_956_416


def test_lora_on_glm_4v_adapts_the_tower_too():
    architecture = derive(card("glm-4v-9b").config)
    found = matching(architecture, card("glm-4v-9b").lora_targets)
    assert {module.part: module.copies for module in found} == {"text": 40, "vision": 63}
    # zai-org/GLM-4 issue 501 (r=8) and issue 281 (r=4)
    assert lora_parameters(architecture, found, rank=8) == 6_397_952
    assert lora_parameters(architecture, found, rank=4) == 3_198_976


def test_all_linear_takes_the_output_layer_that_its_class_does_not_declare():
    architecture = derive(card("glm-4-9b-chat").config)
    paths = [module.path for module in matching(architecture, "all-linear")]
    assert "transformer.output_layer" in paths


def test_minicpm_trains_only_the_language_model_by_its_pattern():
    found = card("minicpm-v-2_6")
    architecture = derive(found.config)
    assert {module.part for module in matching(architecture, found.lora_pattern)} == {"text"}
    assert {module.part for module in matching(architecture, found.lora_targets)} > {"text"}


@pytest.mark.parametrize("name", ["minicpm-v-2_6", "minicpm-llama3-v-2_5"])
def test_what_the_makers_trainer_adds_is_in_the_tree(name):
    architecture = derive(card(name).config)
    for extra in card(name).trainer_extras:
        assert any(f"{m.path}.".startswith(f"{extra}.") for m in architecture.modules), extra


def test_dropping_the_last_vision_layer_shortens_the_tower():
    config = {**card("minicpm-v-2_6").config, "drop_vision_last_layer": True}
    assert derive(config).stacks[0].layers == 26


def test_swissarmytransformer_gives_each_of_query_key_and_value_its_own_pair():
    found = card("visualglm-6b")
    architecture = derive(found.config)
    modules = matching(architecture, found.lora_pattern)
    assert {module.part for module in modules} == {"text"}
    # sat/model/finetune/lora2.py: 3 * r * (4096 + 4096) and 1 * r * (4096 + 4096) a layer
    assert lora_parameters(architecture, modules, rank=10, pieces=3) == 28 * 4 * 10 * (4096 + 4096)
