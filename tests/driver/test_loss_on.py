"""`data.loss_on`: the same tokens bear the loss in every trainer, or it says that it cannot."""

import pytest

import tunec

TRAINERS = ("trl", "axolotl", "llamafactory", "ms-swift", "unsloth")
QWEN = "Qwen/Qwen2.5-7B-Instruct"


def compiled(target, model=QWEN, objective="sft", **data):
    data = {"train": "train.jsonl", "samples": 1000, "sequence": 512, **data}
    spec = {"tunec": 1, "model": model, "method": "lora", "hardware": "a100-80g-x1", "data": data}
    return tunec.compile({**spec, "objective": objective}, targets=[target])


def said(found, *keys):
    (files,) = (found.artifacts[name] for name in found.artifacts)
    values = {key: value for each in files for key, value in each.values.items()}
    return {key: values[key] for key in keys if key in values}


@pytest.mark.parametrize(
    ("target", "data", "keys"),
    [
        ("trl", {"loss_on": "answers"}, {"assistant_only_loss": True}),
        ("trl", {"loss_on": "all"}, {"completion_only_loss": False}),
        (
            "trl",
            {"loss_on": "answers", "format": "prompt-completion"},
            {"completion_only_loss": True},
        ),
        ("trl", {}, {}),
        ("trl@0.17.0", {"loss_on": "all"}, {}),
        ("huggingface", {"loss_on": "answers"}, {"assistant_only_loss": True}),
        ("axolotl", {"loss_on": "answers"}, {"train_on_inputs": False}),
        ("axolotl", {"loss_on": "all"}, {"train_on_inputs": True}),
        ("axolotl", {}, {}),
        ("llamafactory", {"loss_on": "answers"}, {"train_on_prompt": False}),
        ("llamafactory", {"loss_on": "all"}, {"train_on_prompt": True}),
        ("ms-swift", {"loss_on": "answers"}, {"loss_scale": "default"}),
        ("ms-swift", {"loss_on": "all"}, {"loss_scale": "all"}),
        ("nemo-automodel", {"loss_on": "answers"}, {}),
        ("openrlhf", {"loss_on": "answers"}, {}),
    ],
)
def test_each_trainer_is_told_in_its_own_words(target, data, keys):
    found = compiled(target, **data)
    assert found.ok, [each.message for each in found.diagnostics if each.severity == "error"]
    words = ("assistant_only_loss", "completion_only_loss", "train_on_inputs", "train_on_prompt")
    assert said(found, *words, "loss_scale") == keys


def test_unsloth_is_told_in_its_own_words():
    found = compiled("unsloth", loss_on="answers")
    assert said(found, "training")["training"]["train_on_completions"] is True


@pytest.mark.parametrize(
    ("model", "loss_on", "template"),
    [
        ("google/gemma-2-2b-it", "answers", "gemma2"),
        ("google/gemma-2-2b-it", "all", "gemma"),
        ("THUDM/GLM-4-9B-0414", "answers", "glm4"),
        ("THUDM/GLM-4-9B-0414", "all", None),
    ],
)
def test_a_template_that_ends_once_takes_answers_alone(model, loss_on, template):
    found = compiled("llamafactory", model, loss_on=loss_on)
    if template is None:
        (told,) = [each for each in found.diagnostics if each.severity == "error"]
        assert "over answers and nothing else" in told.message
    else:
        assert found.ok
        assert said(found, "template") == {"template": template}


@pytest.mark.parametrize(
    ("target", "data", "id", "word"),
    [
        ("nemo-automodel", {"loss_on": "all"}, "E0901", "answers alone"),
        ("openrlhf", {"loss_on": "all"}, "E0901", "answers alone"),
        ("trl@0.17.0", {"loss_on": "answers"}, "E0905", "every token"),
        ("trl", {"loss_on": "answers", "format": "text"}, "E0802", "no answers"),
        ("trl", {"loss_on": "answers", "objective": "dpo"}, "E0802", "learns from answers"),
        ("trl", {"loss_on": "all", "model": "t5-small"}, "E0802", "no tokens to choose from"),
        ("trl@1.0.0", {"loss_on": "answers"}, "E0905", "by marks"),
        (
            "trl",
            {"loss_on": "answers", "model": "meta-llama/Llama-3.1-8B-Instruct"},
            "E0905",
            "by marks",
        ),
    ],
)
def test_what_a_trainer_cannot_do_is_refused_with_a_way_out(target, data, id, word):
    found = compiled(target, **data)
    (fault,) = (each for each in found.diagnostics if each.id == id)
    assert word in " ".join((fault.message, *fault.notes))
    assert fault.help


@pytest.mark.parametrize(
    ("model", "data", "told"),
    [
        (QWEN, {}, False),
        ("ibm-granite/granite-3.3-8b-instruct", {}, True),
        ("ibm-granite/granite-3.3-8b-instruct", {"chat_template": "plain"}, False),
        ("meta-llama/Llama-3.1-8B-Instruct", {"chat_template": "plain"}, False),
        ("ibm-granite/granite-3.3-8b-instruct", {"format": "prompt-completion"}, False),
    ],
)
def test_trl_may_need_marks_that_nobody_knows_of(model, data, told):
    found = compiled("trl", model, loss_on="answers", **data)
    assert found.ok
    assert told == ("answer-marks-unknown" in [each.id for each in found.diagnostics])
