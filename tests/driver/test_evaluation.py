"""Evaluation that does more than compute a loss: what is planned, written and refused."""

import json

import pytest
import yaml

import tunec

SPEC = {
    "tunec": 1,
    "model": "llama-3.2-1b",
    "method": "lora",
    "data": {"train": "train.jsonl", "evaluation": "dev.jsonl", "samples": 1000, "sequence": 1024},
    "hardware": "a100-80g-x1",
}
ANSWERS = {"generate": {"completion": 256, "beams": 4}}


def spec(**changes):
    return {**SPEC, **changes}


T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 1024,
    "d_ff": 4096,
    "d_kv": 64,
    "num_heads": 16,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "vocab_size": 32128,
    "feed_forward_proj": "relu",
    "is_encoder_decoder": True,
}


def written(found, target, name="training_args.yaml"):
    texts = {each.name: each.text for each in found.artifacts[target]}
    return yaml.safe_load(texts[name])


def said(found):
    return {(each.id, each.message.partition(":")[0]) for each in found.diagnostics}


def test_a_decoder_reads_what_the_answer_leaves_of_the_sequence():
    found = tunec.plan(spec(evaluation=ANSWERS)).plan
    asked = found.evaluation
    assert (asked.predictions, asked.prompt, asked.completion, asked.beams) == (
        *("answers", 768, 256, 4),
    )
    assert asked.kept_batches == 1
    assert tunec.plan(spec(evaluation={"generate": True})).plan.evaluation.completion == 512


def test_an_encoder_reads_all_of_it():
    data = {**SPEC["data"], "sequence": 512}
    model = {"path": "google-t5/t5-large", "config": T5}
    found = tunec.plan(spec(model=model, data=data, evaluation={"generate": {}})).plan
    assert (found.evaluation.prompt, found.evaluation.completion) == (512, 512)


@pytest.mark.parametrize("release", ["huggingface@4.40", "huggingface@5.23"])
def test_the_trainer_is_told_in_its_own_words(release):
    found = written(tunec.compile(spec(evaluation=ANSWERS), targets=[release]), "huggingface")
    keys = ("predict_with_generate", "generation_max_length", "generation_num_beams")
    assert [found[key] for key in keys] == [True, 1024, 4]
    assert found["eval_accumulation_steps"] == 1
    kept = tunec.compile(spec(evaluation={"metrics": True}), targets=[release])
    assert written(kept, "huggingface")["prediction_loss_only"] is False
    plain = written(tunec.compile(spec(), targets=[release]), "huggingface")
    assert not {*keys, "prediction_loss_only", "eval_accumulation_steps"} & set(plain)


@pytest.mark.parametrize("target", ["trl", "minicpm-v", "llama-cookbook"])
def test_trainers_that_evaluate_by_the_loss_say_so(target):
    found = tunec.compile(spec(evaluation=ANSWERS), targets=[target])
    assert not found.ok
    assert any("cannot express evaluation.predictions answers" in text for _, text in said(found))


def test_glm_4_always_generates():
    model = spec(model="glm-4-9b-0414")
    found = tunec.compile(model, targets=["glm4"])
    arguments = written(found, "glm4", "finetune.yaml")["training_args"]
    assert tunec.plan(model, targets=["glm4"]).plan.evaluation.predictions == "answers"
    assert arguments["generation_config"] == {"max_new_tokens": 512}
    less = {**model, "evaluation": {"generate": {"completion": 100}}}
    lengths = written(tunec.compile(less, targets=["glm4"]), "glm4", "finetune.yaml")
    assert (lengths["max_input_length"], lengths["max_output_length"]) == (924, 100)
    refused = tunec.compile({**model, "evaluation": {"metrics": True}}, targets=["glm4"])
    assert not refused.ok


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": {"generate": {"completion": 1024}}}, "leaves no room for the prompt"),
        ({"evaluation": ANSWERS, "data": {"train": "t.jsonl", "sequence": 512}}, "no evaluation"),
        ({"evaluation": ANSWERS, "objective": "dpo"}, "by its own measures"),
        ({"evaluation": {**ANSWERS, "metrics": True}}, "exclude each other"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    found = tunec.plan(spec(**changes))
    assert not found.ok
    assert message in json.dumps([each.to_json() for each in found.diagnostics])


def test_what_is_written_counts_for_the_batch_of_evaluation():
    data = {**SPEC["data"], "sequence": 32768}
    many = {"generate": {"completion": 16384, "beams": 16}}
    plain = tunec.plan(spec(data=data)).plan
    found = tunec.plan(spec(data=data, evaluation=many))
    assert found.plan.batch.evaluation < max(plain.batch.evaluation, 2)
    assert "evaluation answers" in found.memory.phases


def test_experts_are_copied_for_each_token_that_is_written():
    model = spec(model="mixtral-8x7b", hardware="h100-80g-x8", evaluation={"generate": True})
    phases = tunec.plan(model).memory.phases
    assert phases["evaluation answers"]["selected experts"] > 0
    old = tunec.plan({**model, "software": {"transformers": "4.57.6"}}).memory.phases
    assert "selected experts" not in old["evaluation answers"]


@pytest.mark.parametrize("hardware", ["l40s-x1", "l40s-x4", "l40s-x8", "a100-80g-x2"])
@pytest.mark.parametrize("samples", [4, 8, 6])
def test_all_devices_together_evaluate_whole_groups_of_answers(hardware, samples):
    """TRL refuses another evaluation batch, and nobody but the search has chosen it."""
    objective = {"grpo": {"rewards": ["rewards.score"], "samples": samples, "completion": 256}}
    asked = spec(objective=objective, hardware=hardware, batch={"global": 8 * samples})
    found = tunec.compile(asked, targets=["trl"])
    assert found.ok, [each.message for each in found.diagnostics]
    text = written(found, "trl", "grpo.yaml")
    width = found.planned.plan["parallel.data"]
    assert text["per_device_eval_batch_size"] * width % samples == 0
