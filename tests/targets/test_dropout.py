"""Dropout in adapters for pairs, which TRL's trainers switch off unless they are told otherwise."""

import pytest

import tunec
from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

DROPOUT = {"lora": {"dropout": 0.1}}
BUILT_ON_TRL = (
    ("axolotl", "dpo", "rl: dpo"),
    ("axolotl", "reward", "reward_model: true"),
    ("llamafactory", "dpo", "stage: dpo"),
    ("ms-swift", "dpo", "rlhf_type: dpo"),
    ("ms-swift", "reward", "rlhf_type: rm"),
)


def compiled(target: str, objective: str, method: object = DROPOUT) -> Compiled:
    spec = {"tunec": 1, "model": "qwen3-8b", "hardware": "a100-80g-x1", "method": method}
    spec |= {"objective": objective, "data": {"train": "t.jsonl", "samples": 1000}}
    spec["data"]["sequence"] = 1024
    return compile_spec(load_mapping(spec), [REGISTRY.resolve(target)], repairing=False)


def test_trl_is_told_to_keep_dropout_where_there_is_some():
    for objective in ("dpo", "reward"):
        (kept, *_) = compiled("trl", objective).artifacts["trl"]
        assert (kept.values["lora_dropout"], kept.values["disable_dropout"]) == (0.1, False)
    for objective, method in [("dpo", "lora"), ("reward", "lora"), ("sft", DROPOUT)]:
        (usual, *_) = compiled("trl", objective, method).artifacts["trl"]
        assert "disable_dropout" not in usual.values


@pytest.mark.parametrize(("target", "objective", "_"), BUILT_ON_TRL)
def test_trainers_that_cannot_tell_trl_refuse_dropout_for_pairs(target, objective, _):
    assert compiled(target, "sft").ok
    assert compiled(target, objective, "lora").ok
    (refused,) = (each for each in compiled(target, objective).diagnostics if each.id == "E0901")
    assert refused.notes == ("its trainer of pairs switches all dropout off",)


@pytest.mark.parametrize(("target", "objective", "asks"), BUILT_ON_TRL)
def test_dropout_that_is_switched_off_is_not_carried_over(tmp_path, target, objective, asks):
    written = compiled(target, objective, "lora").artifacts[target]
    assert asks in written[0].text
    for each in written:
        (tmp_path / each.name).write_text(each.text.replace("dropout: 0.0", "dropout: 0.1"))
    found = tunec.translate(*(tmp_path / each.name for each in written), to=["trl"])
    assert "lora_dropout: 0.0" in found.artifacts["trl"][0].text
