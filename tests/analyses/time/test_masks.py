"""What attention computes: all scores behind a mask, which torch's fastest kernel does not take."""

import pytest
from stated_runs import architecture_of
from workload_builders import LLAMA_3_8B, MISTRAL_7B, full, layout, model

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.padding import uneven_share
from tunec.compiler.analyses.time.account import as_padded
from tunec.compiler.analyses.time.compute import work_of
from tunec.compiler.analyses.time.flops import operations
from tunec.compiler.analyses.time.machine import Machine, machine_of
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster, device

LARGE = model(LLAMA_3_8B)
WINDOWED = model(MISTRAL_7B)
SQUARE = 4 * 32 * 128 * 8192**2
"""Operations of all of a layer's scores, of 8,192 tokens."""
FLASH = AttentionKernel("flash_attention_2")


def masked(workload: Workload, micro: int = 1) -> float:
    return operations(as_padded(workload, layout(micro))).masked.forward


def test_batches_are_padded_unless_all_their_texts_are_equally_long() -> None:
    lengths = ((512, 1), (2048, 2), (4096, 1))
    assert uneven_share(lengths, 4096, 1) == 0
    assert uneven_share(lengths, 4096, 2) == 1 - (1 / 16 + 1 / 4 + 1 / 16)
    # cut at 2,048 tokens the longer ones are equal
    assert uneven_share(lengths, 2048, 2) == 1 - (1 / 16 + 9 / 16)


def test_padded_texts_have_all_their_scores_computed() -> None:
    padded = full(LARGE, sequence=8192, lengths=((8191, 1), (8192, 1)))
    assert masked(padded) == 0
    assert masked(padded, 2) == pytest.approx(0.5 * 32 * SQUARE, rel=1e-3)
    assert masked(replace(padded, attention=FLASH), 2) == 0
    assert masked(replace(padded, versions=(("unsloth", "2025.9.1"),)), 2) == 0
    assert masked(full(LARGE, sequence=8192), 2) == 0


def test_a_window_is_a_mask_once_texts_are_longer() -> None:
    longer = full(WINDOWED, sequence=8192)
    assert masked(longer) == 32 * SQUARE
    assert masked(full(WINDOWED, sequence=4096)) == 0
    # flash-attn computes what the window shows
    assert operations(replace(longer, attention=FLASH)).scores.forward == 32 * SQUARE / 2


def test_what_is_masked_is_among_the_scores_and_timed_apart() -> None:
    longer = full(WINDOWED, sequence=8192)
    done, work = operations(longer), work_of(longer, layout())
    assert done.masked == done.scores
    assert work.attention == 0
    assert work.masked == done.scores.forward + done.scores.backward
    work = work_of(full(LARGE, sequence=8192), layout())
    assert work.masked == 0


def machine(name: str) -> Machine:
    node = cluster("dgx-a100-80g").nodes[0]
    return machine_of([device(name)], node, None, nodes=1, per_node=1, dtype="fp16")


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("a100-sxm4-80g", 60e12, 91e12), ("h100-sxm", 90e12, 113e12), ("b200", 90e12, 113e12)],
)
def test_the_kernel_that_takes_masks_is_slower(name: str, least: float, most: float) -> None:
    """Without a mask it has 91 tera-operations a second on an A100, and 113 on an H100."""
    found = machine(name)
    assert least < found.masked * found.rate < most


@pytest.mark.parametrize("name", ["v100-sxm2-32g", "mi300x"])
def test_other_chips_have_one_kernel_for_both(name: str) -> None:
    assert machine(name).masked == machine(name).attention


@pytest.mark.parametrize(
    ("name", "tokens"), [("z-image", 48**2 + 512), ("qwen-image", 48**2 + 1024)]
)
def test_attention_of_a_denoiser_sees_its_patches(name: str, tokens: int) -> None:
    """Z-Image joins 2 by 2 elements of a latent of 96 by 96; Qwen-Image is given them joined."""
    denoiser = architecture_of(name)
    done = operations(full(denoiser, sequence=0, images=1, image_width=768, image_height=768))
    layers = sum(stack.layers for stack in denoiser.stacks)
    assert done.scores.forward == 4 * denoiser.hidden * layers * tokens**2
