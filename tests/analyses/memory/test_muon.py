"""Muon's halves and its update, against DeepSpeed's own code on meta tensors."""

import os
from math import prod

import pytest
from workload_builders import LLAMA_32_1B, SMALL_LLAMA, full, layout, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.muon import Matrix, gathers, halves, operations, working

WORKLOAD = full(model(SMALL_LLAMA), name="muon", kernel="own")
SHAPES = ((512, 512), (128, 512), (512, 128), (512, 256), (8, 64, 256), (2, 512))


@pytest.fixture(scope="module")
def update():
    """DeepSpeed's `muon_update`, by the arithmetic of a GPU."""
    pytest.importorskip("torch")
    plain = dict(os.environ)
    os.environ["DS_ACCELERATOR"] = "cpu"
    pytest.importorskip("deepspeed")
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.zero.muon.original_muon import muon_update

    patch = pytest.MonkeyPatch()
    patch.setattr(type(get_accelerator()), "is_fp16_supported", lambda _: True)
    yield muon_update
    patch.undo()
    os.environ.clear()
    os.environ.update(plain)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_update_takes_what_deepspeeds_own_takes(update, shape, dtype):
    import torch

    from tunec.compiler.tracing.live.storages import Storages
    from tunec.compiler.tracing.recording import traced_phases

    with torch.compiler.set_stance("force_eager"), Storages() as storages:
        gradient, momentum = (
            torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for _ in range(2)
        )
        before = sum(each.bytes for each in storages.alive.values())
        storages.begin("forward")
        kept = update(gradient, momentum)
    (phase,) = traced_phases(storages.recording)
    assert kept.numel() == prod(shape)
    expected = working(Matrix(shape), gradient.element_size())
    assert phase.peak_bytes - before == pytest.approx(expected, rel=0.01, abs=64)


def test_deepspeed_stops_at_a_convolution(update):
    """Why no plan has Muon step four dimensions."""
    import torch

    gradient, momentum = (torch.empty(64, 4, 3, 3, device="meta") for _ in range(2))
    with torch.compiler.set_stance("force_eager"), pytest.raises(RuntimeError, match="broadcast"):
        update(gradient, momentum)


def test_halves_are_those_that_deepspeed_tags(update):
    import torch
    import transformers
    from deepspeed import set_optimizer_flags

    config = transformers.LlamaConfig(**{k: v for k, v in SMALL_LLAMA.items() if k != "model_type"})
    with torch.device("meta"):
        built = transformers.LlamaForCausalLM(config)
    set_optimizer_flags(
        type("Config", (), {"optimizer_name": "muon", "optimizer_params": {}}), built
    )
    tagged = sum(each.numel() for each in built.parameters() if each.use_muon)
    found = halves(WORKLOAD, 4)
    assert (found.matrices, found.rest) == (
        tagged,
        sum(each.numel() for each in built.parameters()) - tagged,
    )


def test_parts_of_all_ranks_cover_both_halves():
    for ranks in (1, 3, 8, 64):
        found = halves(WORKLOAD, ranks)
        assert found.own_matrices >= found.matrices / ranks
        assert found.own.elements <= found.matrices + found.rest


def test_momenta_of_whole_matrices_are_less_than_adams_and_the_step_is_more():
    options = {"engine": "deepspeed", "world": 8, "stage": 2, "trainable": "bf16"}
    shards = layout(1, **options, gradients="bf16", master_weights=True, optimizer="fp32")
    lines = {}
    for name in ("adamw", "muon"):
        workload = full(model(LLAMA_32_1B), name=name, kernel="own")
        lines[name] = {line.name: line for line in account(workload, shards).lines}
    states = {name: line["optimizer step"].terms(1) for name, line in lines.items()}
    assert states["muon"]["optimizer states"] < states["adamw"]["optimizer states"]
    assert "orthogonalisation after backward" not in lines["adamw"]


def test_exchanging_unlike_matrices_grows_with_the_ranks():
    few, many = (gathers(WORKLOAD, ranks, 1 << 20, 2) for ranks in (8, 64))
    total = [sum(each.highest.values()) for each in (few, many)]
    assert total[1] > 3 * total[0]


def test_operations_are_those_of_the_products():
    assert operations(WORKLOAD) > 0
    twice = full(model(SMALL_LLAMA | {"num_hidden_layers": 6}), name="muon", kernel="own")
    assert operations(twice) == 2 * operations(WORKLOAD)
