"""Defaults that differ between programs are written, or the change is reported."""

import json
from collections import defaultdict

import pytest
from tests.translate.random_files import READABLE

from tunec.compiler.lints.environment import environment_of
from tunec.compiler.translate.admission import schema_of
from tunec.compiler.translate.program_defaults import DECISIVE
from tunec.compiler.translate.translate import translate_texts
from tunec.targets.registry import TARGETS

TRAINERS = ("huggingface", "trl", "axolotl", "llamafactory", "ms-swift")
ALIKE = {
    **dict.fromkeys(
        ("hub_private_repo", "hub_strategy", "trackio_space_id", "model_revision"),
        "it names a repository, and each default is that of the hub",
    ),
    **dict.fromkeys(
        ("dataloader_persistent_workers", "dataset_num_proc", "pad_to_multiple_of", "use_cache"),
        "it decides how fast a run is",
    ),
    **dict.fromkeys(
        ("include_num_input_tokens_seen", "logging_first_step"),
        "it decides what is logged",
    ),
    "auto_find_batch_size": "null is off",
    "dataloader_drop_last": "null is off; the block of DeepSpeed is another key",
    "torch_compile": "null is off",
    "streaming": "null is off",
    "local_rank": "the launcher says it",
    "ddp_timeout": "it is how long a process waits for others",
    "data_seed": "null is the seed, which is 42 by default",
    "dataset_text_field": "rows of the data's form say it",
    "packing_strategy": "either strategy fills rows with whole samples",
    "remove_unused_columns": "it follows from the method",
    "label_smoothing": "0 is 0.0",
    "shuffle_dataset": "no method becomes another",
    **dict.fromkeys(
        ("f_alpha_divergence_coef", "ref_model_mixup_alpha", "ref_model_sync_steps"),
        "it has no effect unless another key asks for it",
    ),
}
"""Arguments whose defaults differ between releases or programs, and why a run does not."""


def defaults():
    """The defaults of arguments without a slot that the newest TRL has for samples or pairs."""
    found = defaultdict(set)
    newest = TARGETS["trl"].dialect(TARGETS["trl"].release("1.16.0"), {})
    supervised = (each for each in TARGETS["trl"].files if each.name in ("sft.yaml", "dpo.yaml"))
    known = {key for file in supervised for key in schema_of(file, newest)["properties"]}
    for name in TRAINERS:
        target = READABLE[name]
        for release in target.releases:
            dialect = target.dialect(target.release(release), {})
            for file in (each for each in target.files if each.format == "yaml" and each.schema):
                rows = [each for each in file.entries if each.slots and each.holds_in(dialect)]
                said = {key for row in rows for key in row.keys}
                fields = schema_of(file, dialect).get("properties", {})
                for key in known & fields.keys() - said:
                    if "default" in fields[key]:
                        found[key].add(json.dumps(fields[key]["default"]))
    return found


def test_each_differing_default_is_decisive_or_changes_nothing():
    differing = {key for key, values in defaults().items() if len(values) > 1}
    assert len(differing) > 20
    assert not differing - DECISIVE.keys() - ALIKE.keys()
    assert not ALIKE.keys() - differing


def trl(**more):
    common = {"output_dir": "out", "max_length": 2048, "learning_rate": 1e-5, "bf16": True}
    size = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    data = {"dataset_name": "trl-lib/Capybara", "gradient_checkpointing": True, "dtype": "bfloat16"}
    model = {"model_name_or_path": "Qwen/Qwen3-8B", "num_train_epochs": 1}
    return json.dumps({**model, **data, **common, **size, **more})


EXPERTS = {"model_name_or_path": "Qwen/Qwen3-30B-A3B"}
ACROSS = "trl averages the loss of a step over the tokens of all devices together, and axolotl "
BALANCE = "trl balances experts by a loss of the model's own weight, and axolotl does not balance"


@pytest.mark.parametrize(
    ("more", "release", "other", "world", "said"),
    [
        ({}, "1.16.0", "axolotl", 2, ACROSS),
        ({"average_tokens_across_devices": True}, "1.16.0", "axolotl", 2, ACROSS),
        ({"average_tokens_across_devices": True}, "1.16.0", "axolotl", 1, ""),
        ({"average_tokens_across_devices": False}, "1.16.0", "axolotl", 2, ""),
        ({}, "1.16.0", "llamafactory", 2, ""),
        (EXPERTS, "1.16.0", "axolotl", 1, BALANCE),
        ({**EXPERTS, "router_aux_loss_coef": 0.01}, "1.16.0", "llamafactory", 1, ""),
    ],
    ids=str,
)
def test_a_change_is_reported_where_no_key_can_hold_it(more, release, other, world, said):
    around = environment_of(READABLE, readers=(f"trl@{release}",), world=world)
    result = translate_texts({"sft.yaml": trl(**more)}, [TARGETS.resolve(other)], READABLE, around)
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    told = json.dumps([each.to_json() for each in result.diagnostics])
    assert said in told if said else " averages " not in told and " balance" not in told
    if "router_aux_loss_coef" in more:
        (file,) = (each for each in result.artifacts[other] if each.name == f"{other}.yaml")
        assert file.values["moe_aux_loss_coef"] == 0.01


AXOLOTL = {
    "base_model": "Qwen/Qwen3-8B",
    "bf16": True,
    "learning_rate": 1e-5,
    "output_dir": "out",
    "datasets": [{"path": "train.jsonl", "type": "chat_template"}],
    "sequence_len": 2048,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "num_epochs": 1,
    "optimizer": "adamw_torch_fused",
    "lr_scheduler": "cosine",
    "warmup_steps": 2,
}
ANSWERS = "assistant_only_loss"


@pytest.mark.parametrize(
    ("file", "more", "other", "written"),
    [
        ("sft", {}, "axolotl", {"train_on_inputs": True}),
        ("sft", {}, "llamafactory", {"train_on_prompt": True}),
        ("sft", {}, "ms-swift", {"loss_scale": "all"}),
        ("sft", {ANSWERS: True}, "axolotl", {"train_on_inputs": False}),
        ("sft", {ANSWERS: True}, "ms-swift", {"loss_scale": "default"}),
        ("sft", {"completion_only_loss": False}, "axolotl", {"train_on_inputs": True}),
        ("sft", {"completion_only_loss": True}, "ms-swift", {"loss_scale": "default"}),
        ("sft", {ANSWERS: False}, "llamafactory", {"train_on_prompt": True}),
        ("axolotl", {}, "trl", {ANSWERS: True}),
        ("axolotl", {}, "llamafactory", {}),
        ("axolotl", {"train_on_inputs": False}, "trl", {ANSWERS: True}),
        ("axolotl", {"train_on_inputs": True}, "llamafactory", {"train_on_prompt": True}),
        ("axolotl", {"train_on_inputs": True}, "ms-swift", {"loss_scale": "all"}),
        ("axolotl", {"train_on_inputs": True}, "trl", {"completion_only_loss": False}),
    ],
    ids=str,
)
def test_the_loss_of_a_conversation_stays_over_the_same_tokens(file, more, other, written):
    """TRL takes every token of a conversation unless it is told otherwise, the others answers."""
    text = trl(**more) if file == "sft" else json.dumps({**AXOLOTL, **more})
    readers = ("trl@1.16.0",) if file == "sft" else ("axolotl@0.19.0",)
    around = environment_of(READABLE, readers=readers, world=1)
    result = translate_texts({f"{file}.yaml": text}, [TARGETS.resolve(other)], READABLE, around)
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    values = result.artifacts[other][0].values
    keys = {"train_on_inputs", "train_on_prompt", "loss_scale", ANSWERS, "completion_only_loss"}
    assert {key: value for key, value in values.items() if key in keys} == written
    told = [each.message for each in result.diagnostics if each.id == "not-carried-over"]
    assert not [each for each in told if any(key in each for key in keys)]


def test_a_release_without_the_key_is_told_that_prompts_count():
    around = environment_of(READABLE, readers=("axolotl@0.19.0",), world=1)
    asked = [TARGETS.resolve("trl@0.17.0")]
    result = translate_texts({"axolotl.yaml": json.dumps(AXOLOTL)}, asked, READABLE, around)
    told = json.dumps([each.to_json() for each in result.diagnostics])
    assert "trl computes the loss of a conversation over every token" in told


LEFT = {"do_train": True, "do_eval": True, "log_level": "info", "push_to_hub": True}
WRITTEN = {
    "axolotl": ("gradient_checkpointing", True),
    "llamafactory": ("disable_gradient_checkpointing", False),
    "ms-swift": ("gradient_checkpointing", True),
}


@pytest.mark.parametrize("other", WRITTEN)
def test_a_file_of_trl_with_what_its_recipes_have_becomes_another_trainers(other):
    more = {**LEFT, "report_to": ["tensorboard", "wandb"], "dataset_num_proc": 4}
    values = {**json.loads(trl(**more)), "gradient_checkpointing": None}
    text = json.dumps({key: value for key, value in values.items() if value is not None})
    around = environment_of(READABLE, readers=("trl@1.16.0",), world=1)
    result = translate_texts({"sft.yaml": text}, [TARGETS.resolve(other)], READABLE, around)
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    (file,) = (each for each in result.artifacts[other] if each.name == f"{other}.yaml")
    key, value = WRITTEN[other]
    assert file.values[key] is value
    told = json.dumps([each.to_json() for each in result.diagnostics])
    assert all(key in told or key in file.values for key in LEFT)


def test_a_refusal_is_told_though_another_needs_a_slot_that_no_file_sets():
    """Answers that TRL does not find in Llama 3.1; whether it evaluates, say, is unknown."""
    said = {**AXOLOTL, "base_model": "meta-llama/Llama-3.1-8B-Instruct", "train_on_inputs": False}
    around = environment_of(READABLE, readers=("axolotl@0.19.0",), world=1)
    asked = [TARGETS.resolve("trl@1.16.0")]
    result = translate_texts({"axolotl.yaml": json.dumps(said)}, asked, READABLE, around)
    (fault,) = (each for each in result.diagnostics if each.severity == "error")
    assert (fault.id, "by marks" in fault.message) == ("E0905", True)
