"""What a script gives `Accelerator` is judged as accelerate's own file would be."""

from pathlib import Path
from typing import Any

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.frontend.nodes import plain
from tunec.compiler.lints.formats import parse_text

_HEAD = (
    "from accelerate import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin\n"
    "from transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\n'
)
_SHARDS = """plugin = FullyShardedDataParallelPlugin(
    fsdp_version={version}, use_orig_params=False, auto_wrap_policy="transformer_based_wrap",
    transformer_cls_names_to_wrap=["{layer}"], sharding_strategy=choose(),
)
accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin={given})
"""
_ENGINE = """accelerator = Accelerator(
    deepspeed_plugin=DeepSpeedPlugin(zero_stage={stage}, offload_param_device="cpu")
)
"""
_INLINE = """plugin = DeepSpeedPlugin(hf_ds_config={{"train_micro_batch_size_per_gpu": 1,
    "fp16": {{"enabled": {half}}}, "bf16": {{"enabled": True}},
    "zero_optimization": {{"stage": 2}}}})
accelerator = Accelerator(deepspeed_plugin=plugin)
"""


def _documents(text: str) -> dict[str, Any]:
    return {each.kind: plain(each.root) for each in parse_text("train.py", _HEAD + text)[0]}


def test_a_plugin_is_read_in_the_words_of_the_file() -> None:
    read = _documents(_SHARDS.format(version=2, layer="Qwen2DecoderLayer", given="plugin"))
    assert read["accelerate"] == {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "fsdp_config": {
            "fsdp_version": 2,
            "fsdp_use_orig_params": False,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer",
        },
    }


@pytest.mark.parametrize("given", ["other", "plugin if is_sharded else None"])
def test_a_plugin_that_is_not_surely_given_is_not_read(given: str) -> None:
    assert "accelerate" not in _documents(_SHARDS.format(version=2, layer="A", given=given))


@pytest.mark.parametrize(
    ("rule", "text", "bad", "good"),
    [
        ("fsdp-keys-of-another-version", _SHARDS, {"version": 2}, {"version": 1}),
        (
            "fsdp-wrap-class-of-another-model",
            _SHARDS,
            {"layer": "LlamaDecoderLayer"},
            {"version": 1},
        ),
        ("offload-param-ignored", _ENGINE, {"stage": 2}, {"stage": 3}),
        ("fp16-and-bf16", _INLINE, {"half": True}, {"half": False}),
    ],
)
def test_rules_of_the_file_hold_for_the_script(
    rule: str, text: str, bad: dict[str, Any], good: dict[str, Any], tmp_path: Path
) -> None:
    sound = {"version": 2, "layer": "Qwen2DecoderLayer", "given": "plugin"}
    found = []
    for at, words in enumerate((bad, good)):
        folder = tmp_path / str(at)
        folder.mkdir()
        answer = lint(folder, {"train.py": _HEAD + text.format(**{**sound, **words})}, ["."])
        found.append({e["id"] for e in answer.findings if e["severity"] != "note"})
    assert rule in found[0]
    assert rule not in found[1]
