"""What must hold for every account, whatever its numbers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload_builders import (
    BF16_LORA,
    FP32,
    LLAMA_3_8B,
    LLAMA_32_1B,
    MIXED,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.memory.account import Account, account, largest_micro_batch
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import card
from tunec.schemas.units import GIB

SMALL, LARGE = model(LLAMA_32_1B), model(LLAMA_3_8B)
KERNELS = st.sampled_from(["sdpa", "eager", "flash_attention_2"]).map(AttentionKernel)


@st.composite
def workloads(draw: st.DrawFn, **fixed: Any) -> Workload:
    changes: dict[str, Any] = {
        "sequence": draw(st.sampled_from([256, 1024, 4096])),
        "packing": draw(st.booleans()),
        "attention": draw(KERNELS),
        "loss": draw(st.sampled_from(["full", "fused", "chunked"])),
        "kernel": draw(st.sampled_from(["loop", "foreach", "fused"])),
    } | fixed
    architecture = draw(st.sampled_from([SMALL, LARGE]))
    if draw(st.booleans()):
        return full(architecture, **changes)
    quantization = {"quantization": nf4(double=draw(st.booleans()))} if draw(st.booleans()) else {}
    rank = changes.pop("rank", draw(st.sampled_from([4, 16, 64])))
    return lora(
        architecture, rank=rank, dropout=draw(st.sampled_from([0, 0.1])), **quantization, **changes
    )


@st.composite
def layouts(draw: st.DrawFn, **fixed: Any) -> Layout:
    engine = draw(st.sampled_from(["none", "ddp", "deepspeed"]))
    changes: dict[str, Any] = {
        "checkpointed": draw(st.booleans()),
        "accumulation": draw(st.sampled_from([1, 4])),
        "evaluation": draw(st.sampled_from([1, 8])),
        "engine": engine,
        "world": draw(st.sampled_from([2, 8])) if engine != "none" else 1,
        "autocast": draw(st.booleans()),
        "overlap_comm": draw(st.booleans()),
        "contiguous_gradients": draw(st.booleans()),
    }
    changes |= draw(st.sampled_from([MIXED, FP32, BF16_LORA, {}]))
    if engine == "deepspeed":
        changes["stage"] = draw(st.sampled_from([0, 1, 2, 3]))
        if changes["stage"]:
            changes["offload_optimizer"] = draw(st.sampled_from(["none", "cpu", "nvme"]))
        if changes["stage"] == 3:
            changes["offload_param"] = draw(st.sampled_from(["none", "cpu", "nvme"]))
    changes |= fixed
    return layout(draw(st.integers(1, 64)), **changes)


def with_micro(plan: Layout, micro: int) -> Layout:
    return replace(plan, batch=replace(plan.batch, micro=micro))


@given(workloads(), layouts())
def test_terms_are_positive_and_add_up(workload: Workload, plan: Layout) -> None:
    found = account(workload, plan)
    assert all(size > 0 for terms in found.phases.values() for size in terms.values())
    sums = {name: sum(terms.values()) for name, terms in found.phases.items()}
    assert found.peak_bytes == sums[found.peak_phase] == max(sums.values())
    assert sum(found.terms.values()) == found.peak_bytes
    assert list(found.terms.values()) == sorted(found.terms.values(), reverse=True)
    assert found.required_bytes == found.peak_bytes + sum(found.margin.values())
    assert found.required_bytes > found.peak_bytes


@given(workloads(), layouts(), st.integers(1, 64))
def test_more_samples_take_more(workload: Workload, plan: Layout, more: int) -> None:
    larger = with_micro(plan, plan.batch.micro + more)
    assert account(workload, larger).peak_bytes >= account(workload, plan).peak_bytes


@given(st.data(), layouts())
def test_longer_samples_take_more(data: st.DataObject, plan: Layout) -> None:
    workload = data.draw(workloads())
    longer = replace(workload, data=replace(workload.data, sequence=workload.data.sequence + 512))
    assert account(longer, plan).peak_bytes >= account(workload, plan).peak_bytes


@given(layouts(), st.sampled_from([4, 16, 64]), st.integers(1, 64))
def test_a_higher_rank_takes_more(plan: Layout, rank: int, more: int) -> None:
    """Where none stays whole for being small: matrices of a lower rank would."""
    plan = replace(plan, zero=replace(plan.zero, persistence_threshold=0))
    lower, higher = lora(SMALL, rank=rank), lora(SMALL, rank=rank + more)
    assert account(higher, plan).peak_bytes >= account(lower, plan).peak_bytes


def test_the_rank_shows_where_nothing_is_offloaded() -> None:
    found = [account(lora(SMALL, rank=r), layout(**BF16_LORA)).peak_bytes for r in (8, 16, 32)]
    assert found[0] < found[1] < found[2]


@given(workloads(), layouts(engine="deepspeed", world=2), st.sampled_from([1, 2, 3]))
def test_more_ranks_never_take_more_from_stage_1(
    workload: Workload, plan: Layout, stage: int
) -> None:
    sharded = replace(plan, zero=replace(plan.zero, stage=stage))
    more = replace(sharded, parallel=replace(sharded.parallel, world=16, data=16))
    assert without_copies(account(workload, more)) <= without_copies(account(workload, sharded))


def without_copies(found: Account) -> int:
    """The peak but for what a reduction concatenates: a tensor that several ranks own is copied,
    one that a single rank owns is not (deepspeed 0.19.8 runtime/zero/stage_1_and_2.py
    `allreduce_and_scatter`), so that more ranks can take more there."""
    return max(
        sum(size for name, size in terms.items() if name != "reduced copy")
        for terms in found.phases.values()
    )


STATES = ("frozen weights", "trained weights", "adapters", "optimizer states", "master weights")


def states_bytes(found: Account) -> int:
    return sum(found.phases["loss forward"].get(name, 0) for name in STATES)


@given(
    workloads(),
    layouts(
        engine="deepspeed",
        world=8,
        offload_optimizer="none",
        offload_param="none",
        master_weights=True,
    ),
    st.sampled_from([0, 1, 2]),
)
def test_a_higher_stage_never_holds_more_state(
    workload: Workload, plan: Layout, stage: int
) -> None:
    lower = replace(plan, zero=replace(plan.zero, stage=stage))
    higher = replace(plan, zero=replace(plan.zero, stage=stage + 1))
    assert states_bytes(account(workload, higher)) <= states_bytes(account(workload, lower))


@given(
    workloads(),
    layouts(engine="deepspeed", world=8, offload_optimizer="none", offload_param="none"),
    st.sampled_from([1, 2, 3]),
)
def test_offload_moves_memory_to_the_host(workload: Workload, plan: Layout, stage: int) -> None:
    kept = replace(plan, zero=replace(plan.zero, stage=stage))
    moved = replace(plan, zero=replace(plan.zero, stage=stage, offload_optimizer="cpu"))
    here, there = account(workload, kept), account(workload, moved)
    # all that offload adds on the device: room for one gradient on its way, at stages 1 and 2,
    # which an optimizer without state does not win back
    room = there.terms.get("gradient buckets", 0) - here.terms.get("gradient buckets", 0)
    assert room == 0 or stage < 3
    assert there.peak_bytes <= here.peak_bytes + max(room, 0)
    assert sum(there.host.phases["training"].values()) > sum(here.host.phases["training"].values())


@given(workloads(), layouts(evaluation=1), st.integers(4, 160))
def test_the_largest_micro_batch_is_the_largest(
    workload: Workload, plan: Layout, budget: int
) -> None:
    most = largest_micro_batch(workload, plan, budget * GIB)
    if most:
        assert trains_in(workload, with_micro(plan, most), budget * GIB)
    if most < 100_000:
        assert not trains_in(workload, with_micro(plan, most + 1), budget * GIB)


def trains_in(workload: Workload, plan: Layout, budget: int) -> bool:
    """Whether an account without its evaluation fits."""
    found = account(workload, plan)
    training = tuple(line for line in found.lines if not line.evaluates)
    peak = max(line.at(plan.batch.micro) for line in training)
    alone = replace(found, lines=training, peak_bytes=peak)
    return alone.required_bytes <= budget + 1024


@given(workloads(), layouts())
def test_checkpointing_never_takes_more(workload: Workload, plan: Layout) -> None:
    mode = plan.activation_checkpointing
    without = replace(plan, activation_checkpointing=replace(mode, mode="none"))
    within = replace(plan, activation_checkpointing=replace(mode, mode="layer"))
    assert account(workload, within).peak_bytes <= account(workload, without).peak_bytes


def test_double_quantisation_takes_0_5159_bytes_an_element() -> None:
    workload = lora(LARGE, quantization=nf4())
    found = account(workload, layout(**BF16_LORA)).phases["optimizer step"]["frozen weights"]
    embeddings = 2 * (2 * LARGE.vocab * LARGE.hidden + (2 * 32 + 1) * LARGE.hidden)
    linear = LARGE.parameters - embeddings // 2
    assert (found - embeddings) / linear == pytest.approx(0.5159, abs=0.0001)


def test_a_trained_module_beside_an_adapter_is_kept_twice() -> None:
    embedding = tuple(m for m in LARGE.modules if m.path == LARGE.embedding)
    without = account(lora(LARGE), layout()).phases["optimizer step"]
    beside = account(lora(LARGE, also_train=embedding), layout()).phases["optimizer step"]
    assert beside["frozen weights"] == without["frozen weights"]
    assert beside["trained weights"] == 2 * LARGE.vocab * LARGE.hidden


def test_only_adapters_become_fp32() -> None:
    """peft leaves a module in `modules_to_save` in the base's dtype; torch's states follow it."""
    embedding = tuple(m for m in LARGE.modules if m.path == LARGE.embedding)
    plan = layout(**BF16_LORA)
    without = account(lora(LARGE), plan).phases["optimizer step"]
    beside = account(lora(LARGE, also_train=embedding), plan).phases["optimizer step"]
    elements = LARGE.vocab * LARGE.hidden
    assert beside["trained weights"] == 2 * elements
    assert beside["gradients"] - without["gradients"] == 2 * elements
    assert beside["optimizer states"] - without["optimizer states"] == 4 * elements


def test_llamafactory_widens_what_is_trained_beside_adapters() -> None:
    """Its model/adapter.py `init_adapter` casts every trained parameter to fp32."""
    embedding = tuple(m for m in LARGE.modules if m.path == LARGE.embedding)
    plan, versions = layout(**BF16_LORA), (("llamafactory", "0.9.5"),)
    without = account(lora(LARGE, versions=versions), plan).phases["optimizer step"]
    found = account(lora(LARGE, versions=versions, also_train=embedding), plan)
    beside, elements = found.phases["optimizer step"], LARGE.vocab * LARGE.hidden
    assert beside["trained weights"] == 4 * elements
    assert beside["gradients"] - without["gradients"] == 4 * elements
    assert beside["optimizer states"] - without["optimizer states"] == 8 * elements


@pytest.mark.parametrize(
    ("name", "bytes_an_element"),
    [("adamw", 4), ("adamw_8bit", 2.42), ("adamw_bf16", 6), ("lion", 2), ("sgd", 0)],
)
def test_optimizer_states(name: str, bytes_an_element: float) -> None:
    dtype = "int8" if name == "adamw_8bit" else "bf16"
    found = account(full(LARGE, name=name), layout(optimizer=dtype)).phases["optimizer step"]
    per_element = found.get("optimizer states", 0) / LARGE.parameters
    assert per_element == pytest.approx(bytes_an_element, abs=0.01)


def test_adafactor_keeps_sums_of_rows_and_columns() -> None:
    found = account(full(LARGE, name="adafactor"), layout()).phases["optimizer step"]
    assert found["optimizer states"] < 0.005 * 2 * LARGE.parameters


def test_kept_evaluation_logits_count() -> None:
    """Those that wait are joined to a new tensor, and come from all ranks."""
    workload, one = full(SMALL, kept_evaluation_batches=10), full(SMALL, kept_evaluation_batches=1)
    each = 2 * 2048 * SMALL.vocab * 2
    plan, four = layout(evaluation=2), layout(evaluation=2, engine="ddp", world=4)
    kept = "kept evaluation logits"
    assert account(one, plan).phases["evaluation"][kept] == each
    assert account(workload, plan).phases["evaluation"][kept] == 2 * 10 * each
    assert account(workload, four).phases["evaluation"][kept] == 4 * 2 * 10 * each
    autocast = layout(evaluation=2, autocast=True)
    assert account(one, autocast).phases["evaluation"][kept] == 2 * each


def test_a_padded_batch_costs_sdpa_a_mask() -> None:
    packed, padded = full(LARGE, packing=True), full(LARGE, packing=False)
    assert account(padded, layout(1)).peak_bytes == account(packed, layout(1)).peak_bytes
    assert account(padded, layout(2)).peak_bytes > account(packed, layout(2)).peak_bytes


def test_what_encodes_the_data_is_gone_before_training():
    """Text encoders and VAE: a moment of their own, and its peak where they are larger."""
    known = card("sd3-medium")
    denoiser, encoders = derive(known.config), tuple(derive(c.config) for c in known.components)
    pictures = {"images": 1, "image_width": 512, "image_height": 512, "sequence": 0}
    plan = layout(mode="layer", **BF16_LORA)
    alone = account(lora(denoiser, targets=("to_q",), **pictures), plan)
    found = account(replace(alone.workload, components=encoders), plan)
    assert found.phases["optimizer step"] == alone.phases["optimizer step"]
    [ahead] = found.phases["encoding ahead"].values()
    assert ahead == 2 * sum(each.parameters for each in encoders)
    assert found.peak_phase == "encoding ahead"
    assert found.peak_bytes == ahead > alone.peak_bytes
    assert "encoding ahead" not in alone.phases
