"""The account of heads that classify, held against traces of the real classes."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recording.traces import run
from workload_builders import BF16_LORA, FP32, full, layout, lora

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.workload import Preference
from tunec.compiler.tracing.comparison import compare
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.models.catalogue import card
from tunec.schemas.spec_sections import ONE_NUMBER, Task

SEQUENCES = Task.model_validate({"sequence_classification": {"labels": 3}})
TOKENS = Task.model_validate({"token_classification": {"labels": 9}})
PAIRS = Preference(2, "none")
WAYS = ("full", "recomputed", "autocast", "lora")


def error(name, task, which, micro=8, **more):
    config, workload, plan = subject(name, task, which, micro, **more)
    return compare(run(Subject(config, workload, plan)), account(workload, plan)).error


def subject(name, task, which, micro, **more):
    config = for_task(card(name).config, task)
    model = derive(config)
    options = {"sequence": 384, "packing": False, **more}
    inside = tuple(m for m in model.modules if m.kind == "linear" and "{}" in m.path)
    new = tuple(m for m in model.modules if m.path in model.new)
    workload, plan = {
        "full": (full(model, **options), layout(micro)),
        "recomputed": (full(model, **options), layout(micro, checkpointed=True)),
        "autocast": (full(model, **options), layout(micro, autocast=True, **FP32)),
        "lora": (
            lora(model, adapted=inside, also_train=new, **options),
            layout(micro, **BF16_LORA),
        ),
        "adapted": (
            lora(model, adapted=inside, also_train=new, **options),
            layout(micro, autocast=True, **BF16_LORA),
        ),
        "narrow": (lora(model, adapted=inside, also_train=new, **options), layout(micro)),
    }[which]
    return config, workload, plan


@pytest.mark.parametrize("which", WAYS)
@pytest.mark.parametrize("task", [SEQUENCES, TOKENS], ids=["sequences", "tokens"])
@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "modernbert-base"])
def test_an_encoder_that_classifies_is_as_traced(name, task, which):
    assert abs(error(name, task, which)) < 0.015


@pytest.mark.parametrize("which", ["full", "recomputed", "lora"])
@pytest.mark.parametrize("task", [SEQUENCES, TOKENS], ids=["sequences", "tokens"])
@pytest.mark.parametrize("name", ["distilbert-base-uncased", "qwen3-0.6b"])
def test_others_that_classify_are_as_traced(name, task, which):
    assert abs(error(name, task, which)) < 0.015


@pytest.mark.parametrize("which", ["autocast", "adapted", "narrow"])
@pytest.mark.parametrize(
    "name", ["bert-base-uncased", "deberta-v3-small", "distilbert-base-uncased", "roberta-base"]
)
def test_a_last_layer_that_needs_more_than_the_loss_is_as_traced(name, which):
    """The peak lies inside of its forward pass: among scores, or at its last adapter or norm."""
    assert -0.003 < error(name, SEQUENCES, which, 32) < 0.03


@pytest.mark.parametrize("sequence", [128, 384])
@pytest.mark.parametrize("which", ["full", "autocast", "adapted"])
@pytest.mark.parametrize("name", ["mpnet-base", "camembert-base"])
def test_short_samples_are_as_traced(name, which, sequence):
    """MPNet's body makes a bias on the scores of all samples, which waits for the last layer."""
    assert -0.003 < error(name, SEQUENCES, which, 32, sequence=sequence) < 0.03


@pytest.mark.parametrize("which", ["autocast", "adapted"])
def test_short_samples_of_deberta_are_as_traced(which):
    """Its layers have copies of a table of positions for each sample, of any length."""
    assert -0.008 < error("deberta-v3-small", SEQUENCES, which, 32, sequence=128) < 0.015


@pytest.mark.parametrize("which", WAYS)
@pytest.mark.parametrize("name", ["bert-base-uncased", "qwen3-0.6b"])
def test_a_pair_of_rewards_is_two_sequences(name, which):
    _, pairs, few = subject(name, ONE_NUMBER, which, 4, preference=PAIRS)
    _, alone, many = subject(name, ONE_NUMBER, which, 8)
    assert account(pairs, few).peak_bytes == account(alone, many).peak_bytes


@pytest.mark.parametrize("which", WAYS)
def test_a_reward_model_is_as_traced(which):
    assert abs(error("qwen3-0.6b", ONE_NUMBER, which, 4, preference=PAIRS)) < 0.015
