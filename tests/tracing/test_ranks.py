"""The account, and what a trace shows, are of the rank that needs the most."""

import pytest

pytest.importorskip("deepspeed")

from tests.driver.planning import planned

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.cli.trace_command import subject_of
from tunec.compiler.tracing.live import zero
from tunec.compiler.tracing.live.single_process import run

SMALL = {
    "model_type": "xlm-roberta",
    "architectures": ["XLMRobertaForMaskedLM"],
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "vocab_size": 12_000,
    "max_position_embeddings": 514,
    "pad_token_id": 1,
}


def test_a_head_before_its_body_leaves_the_first_rank_a_buffer_for_the_whole_pass(monkeypatch):
    """XLM-RoBERTa's: that rank owns what is differentiated first, and a piece of the embedding."""
    found = planned(
        model={"path": "small", "config": SMALL},
        method="full",
        hardware="a100-80g-x4",
        task={"sequence_classification": {"labels": 3}},
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        pin={"zero.stage": 1, "zero.offload_optimizer": "none", "batch.micro": 8},
    )
    assert found.plan is not None, found.diagnostics
    subject = subject_of(found, found.memory)
    assert zero.fullest_rank(subject) == account(subject.workload, subject.layout).rank == 0
    first = run(subject).peak.peak_bytes
    assert account(subject.workload, subject.layout).peak_bytes == pytest.approx(first, rel=0.003)
    monkeypatch.setattr(zero, "fullest_rank", lambda _: 3)
    assert run(subject).peak.peak_bytes < 0.99 * first
