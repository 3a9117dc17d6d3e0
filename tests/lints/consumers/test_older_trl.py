"""An older release of TRL with what its trainers are made of, asked about the examples of pages."""

import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER, example, refusal  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.sets import choose  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_environment")

_LENGTHS: Final = (("bad", 1), ("bad", 0), ("good", 0))
"""A prompt as long as the whole, cut at its end; at its beginning, as 0.14 does; a shorter one."""

_MINIBATCHES: Final = (("bad", 0), ("bad", 1), ("good", 0))


_VARIABLE: Final = {"WANDB_DISABLED": "true"}


@cache
def older() -> list[Any]:
    """TRL 0.27.2 with the settings of the bad and the good example of two pages."""
    dpo = [yaml_part(*each, "prompt-fills-the-sequence", "dpo.yaml") for each in _LENGTHS]
    sft = yaml_part("bad", 0, "packing-without-varlen", "sft.yaml")
    questions: list[dict[str, Any]] = [{"verb": "prefer", "said": each} for each in dpo]
    questions.append({"verb": "pack", "said": sft})
    questions += [{"verb": "report", "variables": each} for each in (_VARIABLE, {})]
    ppo = [yaml_part(*each, "minibatch-refused", "ppo.yaml") for each in _MINIBATCHES]
    away = ("sft_model_path", "reward_model_path")
    plain = [{key: value for key, value in each.items() if key not in away} for each in ppo]
    questions += [{"verb": "optimise", "said": each} for each in plain]
    grpo = yaml_part("bad", 0, "stream-in-grouped-training", "grpo.yaml")
    grpo = {key: value for key, value in grpo.items() if key != "dataset_streaming"}
    questions += [
        {"verb": "stream", "said": {**grpo, "max_steps": 1}, "streams": streams}
        for streams in (True, False)
    ]
    judged = yaml_part("bad", 0, "metric-not-returned", "trl.yaml")
    questions.append({"verb": "evaluate", "said": judged})
    lora = {"r": 4, "target_modules": ["q_proj"]}
    questions.append({"verb": "shard", "said": lora})
    pins = choose("trl", "0.27.2").requirements
    return asked(pins, "lints.consumers.older_trl_runs", questions, FOLDER)


def yaml_part(kind: str, number: int, rule: str, name: str) -> dict[str, Any]:
    """The settings of an example, without those that name what is on a hub, its lengths in 64s."""
    import yaml

    said = yaml.safe_load(example(rule, kind, number).files[name])
    away = ("model_name_or_path", "dataset_name", "attn_implementation", "use_peft", "bf16")
    short = {key: value // 64 for key, value in said.items() if key.startswith("max_")}
    return {**{key: value for key, value in said.items() if key not in away}, **short}


def test_minibatches_are_whole_and_of_eight() -> None:
    """minibatch-refused"""
    narrow, uneven, fit = older()[6:9]
    assert "Per-rank minibatch size 4 is insufficient for whitening" in refusal(narrow)
    assert "must be a multiple of `num_mini_batches`" in refusal(uneven)
    assert fit == {"refused": None, "samples": 8}


def test_a_prompt_that_fills_the_sequence_leaves_no_answer() -> None:
    """prompt-fills-the-sequence"""
    full, cut, fit, *_ = older()
    assert set(full["chosen"]) == set(full["rejected"]) == {0.0}
    assert 0.0 not in cut["chosen"]
    assert 0.0 not in fit["chosen"]


def test_packed_samples_see_each_other() -> None:
    """packing-without-varlen"""
    told = older()[3]
    assert "cross-contamination between samples" in told["warned"]
    assert told["moved"]


def test_a_tracker_that_is_turned_off_is_not_there() -> None:
    """tracker-turned-off"""
    script = example("tracker-turned-off", "bad", 0).files["train.sh"]
    assert all(f"{name}={value}" in script for name, value in _VARIABLE.items())
    assert "set the `WANDB_DISABLED` environment variable" in refusal(older()[4])
    assert refusal(older()[5]) == ""


def test_groups_are_not_drawn_from_a_stream() -> None:
    """stream-in-grouped-training"""
    stream, rows = older()[9:11]
    assert "Iterable datasets are not yet supported in GRPOTrainer" in refusal(stream)
    assert rows == {"refused": None}


def test_an_evaluation_returns_less_than_it_logs() -> None:
    """metric-not-returned"""
    told = older()[11]
    said = yaml_part("bad", 0, "metric-not-returned", "trl.yaml")["metric_for_best_model"]
    assert said in told["logged"]
    assert said not in told["returned"]
    assert "eval_loss" in told["returned"]


def test_an_adapter_is_not_gathered_for_a_checkpoint() -> None:
    """fsdp-adapter-of-one-rank"""
    told = older()[12]
    assert told["in_shards"] == told["tensors"] == 2
    assert all(first == whole // 2 for whole, first in told["rows"])
