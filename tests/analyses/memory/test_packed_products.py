"""What bitsandbytes' 4-bit products keep by release, traced with such products on Mistral."""

import pytest
from workload_builders import ATTENTION, BF16_LORA, MISTRAL_7B, layout, lora, model, nf4

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.layers import layer_saved

HIDDEN = 4096
MISTRAL = model(MISTRAL_7B)


def kept(version: str | None, *, prepared: bool) -> float:
    """Bytes a token that a layer keeps without its adapters."""
    versions = () if version is None else (("bitsandbytes", version),)
    workload = lora(MISTRAL, targets=ATTENTION, quantization=nf4(), versions=versions)
    weights = {"weights": "fp32"} if prepared else {}
    states = layout(**BF16_LORA | {"autocast": True} | weights).states
    return layer_saved(MISTRAL.stacks[0], arithmetic(workload, states, "text"), 1)


@pytest.mark.parametrize(("prepared", "widths"), [(True, 17), (False, 11)])
def test_products_kept_their_inputs_until_0_43_1(prepared: bool, widths: int) -> None:
    """Casts of five normed states, or the two states themselves, and the product of gate and up."""
    newest = kept(None, prepared=prepared)
    assert kept("0.43.1", prepared=prepared) - newest == widths * HIDDEN
    assert kept("0.43.2", prepared=prepared) == newest
