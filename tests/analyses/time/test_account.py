"""What must hold for every time account, and the terms that single layouts bring."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.machines import A100
from workload_builders import (
    BF16_LORA,
    LLAMA_3_8B,
    LLAMA_32_1B,
    MIXED,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.analyses.time.communication import (
    gradient_bytes,
    parameter_bytes,
    rearranged_bytes,
)
from tunec.compiler.analyses.time.flops import operations
from tunec.compiler.analyses.time.kernels import exchanging
from tunec.compiler.analyses.time.machine import machine_of, rate_of
from tunec.compiler.analyses.time.update import UpdateTraffic, moved_of, update
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster, device

SMALL, LARGE = model(LLAMA_32_1B), model(LLAMA_3_8B)
MACHINE = replace(A100, nvme_read=6e9, nvme_write=3e9, per_node=8)
DEEPSPEED: dict[str, Any] = {"engine": "deepspeed", "world": 8, **MIXED}


def timed(**changes: Any) -> TimeAccount:
    return step_time(full(LARGE), layout(**DEEPSPEED | changes), MACHINE)


@given(
    st.integers(1, 32),
    st.integers(1, 8),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from(["none", "cpu"]),
    st.booleans(),
    st.booleans(),
)
def test_terms_are_positive_and_add_up(
    micro: int, accumulation: int, stage: int, place: str, checkpointed: bool, overlap: bool
) -> None:
    plan = layout(
        micro,
        accumulation=accumulation,
        stage=stage,
        offload_optimizer=place if stage else "none",
        checkpointed=checkpointed,
        overlap_comm=overlap,
        **DEEPSPEED,
    )
    found = step_time(full(LARGE), plan, MACHINE)
    assert all(seconds > 0 for seconds in found.terms.values())
    assert sum(found.terms.values()) == pytest.approx(found.step_seconds)
    assert found.samples == micro * accumulation * 8
    assert found.samples_per_second == pytest.approx(found.samples / found.step_seconds)
    assert found.tokens_per_second == pytest.approx(2048 * found.samples_per_second)


@pytest.mark.parametrize("changes", [{}, {"stage": 2}, {"stage": 3}, {"checkpointed": True}])
def test_larger_micro_batches_are_faster_a_sample(changes: dict[str, Any]) -> None:
    rates = [timed(micro=micro, **changes).samples_per_second for micro in (1, 2, 8, 32)]
    assert rates == sorted(rates)


def test_training_takes_six_operations_a_weight_and_token() -> None:
    done = operations(full(LARGE, sequence=512))
    weights = LARGE.parameters - LARGE.vocab * LARGE.hidden
    assert (done.forward + done.backward) / 512 == pytest.approx(6 * weights, rel=0.03)


def test_a_frozen_base_takes_four() -> None:
    done = operations(lora(LARGE, sequence=512))
    weights = LARGE.parameters - LARGE.vocab * LARGE.hidden
    assert (done.forward + done.backward) / 512 == pytest.approx(4 * weights, rel=0.03)


def test_checkpointing_costs_up_to_a_third() -> None:
    kept = step_time(full(LARGE), layout(8), MACHINE).step_seconds
    repeated = step_time(full(LARGE), layout(8, checkpointed=True), MACHINE).step_seconds
    assert 1.2 < repeated / kept < 1.34


def test_only_active_experts_compute() -> None:
    mixtral = model(
        LLAMA_3_8B
        | {
            "model_type": "mixtral",
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
        }
    )
    done = operations(full(mixtral, sequence=512))
    assert mixtral.parameters == pytest.approx(46.7e9, rel=0.01)
    # 12.9 billion active parameters (arXiv 2401.04088, section 2), embeddings counted.
    assert done.forward / 512 / 2 == pytest.approx(12.9e9 - 32000 * 4096, rel=0.02)


def test_attention_grows_with_the_square_of_the_sequence() -> None:
    short, long = (operations(full(SMALL, sequence=s)) for s in (8192, 16384))
    weights = 2 * (SMALL.parameters)
    assert long.forward - 16384 * weights == pytest.approx(
        4 * (short.forward - 8192 * weights), rel=0.01
    )


def test_a_sliding_window_saves_scores() -> None:
    config = LLAMA_3_8B | {"model_type": "mistral", "vocab_size": 32000}
    whole = operations(full(model(config, sliding_window=None), sequence=32768))
    windowed = full(model(config, sliding_window=4096), sequence=32768)
    flash = replace(windowed, attention=AttentionKernel("flash_attention_2"))
    assert operations(flash).forward < 0.75 * whole.forward
    # torch's own kernel reads it as a mask, behind which it computes everything
    assert operations(windowed).forward > 1.25 * whole.forward


def moved(stage: int, **changes: Any) -> float:
    """Bytes a parameter that a ring carries in one step."""
    plan = layout(stage=stage, **DEEPSPEED | changes)
    counts = count(full(LARGE))
    return (gradient_bytes(counts, plan) + parameter_bytes(counts, plan)) / counts.base


def test_volumes_are_those_of_the_zero_paper() -> None:
    """2, 2, 2 and 3 parameters' worth a step, of 2 bytes each (arXiv 1910.02054, section 7)."""
    assert [moved(stage) / 2 for stage in (0, 1, 2, 3)] == [2, 2, 2, 3]


def test_stages_2_and_3_exchange_in_every_micro_batch() -> None:
    assert [moved(stage, accumulation=4) / 2 for stage in (0, 1, 2, 3)] == [2, 2, 5, 12]


def test_stage_3_is_slower_than_stage_2_than_stage_1() -> None:
    seconds = [timed(stage=stage, micro=4, accumulation=4).step_seconds for stage in (1, 2, 3)]
    assert seconds == sorted(seconds)
    assert "parameter exchange" not in timed(stage=0).terms


def test_stage_1_and_an_all_reduce_move_the_same() -> None:
    """A reduce-scatter and an all-gather are an all-reduce (arXiv 1910.02054, section 7.1)."""
    one, zero = timed(stage=1, overlap_comm=False), timed(stage=0, overlap_comm=False)
    exchanged = one.terms["gradient exchange"] + one.terms["parameter exchange"]
    assert exchanged == pytest.approx(zero.terms["gradient exchange"])


def test_overlap_hides_gradients_but_for_the_last_bucket() -> None:
    bucket, trained = 500_000_000, count(full(LARGE)).trainable
    sent = {"stage": 2, "micro": 16, "reduce_bucket": bucket}
    hidden = timed(**sent, overlap_comm=True).terms["gradient exchange"]
    shown = timed(**sent, overlap_comm=False).terms["gradient exchange"]
    assert hidden == pytest.approx(bucket / trained * shown)
    sent["reduce_bucket"] = trained
    assert timed(**sent, overlap_comm=True).terms["gradient exchange"] == pytest.approx(shown)


def test_those_that_share_a_sequence_copy_what_they_exchange() -> None:
    assert rearranged_bytes(full(LARGE), 1) == 0
    each = 2048 * 32 * 128 * (3 * 32 + 4 * 8)  # tokens, layers, head, heads
    assert rearranged_bytes(full(LARGE), 2) == 2 * 2 * each
    assert sum(exchanging(full(LARGE), 2, repeated=1)) == (13 + 11 + 13) * 32
    assert not any(exchanging(full(LARGE), 1, repeated=1))


def test_the_network_decides_between_nodes() -> None:
    slow = replace(MACHINE, nodes=2, network=12.5e9)
    near = step_time(full(LARGE), layout(stage=3, **DEEPSPEED), MACHINE)
    far = step_time(full(LARGE), layout(stage=3, **DEEPSPEED), slow)
    assert far.terms["parameter exchange"] > 10 * near.terms["parameter exchange"]


def test_offload_is_slower_and_nvme_slowest() -> None:
    here = timed(stage=3)
    host = timed(stage=3, offload_optimizer="cpu")
    drive = timed(stage=3, offload_optimizer="nvme")
    assert here.step_seconds < host.step_seconds < drive.step_seconds
    assert {"host optimizer step", "offloaded gradients"} <= set(host.terms)
    assert "NVMe optimizer states" in drive.terms
    parameters = timed(stage=3, offload_optimizer="cpu", offload_param="cpu")
    assert parameters.terms["offloaded parameters"] > 0


def test_stage_3_makes_weights_narrow_on_the_host_with_the_threads_it_has() -> None:
    """Stage 2 does it on the device, and weights that stay on the host are not made anew."""
    on, off = {"offload_optimizer": "cpu"}, {"offload_param": "cpu"}
    three, two, away = (
        moved_of(full(SMALL), layout(**DEEPSPEED | on | asked))
        for asked in ({"stage": 3}, {"stage": 2}, {"stage": 3, **off})
    )
    assert three.narrowed == count(full(SMALL)).trainable
    assert two.narrowed == away.narrowed == 0
    one, eight = (_narrowing(three, threads) for threads in (1, 8))
    assert one == pytest.approx(8 * eight)
    assert 0.1 < one / (three.narrowed / 8 * 1e-9) < 10  # about a nanosecond each


def _narrowing(moved: UpdateTraffic, threads: int) -> float:
    on = replace(MACHINE, threads=threads)
    every = update(moved, on, 0.0)["host optimizer step"]
    return every - update(moved._replace(narrowed=0), on, 0.0)["host optimizer step"]


def test_nvme_needs_a_drive() -> None:
    bare = replace(MACHINE, nvme_read=0, nvme_write=0)
    plan = layout(stage=3, offload_optimizer="nvme", **DEEPSPEED)
    with pytest.raises(ValueError, match="the node has none"):
        step_time(full(LARGE), plan, bare)


def test_quantised_weights_are_expanded_in_every_pass() -> None:
    plain = step_time(lora(LARGE), layout(**BF16_LORA), MACHINE)
    four_bit = step_time(lora(LARGE, quantization=nf4()), layout(**BF16_LORA), MACHINE)
    again = step_time(
        lora(LARGE, quantization=nf4()), layout(checkpointed=True, **BF16_LORA), MACHINE
    )
    assert "dequantization" not in plain.terms
    assert again.terms["dequantization"] == pytest.approx(1.5 * four_bit.terms["dequantization"])


def test_foreach_steps_take_longer_than_fused() -> None:
    fused = step_time(full(LARGE), layout(), MACHINE).terms["optimizer step"]
    foreach = step_time(full(LARGE, kernel="foreach"), layout(), MACHINE).terms["optimizer step"]
    assert foreach == 3 * fused


def test_tensor_parallelism_exchanges_hidden_states() -> None:
    plan = layout(engine="deepspeed", world=4, data=1, tensor=4)
    found = step_time(full(LARGE), plan, MACHINE)
    assert found.terms["tensor parallel exchange"] > 0
    assert found.terms["forward"] < step_time(full(LARGE), layout(), MACHINE).terms["forward"]


def test_a_vision_tower_computes_on_its_patches() -> None:
    llava = model({"model_type": "llava"})
    text = tuple(m for m in llava.modules if m.part == "text" and m.kind == "linear")
    given = {"images": 1, "vision_tokens": 577, "image_tokens": 576, "sequence": 512}
    frozen = operations(lora(llava, adapted=text[:4], **given))
    trained = operations(full(llava, **given))
    blind = operations(full(llava, sequence=1088))
    tower = 2 * 577 * llava.by_part["vision"]
    assert trained.forward - blind.forward == pytest.approx(tower, rel=0.2)
    assert frozen.backward < trained.backward / 1.9


def test_machine_of_a_catalogue_cluster() -> None:
    found = cluster("dgx-a100-80g")
    node = found.nodes[0]
    card = device(node.accelerators[0].device)
    made = machine_of([card], node, found.network, nodes=2, per_node=8, dtype="bf16")
    assert made.rate == card.rates["bf16"] == 312e12
    assert made.link == node.link.bandwidth
    assert made.network == found.network.bandwidth
    assert made.nvme_read == node.host.nvme.read
    alone = machine_of([card], node, found.network, nodes=1, per_node=8, dtype="bf16")
    assert alone.network == 0


def test_the_slowest_device_decides() -> None:
    node = cluster("dgx-a100-80g").nodes[0]
    pair = [device("a100-sxm4-80g"), device("t4")]
    made = machine_of(pair, node, None, nodes=1, per_node=2, dtype="fp16")
    assert made.rate == device("t4").rates["fp16"]
    assert made.bandwidth == 0.75 * device("t4").bandwidth


def test_devices_without_a_link_go_through_the_host() -> None:
    node = cluster("dgx-a100-80g").nodes[0].model_copy(update={"link": None})
    card = device("a100-sxm4-80g")
    made = machine_of([card], node, None, nodes=1, per_node=2, dtype="bf16")
    assert made.link == 0.45 * card.pcie_bandwidth


def test_rates_of_emulated_dtypes_are_those_of_fp32() -> None:
    volta, ampere = device("v100-sxm2-16g"), device("a100-sxm4-80g")
    assert rate_of(volta, "bf16") == volta.rates["fp32"]
    assert rate_of(ampere, "fp32", tf32=True) == ampere.rates["tf32"]
    assert rate_of(ampere, "fp32") == ampere.rates["fp32"]
