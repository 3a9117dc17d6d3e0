"""Layers recomputed in segments, with gaps, and with their inputs on the host."""

from typing import Any

import pytest
from tests.machines import A100
from workload_builders import BF16_LORA, LLAMA_32_1B, full, layout, lora, model

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.segments import SegmentedLayers, recomputed, repeated_share
from tunec.compiler.analyses.memory.terms.host import moved_activations
from tunec.compiler.analyses.time.account import step_time
from tunec.compiler.ir.slots import ActivationCheckpointing
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import card

SMALL = model(LLAMA_32_1B)
MACHINE = A100


def walked(layers: int, segment: int, gap: int) -> SegmentedLayers:
    """Which layers are recomputed, found by walking over them, as SimpleTuner does."""
    again = [place % (segment + gap) < segment for place in range(layers)]
    starts = [p for p in range(layers) if p % (segment + gap) == 0]
    last = sum(again[starts[-1] :])
    return SegmentedLayers(
        segments=len(starts),
        whole=again.count(False),
        first=min(segment, layers),
        last=last,
        tail=layers - starts[-1] - last,
    )


@pytest.mark.parametrize("layers", [1, 2, 7, 8, 57])
@pytest.mark.parametrize("segment", [1, 2, 3, 8, 60])
@pytest.mark.parametrize("gap", [0, 1, 3, 60])
def test_layers_are_split_as_the_loop_splits_them(layers: int, segment: int, gap: int) -> None:
    found = recomputed(layers, segment, gap)
    assert found == walked(layers, segment, gap)
    assert found.layers == layers
    asked = ActivationCheckpointing("layer", False, segment, gap, False)
    assert repeated_share(layers, asked) == found.repeated / layers


def test_without_recomputation_every_layer_keeps_everything() -> None:
    assert recomputed(16, 0, 0) == SegmentedLayers(0, 16, 0, 0, 16)
    asked = ActivationCheckpointing("none", False, 1, 0, False)
    assert repeated_share(16, asked) == 0


def peak(**changes: Any) -> int:
    plan = layout(checkpointed=True, **BF16_LORA, **changes)
    return account(lora(SMALL, sequence=8192, loss="chunked"), plan).peak_bytes


def test_gaps_and_segments_hold_more_and_the_host_holds_less() -> None:
    """A gap keeps layers whole; a segment trades inputs for layers that are alive together."""
    each = peak()
    assert each < peak(gap=1) < peak(gap=3)
    assert each < peak(segment=4) < peak(segment=8)
    assert peak(offload=True) < each


def test_a_gap_that_never_ends_is_no_recomputation_but_for_the_first_layer() -> None:
    whole = layout(checkpointed=False, **BF16_LORA)
    nothing = account(lora(SMALL, sequence=8192, loss="chunked"), whole).peak_bytes
    assert peak(gap=1000) == pytest.approx(nothing, rel=0.07)
    assert peak(gap=1000) < nothing


def test_a_long_segment_has_a_phase_of_its_own() -> None:
    """Its layers are all recomputed before the first gradient of one is there."""
    plan = layout(checkpointed=True, segment=8)
    found = account(full(SMALL, sequence=8192, loss="chunked"), plan)
    begun, first = found.phases["first segment backward"], found.phases["first layer backward"]
    assert begun["text recomputed layer"] > 6 * first["text recomputed layer"]
    assert begun["gradients"] < first["gradients"]
    assert "first segment backward" not in account(full(SMALL), layout(checkpointed=True)).phases


@pytest.mark.parametrize("micro", [1, 3])
def test_what_leaves_the_device_lies_on_the_host_in_powers_of_two(micro: int) -> None:
    workload = lora(SMALL, sequence=6000)
    plan = layout(micro, checkpointed=True, offload=True, **BF16_LORA)
    one = 2 * SMALL.hidden * 6000 * micro
    moved = moved_activations(workload, plan)
    layers = SMALL.stacks[0].layers
    assert moved.carried == layers * one
    assert moved.taken == layers * 2 ** (one - 1).bit_length()
    host = account(workload, plan).host
    assert host.phases["training"]["offloaded activations"] == moved.taken
    without = layout(micro, checkpointed=True, **BF16_LORA)
    assert "offloaded activations" not in account(workload, without).host.phases["training"]


def test_layers_of_a_gap_run_once_and_what_is_moved_takes_time() -> None:
    workload = lora(SMALL, sequence=8192)

    def terms(**changes: Any) -> dict[str, float]:
        return step_time(workload, layout(checkpointed=True, **BF16_LORA, **changes), MACHINE).terms

    each, half = terms(), terms(gap=1)
    assert half["recomputation"] == pytest.approx(each["recomputation"] / 2)
    assert sum(half.values()) < sum(each.values())
    moved = terms(offload=True)
    back = SMALL.stacks[0].layers * 2 * SMALL.hidden * 8192 / (0.7 * MACHINE.pcie)
    assert moved["offloaded activations"] >= back
    assert {k: v for k, v in moved.items() if k != "offloaded activations"} == each


def test_blocks_that_keep_all_are_told_from_equal_ones_that_are_recomputed() -> None:
    given = derive(card("lumina-image-2.0").config)
    first = next(stack for stack in given.stacks if stack.is_kept)
    # equal in the way that runs, but not in all
    other = replace(first.blocks[0], way="another", inputs=())
    again = replace(first, blocks=(*first.blocks, other))
    assert given.denoiser is not None
    denoiser = replace(given.denoiser, lists=("noise_refiner", "layers"))
    data: dict[str, Any] = {"sequence": 0, "images": 1, "image_width": 1024, "image_height": 1024}
    held = []
    for layers in (first.layers, first.layers + 3):
        stacks = (replace(first, layers=layers), again)
        workload = full(replace(given, stacks=stacks, denoiser=denoiser), **data)
        plain = account(workload, layout()).phases["loss forward"]["denoiser activations"]
        kept = account(workload, layout(checkpointed=True)).phases["loss forward"]
        held.append(kept["denoiser outside of blocks"])
    each = plain / (layers + again.layers)
    assert held[1] - held[0] == pytest.approx(3 * each, rel=1e-6)
