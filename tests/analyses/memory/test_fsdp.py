"""What accelerate and torch make of FSDP, by release and by how layers are recomputed."""

from copy import copy

import pytest
from workload_builders import BF16_LORA, FSDP_1, LLAMA_3_8B, full, layout, lora, model, nf4

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.passes.fit.states import states_of
from tunec.schemas.frozen import replace

MODEL = model(LLAMA_3_8B)
FSDP_2 = replace(FSDP_1, version=2)
MIXED_LORA = BF16_LORA | {"autocast": True}


def sharded(workload: Workload, *, reentrant: bool = False, fsdp=FSDP_2) -> Account:
    plan = layout(2, checkpointed=True, engine="fsdp", world=8, fsdp=fsdp, **MIXED_LORA)
    again = replace(plan.activation_checkpointing, reentrant=reentrant)
    return account(workload, replace(plan, activation_checkpointing=again))


@pytest.mark.parametrize(
    ("release", "wider"),
    [("1.5.2", 1), ("1.6.0", 2), ("1.10.1", 2), ("1.12.0", 2), ("1.13.0", 1), ("1.15.0", 1)],
)
def test_a_frozen_base_is_fp32_by_some_releases_of_accelerate(release: str, wider: int) -> None:
    """Issue 3844 of accelerate: FSDP 2 with LoRA takes more than FSDP 1."""
    newest = sharded(lora(MODEL)).phases["optimizer step"]["frozen weights"]
    found = sharded(lora(MODEL, versions=(("accelerate", release),)))
    assert found.phases["optimizer step"]["frozen weights"] == wider * newest
    first = sharded(lora(MODEL, versions=(("accelerate", release),)), fsdp=FSDP_1)
    assert first.phases["optimizer step"]["frozen weights"] == newest


def test_frozen_units_of_version_1_hold_layer_inputs_where_recomputation_is_reentrant() -> None:
    """Two tensors of the hidden width for each token and layer but the first."""
    plain = sharded(lora(MODEL), fsdp=FSDP_1).phases["first layer backward"]
    found = sharded(lora(MODEL), fsdp=FSDP_1, reentrant=True).phases["first layer backward"]
    more = {name: size for name, size in found.items() if name not in plain}
    each = 31 * 2 * MODEL.hidden * 2 * 2048
    assert more == {"retained layer inputs": each, "gradients of layer inputs": each}


def test_version_2_and_trained_units_hold_none() -> None:
    found = sharded(lora(MODEL, quantization=nf4()), reentrant=True)
    assert "retained layer inputs" not in found.phases["first layer backward"]


def test_a_packed_base_is_split_and_its_scales_are_not() -> None:
    packed = replace(nf4(double=False), storage="bf16")
    found = sharded(lora(MODEL, quantization=packed)).phases["optimizer step"]
    more = sharded(lora(MODEL, quantization=nf4(double=False)), fsdp=FSDP_1)
    elements = sum(m.parameters for m in MODEL.modules if m.kind == "linear" and "{}" in m.path)
    assert found["scales of packed weights"] == elements * 4 / 64
    assert more.phases["optimizer step"]["scales of packed weights"] == elements * 4 / 64


@pytest.mark.parametrize("workload", [full(MODEL), lora(MODEL)], ids=["full", "lora"])
def test_modules_are_told_apart_by_what_they_are(workload: Workload) -> None:
    """A process that lives long derives a model twice, and a plan may hold modules of both."""
    trained, adapted = (tuple(map(copy, e)) for e in (workload.trained, workload.adapted))
    again = replace(workload, trained=trained, adapted=adapted)
    assert sharded(again).phases == sharded(workload).phases


def test_replicas_keep_what_they_summed_to_the_end_of_the_pass() -> None:
    """A 16-bit share of all gradients beside the fp32 one, gone when the optimizer steps."""
    mixed = BF16_LORA | {"autocast": True}
    hybrid = replace(FSDP_2, sharding="hybrid")
    plans = (
        layout(checkpointed=True, engine="fsdp", world=8, fsdp=FSDP_2, **mixed),
        layout(checkpointed=True, engine="fsdp", world=16, nodes=2, fsdp=hybrid, **mixed),
    )
    one, two = (account(full(MODEL), plan).phases for plan in plans)
    assert two["optimizer step"] == one["optimizer step"]
    before, after = one["first layer backward"], two["first layer backward"]
    assert after["gradients"] > 1.4 * before["gradients"]


def test_version_1_copies_nothing_that_it_does_not_split() -> None:
    whole = replace(FSDP_1, sharding="none")
    pure = account(full(MODEL), layout(engine="fsdp", world=2, fsdp=whole))
    assert "gathered parameters" not in pure.phases["loss backward"]
    mixed = layout(engine="fsdp", world=2, fsdp=whole, **BF16_LORA, autocast=True)
    assert account(full(MODEL), mixed).phases["loss backward"]["gathered parameters"] > 0


def test_version_1_holds_the_ends_gradients_to_the_end() -> None:
    """The output projection's from the loss on; at the end both, and what joins them."""
    mixed = BF16_LORA | {"autocast": True}
    found = account(full(MODEL), layout(engine="fsdp", world=8, fsdp=FSDP_1, **mixed)).phases
    head = 2 * MODEL.vocab * MODEL.hidden
    assert found["first layer backward"]["largest gradient"] == head
    end = found["embedding backward"]
    assert end["largest gradient"] == end["reduced copy"] == end["gathered parameters"]
    assert end["largest gradient"] == pytest.approx(2 * head, rel=1e-4)


def test_gathering_ahead_has_two_layers_whole() -> None:
    mixed = BF16_LORA | {"autocast": True}
    sizes = [
        account(full(MODEL), layout(engine="fsdp", world=8, fsdp=fsdp, **mixed)).phases
        for fsdp in (FSDP_1, replace(FSDP_1, backward_prefetch="none"))
    ]
    layer = [each["last layer backward"]["gathered parameters"] for each in sizes]
    inside = MODEL.parameters - 2 * MODEL.vocab * MODEL.hidden
    assert layer[0] - layer[1] == pytest.approx(2 * inside / 32, rel=1e-3)


def test_ends_in_the_root_unit_are_gathered_twice_before_accelerate_1_14() -> None:
    old = full(MODEL, versions=(("accelerate", "1.13.0"),))
    plan = layout(engine="fsdp", world=8, fsdp=FSDP_2, autocast=True)
    found = account(old, plan).phases
    ends = 2 * 2 * MODEL.vocab * MODEL.hidden
    again = found["root gathering backward"]
    assert again["gather buffer"] == again["gathered parameters"]
    assert again["gather buffer"] == pytest.approx(ends, rel=1e-4)
    assert "root gathering backward" not in account(full(MODEL), plan).phases


def test_shards_on_the_host_are_pinned_in_powers_of_two() -> None:
    """Eight ranks split 14336 x 4096 into 28 MiB in fp32, which take 32, and others evenly."""
    away = replace(FSDP_2, offload_params=True)
    host = account(full(MODEL), layout(engine="fsdp", world=8, fsdp=away, **BF16_LORA)).host
    held = host.phases["training"]["offloaded parameters"] / (4 * MODEL.parameters)
    assert 1.05 < held < 2
    assert host.phases["training"]["offloaded optimizer states"] == 8 * MODEL.parameters


def test_torchs_fsdp_1_holds_them() -> None:
    """The real thing, on two ranks in which collectives do nothing: bytes of a layer more."""
    pytest.importorskip("torch")
    from fsdp_1_on_cpu import layer_bytes

    assert layer_bytes(reentrant=True) == pytest.approx(2, abs=0.05)
    assert layer_bytes(reentrant=False) == pytest.approx(1, abs=0.05)


def test_accelerate_1_13_makes_nothing_fp32_under_version_2() -> None:
    """Its loop rebinds a name; run with accelerate 1.13.0, shards and moments were bf16."""
    workload = full(MODEL)
    for release, version, dtype in (
        ("1.12.0", 2, "fp32"),
        ("1.13.0", 2, "bf16"),
        ("1.13.0", 1, "fp32"),
        ("1.14.0", 2, "fp32"),
    ):
        named = replace(workload, versions=(("accelerate", release),))
        found = states_of(named, "fsdp", 0, fsdp=version)
        assert (found.trainable, found.gradients, found.optimizer) == (dtype,) * 3, release
