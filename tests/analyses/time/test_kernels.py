"""What the time account counts besides arithmetic: launches, gathers, and rates kept up."""

from typing import Any

import pytest
from workload_builders import (
    ATTENTION,
    BF16_LORA,
    FSDP_1,
    LLAMA_3_8B,
    LLAMA_32_1B,
    QWEN_25_7B,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.workload import USUAL_FSDP, Layout
from tunec.compiler.analyses.time.coefficients import FITTED
from tunec.compiler.analyses.time.compute import compute, product_rate, work_of
from tunec.compiler.analyses.time.gathering import gathers, hooks, units
from tunec.compiler.analyses.time.kernels import kernels, sliced_bytes
from tunec.compiler.analyses.time.machine import Machine, machine_of, rate_of, reached
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster, device

LARGE, SMALL = model(LLAMA_3_8B), model(LLAMA_32_1B)
GRANITE = model(
    {
        "model_type": "granitemoe",
        "hidden_size": 256,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 1024,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
)
BEFORE, SINCE = (("transformers", "4.52.4"),), (("transformers", "5.0.0"),)


def machine(name: str) -> Machine:
    node = cluster("dgx-a100-80g").nodes[0]
    return machine_of([device(name)], node, None, nodes=1, per_node=1, dtype="bf16")


def sharded(**changes: Any) -> Layout:
    return layout(engine="fsdp", world=2, **BF16_LORA, **changes)


def test_fsdp_1_gathers_each_half_of_an_adapter() -> None:
    workload = lora(LARGE, targets=ATTENTION)
    assert units(workload, sharded(fsdp=FSDP_1)) == 2 * (32 + 2 * 4 * 32)
    assert units(workload, sharded(fsdp=USUAL_FSDP)) == 2 * 32
    assert units(full(LARGE), sharded(fsdp=FSDP_1)) == 2 * 32
    assert units(workload, layout(**BF16_LORA)) == 0


def test_stage_3_gathers_modules_where_there_is_somebody_to_gather_from() -> None:
    workload = full(LARGE)
    two = layout(engine="deepspeed", stage=3, world=2)
    modules = sum(module.copies for module in LARGE.modules)
    assert gathers(workload, two) == 2 * modules
    again = layout(engine="deepspeed", stage=3, world=2, checkpointed=True)
    assert gathers(workload, again) == 3 * modules
    assert gathers(workload, layout(engine="deepspeed", stage=3, world=1)) == 0
    assert gathers(workload, layout(engine="deepspeed", stage=2, world=2)) == 0


def test_a_layer_of_llama_launches_what_was_traced() -> None:
    layers = 32
    ends = (38 + 71) / 9 * 2  # the last norm and the head
    assert kernels(full(LARGE), repeated=0) == pytest.approx(layers * (38 + 71) + ends)


def test_short_texts_wait_for_the_host() -> None:
    workload = full(SMALL, sequence=16)
    on = machine("h100-sxm")
    terms = compute(work_of(workload, layout()), on)
    host = FITTED.kernel * kernels(workload, repeated=0)
    assert sum(terms.values()) == pytest.approx(host, rel=0.1)
    old = replace(on, patience=2)
    assert sum(compute(work_of(workload, layout()), old).values()) > 1.8 * host


def test_experts_that_are_slices_fill_all_of_a_tensor_for_each() -> None:
    states = layout().states
    experts = 8 * (2 * 128 * 256 + 256 * 128)
    found = sliced_bytes(full(GRANITE, versions=BEFORE), states)
    assert found == 2 * 8 * experts * 2 * 4  # layers, experts, elements, bytes, crossings
    assert sliced_bytes(full(GRANITE, versions=SINCE), states) == 0
    assert sliced_bytes(lora(GRANITE, targets=ATTENTION, versions=BEFORE), states) == 0


def test_experts_one_after_the_other_launch_more() -> None:
    mixtral = model(
        LLAMA_3_8B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    )
    loop = kernels(full(mixtral, versions=(("transformers", "4.48.1"),)), repeated=0)
    grouped = kernels(full(mixtral, versions=SINCE), repeated=0)
    assert loop > 2 * grouped


def test_quantised_weights_are_read_packed_and_launch_more() -> None:
    plain, packed = lora(LARGE), lora(LARGE, quantization=nf4())
    assert kernels(packed, repeated=0) - kernels(plain, repeated=0) == 3 * 2 * 7 * 32


def test_chips_of_one_power_keep_up_the_same() -> None:
    """The data sheet of an RTX 6000 Ada has twice an L40's rate; both take 300 W."""
    l40, ada = device("l40"), device("rtx-6000-ada")
    kept = [reached(each, "bf16") * rate_of(each, "bf16") for each in (l40, ada)]
    assert kept[0] == pytest.approx(kept[1])


@pytest.mark.parametrize(("name", "share"), [("a100-sxm4-80g", 0.55), ("h100-sxm", 0.35)])
def test_flash_attention_2_is_slower_than_products(name: str, share: float) -> None:
    found = machine(name)
    assert found.attention == share
    assert found.rate * found.attention < product_rate(found)


def test_hooks_of_stage_2_take_each_gradient() -> None:
    two = layout(engine="deepspeed", stage=2, world=2)
    tensors = sum(module.copies for module in LARGE.modules)
    assert hooks(full(LARGE), two) == tensors
    assert hooks(lora(LARGE, targets=ATTENTION), two) == 2 * 4 * 32
    biased = model({**QWEN_25_7B, "num_hidden_layers": 2})
    plain = sum(module.copies for module in biased.modules)
    assert hooks(full(biased), two) == plain + 3 * 2
    for other in (layout(engine="deepspeed", stage=1, world=2), layout(), layout(stage=2)):
        assert hooks(full(LARGE), other) == 0
    on, work = machine("a100-sxm4-80g"), work_of(full(LARGE), two)
    assert compute(work, on)["gradient hooks"] == FITTED.hook * tensors
    assert compute(work, replace(on, patience=2))["gradient hooks"] == 2 * FITTED.hook * tensors
