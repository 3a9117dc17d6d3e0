"""The vision tower against traces of the real CLIP tower, and what frozen towers cost."""

from typing import Any

import pytest
from workload_builders import ATTENTION, BF16_LORA, full, layout, lora, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.vision import image_activations
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from tests.recording.traces import recorded  # noqa: E402
from traced_peaks import Peaks, peaks_of  # noqa: E402

from tunec.compiler.tracing.live.kernels import register_attention  # noqa: E402

LLAVA = model({"model_type": "llava"})
IMAGES, PATCHES = 4, 577
DATA: dict[str, Any] = {
    "images": IMAGES,
    "vision_tokens": IMAGES * PATCHES,
    "image_tokens": IMAGES * 576,
}
TOWER_TARGETS = ("q_proj", "k_proj", "v_proj", "out_proj")


def tower_modules() -> tuple[Module, ...]:
    return tuple(m for m in LLAVA.modules if m.part == "vision" and m.path.endswith(TOWER_TARGETS))


@recorded
def traced(*, lora_rank: int, checkpointed: bool) -> Peaks:
    settings = transformers.CLIPVisionConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        image_size=336,
        patch_size=14,
        attn_implementation=register_attention(padded=False),
    )
    with torch.device("meta"):
        tower = transformers.CLIPVisionModel(settings).to(torch.bfloat16)
    if lora_rank:
        tower = peft.get_peft_model(
            tower, peft.LoraConfig(r=lora_rank, target_modules=list(TOWER_TARGETS))
        )
    tower.train()
    if checkpointed:
        tower.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    pixels = torch.zeros(IMAGES, 3, 336, 336, dtype=torch.bfloat16, device="meta")
    pixels.requires_grad_(requires_grad=bool(lora_rank))

    def loss() -> Any:
        return tower(pixels).last_hidden_state.sum()

    return peaks_of(tower, loss)


def kept(workload: Workload, *, checkpointed: bool) -> float:
    states = layout(**(BF16_LORA if workload.adapted else {})).states
    run = Pass(states, checkpointed, padded=False, sequence_parallel=1)
    terms = image_activations(workload, run).kept
    return sum(size for name, size in terms.items() if name.startswith("vision"))


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("lora_rank", [0, 8], ids=["full", "lora"])
def test_a_trained_tower_is_within_5_percent_of_the_trace(
    lora_rank: int, checkpointed: bool
) -> None:
    peaks = traced(lora_rank=lora_rank, checkpointed=checkpointed)
    adapted = lora(LLAVA, rank=8, adapted=tower_modules(), **DATA)
    workload = adapted if lora_rank else full(LLAVA, **DATA)
    found = kept(workload, checkpointed=checkpointed)
    assert found == pytest.approx(peaks.kept - peaks.static, rel=0.05)


def test_a_frozen_tower_keeps_nothing() -> None:
    text = tuple(m for m in LLAVA.modules if m.part == "text" and m.path.endswith(ATTENTION))
    frozen = account(lora(LLAVA, adapted=text, **DATA), layout(**BF16_LORA))
    blind = account(lora(LLAVA, adapted=text, image_tokens=IMAGES * 576), layout(**BF16_LORA))
    assert frozen.peak_bytes == blind.peak_bytes + frozen.terms["images"]
    assert 0 < sum(frozen.phases["vision forward"].values()) < frozen.peak_bytes


def test_adapters_in_the_tower_make_it_keep_everything() -> None:
    text = tuple(m for m in LLAVA.modules if m.part == "text" and m.path.endswith(ATTENTION))
    without = account(lora(LLAVA, adapted=text, **DATA), layout(**BF16_LORA))
    within = account(lora(LLAVA, adapted=(*text, *tower_modules()), **DATA), layout(**BF16_LORA))
    assert within.peak_bytes - without.peak_bytes > 2 * 10**9
    assert "vision activations" in within.terms
