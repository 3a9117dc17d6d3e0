"""A task in the spec: the head it puts on a model, and what follows for plan and files."""

import json

import pytest
from planning import errors, planned, spec_of

import tunec
from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.frontend.load import load_mapping
from tunec.schemas.models.catalogue import card
from tunec.schemas.spec_sections import Task

SEQUENCES = Task.model_validate({"sequence_classification": {"labels": 3}})
DATA = {"train": "train.jsonl", "samples": 10_000, "sequence": 256}


def task(kind="sequence_classification", **changes):
    base = {"model": "bert-base-uncased", "method": "full", "data": DATA}
    return {**base, "task": {kind: {"labels": 3}}, **changes}


@pytest.mark.parametrize("kind", ["sequence", "token"])
def test_a_classifier_takes_less_than_what_fills_in_words(kind):
    words = planned(**task(task=None))
    found = planned(**task(f"{kind}_classification"))
    assert found.plan.model.kind == f"{kind}-classifier"
    assert words.plan.model.parameters - found.plan.model.parameters > 0
    assert found.memory.workload.architecture.vocab == 3
    each = [
        max(line.sample_bytes for line in made.memory.lines if not line.evaluates)
        for made in (words, found)
    ]
    assert each[0] - each[1] > 256 * 30522


def test_adapters_train_the_head_beside_them():
    found = planned(**task(model="roberta-base", method="lora"))
    assert found.plan.adapter.also_train == ("classifier",)


def test_the_class_of_the_config_is_the_default():
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "no", "1": "yes"},
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    }
    found = planned(**task(task=None, model={"path": "own/classifier", "config": config}))
    assert found.plan.model.kind == "sequence-classifier"
    assert found.memory.workload.architecture.vocab == 2


def compiled(target, **changes):
    written = spec_of(**task(**changes), targets=[target])
    return tunec.compile(written)


OTHERS = (
    *("trl", "axolotl", "llamafactory", "ms-swift", "unsloth", "simpletuner"),
    *("llama-cookbook", "glm4", "minicpm-v", "visualglm"),
)


@pytest.mark.parametrize("target", OTHERS)
def test_trainers_of_models_that_write_refuse_it(target):
    found = compiled(target, model="llama-3.2-1b", hardware="a100-80g-x1")
    said = [each.message for each in found.diagnostics if each.severity == "error"]
    assert any("model.kind sequence-classifier" in text for text in said), said


def test_the_trainers_arguments_are_those_of_any_model():
    found = compiled("huggingface", model="roberta-base", method="lora")
    assert found.ok
    texts = found.texts()
    adapter = json.loads(texts["huggingface/adapter_config.json"])
    assert (adapter["task_type"], adapter["modules_to_save"]) == ("SEQ_CLS", ["classifier"])


def test_peft_trains_as_many_parameters_as_are_planned():
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    found = compiled("huggingface", model="roberta-base", method="lora")
    texts = found.texts()
    config = peft.LoraConfig(
        **{
            k: v
            for k, v in json.loads(texts["huggingface/adapter_config.json"]).items()
            if k != "peft_type"
        }
    )
    made = for_task(card("roberta-base").config, SEQUENCES)
    with torch.device("meta"):
        body = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**made))
        real = peft.get_peft_model(body, config)
    trained, _ = real.get_nb_trainable_parameters()
    assert trained == found.planned.plan.adapter.trainable_parameters


@pytest.mark.parametrize("model", ["t5-small", "sdxl-base-1.0", "chatglm3-6b", "qwen3.5-4b"])
def test_a_model_without_such_a_head_is_a_fault_of_the_task(model):
    (said,) = errors(planned(**task(model=model)))
    assert said.startswith("task does not fit this model")


def test_a_task_is_one():
    loaded = load_mapping(
        spec_of(**task(task={"sequence_classification": {}, "token_classification": {}}))
    )
    assert loaded.spec is None


@pytest.mark.parametrize(
    ("model", "task", "release", "told"),
    [
        ("roberta-base", "sequence_classification", "5.23.0", ["classifier"]),
        ("deberta-v3-base", "sequence_classification", "5.0.0", ["classifier", "pooler"]),
        ("roberta-base", "sequence_classification", "4.57.6", []),
        ("qwen2.5-0.5b", "sequence_classification", "5.23.0", []),
        ("qwen2.5-0.5b", "token_classification", "5.23.0", ["score"]),
    ],
)
def test_a_head_with_a_bias_is_quantised_with_its_base(model, task, release, told):
    found = planned(
        model=model,
        method="qlora",
        task={task: {"labels": 3}},
        data={"train": "train.jsonl", "samples": 1000, "sequence": 256},
        software={"transformers": release},
    )
    helps = [each.help for each in found.diagnostics if each.id == "head-in-few-bits"]
    assert len(helps) == bool(told)
    assert all(f"llm_int8_skip_modules={json.dumps(told)}" in each for each in helps)


def test_a_base_in_its_own_dtype_keeps_the_adapters_options():
    found = planned(**task(method={"qlora": {"rank": 8}}))
    (said,) = [each.help for each in found.diagnostics if each.id == "head-in-few-bits"]
    assert """--set 'method={lora: {"rank": 8}}'""" in said
