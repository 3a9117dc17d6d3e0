"""Default plans of the catalogue's models, each held against the trace of its own layout.

A plan that is said to fit, and does not by its trace, is a fault of the account. Each trace runs in
a process of its own, since DeepSpeed keeps its process groups in module globals.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

MODELS = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite", "llama-3.1-8b", "qwen2.5-7b")
METHODS = ("full", "lora", "qlora")
HARDWARE = ("a100-80g-x1", "a100-80g-x4", "a100-80g-x8", "h100-80g-x8")
GAP = 0.05
"""How far the account of a default plan may lie from its trace."""


@pytest.mark.nightly
@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", MODELS)
def test_a_default_plan_that_fits_does_so_by_its_trace(tmp_path, model, method, hardware):
    for name in ("torch", "transformers", "peft", "deepspeed"):
        pytest.importorskip(name)
    data = {"train": "train.jsonl", "samples": 1000, "sequence": 2048}
    wanted = {"tunec": 1, "model": model, "method": method, "data": data, "hardware": hardware}
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(wanted), "utf-8")
    command = [sys.executable, "-m", "tunec", "plan", str(spec), "--trace", "--format", "json"]
    environment = os.environ | {"DS_ACCELERATOR": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    gpu = found["memory"] and found["memory"]["gpu"]
    if not gpu or any(each["severity"] == "error" for each in found["diagnostics"]):
        pytest.skip(f"{model} by {method} does not fit {hardware}")
    if "refused" in found["trace"]:
        pytest.skip(f"no trace: {found['trace']['refused']}")
    traced = found["trace"]["trace"]["peak_bytes"]
    assert traced + sum(gpu["margin"].values()) <= gpu["budget_bytes"], "it does not fit"
    assert abs(found["trace"]["error"]) <= GAP


def test_a_plan_is_shown_beside_its_trace(tmp_path):
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")):
        pytest.skip("needs torch, transformers and peft")
    config = {"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 512}
    config |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config |= {"vocab_size": 1024, "num_local_experts": 4, "num_experts_per_tok": 2}
    config |= {"max_position_embeddings": 2048}
    wanted = {
        "tunec": 1,
        "model": {"path": "small", "config": config},
        "method": {"lora": {"rank": 8, "targets": "attention"}},
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512, "packing": True},
        "hardware": "a100-80g-x1",
        "pin": {"parallel.engine": "none", "batch.micro": 4},
    }
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(wanted), "utf-8")
    command = [sys.executable, "-m", "tunec", "plan", str(spec), "--trace", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    trace = json.loads(done.stdout)["trace"]
    assert abs(trace["error"]) <= 0.005
    assert trace["account"]["peak_bytes"] > 0
