"""Tables of rotary positions, which earlier releases of transformers keep in every layer."""

import pytest
from workload_builders import BF16_LORA, MISTRAL_7B, QWEN_25_7B, full, layout, lora, model, nf4

from tunec.compiler.analyses.memory.account import account

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
