"""Preference methods and generation."""

from typing import Any

import pytest
from workload_builders import BF16_LORA, LLAMA_32_1B, MIXED, full, layout, lora, model

from tunec.compiler.analyses.memory.account import Account, account, largest_micro_batch
from tunec.compiler.analyses.memory.terms.generation import cache_bytes
from tunec.compiler.analyses.memory.workload import Generation, Preference, Workload
from tunec.schemas.frozen import replace
from tunec.schemas.units import GIB

MODEL = model(LLAMA_32_1B)
FULL = full(MODEL, loss="chunked")
ADAPTERS = lora(MODEL, loss="chunked")
PLAN = layout(2, checkpointed=True)


def dpo(workload: Workload, reference: Any, sequences: int = 2) -> Workload:
    return replace(workload, preference=Preference(sequences, reference))


def weights_of(found: Account) -> int:
    return found.phases["optimizer step"].get("reference model", 0)


def test_a_pair_is_two_sequences() -> None:
    paired = account(dpo(FULL, "precomputed"), PLAN)
    double = account(FULL, layout(4, checkpointed=True))
    assert paired.peak_bytes == double.peak_bytes
    assert account(dpo(FULL, "none", sequences=1), PLAN).phases == account(FULL, PLAN).phases


def test_a_resident_reference_is_a_second_model() -> None:
    assert weights_of(account(dpo(FULL, "resident"), PLAN)) == 2 * MODEL.parameters
    for elsewhere in ("none", "base", "precomputed"):
        assert weights_of(account(dpo(ADAPTERS, elsewhere), PLAN)) == 0


@pytest.mark.parametrize(("stage", "share"), [(1, 1), (2, 1), (3, 8)])
def test_deepspeed_shards_the_reference_at_stage_3_only(stage: int, share: int) -> None:
    plan = layout(checkpointed=True, engine="deepspeed", world=8, stage=stage, **MIXED)
    found = weights_of(account(dpo(FULL, "resident"), plan))
    assert found == pytest.approx(2 * MODEL.parameters / share, rel=1e-6)


def test_trl_keeps_only_stage_3_for_the_reference() -> None:
    models = pytest.importorskip("trl.models.utils")
    import inspect

    source = inspect.getsource(models.prepare_deepspeed)
    assert "if stage != 3:" in source
    assert '["stage"] = 0' in source


def test_the_reference_is_asked_while_the_graph_is_alive() -> None:
    found = account(dpo(ADAPTERS, "base"), layout(2, **BF16_LORA))
    held = found.phases["reference forward"]
    assert held["text activations"] == found.phases["loss forward"]["text activations"]
    assert held["text forward pass"] > 0
    assert "reference forward" not in account(dpo(ADAPTERS, "precomputed"), PLAN).phases


def generated(**changes: Any) -> Workload:
    return replace(FULL, generation=Generation(**{"tokens": 1024, "sequences": 8} | changes))


def test_a_real_cache_is_as_large() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    small = LLAMA_32_1B | {"num_hidden_layers": 2, "vocab_size": 64}
    settings = transformers.LlamaConfig(**{k: v for k, v in small.items() if k != "model_type"})
    with torch.device("meta"):
        built = transformers.LlamaForCausalLM(settings).to(torch.bfloat16)
        out = built(input_ids=torch.zeros(3, 100, dtype=torch.long), use_cache=True)
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.layers)
    assert 3 * 100 * cache_bytes(full(model(small)), layout().states) == held


def test_generation_gathers_a_sharded_model_if_asked() -> None:
    plan = layout(checkpointed=True, engine="deepspeed", world=8, stage=3, **MIXED)
    apart = account(generated(), plan).phases["generation"]
    whole = account(generated(gathers=True), plan).phases["generation"]
    assert 0 < apart["gathered parameters"] < whole["gathered parameters"]
    assert whole["gathered parameters"] == 2 * MODEL.parameters
    once = account(generated(gathers=True), PLAN).phases["generation"]
    assert "gathered parameters" not in once


def test_what_generation_takes_counts_for_the_search() -> None:
    much = generated(sequences=2048, tokens=4096)
    assert largest_micro_batch(FULL, PLAN, 80 * GIB) > 1
    assert largest_micro_batch(much, PLAN, 80 * GIB) == 0
