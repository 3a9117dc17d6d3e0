"""The account is of the rank that needs most: no rank's trace is above it."""

from collections.abc import Mapping
from typing import Any, Final
from unittest import mock

import pytest

pytest.importorskip("deepspeed")

from tests.recording.traces import recorded
from workload_builders import MIXED, full, layout

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.memory.account import account
from tunec.compiler.tracing.live import single_process, zero
from tunec.compiler.tracing.subject import Subject

RANKS: Final = 4
TIED: Final[dict[str, Any]] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 12_000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
APART: Final = TIED | {"tie_word_embeddings": False}
MIXTURE: Final = APART | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


LAYOUTS: Final[Mapping[str, dict[str, Any]]] = {
    "stage 2": {"stage": 2},
    "stage 2, small bucket": {"stage": 2, "reduce_bucket": 600_000},
    "stage 2, micro batches": {"stage": 2, "accumulation": 2},
    "stage 2, fp32 sums": {"stage": 2, "reduce_bucket": 600_000, "gradients": "fp32"},
    "stage 1": {"stage": 1, "overlap_comm": False},
    "stage 1, overlapped": {"stage": 1, "reduce_bucket": 600_000},
}
CONFIGS: Final = {"tied": TIED, "apart": APART, "mixture": MIXTURE}


def subject(config: str, how: str) -> Subject:
    options = {"overlap_comm": True, "reduce_bucket": 500_000_000, **MIXED, **LAYOUTS[how]}
    plan = layout(1, engine="deepspeed", world=RANKS, **options)
    found = CONFIGS[config]
    return Subject(found, full(derive(found), sequence=256), plan)


@recorded
def peaks_of_all_ranks(config: str, how: str) -> list[int]:
    """The traced peak of each rank, in bytes."""
    asked = subject(config, how)
    return [_peak(asked, rank) for rank in range(RANKS)]


def _peak(asked: Subject, rank: int) -> int:
    with mock.patch.object(zero, "fullest_rank", return_value=rank):
        return single_process.run(asked).peak.peak_bytes


@pytest.mark.parametrize("how", LAYOUTS)
@pytest.mark.parametrize("config", CONFIGS)
def test_no_rank_takes_more_than_the_account_says(config, how):
    asked = subject(config, how)
    peaks = peaks_of_all_ranks(config, how)
    told = account(asked.workload, asked.layout).peak_bytes
    assert told == pytest.approx(max(peaks), rel=0.003)
