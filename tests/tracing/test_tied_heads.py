"""A weight that is embedding and head has two names, and is trained by either."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.driver.planning import planned

from tunec.compiler.cli.trace_command import beside

SMALL = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 12_000,
    "max_position_embeddings": 514,
    "pad_token_id": 1,
}


@pytest.mark.parametrize(
    ("family", "model"), [("xlm-roberta", "XLMRobertaForMaskedLM"), ("bert", "BertForMaskedLM")]
)
def test_states_and_gradients_are_those_of_all_weights(family, model):
    """XLM-RoBERTa has its head before its body, so that the head's name comes first."""
    found = planned(
        model={
            "path": "small",
            "config": {**SMALL, "model_type": family, "architectures": [model]},
        },
        method="full",
        hardware="a100-80g-x1",
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        pin={"parallel.engine": "none", "batch.micro": 1},
    )
    phases = {each.phase: each for each in beside(found).phases}
    traced, accounted = phases["backward"].groups["training state"]
    assert traced == accounted > 0
