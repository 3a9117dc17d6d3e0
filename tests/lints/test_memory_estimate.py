"""The memory account of files that somebody wrote: what FSDP shards, and what it cannot."""

import pytest
from lint_asking import lint

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: {version}
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  {how}
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
FACTORY = """\
model_name_or_path: meta-llama/Llama-2-70b-hf
dataset: alpaca_en_demo
template: llama2
output_dir: out
stage: sft
do_train: true
finetuning_type: {method}
lora_target: all
per_device_train_batch_size: 1
cutoff_len: 1024
learning_rate: 0.00001
bf16: true
"""
WHOLE = {"version": 2, "how": "fsdp_reshard_after_forward: true"}


NAMES = ("accelerate.yaml", "llamafactory.yaml")
GIVEN = ("--model", "llama-2-70b", "--hardware", "dgx-a100-80g")


def names(folder, method, **how):
    texts = ACCELERATE.format(**how), FACTORY.format(method=method)
    return lint(folder, dict(zip(NAMES, texts, strict=True)), [*NAMES, *GIVEN]).names


@pytest.mark.parametrize(
    "how",
    [
        WHOLE,
        {"version": 1, "how": "fsdp_sharding_strategy: FULL_SHARD"},
        {"version": 2, "how": "fsdp_reshard_after_forward: false"},
    ],
)
def test_seventy_billion_trained_in_full_do_not_fit_one_node(tmp_path, how):
    assert "device-memory-exceeded" in names(tmp_path, "full", **how)


def test_shards_on_the_host_do(tmp_path):
    how = {"version": 2, "how": "fsdp_offload_params: true"}
    assert "device-memory-exceeded" not in names(tmp_path, "full", **how)


def test_adapters_do(tmp_path):
    assert "device-memory-exceeded" not in names(tmp_path, "lora", **WHOLE)


def test_without_sharding_adapters_do_not(tmp_path):
    how = {"version": 1, "how": "fsdp_sharding_strategy: NO_SHARD"}
    assert "device-memory-exceeded" in names(tmp_path, "lora", **how)
