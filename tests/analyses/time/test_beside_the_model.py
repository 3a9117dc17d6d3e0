"""What a step does beside the trained model: encoders of the samples, and reading them."""

import pytest
from stated_runs import architecture_of, workload_of
from tests.machines import A100
from workload_builders import ATTENTION, BF16_LORA, LLAMA_3_8B, layout, lora, model

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.analyses.time.account import Run, loading, step_time
from tunec.compiler.analyses.time.compute import compute, product_rate, work_of
from tunec.compiler.analyses.time.encoders import encoding
from tunec.schemas.frozen import replace

MACHINE = replace(A100, per_node=2, loaders=4)
ROW = {
    "model": "stable-diffusion-v1-5",
    "method": "lora",
    "peft": {"r": 4, "targets": "to_q,to_k,to_v,to_out.0", "dropout": 0},
    "quant": None,
    "seq_len": 0,
    "attn": "sdpa",
    "versions": {},
    "components": ["text_encoder", "vae"],
    "data": {"images": 1, "image_width": 512, "image_height": 512},
}
KEPT = workload_of(ROW)
GONE = replace(KEPT, kept_components=())
PLAN = layout(4, **BF16_LORA)


def test_an_autoencoder_computes_its_levels_at_their_resolutions() -> None:
    """Of Stable Diffusion's, whose first level has two blocks of two convolutions."""
    vae = next(each for each in KEPT.components if each.kind == "autoencoder")
    clip = next(each for each in KEPT.components if each.kind == "encoder")
    pixels = 512 * 512
    first = 2 * pixels * 9 * (3 * 128 + 4 * 128 * 128)
    found = encoding(KEPT, (vae,)).operations
    assert 1.0e12 < found < 1.2e12  # 0.55e12 multiply-adds
    assert found > first
    texts = encoding(KEPT, (clip,)).operations
    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert texts == 2 * 77 * weights + 4 * 12 * 768 * 77**2
    assert encoding(KEPT, KEPT.components).operations == found + texts


def test_encoders_that_stay_run_in_each_step() -> None:
    kept, gone = work_of(KEPT, PLAN), work_of(GONE, PLAN)
    done = encoding(KEPT, KEPT.components)
    assert kept.encoding == 4 * done.operations
    assert gone.encoding == 0
    assert kept.kernels.forward - gone.kernels.forward == pytest.approx(done.kernels)
    assert kept.kernels[1:] == gone.kernels[1:]
    assert compute(kept, MACHINE)["encoders"] == 4 * done.operations / product_rate(MACHINE)


def test_encoders_that_go_run_before_the_first_step() -> None:
    assert step_time(KEPT, PLAN, MACHINE).encoding == 0
    once = step_time(GONE, PLAN, MACHINE).encoding
    assert once > 0
    run = Run(10, 1.0, 0, 0, 0)
    assert replace(run, encoding=1000 * once).seconds == pytest.approx(run.seconds + 1000 * once)


def test_pictures_are_read_behind_the_device_by_as_many_processes_as_there_are() -> None:
    seconds = 4 * 512 * 512 * 60e-9
    assert loading(KEPT, PLAN, MACHINE, 0.0) == pytest.approx(seconds / 4)
    assert loading(KEPT, PLAN, MACHINE, seconds / 8) == pytest.approx(seconds / 8)
    assert loading(KEPT, PLAN, MACHINE, seconds) == 0
    asked = replace(KEPT, dataloader_workers=1)
    assert loading(asked, PLAN, MACHINE, 0.0) == pytest.approx(seconds)
    # latents and embeddings that were made before are read instead
    assert loading(GONE, PLAN, MACHINE, 0.0) == 0


def test_unsloth_brings_kernels_of_its_own() -> None:
    plain: Workload = lora(model(LLAMA_3_8B), targets=ATTENTION)
    theirs = replace(plain, versions=(("unsloth", "2026.10.9"),))
    one, other = work_of(plain, PLAN), work_of(theirs, PLAN)
    assert (one.fused, one.added) == (False, False)
    assert (other.fused, other.added) == (True, True)
    dropping = replace(theirs, adapter=replace(theirs.adapter, dropout=0.1))
    assert not work_of(dropping, PLAN).added
    terms = [compute(each, MACHINE)["memory traffic"] for each in (one, other)]
    assert terms[1] < 0.7 * terms[0]


def test_architectures_without_encoders_encode_nothing() -> None:
    assert encoding(lora(architecture_of("llama-3-8b")), ()) == (0, 0)
