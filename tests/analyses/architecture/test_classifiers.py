"""Heads that classify, held against the modules and the parameters of the real classes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tunec.compiler.analyses.architecture import UnusableConfig, derive  # noqa: E402
from tunec.compiler.analyses.architecture.classifiers import (  # noqa: E402
    _SEQUENCE,
    _SEQUENCES_SCORED,
    _TOKENS_CLASSIFIED,
    _TOKENS_SCORED,
    for_task,
)
from tunec.schemas.models.catalogue import card  # noqa: E402
from tunec.schemas.spec_sections import Task  # noqa: E402

SEQUENCES = Task.model_validate({"sequence_classification": {"labels": 3}})
TOKENS = Task.model_validate({"token_classification": {"labels": 9}})
MODELS = (
    *("bert-base-uncased", "roberta-base", "xlm-roberta-base", "distilbert-base-uncased"),
    *("modernbert-base", "deberta-base", "deberta-v3-small", "e5-base-v2", "qwen3-0.6b"),
    "llama-3.2-1b",
    *("gpt2", "bloom-560m", "phi-2", "gemma-3-270m", "esm2-8m", "mpnet-base"),
    *("hunyuan-0.5b", "helium-1-preview-2b", "afm-4.5b", "camembert-base"),
    "electra-small",
)
_NO_TOKENS = ("gemma-3-270m", "hunyuan-0.5b")
"""Models whose families have no class for tokens in transformers 5.23."""


@pytest.mark.parametrize("task", [SEQUENCES, TOKENS], ids=["sequences", "tokens"])
@pytest.mark.parametrize("name", MODELS)
def test_a_classifier_has_the_modules_of_its_class(name, task):
    if name in _NO_TOKENS and task == TOKENS:
        pytest.skip("transformers 5.23 has no such class for its family")
    config = dict(for_task(card(name).config, task))
    found = derive(config)
    kind, labels = task.asked
    assert (found.kind, found.vocab, found.tied) == (kind, labels, False)
    made = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config)
    with torch.device("meta"):
        real = getattr(transformers, config["architectures"][0])(made)
    assert found.parameters == sum(each.numel() for each in real.parameters())
    modules = dict(real.named_modules())
    assert modules[found.head].weight.shape == (labels, found.hidden)
    assert set(found.new) <= set(modules)


@pytest.mark.parametrize(
    "config",
    [
        {**card("t5-small").config, "architectures": ["T5ForSequenceClassification"]},
        card("aya-23-8b").config,
        card("gemma-3-270m").config,
    ],
    ids=["t5", "cohere", "gemma3"],
)
def test_a_head_that_no_class_has_is_refused(config):
    with pytest.raises(UnusableConfig, match="architectures"):
        derive(for_task(config, TOKENS))


@pytest.mark.parametrize("labels", ["three", 0, True])
def test_labels_are_a_number(labels):
    config = {**card("bert-base-uncased").config, "num_labels": labels}
    with pytest.raises(UnusableConfig, match="num_labels"):
        derive({**config, "architectures": ["BertForSequenceClassification"]})


def test_labels_are_those_that_the_config_names():
    config = {**card("bert-base-uncased").config, "id2label": {"0": "a", "1": "b", "2": "c"}}
    found = derive({**config, "architectures": ["BertForSequenceClassification"]})
    assert found.vocab == 3


def test_families_are_those_that_transformers_has_classes_of():
    auto = transformers.models.auto.modeling_auto
    sequences = auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    tokens = auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES
    assert {*_SEQUENCES_SCORED, *_SEQUENCE} <= set(sequences)
    assert {*_TOKENS_SCORED, *_TOKENS_CLASSIFIED, *_SEQUENCE} <= set(tokens)
