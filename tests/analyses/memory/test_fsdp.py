"""What accelerate and torch make of FSDP, by release and by how layers are recomputed."""

from dataclasses import replace

import pytest
from workload_builders import BF16_LORA, FSDP_1, LLAMA_3_8B, layout, lora, model, nf4

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.analyses.memory.workload import Workload

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


def test_torchs_fsdp_1_holds_them() -> None:
    """The real thing, on two ranks in which collectives do nothing: bytes of a layer more."""
    pytest.importorskip("torch")
    from fsdp_1_on_cpu import layer_bytes

    assert layer_bytes(reentrant=True) == pytest.approx(2, abs=0.05)
    assert layer_bytes(reentrant=False) == pytest.approx(1, abs=0.05)
