"""Derived cards of models with a vision tower: its layers, and what pictures take, as traced."""

from functools import cache

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recording.derived_cards import derived  # noqa: E402
from tests.recording.traces import run  # noqa: E402
from tests.tracing.small_configs import SMALL  # noqa: E402
from workload_builders import full, layout  # noqa: E402

from tunec.compiler.analyses.architecture import with_images  # noqa: E402
from tunec.compiler.analyses.memory.account import account  # noqa: E402
from tunec.compiler.tracing.comparison import compare  # noqa: E402
from tunec.compiler.tracing.subject import Subject  # noqa: E402

QWEN_TOWER = {
    "depth": 4,
    "hidden_size": 192,
    "intermediate_size": 640,
    "num_heads": 4,
    "num_position_embeddings": 2304,
    "out_hidden_size": 256,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
}
CONFIGS = {
    "qwen3_5": {
        "model_type": "qwen3_5",
        "text_config": {
            **SMALL,
            "model_type": "qwen3_5_text",
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 64,
            "linear_num_key_heads": 4,
            "linear_num_value_heads": 4,
            "linear_value_head_dim": 64,
        },
        "vision_config": {
            **QWEN_TOWER,
            "model_type": "qwen3_5_vision",
            "deepstack_visual_indexes": [],
        },
        "tie_word_embeddings": False,
    },
}
TOWERS = {"qwen3_5": (4, 192, 4, 48, 640, False, "layer", 2)}


@cache
def model(name):
    config = CONFIGS[name]
    return with_images(derived(config).architecture, config, {})


@pytest.mark.parametrize("name", CONFIGS)
def test_the_layers_of_the_tower_are_read_off(name):
    tower = model(name).stacks[0]
    assert (tower.part, tower.causal) == ("vision", False)
    shape = tower.layers, tower.hidden, tower.heads, tower.head_dim, tower.ffn
    assert (*shape, tower.gated, tower.norm, tower.norms) == TOWERS[name]
    assert {"text", "vision", "projector"} <= model(name).by_part.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_account_of_text_alone_is_as_traced(name):
    workload, plan = full(model(name), sequence=1500), layout(1)
    trace = run(Subject(CONFIGS[name], workload, plan))
    assert abs(compare(trace, account(workload, plan)).error) < 0.015
