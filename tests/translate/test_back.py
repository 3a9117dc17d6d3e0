"""Files of a dialect, translated to TRL and back, say the same run again."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tunec.compiler.lints.environment import environment_of
from tunec.compiler.translate.translate import Translated, translate_texts
from tunec.targets.registry import TARGETS

AXOLOTL = {
    "base_model": "NousResearch/Llama-3.2-1B",
    "datasets": [{"path": "teknium/GPT4-LLM-Cleaned", "type": "chat_template"}],
    "sequence_len": 2048,
    "adapter": "lora",
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
    "lora_target_modules": ["q_proj", "v_proj"],
    "bf16": "auto",
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "num_epochs": 2,
    "optimizer": "adamw_torch_fused",
    "lr_scheduler": "cosine",
    "learning_rate": 2e-4,
    "attn_implementation": "flash_attention_2",
    "gradient_checkpointing": True,
}
LLAMAFACTORY = {
    "model_name_or_path": "Qwen/Qwen3-4B-Instruct-2507",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "lora_rank": 8,
    "lora_target": "q_proj,v_proj",
    "dataset": "identity,alpaca_en_demo",
    "template": "qwen3_nothink",
    "cutoff_len": 2048,
    "output_dir": "out",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "learning_rate": 1e-4,
    "num_train_epochs": 3.0,
    "lr_scheduler_type": "cosine",
    "bf16": True,
}


def translated(text: str, name: str, to: str) -> Translated:
    targets = TARGETS.readable()
    return translate_texts(
        {name: text}, [TARGETS.resolve(to)], targets, environment_of(targets, world=2)
    )


def said(found: Translated, name: str) -> str:
    assert found.ok, [each.message for each in found.diagnostics if each.severity == "error"]
    return next(
        each.text for every in found.artifacts.values() for each in every if each.name == name
    )


def there_and_back(run: Mapping[str, Any], home: str, middle: str = "sft.yaml") -> dict[str, Any]:
    own = f"{home}.yaml"
    trl = said(translated(yaml.safe_dump(dict(run)), own, "trl"), middle)
    back: dict[str, Any] = yaml.safe_load(said(translated(trl, middle, home), own))
    return back


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"val_set_size": 0.05, "evals_per_epoch": 2},
        {"val_set_size": 0.05, "eval_steps": 0.25, "save_steps": 0.5},
        {"datasets": [{"path": "org/one", "split": "train[:500]", "type": "chat_template"}]},
        {"datasets": [{"path": "org/one", "name": "subset", "type": "chat_template"}]},
        {"optimizer": "adamw_torch_8bit"},
        {"lr_scheduler": "cosine", "cosine_min_lr_ratio": 0.1},
        {"special_tokens": {"pad_token": "<|end_of_text|>"}},
        {"lora_target_modules": None, "lora_target_linear": True},
        {"liger_rope": True, "liger_rms_norm": True, "liger_glu_activation": True}
        | {"plugins": ["axolotl.integrations.liger.LigerPlugin"]},
        {"load_in_4bit": True, "adapter": "qlora"},
        {"attn_implementation": "kernels-community/vllm-flash-attn3"},
        {"dataset_num_proc": 8, "ddp_timeout": 7200, "torch_compile": True},
        {"revision_of_model": "main", "wandb_name": "first"},
        {"train_on_inputs": True, "group_by_length": True},
    ],
    ids=lambda more: " ".join(more) or "plain",
)
def test_axolotl(more: Mapping[str, Any]) -> None:
    run = {**AXOLOTL, **more}
    back = there_and_back(run, "axolotl")
    shares = {"evals_per_epoch": "eval_steps", "saves_per_epoch": "save_steps"}
    for key, value in run.items():
        if key in shares:
            assert back[shares[key]] == 1 / (value * run["num_epochs"])
        elif key == "datasets":
            assert [{"split": "train", **each} for each in value] == back[key]
        elif value is not None:
            assert back.get(key) == (True if value == "auto" else value), key


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"max_samples": 1000},
        {"val_size": 0.1, "eval_strategy": "steps", "eval_steps": 500},
        {"max_samples": 500, "val_size": 0.1, "eval_strategy": "steps", "eval_steps": 500},
        {"preprocessing_num_workers": 16, "ddp_timeout": 180000000},
        {"lora_target": "all"},
        {"model_revision": "main"},
    ],
    ids=lambda more: " ".join(more) or "plain",
)
def test_llamafactory(more: Mapping[str, Any]) -> None:
    run = {**LLAMAFACTORY, **more}
    back = there_and_back(run, "llamafactory")
    # data sets that are used whole are listed in a file of their own
    listed = set() if "max_samples" in more else {"dataset"}
    for key in run.keys() - {"do_train", "template", *listed}:
        assert back.get(key) == run[key], key


def test_once_in_all_is_no_share_of_the_steps() -> None:
    """`save_steps: 1.0` would save at each step; Axolotl leaves it then, and saves each epoch."""
    run = {**AXOLOTL, "num_epochs": 1, "saves_per_epoch": 1, "evals_per_epoch": 1}
    text = yaml.safe_dump({**run, "val_set_size": 0.1})
    found = yaml.safe_load(said(translated(text, "axolotl.yaml", "trl"), "sft.yaml"))
    assert found["save_strategy"] == "epoch"
    assert "save_steps" not in found
    assert found["eval_strategy"] == "no"
    assert "eval_steps" not in found


def test_weights_are_what_auto_makes_them() -> None:
    """Axolotl loads the base in bf16 with `bf16: auto`; TRL would load it in fp32 unasked."""
    found = yaml.safe_load(
        said(translated(yaml.safe_dump(AXOLOTL), "axolotl.yaml", "trl"), "sft.yaml")
    )
    assert (found["dtype"], found["bf16"]) == ("bfloat16", True)


@pytest.mark.parametrize("home", ["axolotl", "llamafactory"])
@pytest.mark.parametrize(
    ("more", "lost"),
    [
        ({"datasets": [{"path": "org/one", "columns": ["text"]}]}, "datasets"),
        ({"datasets": [{"path": "org/one"}], "test_split_size": 0.1}, None),
        ({"assistant_only_loss": True}, None),  # as both do by default
    ],
)
def test_nothing_of_trl_is_dropped_in_silence(
    home: str, more: Mapping[str, Any], lost: str | None
) -> None:
    trl = {"model_name_or_path": "Qwen/Qwen3-4B", "max_length": 512, "bf16": True} | {
        "dtype": "bfloat16",
        "output_dir": "out",
        "dataset_name": "org/one",
        "learning_rate": 1e-4,
    }
    if "datasets" in more:
        del trl["dataset_name"]
    found = translated(yaml.safe_dump({**trl, **more}), "sft.yaml", home)
    named = [each.message for each in found.diagnostics if each.severity == "error"]
    assert any(lost in each for each in named) if lost else found.ok, named


def test_a_part_of_a_file_is_one_of_a_file_there_too() -> None:
    part = {"path": "json", "data_files": "a.jsonl", "split": "train[:9]"}
    run = {
        "model_name_or_path": "m/n",
        "max_length": 512,
        "learning_rate": 1e-4,
        "datasets": [part],
    }
    text = yaml.safe_dump({**run, "bf16": True, "dtype": "bfloat16", "output_dir": "out"})
    found = yaml.safe_load(said(translated(text, "sft.yaml", "axolotl"), "axolotl.yaml"))
    assert found["datasets"] == [{"path": "a.jsonl", "split": "train[:9]", "type": "chat_template"}]


@pytest.mark.parametrize(
    ("name", "scale", "told"),
    [
        ("galore", 0.5, "rank=64,update_proj_gap=200,scale=0.5,proj_type=std"),
        (
            "apollo",
            1.0,
            "rank=64,update_proj_gap=200,scale=1.0,proj=random,proj_type=std,scale_type=channel",
        ),
    ],
)
def test_projected_gradients_keep_their_numbers(name: str, scale: float, told: str) -> None:
    """The Trainer decays no weights with these, so that a decay would be lost."""
    more = {f"use_{name}": True, f"{name}_rank": 64, f"{name}_scale": scale}
    run = {key: value for key, value in LLAMAFACTORY.items() if "lora" not in key}
    run = {**run, **more, "finetuning_type": "full"}
    found = yaml.safe_load(said(translated(yaml.safe_dump(run), "l.yaml", "trl"), "sft.yaml"))
    assert (found["optim"], found["optim_args"]) == (f"{name}_adamw", told)
    taken = re.compile(found["optim_target_modules"]).fullmatch
    assert taken("model.layers.0.mlp.up_proj")
    assert not taken("lm_head")
    decayed = translated(yaml.safe_dump({**run, "weight_decay": 0.1}), "l.yaml", "trl")
    assert f"use_{name} `true` has no counterpart" in [each.message for each in decayed.diagnostics]


def test_arguments_of_an_optimizer_are_one_text() -> None:
    arguments = {"optimizer": "adamw_torch_8bit", "optim_args": {"bf16_stochastic_round": True}}
    text = yaml.safe_dump({**AXOLOTL, **arguments})
    found = yaml.safe_load(said(translated(text, "axolotl.yaml", "trl"), "sft.yaml"))
    assert found["optim_args"] == "bf16_stochastic_round=True"


def test_a_word_with_another_meaning_is_not_handed_on() -> None:
    """Axolotl's `debug` is a switch of its log, the Trainer's a list of what to look for."""
    text = yaml.safe_dump({**AXOLOTL, "debug": True})
    assert "debug" not in said(translated(text, "axolotl.yaml", "trl"), "sft.yaml")


def test_a_key_of_no_plugin_is_told_as_ignored() -> None:
    plugin = {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}
    for plugins, is_told in ((plugin, True), ({"plugins": ["mine.Plugin"]}, False)):
        found = translated(yaml.safe_dump({**AXOLOTL, **plugins, "eta_min": 0.1}), "a.yaml", "trl")
        notes = [note for each in found.diagnostics for note in each.notes]
        assert any("eta_min" in note and "ignores it" in note for note in notes) is is_told


MS_SWIFT = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "tuner_type": "lora",
    "dataset": ["AI-ModelScope/alpaca-gpt4-data-en:default#500", "swift/self-cognition"],
    "split_dataset_ratio": 0.01,
    "dataset_num_proc": 4,
    "load_from_cache_file": True,
    "target_modules": ["q_proj", "v_proj"],
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 16,
    "learning_rate": 1e-4,
    "system": "You are a helpful assistant.",
    "model_author": "swift",
}


def test_parts_of_ms_swift_s_data_sets_are_told() -> None:
    found = translated(yaml.safe_dump(MS_SWIFT), "ms-swift.yaml", "trl")
    held = yaml.safe_load(said(found, "sft.yaml"))
    first = {"path": "AI-ModelScope/alpaca-gpt4-data-en", "name": "default"}
    assert held["datasets"] == [{**first, "split": "train[:500]"}, {"path": "swift/self-cognition"}]
    assert (held["test_split_size"], held["dataset_num_proc"]) == (0.01, 4)
    notes = " ".join(note for each in found.diagnostics for note in each.notes)
    for told in (
        "at random, and again where there are fewer: the first are taken",
        "ModelScope",
        "system messages",
        "keeps its own",
    ):
        assert told in notes
    whole = {**MS_SWIFT, "dataset": ["data.jsonl"], "split_dataset_ratio": 0.0}
    plain = yaml.safe_load(said(translated(yaml.safe_dump(whole), "s.yaml", "trl"), "sft.yaml"))
    assert "datasets" not in plain


def test_a_name_of_several_subsets_is_not_understood() -> None:
    run = {**MS_SWIFT, "dataset": ["a/b:one/two#5"]}
    found = translated(yaml.safe_dump(run), "ms-swift.yaml", "trl")
    assert not found.ok
