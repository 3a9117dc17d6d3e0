"""Ranks that share a layer or a sequence: what each of them holds."""

import pytest
from workload_builders import LLAMA_3_8B, LLAMA_32_1B, MIXED, full, layout, lora, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.rank import of_rank, unknown
from tunec.schemas.frozen import replace

TIED, LARGE = model(LLAMA_32_1B), model(LLAMA_3_8B)
SHARDED = MIXED | {"engine": "deepspeed", "world": 8, "stage": 1}


def _whole(architecture, *names: str) -> int:
    return sum(m.parameters for m in architecture.modules if m.path.endswith(names))


def test_one_rank_alone_has_the_workload_itself() -> None:
    workload = full(LARGE)
    assert of_rank(workload, 1) is workload
    assert of_rank(workload, 4) is of_rank(workload, 4)


@pytest.mark.parametrize("ways", [2, 4, 8])
def test_norms_stay_whole_and_so_does_an_embedding_of_its_own(ways: int) -> None:
    rank = of_rank(full(LARGE), ways).architecture
    whole = _whole(LARGE, "embed_tokens", "norm", "layernorm")
    assert _whole(rank, "embed_tokens", "norm", "layernorm") == whole
    assert (rank.parameters - whole) * ways == LARGE.parameters - whole
    assert rank.vocab == LARGE.vocab, "the logits are gathered"


def test_an_embedding_that_is_the_head_is_split_with_its_logits() -> None:
    rank = of_rank(full(TIED), 4)
    assert _whole(rank.architecture, "embed_tokens") * 4 == _whole(TIED, "embed_tokens")
    assert rank.architecture.vocab * 4 == TIED.vocab
    assert count(rank).output * 4 == count(full(TIED)).output


def test_layers_over_ranks_keep_whole_inputs_and_split_what_is_inside() -> None:
    one = account(full(LARGE), layout(**SHARDED)).phases["loss forward"]
    four = account(full(LARGE), layout(**SHARDED | {"data": 2, "tensor": 4})).phases
    kept = four["loss forward"]["text activations"] / one["text activations"]
    assert 0.25 < kept < 0.6
    assert four["loss forward"]["logits and loss"] == one["logits and loss"]


def test_states_are_sharded_over_the_ranks_that_hold_the_same_part() -> None:
    of = {"data": 2, "tensor": 4}
    found = account(full(LARGE), layout(**SHARDED | of)).phases["optimizer step"]
    assert found["master weights"] == pytest.approx(found["trained weights"] * 2 / 2, rel=1e-6)


def test_a_sequence_over_ranks_leaves_each_its_share_of_tokens() -> None:
    one = account(full(LARGE), layout(**SHARDED))
    four = account(full(LARGE), layout(**SHARDED | {"data": 2, "sequence": 4}))
    loss, shared = (each.phases["loss forward"] for each in (one, four))
    assert shared["logits and loss"] * 4 == loss["logits and loss"]
    returned = 2 * 2048 / 4 * LARGE.hidden * LARGE.stacks[0].layers
    assert shared["text activations"] - returned == pytest.approx(loss["text activations"] / 4)
    assert shared["master weights"] == loss["master weights"], "all eight hold the same weights"


def test_gradients_of_parts_of_a_sequence_are_summed_in_fp32() -> None:
    bucket = {"reduce_bucket": 100_000_000}
    held = {}
    for ways in (1, 2):
        plan = layout(**SHARDED | bucket | {"stage": 3, "data": 8 // ways, "sequence": ways})
        held[ways] = account(full(TIED), plan).phases["loss forward"]["gradient buckets"]
    assert held == {1: 2 * 100_000_000, 2: 4 * 100_000_000}
    second = layout(**SHARDED | {"stage": 2, "data": 4, "sequence": 2})
    found = account(full(TIED), second).phases
    copies = [each["reduced copy"] for each in found.values() if "reduced copy" in each]
    assert max(copies) > 4 * TIED.vocab * TIED.hidden


def test_an_evaluation_takes_whole_sequences() -> None:
    plan = layout(**SHARDED | {"data": 2, "sequence": 4})
    workload = full(LARGE)
    evaluated = replace(workload, data=replace(workload.data, evaluation="eval.jsonl"))
    some, whole = (account(each, plan).phases["evaluation"] for each in (workload, evaluated))
    assert whole["logits and loss"] == 4 * some["logits and loss"]


def test_fewer_key_heads_than_ranks_are_repeated() -> None:
    eight, sixteen = (
        account(full(LARGE), layout(**SHARDED | {"world": 16, "data": 16 // n, "sequence": n}))
        for n in (8, 16)
    )
    kept = [each.phases["loss forward"]["text activations"] for each in (eight, sixteen)]
    assert kept[1] > kept[0] / 2


@pytest.mark.parametrize(
    ("workload", "ways", "reason"),
    [
        (full(LARGE), 3, "32 attention heads do not divide by 3"),
        (full(LARGE), 16, "8 key and value heads"),
        (full(model({"model_type": "phi3"})), 2, "the family phi3"),
        (lora(LARGE), 2, "hold adapters"),
        (full(LARGE, loss="chunked"), 2, "a whole head"),
        (full(LARGE, versions=(("deepspeed", "0.18.9"),)), 2, "from DeepSpeed 0.19.4 on"),
        (full(TIED, versions=(("deepspeed", "0.19.7"),)), 2, "from DeepSpeed 0.19.8 on"),
    ],
)
def test_what_no_rank_is_known_of_is_said(workload, ways: int, reason: str) -> None:
    assert reason in (unknown(workload, ways) or "")
    assert unknown(full(LARGE), 8) is None
