"""What the time account counts besides arithmetic: launches, gathers, and rates kept up."""

from itertools import pairwise
from math import prod
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
from tunec.compiler.analyses.time.compute import accumulated_bytes, compute, product_rate, work_of
from tunec.compiler.analyses.time.flops import operations
from tunec.compiler.analyses.time.gathering import (
    carried,
    copied,
    found_whole,
    gathers,
    hooks,
    units,
)
from tunec.compiler.analyses.time.kernels import (
    converted_bytes,
    is_wide,
    kernels,
    scattered,
    sliced_bytes,
)
from tunec.compiler.analyses.time.machine import Machine, machine_of, rate_of, reached
from tunec.compiler.analyses.time.tiles import Product, products_of, slowed
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


def test_stage_3_gathers_modules_on_one_rank_too() -> None:
    workload = full(LARGE)
    two = layout(engine="deepspeed", stage=3, world=2)
    modules = sum(module.copies for module in LARGE.modules) - (2 * 32 + 1)  # norms stay whole
    assert gathers(workload, two) == 2 * modules
    assert found_whole(workload, two) == 2 * (2 * 32 + 1)
    all_apart = replace(two, zero=replace(two.zero, persistence_threshold=0))
    assert gathers(workload, all_apart) == 2 * (modules + 2 * 32 + 1)
    assert found_whole(workload, all_apart) == 0
    again = layout(engine="deepspeed", stage=3, world=2, checkpointed=True)
    assert gathers(workload, again) == 3 * modules
    alone = layout(engine="deepspeed", stage=3, world=1)
    assert gathers(workload, alone) == 2 * modules
    assert copied(workload, alone) == 0
    away = layout(engine="deepspeed", stage=3, world=1, offload_param="cpu")
    assert copied(workload, away) == gathers(workload, away)
    assert gathers(workload, layout(engine="deepspeed", stage=2, world=2)) == 0


def test_a_layer_of_llama_launches_what_was_traced() -> None:
    layers = 32
    ends = (38 + 71) / 9 * 2  # the last norm and the head
    assert sum(kernels(full(LARGE), repeated=0)) == pytest.approx(layers * (38 + 71) + ends)


@pytest.mark.parametrize(
    ("family", "traced"),
    [("bert", 22 + 54), ("gpt2", 28 + 54), ("gpt_neox", 25 + 54)],
)
def test_layers_with_layer_norm_launch_fewer(family: str, traced: int) -> None:
    """Traced: transformers 5.23, eager (GPT-NeoX sdpa), dropout as the one kernel of a device."""
    one, three = (
        model({"model_type": family, "n_layer" if family == "gpt2" else _LAYERS: layers})
        for layers in (1, 3)
    )
    more = [sum(kernels(full(each), repeated=0)) for each in (one, three)]
    assert (more[1] - more[0]) / 2 == pytest.approx(traced, rel=0.1)


_LAYERS = "num_hidden_layers"


def test_short_texts_wait_for_the_host() -> None:
    workload = full(SMALL, sequence=16)
    on = machine("h100-sxm")
    terms = compute(work_of(workload, layout()), on)
    host = FITTED.kernel * sum(kernels(workload, repeated=0))
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


def test_a_host_that_reads_back_in_each_layer_launches_nothing_ahead() -> None:
    """Each pass is the slower of host and device, and no long one hides a short one's launches."""
    before, since = (work_of(full(GRANITE, versions=v), layout()) for v in (BEFORE, SINCE))
    assert before.read_back
    assert not since.read_back
    on = machine("a100-sxm4-80g")
    waits = compute(before, on)["kernel launches"]
    ahead = compute(before._replace(read_back=False), on)["kernel launches"]
    assert waits > ahead
    # where the host has nothing to do, both are as fast
    still = compute(before, replace(on, patience=0))
    assert still["kernel launches"] == pytest.approx(0, abs=1e-12)


def test_experts_one_after_the_other_launch_more() -> None:
    mixtral = model(
        LLAMA_3_8B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    )
    loop = sum(kernels(full(mixtral, versions=(("transformers", "4.48.1"),)), repeated=0))
    grouped = sum(kernels(full(mixtral, versions=SINCE), repeated=0))
    assert loop > 2 * grouped


def test_quantised_weights_are_read_packed_and_launch_more() -> None:
    plain, packed = lora(LARGE), lora(LARGE, quantization=nf4())
    launched = (sum(kernels(each, repeated=0)) for each in (packed, plain))
    assert next(launched) - next(launched) == pytest.approx(3 * 2 * 7 * 32)


def test_chips_of_one_power_keep_up_the_same() -> None:
    """The data sheet of an RTX 6000 Ada has twice an L40's rate; both take 300 W."""
    l40, ada = device("l40"), device("rtx-6000-ada")
    kept = [reached(each, "bf16") * rate_of(each, "bf16") for each in (l40, ada)]
    assert kept[0] == pytest.approx(kept[1])


@pytest.mark.parametrize(("name", "share"), [("a100-sxm4-80g", 0.64), ("h100-sxm", 0.35)])
def test_flash_attention_2_is_slower_than_products(name: str, share: float) -> None:
    found = machine(name)
    assert found.attention == share
    assert found.rate * found.attention < product_rate(found)


def test_attention_waits_less_for_exponentials_on_chips_that_multiply_less() -> None:
    shares = []
    for name in ("a100-sxm4-80g", "l40s", "rtx-4090"):
        found = machine(name)
        shares.append(found.attention / found.reached)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1 / (1 + (1 / shares[0] - 1) / 4))
    turing = machine("t4")
    assert turing.attention == 0.65 * turing.reached


WIDE_BASE = {"weights": "fp32", "trainable": "fp32", "gradients": "fp32", "optimizer": "fp32"}
"""What peft's preparation makes of all that is not in 4 bits."""
PACKED = lora(LARGE, quantization=nf4(), sequence=1024)
PLAIN = lora(LARGE, sequence=1024)


def test_a_stream_in_fp32_is_cast_around_every_product() -> None:
    wide, narrow = layout(**WIDE_BASE, autocast=True), layout(**BF16_LORA, autocast=True)
    read, written = 6 * 4096 + 14336, 3 * 4096 + 2 * 1024 + 2 * 14336
    found = converted_bytes(PACKED, wide.states, "text")
    assert found == 1024 * 32 * (read + written) * (4 + 2)
    assert converted_bytes(PACKED, narrow.states, "text") == 0
    # without quantisation, a product under autocast reads the stream and answers in 16 bits
    plain = converted_bytes(PLAIN, wide.states, "text")
    assert plain == 1024 * 32 * 5 * 4096 * (4 + 2)


def test_attention_and_head_in_fp32_run_without_tensor_cores() -> None:
    wide, narrow = layout(**WIDE_BASE), layout(**WIDE_BASE, autocast=True)
    assert is_wide(PACKED, wide.states)
    assert not is_wide(PACKED, narrow.states)
    assert not is_wide(PLAIN, wide.states)
    done, work = operations(PACKED), work_of(PACKED, wide)
    head = 2 * 1024 * 128256 * 4096
    assert work.wide == done.scores.forward + done.scores.backward + 2 * head
    assert work.attention == 0
    assert work.forward.operations == done.forward - done.scores.forward - head
    seconds = compute(work, machine("a100-sxm4-80g"))["wide products"]
    assert seconds == work.wide / (FITTED.single * 19.5e12)


def test_expansion_waits_for_cores_or_for_memory() -> None:
    work = work_of(PACKED, layout(**BF16_LORA, autocast=True))
    on = machine("a100-sxm4-80g")
    cores = compute(work, on)["dequantization"]
    assert cores == 2 * FITTED.expansion * work.expanded / on.single
    fast = compute(work, replace(on, single=1e18))["dequantization"]
    assert fast == work.dequantized / on.bandwidth
    assert fast < cores
    assert compute(work, replace(on, single=0))["dequantization"] > fast


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
    ahead = layout(engine="deepspeed", stage=1, world=2, overlap_comm=True, accumulation=4)
    assert hooks(full(LARGE), ahead) == tensors / 4
    on, work = machine("a100-sxm4-80g"), work_of(full(LARGE), two)
    assert compute(work, on)["gradient hooks"] == FITTED.hook * tensors


def test_gradients_are_carried_to_the_host_one_by_one() -> None:
    on, tensors = machine("a100-sxm4-80g"), sum(module.copies for module in LARGE.modules)
    there = {"engine": "deepspeed", "world": 1, "offload_optimizer": "cpu", "accumulation": 4}
    one, two, three = (layout(stage=stage, **there) for stage in (1, 2, 3))
    assert carried(full(LARGE), one) == tensors / 4
    assert carried(full(LARGE), two) == carried(full(LARGE), three) == tensors
    assert carried(full(LARGE), layout(engine="deepspeed", stage=2, world=2)) == 0
    hooked = compute(work_of(full(LARGE), two), on)["gradient hooks"]
    assert hooked == pytest.approx((FITTED.hook + 6 * FITTED.kernel) * tensors)


def test_half_of_the_last_wave_has_no_tile() -> None:
    one, ten = (Product(256 * rows, 128 * 27, 1, 1.0) for rows in (4, 40))
    assert slowed((ten,), 108) == pytest.approx(1.05)
    assert 1.05 < slowed((one,), 108) < 1.5  # smaller tiles, each slower, fill the wave better
    assert slowed((one,), 0) == 1
    assert slowed((), 108) == 1


def test_experts_in_a_loop_add_to_their_tokens_one_by_one() -> None:
    one_pass = scattered(full(GRANITE, sequence=512, versions=BEFORE))
    assert one_pass == 512 * 2 * 2 * 256  # tokens, layers, active experts, width
    assert scattered(full(GRANITE, sequence=512, versions=SINCE)) == 0
    for checkpointed, passes in ((False, 2), (True, 3)):
        work = work_of(
            full(GRANITE, sequence=512, versions=BEFORE), layout(checkpointed=checkpointed)
        )
        assert work.scattered == passes * one_pass


def test_projections_together_launch_what_they_launch_apart() -> None:
    config = {**LLAMA_32_1B, "model_type": "phi3", "num_key_value_heads": 32}
    apart, together = model({**config, "model_type": "llama"}), model(config)
    assert len(together.modules) == len(apart.modules) - 3
    assert kernels(full(together), repeated=0) == kernels(full(apart), repeated=0)


def test_micro_batches_add_their_gradients() -> None:
    workload = full(LARGE)
    trained = 2 * sum(prod(module.shape) * module.copies for module in LARGE.modules)
    plain = {"trainable": "bf16", "gradients": "bf16"}
    zero = {"engine": "deepspeed", "world": 4, **plain}
    assert accumulated_bytes(workload, layout(accumulation=1, **plain)) == 0
    assert accumulated_bytes(workload, layout(accumulation=4, **plain)) == 3 * 3 / 4 * trained
    whole = accumulated_bytes(workload, layout(accumulation=4, stage=1, **zero))
    assert accumulated_bytes(workload, layout(accumulation=4, stage=2, **zero)) == whole / 4
    joined = layout(accumulation=4, engine="fsdp", world=2, fsdp=FSDP_1, **plain)
    assert accumulated_bytes(workload, joined) == (3 * 3 / 4 + 2) * trained


@pytest.mark.parametrize("columns", [64, 1024, 1025, 4096, 14336])
@pytest.mark.parametrize("together", [1, 8])
def test_more_rows_together_are_never_slower_than_apart(columns: int, together: int) -> None:
    """What the search's bound rests on."""
    each = [slowed((Product(n, columns, together, 1.0),), 108) for n in range(1, 5000, 7)]
    for apart, joined in pairwise(each):
        assert joined <= apart * (1 + 1e-12)
    assert each[0] > 2 * each[-1]


def test_few_rows_leave_units_idle_unless_experts_are_taken_together() -> None:
    alone, together = (Product(256, 1024, 1, 1.0),), (Product(256, 1024, 40, 1.0),)
    # 256 x 1024 are 64 tiles of 64 x 64, more than half a wave
    waves = 64 / 108 + 0.5
    assert slowed(alone, 108) == pytest.approx(waves * 108 / 64 * pace(256, 128) / pace(64, 64))
    assert slowed(together, 108) < 1.2


def pace(rows: int, columns: int) -> float:
    return rows * columns / (rows * columns + 24 * (rows + columns))


def test_products_have_the_rows_that_meet_them() -> None:
    frozen = products_of(lora(LARGE, sequence=512), 2, 1)
    rows = 2 * 512
    assert {each.rows for each in frozen.forward + frozen.backward} == {rows}
    assert {each.columns for each in frozen.forward} == {1024, 4096, 14336, 128256}
    assert {each.columns for each in frozen.layers} == {1024, 4096, 14336}
    assert {each.columns for each in frozen.backward} == {4096, 14336}
    done = operations(lora(LARGE, sequence=512))
    weighed = 2 * sum(each.operations for each in frozen.forward)
    assert weighed == 2 * (done.forward - done.scores.forward)
    # a trained weight's gradient has the shape of the weight
    trained = products_of(full(LARGE, sequence=512), 2, 1)
    assert {each.rows for each in trained.backward} == {rows, 1024, 4096, 14336, 128256}
    assert {each.columns for each in products_of(lora(LARGE, sequence=512), 2, 2).forward} == {
        each // 2 for each in (1024, 4096, 14336, 128256)
    }


def test_experts_meet_their_share_of_the_tokens() -> None:
    loop = products_of(full(GRANITE, sequence=512, versions=BEFORE), 1, 1)
    grouped = products_of(full(GRANITE, sequence=512, versions=SINCE), 1, 1)
    share = 512 * 2 // 8
    assert {each.together for each in loop.forward} == {1}
    assert {(each.rows, each.together) for each in grouped.forward} == {(512, 1), (share, 8)}
    assert slowed(loop.forward, 108) > slowed(grouped.forward, 108)
