"""Eager attention against traces of the real modules: its scores are made as tensors."""

from typing import Any

import pytest
from workload_builders import BF16_LORA, FP32, LLAMA_2_7B, full, layout, lora, model, nf4

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.slots import AttentionKernel
from tunec.compiler.tracing.subject import Subject

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.recording.traces import run

CONFIG = LLAMA_2_7B | {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 2000,
}
SMALL = model(CONFIG)
EAGER: dict[str, Any] = {"attention": AttentionKernel("eager"), "sequence": 1024}
AGAIN: dict[str, Any] = {"checkpointed": True}
FP16_LORA = BF16_LORA | {"weights": "fp16"}
KBIT = BF16_LORA | {"weights": "fp32"}
NF4 = {"quantization": nf4(double=False)}
CASES: dict[str, tuple[Workload, Layout]] = {
    "full": (full(SMALL, **EAGER), layout(2)),
    "full checkpointed": (full(SMALL, **EAGER), layout(2, **AGAIN)),
    "full autocast": (full(SMALL, **EAGER), layout(2, **AGAIN, **FP32, autocast=True)),
    "lora": (lora(SMALL, **EAGER), layout(2, **AGAIN, **BF16_LORA)),
    "lora with dropout": (lora(SMALL, dropout=0.1, **EAGER), layout(2, **AGAIN, **BF16_LORA)),
    "lora fp16": (lora(SMALL, compute="fp16", **EAGER), layout(2, **AGAIN, **FP16_LORA)),
    "k-bit": (lora(SMALL, **EAGER, **NF4), layout(2, **AGAIN, **KBIT)),
    "k-bit autocast": (lora(SMALL, **EAGER, **NF4), layout(2, **AGAIN, **KBIT, autocast=True)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_within_2_percent_of_the_trace(name: str) -> None:
    """Three more tensors of the scores' size lie there while their softmax is differentiated."""
    workload, plan = CASES[name]
    traced = max(phase.peak_bytes for phase in run(Subject(CONFIG, workload, plan)).phases)
    assert account(workload, plan).peak_bytes == pytest.approx(traced, rel=0.02)
