"""The account of heads that classify, held against traces of the real classes."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recording.traces import run
from workload_builders import BF16_LORA, FP32, full, layout, lora

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.tracing.comparison import compare
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.models.catalogue import card
from tunec.schemas.spec_sections import Task

SEQUENCES = Task.model_validate({"sequence_classification": {"labels": 3}})
TOKENS = Task.model_validate({"token_classification": {"labels": 9}})
PADDED = {"qwen3-0.6b": {"pad_token_id": 0}}
"""What a decoder must be told before it labels several sequences at once."""


def error(name, task, which):
    config = {**for_task(card(name).config, task), **PADDED.get(name, {})}
    model = derive(config)
    options = {"sequence": 384, "packing": False}
    inside = tuple(m for m in model.modules if m.kind == "linear" and "{}" in m.path)
    new = tuple(m for m in model.modules if m.path in model.new)
    workload, plan = {
        "full": (full(model, **options), layout(8)),
        "recomputed": (full(model, **options), layout(8, checkpointed=True)),
        "autocast": (full(model, **options), layout(8, autocast=True, **FP32)),
        "lora": (lora(model, adapted=inside, also_train=new, **options), layout(8, **BF16_LORA)),
    }[which]
    return compare(run(Subject(config, workload, plan)), account(workload, plan)).error


@pytest.mark.parametrize("which", ["full", "recomputed", "autocast", "lora"])
@pytest.mark.parametrize("task", [SEQUENCES, TOKENS], ids=["sequences", "tokens"])
@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "modernbert-base"])
def test_an_encoder_that_classifies_is_as_traced(name, task, which):
    assert abs(error(name, task, which)) < 0.015


@pytest.mark.parametrize("which", ["full", "recomputed", "lora"])
@pytest.mark.parametrize("task", [SEQUENCES, TOKENS], ids=["sequences", "tokens"])
@pytest.mark.parametrize("name", ["distilbert-base-uncased", "qwen3-0.6b"])
def test_others_that_classify_are_as_traced(name, task, which):
    assert abs(error(name, task, which)) < 0.015
