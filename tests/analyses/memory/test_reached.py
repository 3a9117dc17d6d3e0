"""Parts that no sample reaches, such as a tower beside texts, and tables of rotary positions."""

import pytest
from workload_builders import (
    BF16_LORA,
    FP32,
    FSDP_1,
    MISTRAL_7B,
    MIXED,
    QWEN_25_7B,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.rank import reached
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import replace

LLAVA = model({"model_type": "llava"})
ALL = LLAVA.parameters
TOWER = sum(m.parameters for m in LLAVA.modules if m.part in ("vision", "projector"))
OUTSIDE_OF_LAYERS = sum(
    m.parameters for m in LLAVA.modules if m.part in ("vision", "projector") and "{}" not in m.path
)
PICTURES = {"images": 1, "vision_tokens": 577, "image_tokens": 576}


def run(workload: Workload, engine: str = "none", world: int = 1, **how) -> Account:
    return account(workload, layout(checkpointed=True, engine=engine, world=world, **how))


def test_pictures_reach_everything():
    workload = full(LLAVA, **PICTURES)
    assert reached(workload, layout()) is workload


def test_a_run_without_a_tower_in_it_is_left_as_it_is():
    text = tuple(m for m in LLAVA.modules if m.part == "text" and m.path.endswith("q_proj"))
    workload = lora(LLAVA, adapted=text)
    assert reached(workload, layout()) is workload


def test_optimizers_have_no_states_of_it():
    step = run(full(LLAVA)).phases["optimizer step"]
    assert step["optimizer states"] == 2 * 2 * (ALL - TOWER)
    assert step["trained weights"] == 2 * ALL


def test_buckets_of_ddp_have_room_for_it():
    """torch's reducer is made of all parameters that want a gradient."""
    step = run(full(LLAVA), "ddp", 8).phases["optimizer step"]
    assert step["gradient buckets"] == 2 * ALL
    assert step["optimizer states"] == 2 * 2 * (ALL - TOWER)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_deepspeed_partitions_it_with_the_rest(stage: int):
    step = run(full(LLAVA), "deepspeed", 8, stage=stage, **MIXED).phases["optimizer step"]
    assert step["optimizer states"] == round(2 * 4 * ALL / 8)
    assert step["master weights"] == round(4 * ALL / 8)


def test_deepspeed_gets_no_gradients_of_it():
    last = run(full(LLAVA), "deepspeed", 8, stage=1, **MIXED).phases["embedding backward"]
    assert last["gradients"] == 2 * (ALL - TOWER)


def test_stage_3_makes_none_of_it_whole():
    far = {"max_live_parameters": 10**11, "persistence_threshold": 0}
    loss = run(full(LLAVA), "deepspeed", 8, stage=3, **far, **MIXED).phases["loss forward"]
    assert loss["gathered parameters"] == 2 * (ALL - TOWER)
    seen = run(full(LLAVA, **PICTURES), "deepspeed", 8, stage=3, **far, **MIXED)
    assert seen.phases["loss forward"]["gathered parameters"] == 2 * ALL


@pytest.mark.parametrize(("version", "stepped"), [(1, OUTSIDE_OF_LAYERS), (2, 0)])
def test_a_flat_root_unit_has_states_of_what_lies_in_it(version: int, stepped: int):
    """All of one flat tensor has a gradient if any of it has: the projector's and the patches'."""
    fsdp = replace(FSDP_1, version=version)
    found = run(full(LLAVA), "fsdp", 8, fsdp=fsdp, **FP32 | {"autocast": True})
    step = found.phases["optimizer step"]
    assert step["optimizer states"] == round(2 * 4 * (ALL - TOWER + stepped) / 8)
    assert step["trained weights"] == round(4 * ALL / 8)


def test_adapters_of_a_tower_lie_there_without_states():
    tower = tuple(m for m in LLAVA.modules if m.part == "vision" and m.path.endswith("q_proj"))
    text = tuple(m for m in LLAVA.modules if m.part == "text" and m.path.endswith("q_proj"))
    alone = run(lora(LLAVA, adapted=text)).phases["optimizer step"]
    both = run(lora(LLAVA, adapted=(*text, *tower))).phases["optimizer step"]
    elements = sum(16 * (m.shape[0] + m.shape[1]) * m.copies for m in tower)
    assert both["adapters"] - alone["adapters"] == 2 * elements
    assert both["optimizer states"] == alone["optimizer states"]
    assert both["gradients"] == alone["gradients"]


MIXTRAL = MISTRAL_7B | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def tables(config, release, **changes):
    workload = lora(model(config), versions=(("transformers", release),), **changes)
    return account(workload, layout(**BF16_LORA)).phases["optimizer step"].get("rotary tables", 0)


@pytest.mark.parametrize(
    ("config", "last", "first"),
    [
        (MISTRAL_7B, "4.41.2", "4.42.4"),
        (QWEN_25_7B, "4.44.2", "4.45.2"),
        (MIXTRAL, "4.47.1", "4.48.0"),
    ],
)
def test_each_family_has_them_until_a_release(config, last, first):
    found = model(config)
    each = 2 * 2 * found.context * sum(s.layers * s.head_dim for s in found.stacks)
    assert tables(config, last) == each
    assert tables(config, first) == 0


def test_nothing_splits_them():
    workload = full(model(QWEN_25_7B), versions=(("transformers", "4.44.2"),))
    plans = (layout(engine="deepspeed", world=8, stage=stage) for stage in (1, 3))
    one, two = (account(workload, plan).phases["optimizer step"] for plan in plans)
    assert one["rotary tables"] == two["rotary tables"] > 400 * 2**20


def test_k_bit_preparation_leaves_them_in_16_bits():
    assert tables(QWEN_25_7B, "4.44.2", quantization=nf4()) == tables(QWEN_25_7B, "4.44.2")
