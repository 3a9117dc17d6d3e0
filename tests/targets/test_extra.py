"""Keys under `extra` reach the file whose reader has them, or are refused at their place."""

import json

import pytest
import yaml
from tests.tables import rows

import tunec
from tunec.compiler.ir.extra import Extra, extras, written

SPEC = """\
tunec: 1
model: Qwen2.5-0.5B
method: lora
data: {{train: train.jsonl, samples: 40000, sequence: 128}}
hardware: a100-80g-x2
engine: deepspeed
extra: {extra}
"""
PASSED = (
    "{trl: {dataset_num_proc: 8, dataloader_prefetch_factor: 4, accelerator_config: "
    "{even_batches: false}}, "
    "deepspeed: {wall_clock_breakdown: true, flops_profiler: {enabled: true, profile_step: 4}}}"
)


def compiled(extra, target="trl"):
    return tunec.compile(SPEC.format(extra=extra), targets=[target])


@pytest.fixture(scope="module")
def files():
    result = compiled(PASSED)
    assert result.ok, [each.message for each in result.diagnostics]
    return {each.name: each.text for each in result.artifacts["trl"]}


def test_the_script_reads_what_is_passed_through(files, tmp_path):
    """TRL's own parser resolves the keys, beside those that tunec decides."""
    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, SFTConfig, TrlParser

    said = yaml.safe_load(files["sft.yaml"])
    said = {key: each for key, each in said.items() if key not in ("deepspeed", "tf32", "bf16")}
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump({**said, "bf16": False}))
    kinds = (ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig)
    arguments = ["--config", str(tmp_path / "sft.yaml")]
    _, training, *_ = TrlParser(kinds).parse_args_and_config(arguments)
    assert training.dataset_num_proc == 8
    assert training.dataloader_prefetch_factor == 4
    assert training.accelerator_config.even_batches is False
    assert training.max_length == 128


def test_deepspeed_reads_what_is_passed_through(files):
    from deepspeed.runtime.config import DeepSpeedConfig

    said = json.loads(files["ds_config.json"])
    config = {
        key: each for key, each in said.items() if key in ("wall_clock_breakdown", "flops_profiler")
    }
    resolved = DeepSpeedConfig({**config, "train_batch_size": 1})
    assert resolved.wall_clock_breakdown is True
    assert resolved.flops_profiler_config.profile_step == 4


def test_the_plan_holds_every_key():
    result = compiled(PASSED)
    held = {each.path: each.value for each in extras(result.planned.plan)}
    assert held["accelerator_config.even_batches"] is False
    assert held["flops_profiler.profile_step"] == 4
    assert len(held) == 6


def test_what_is_written_is_read_back():
    given = {"trl": {"a": {"b": "x=1, y", "c": {}}, "d": None}}
    assert written(given) == ('trl.a.b="x=1, y"', "trl.a.c={}", "trl.d=null")

    class Plan:
        class runtime:  # noqa: N801
            extra = written(given)

    assert list(extras(Plan)) == [
        Extra("trl", "a.b", "x=1, y"),
        Extra("trl", "a.c", {}),
        Extra("trl", "d", None),
    ]


@pytest.mark.parametrize(*rows(__file__, "test_a_key_is_refused_where_it_stands"))
def test_a_key_is_refused_where_it_stands(extra, target, message, help, at):
    result = compiled(extra, target)
    (fault,) = [each for each in result.diagnostics if each.severity == "error"]
    assert message in fault.message
    assert fault.help == help
    line = SPEC.format(extra=extra).splitlines()[6]
    assert fault.primary.span.line == 7
    assert line[: fault.primary.span.column - 1].endswith(at.partition(" ")[0] + " ")


def test_a_release_without_the_key_refuses_it():
    """trl 0.18.0 trainer/sft_config.py `SFTConfig.packing_strategy`."""
    result = compiled("{trl: {packing_strategy: ffd}}", "trl@0.17")
    (fault,) = [each for each in result.diagnostics if each.id == "E0919"]
    assert "have no `packing_strategy`" in fault.message


def test_a_key_of_a_trainers_own_is_passed_beside_transformers_5():
    """llamafactory 0.9.5 hparams/data_args.py; transformers 5 has no `save_safetensors`."""
    words = (
        "{llamafactory: {template: qwen, save_safetensors: true}}\nsoftware: {transformers: 5.6.0}"
    )
    result = compiled(words, "llamafactory@0.9.5")
    (told,) = (each.message for each in result.diagnostics if each.severity == "error")
    assert told.endswith(" of this release have no `save_safetensors`")


def test_rules_are_asked_about_the_keys():
    """accelerate would hand each process a part of the batch that was planned for it."""
    result = compiled("{trl: {accelerator_config: {split_batches: true}}}")
    (fault,) = [each for each in result.diagnostics if each.severity == "error"]
    assert "split_batches is on" in fault.message


def test_a_name_that_nobody_has_is_told():
    result = compiled("{trll: {dataset_num_proc: 8}}")
    (note,) = [each for each in result.diagnostics if each.id == "extra-unread"]
    assert note.help == "did you mean `trl`?"


@pytest.mark.parametrize(
    ("strategy", "rows", "trl"),
    [("bfd", 100, "trl"), ("bfd_split", 150, "trl"), ("wrapped", 138, "trl@1.16")],
)
def test_rows_are_packed_by_the_strategy_that_is_passed_through(strategy, rows, trl):
    """Of 100 samples of 176 tokens each makes a row of 128, or the rest of it goes on."""
    data = "samples: 100, sequence: 128, packing: true, lengths: {176: 100}"
    text = SPEC.format(extra=f"{{trl: {{packing_strategy: {strategy}}}}}")
    text = text.replace("samples: 40000, sequence: 128", data)
    result = tunec.compile(text, targets=[trl])
    assert result.ok, [each.message for each in result.diagnostics]
    said = result.planned.ledger.winner("schedule.steps").reason
    assert f"{rows} rows ({strategy}" in said


COOKBOOK = """\
tunec: 1
model: meta-llama/Llama-3.2-1B
method: lora
data: {{train: samples.py, samples: 20, sequence: 512}}
hardware: a100-80g-x1
batch: {{global: 4}}
extra: {{llama-cookbook: {extra}}}
"""


@pytest.mark.parametrize("extra", ["{use_profiler: true}", "{flags: {use_profiler: true}}"])
def test_a_flag_is_passed_through_by_its_name(extra):
    """llama-cookbook 0.0.5.post1 configs/training.py `train_config.use_profiler`."""
    text = COOKBOOK.format(extra=extra)
    result = tunec.compile(text, targets=["llama-cookbook"])
    assert result.ok, [each.message for each in result.diagnostics]
    (script,) = result.artifacts["llama-cookbook"]
    assert "--use_profiler True" in script.text


def test_a_flag_that_no_class_has_is_refused():
    text = COOKBOOK.format(extra="{use_profilers: true}")
    result = tunec.compile(text, targets=["llama-cookbook"])
    (fault,) = [each for each in result.diagnostics if each.severity == "error"]
    assert "finetuning.sh of this release has no `use_profilers`" in fault.message
    assert fault.help == "did you mean `use_profiler`?"
