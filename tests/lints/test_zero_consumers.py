"""What rules about ZeRO say is refused, asked of DeepSpeed: engines are built on the CPU.

One process of its own asks all questions, as DeepSpeed wants a process group and keeps it.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pytest

pytest.importorskip("deepspeed")

_ADAM: Final = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}}


def _zero(stage: int, **keys: Any) -> dict[str, Any]:
    return {**_ADAM, "zero_optimization": {"stage": stage, **keys}}


REFUSED: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "allgather-bucket-unusable": (
        _zero(2, allgather_bucket_size=4999999),
        "allgather_bucket_size must be a multiple",
    ),
    "prescaled-gradients-refused": (
        {"prescale_gradients": True, **_zero(2)},
        "pre-scale gradients is not yet supported",
    ),
    "prescaled-gradients-refused: by a factor": (
        {"gradient_predivide_factor": 8.0, **_zero(3)},
        "gradient_predivide_factor != 1.0 is not yet supported",
    ),
    "optimizer-type-unknown": (
        {"optimizer": {"type": "adamw_torch", "params": {"lr": 1e-4}}},
        "is not a supported DeepSpeed Optimizer",
    ),
    "optimizer-type-unknown: another case": (
        {"optimizer": {"type": "sgd", "params": {"lr": 1e-4}}},
        "is not a supported DeepSpeed Optimizer",
    ),
    "legacy-stage-1": (_zero(1, legacy_stage1=True), "deprecated version of ZeRO Stage 1"),
    "low-precision-master-without-offload": (
        {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}, **_zero(2)},
        "Master weights feature requires",
    ),
    "gradient-dtype-without-zero": (
        {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}, **_zero(0)},
        "unsupported mix of",
    ),
    "quantized-gradients-need-scatter": (
        _zero(3, zero_quantized_gradients=True, reduce_scatter=False),
        "reduce_scatter should also be enabled",
    ),
    "nvme-path-missing": (_zero(3, offload_param={"device": "nvme"}), "nvme_path"),
}
"""Rule -> (a config that it speaks of, words of DeepSpeed's refusal)."""

TAKEN: Final[Mapping[str, dict[str, Any]]] = {
    "stage 2": _zero(2),
    "an even bucket": _zero(2, allgather_bucket_size=5000000),
    "another gradient dtype at stage 1": {
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        **_zero(1),
    },
    "keys of stage 3 at stage 2": _zero(2, stage3_prefetch_bucket_size=1, sub_group_size=1),
    "keys of stage 2 at stage 3": _zero(3, allgather_bucket_size=3, round_robin_gradients=True),
}
"""What is taken, and by the rules is good, or does nothing."""

_ASK: Final = """
import importlib, json, sys, torch, deepspeed
backend = importlib.import_module("deepspeed.comm.torch")  # deepspeed.comm.torch is torch itself
backend.build_shm_op = lambda: None  # compiled for minutes, and gloo does without
deepspeed.init_distributed("gloo")
said = {}
for name, config in json.loads(sys.argv[1]).items():
    model = torch.nn.Linear(4, 4)
    try:
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )
        dtype = next(engine.module.parameters()).dtype
        engine.backward(engine(torch.ones(1, 4, dtype=dtype)).sum())
        engine.step()
        said[name] = ""
    except Exception as fault:
        said[name] = f"{type(fault).__name__}: {fault}"
print("\\nANSWER" + json.dumps(said))
"""


@cache
def _answers() -> dict[str, str]:
    """What DeepSpeed says to each config; empty: it took a step."""
    asked = {name: config for name, (config, _) in REFUSED.items()} | dict(TAKEN)
    every = {name: {"train_micro_batch_size_per_gpu": 1, **each} for name, each in asked.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu"}
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _ASK, json.dumps(every)],
        env={**os.environ, **place, **rank},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [each for each in done.stdout.splitlines() if each.startswith("ANSWER")]
    assert lines, done.stderr[-2000:]
    found: dict[str, str] = json.loads(lines[-1].removeprefix("ANSWER"))
    return found


@pytest.mark.parametrize("rule", REFUSED)
def test_deepspeed_refuses_it(rule: str) -> None:
    assert REFUSED[rule][1] in _answers()[rule]


@pytest.mark.parametrize("what", TAKEN)
def test_deepspeed_takes_it(what: str) -> None:
    assert _answers()[what] == ""
